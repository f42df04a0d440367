//! Puts a file in place, whole or not at all.
//!
//! It goes into a fresh file beside its place and is renamed over it. So a reader never sees half of it, the last one
//! survives a kill, and a link that somebody planted at the place is replaced, not followed. The fresh file is created
//! exclusively, which follows no link either. What is there and is no file, such as `/dev/null`, which for root could be
//! replaced as well, is left alone. A link to a directory on the way is followed as the kernel's
//! `protected_symlinks` would: not in a shared directory when it belongs to a stranger.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The user's umask takes from this; what is writable for everyone is never asked for.
const MODE: u32 = 0o664;
/// So many names are tried for the fresh file.
const ATTEMPTS: u32 = 16;

/// Replaces the file at `path` with what `fill` writes. When it fails, what was there stays.
pub fn put<T>(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    refuse_planted_links(directory)?;
    refuse_what_is_no_file(path)?;
    let (temporary, mut file) = create_beside(directory)?;
    let filled = fill(&mut file).and_then(|filled| {
        fs::rename(&temporary, path)?;
        Ok(filled)
    });
    if filled.is_err() {
        // Nothing better can be done about a file that cannot be removed either.
        let _ = fs::remove_file(&temporary);
    }
    filled
}

/// A file that nobody else has: it did not exist before.
fn create_beside(directory: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut attempt = 0;
    loop {
        let name = format!(
            ".cushion-{}-{}.tmp",
            std::process::id(),
            NEXT.fetch_add(1, Relaxed)
        );
        let path = directory.join(name);
        let mut options = OpenOptions::new();
        options
            .write(true)
            .create_new(true)
            .mode(MODE)
            .custom_flags(libc::O_NOFOLLOW);
        attempt += 1;
        match options.open(&path) {
            // Left behind by a killed process of the same number, or planted.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => {}
            result => return result.map(|file| (path, file)),
        }
    }
}

/// Refuses to replace a device, a pipe, a socket or a directory, or a link to one.
fn refuse_what_is_no_file(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is there and is no regular file",
        )),
        // Not there, or a link to nowhere.
        _ => Ok(()),
    }
}

/// Refuses a directory that is reached through a link in a shared (sticky, writable for all) directory, unless the link
/// belongs to this user or to the owner of that directory.
fn refuse_planted_links(directory: &Path) -> io::Result<()> {
    const SHARED: u32 = 0o1002;
    let user = rustix::process::geteuid().as_raw();
    for path in directory
        .ancestors()
        .filter(|path| !path.as_os_str().is_empty())
    {
        let link = match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_symlink() => metadata,
            _ => continue,
        };
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = fs::metadata(parent.unwrap_or(Path::new(".")))?;
        let is_shared = parent.mode() & SHARED == SHARED;
        if is_shared && link.uid() != user && link.uid() != parent.uid() {
            let message = format!(
                "{} is another user's link in a shared directory",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{symlink, PermissionsExt};

    /// The names in a directory, sorted.
    pub(crate) fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn write(path: &Path, text: &str) -> io::Result<()> {
        put(path, |file| file.write_all(text.as_bytes()))
    }

    #[test]
    fn a_planted_link_is_replaced_and_its_target_untouched() {
        let directory = tempfile::tempdir().unwrap();
        let (target, path) = (
            directory.path().join("target"),
            directory.path().join("file"),
        );
        fs::write(&target, "precious").unwrap();
        symlink(&target, &path).unwrap();
        write(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(names(directory.path()), ["file", "target"]);
    }

    #[test]
    fn what_is_no_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (special, link) = (
            directory.path().join("special"),
            directory.path().join("link"),
        );
        let _listener = std::os::unix::net::UnixListener::bind(&special).unwrap();
        symlink(&special, &link).unwrap();
        for path in [&special, &link] {
            let error = write(path, "new").unwrap_err();
            assert!(error.to_string().contains("no regular file"), "{error}");
        }
        assert!(!fs::symlink_metadata(&special).unwrap().is_file());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(directory.path()), ["link", "special"]);
        assert!(write(directory.path(), "new").is_err(), "a directory");
    }

    #[test]
    fn a_planted_temporary_is_passed_by() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        fs::write(&target, "precious").unwrap();
        // More names than other tests of this process can use up in the meantime.
        for number in 0..8 {
            let name = format!(".cushion-{}-{number}.tmp", std::process::id());
            symlink(&target, directory.path().join(name)).unwrap();
        }
        write(&directory.path().join("file"), "new").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn a_users_own_link_to_a_directory_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("real")).unwrap();
        symlink("real", directory.path().join("link")).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        write(&directory.path().join("link/file"), "new").unwrap();
        assert_eq!(names(&directory.path().join("real")), ["file"]);
    }

    #[test]
    fn a_strangers_link_in_a_shared_directory_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real"), directory.path().join("link"));
        fs::create_dir(&real).unwrap();
        symlink("real", &link).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        // Only root can make a link that belongs to somebody else.
        if std::os::unix::fs::lchown(&link, Some(12_345), None).is_err() {
            return;
        }
        let line = write(&link.join("file"), "new").unwrap_err().to_string();
        assert!(line.contains("another user's link"), "{line}");
        assert!(names(&real).is_empty());
    }
}
