//! Reads a report, also one from a newer minor version. Files come from other users: nothing in them is trusted.

use std::fmt;
use std::io;
use std::path::Path;

use serde::Deserialize;

use super::{Report, FORMAT, FORMAT_MAJOR};
use crate::source;

/// Larger files are no reports of ours, which are bounded far below.
const SIZE_LIMIT_BYTES: u64 = 1 << 30;

/// Why a report could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The file could not be read, or is longer than any report.
    File(io::Error),
    /// It is no JSON, or its parts are not what the format says.
    Malformed(serde_json::Error),
    /// It is something else.
    NotAReport,
    /// Its major version is another.
    UnknownVersion(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::File(error) => write!(f, "{error}"),
            ReadError::Malformed(error) => write!(f, "not a whole report: {error}"),
            ReadError::NotAReport => write!(f, "not a cushion report"),
            ReadError::UnknownVersion(version) => write!(
                f,
                "report format {version:?} is not known to this version, which reads {FORMAT_MAJOR}.x"
            ),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads a report file.
pub fn read(path: &Path) -> Result<Report, ReadError> {
    parse(&source::read(path, SIZE_LIMIT_BYTES).map_err(ReadError::File)?)
}

/// Reads a report from memory. The version is looked at first, so that an unknown one is never taken for damage.
pub fn parse(bytes: &[u8]) -> Result<Report, ReadError> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Head {
        format: serde_json::Value,
        format_version: serde_json::Value,
    }
    let head: Head = serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => ReadError::NotAReport,
        _ => ReadError::Malformed(error),
    })?;
    if head.format != FORMAT {
        return Err(ReadError::NotAReport);
    }
    let version = match &head.format_version {
        serde_json::Value::String(version) => version.clone(),
        other => other.to_string(),
    };
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok());
    if major != Some(FORMAT_MAJOR) {
        return Err(ReadError::UnknownVersion(version));
    }
    serde_json::from_slice(bytes).map_err(ReadError::Malformed)
}
