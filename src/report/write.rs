//! Puts a report in place, whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::{to_json, Report};
use crate::config::Warning;
use crate::place;

/// Writes `report` to `path`. What was there stays when it fails, and the line says why.
pub fn write(path: &Path, report: &Report) -> Result<(), Warning> {
    let warning = |error| Warning::new(format!("cannot write report {}: {error}", path.display()));
    place::put(path, |file| fill(file, report)).map_err(warning)
}

fn fill(file: &mut File, report: &Report) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 16, file);
    to_json(report, &mut out)?;
    out.write_all(b"\n")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::tests::names;
    use crate::report::{FORMAT, FORMAT_VERSION};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_report_replaces_the_one_before_and_leaves_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.json");
        for sequence in [1, 2] {
            let mut report = Report {
                format: FORMAT.to_owned(),
                format_version: FORMAT_VERSION.to_owned(),
                ..Report::default()
            };
            report.report.sequence = sequence;
            write(&path, &report).unwrap();
            let read = crate::report::read(&path).unwrap();
            assert_eq!(read.report.sequence, sequence);
        }
        assert_eq!(names(directory.path()), ["r.json"]);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o002, 0, "never writable for everyone");
    }

    #[test]
    fn a_failure_is_one_line_and_the_old_report_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.json");
        fs::write(&path, "old").unwrap();
        let full = place::put(&path, |_| -> io::Result<()> {
            Err(io::Error::other("disk full"))
        });
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
}
