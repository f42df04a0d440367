//! Whole files that somebody else made, read into memory that has an end.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Reads a file or a pipe of at most `most_bytes`.
///
/// # Errors
/// The file's own; one that is longer; a device, which may have no end or do something when it is opened.
pub fn read(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    let refused = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let kind = fs::metadata(path)?.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Err(refused("a device, and no file".to_owned()));
    }
    let too_long = || refused(format!("longer than {most_bytes} bytes"));
    let file = File::open(path)?;
    if file.metadata()?.len() > most_bytes {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    file.take(most_bytes.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes {
        return Err(too_long());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_has_no_end_or_is_no_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sparse");
        let why = |path: &Path| read(path, 100).unwrap_err().to_string();
        assert!(read(&path, 100).is_err(), "not there");
        let file = File::create(&path).unwrap();
        for (length, is_read) in [(0, true), (100, true), (101, false), (1 << 40, false)] {
            file.set_len(length).unwrap();
            let bytes = read(&path, 100).map(|bytes| bytes.len() as u64);
            assert_eq!(bytes.ok(), is_read.then_some(length));
        }
        assert_eq!(why(&path), "longer than 100 bytes");
        for device in ["/dev/zero", "/dev/null"] {
            assert_eq!(why(Path::new(device)), "a device, and no file");
        }
        assert!(read(directory.path(), 100).is_err(), "a directory");
    }

    #[test]
    fn a_pipe_is_read_to_its_bound() {
        for (length, is_read) in [(100, true), (101, false)] {
            let (reader, mut writer) = io::pipe().unwrap();
            io::Write::write_all(&mut writer, &vec![b'x'; length]).unwrap();
            drop(writer);
            let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
            assert_eq!(read(Path::new(&path), 100).is_ok(), is_read);
        }
    }
}
