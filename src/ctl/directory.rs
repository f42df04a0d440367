//! Where the sockets are: a directory that belongs to the user and that nobody else can enter.
//!
//! `$XDG_RUNTIME_DIR/cushion`; else `cushion-UID` in `$TMPDIR` or `/tmp`. A directory that belongs to somebody else, can be
//! entered by others, or is a link is not used, and one whose parent lets others replace it is not either.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const FOR_OTHERS: u32 = 0o077;
const WRITABLE_FOR_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// The directories in which a socket of `uid`'s can be, best first. `runtime` and `temporary` are what XDG_RUNTIME_DIR and
/// TMPDIR say.
pub fn candidates(runtime: Option<&OsStr>, temporary: Option<&OsStr>, uid: u32) -> Vec<PathBuf> {
    let absolute = |text: &OsStr| Some(PathBuf::from(text)).filter(|path| path.is_absolute());
    let own = format!("cushion-{uid}");
    let runtime = runtime.and_then(absolute).map(|path| path.join("cushion"));
    let temporary = temporary.and_then(absolute).map(|path| path.join(&own));
    let last = Path::new("/tmp").join(&own);
    let mut all: Vec<PathBuf> = runtime.into_iter().chain(temporary).collect();
    if !all.contains(&last) {
        all.push(last);
    }
    all
}

/// Makes a directory, if it is not there, and checks it.
pub fn make(path: &Path, uid: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check(path, uid)
}

/// Whether a directory is `uid`'s alone.
pub fn check(path: &Path, uid: u32) -> io::Result<()> {
    let own = fs::symlink_metadata(path)?;
    let parent = fs::metadata(path.parent().unwrap_or(Path::new("/")))?;
    let why = if !own.is_dir() {
        "is not a directory"
    } else if own.uid() != uid {
        "belongs to another user"
    } else if own.mode() & FOR_OTHERS != 0 {
        "is open to other users"
    } else if parent.mode() & WRITABLE_FOR_OTHERS != 0 && parent.mode() & STICKY == 0 {
        "is in a directory in which others can replace it"
    } else {
        return Ok(());
    };
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("{} {why}", path.display()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{symlink, PermissionsExt};

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn candidates_are_absolute_and_come_once() {
        let some = |text: &'static str| Some(OsStr::new(text));
        assert_eq!(
            candidates(some("/run/user/7"), some("/scratch"), 7),
            [
                "/run/user/7/cushion",
                "/scratch/cushion-7",
                "/tmp/cushion-7"
            ]
            .map(PathBuf::from)
        );
        assert_eq!(
            candidates(some("run"), some("/tmp"), 7),
            [PathBuf::from("/tmp/cushion-7")]
        );
    }

    #[test]
    fn only_a_private_directory_will_do() {
        let uid = crate::ctl::own_uid();
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("cushion");
        make(&path, uid).unwrap();
        make(&path, uid).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert!(check(&path, uid + 1).is_err(), "somebody else's");
        mode(&path, 0o750);
        assert!(make(&path, uid).is_err(), "open to others");
        mode(&path, 0o700);
        mode(parent.path(), 0o777);
        assert!(make(&path, uid).is_err(), "replaceable by others");
        mode(parent.path(), 0o1777);
        make(&path, uid).unwrap();
        let link = parent.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(make(&link, uid).is_err(), "a link");
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(make(&file, uid).is_err(), "a file");
    }
}
