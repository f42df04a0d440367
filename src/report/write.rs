//! Puts a report in place, whole or not at all.
//!
//! The report goes into a fresh file beside its place and is renamed over it. So a reader never sees half of it, the
//! last one survives a kill, and a link that somebody planted at the place is replaced, not followed. The fresh file
//! is created exclusively, which follows no link either. A link to a directory on the way is followed as the kernel's
//! `protected_symlinks` would: not in a shared directory when it belongs to a stranger.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{to_json, Report};
use crate::config::Warning;

/// The user's umask takes from this; what is writable for everyone is never asked for.
const MODE: u32 = 0o664;
/// So many names are tried for the fresh file.
const ATTEMPTS: u32 = 16;

/// Writes `report` to `path`. What was there stays when it fails, and the line says why.
pub fn write(path: &Path, report: &Report) -> Result<(), Warning> {
    let warning = |error| Warning::new(format!("cannot write report {}: {error}", path.display()));
    put_in_place(path, |out| to_json(report, out)).map_err(warning)
}

/// Replaces the file at `path` with what `fill` writes.
fn put_in_place(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    refuse_planted_links(directory)?;
    let (temporary, file) = create_beside(directory)?;
    let filled = fill_file(file, fill).and_then(|()| fs::rename(&temporary, path));
    if filled.is_err() {
        // Nothing better can be done about a file that cannot be removed either.
        let _ = fs::remove_file(&temporary);
    }
    filled
}

fn fill_file(file: File, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, file);
    fill(&mut out)?;
    out.write_all(b"\n")?;
    out.flush()
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
mod tests {
    use super::*;
    use std::os::unix::fs::{symlink, PermissionsExt};

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_report_replaces_the_one_before_and_leaves_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.json");
        for sequence in [1, 2] {
            let mut report = Report::default();
            report.report.sequence = sequence;
            write(&path, &report).unwrap();
            assert_eq!(
                crate::report::parse(&fs::read(&path).unwrap())
                    .err()
                    .map(|e| e.to_string()),
                Some("not a cushion report".into())
            );
        }
        assert_eq!(names(directory.path()), ["r.json"]);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o002, 0, "never writable for everyone");
    }

    #[test]
    fn a_planted_link_is_replaced_and_its_target_untouched() {
        let directory = tempfile::tempdir().unwrap();
        let (target, path) = (
            directory.path().join("target"),
            directory.path().join("r.json"),
        );
        fs::write(&target, "precious").unwrap();
        symlink(&target, &path).unwrap();
        write(&path, &Report::default()).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
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
        write(&directory.path().join("r.json"), &Report::default()).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    }

    #[test]
    fn a_failure_is_one_line_and_the_old_report_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.json");
        fs::write(&path, "old").unwrap();
        let full = put_in_place(&path, |_| Err(io::Error::other("disk full")));
        assert!(full.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(directory.path()), ["r.json"]);

        let missing = directory.path().join("no/such/r.json");
        let line = write(&missing, &Report::default()).unwrap_err().to_string();
        assert!(
            line.starts_with("cushion: cannot write report ") && !line.contains('\n'),
            "{line}"
        );
    }

    #[test]
    fn a_users_own_link_to_a_directory_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("real")).unwrap();
        symlink("real", directory.path().join("link")).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        write(&directory.path().join("link/r.json"), &Report::default()).unwrap();
        assert_eq!(names(&directory.path().join("real")), ["r.json"]);
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
        let line = write(&link.join("r.json"), &Report::default())
            .unwrap_err()
            .to_string();
        assert!(line.contains("another user's link"), "{line}");
        assert!(names(&real).is_empty());
    }
}
