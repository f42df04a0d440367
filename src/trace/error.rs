//! What a reader says about a file it cannot read.

use std::fmt;

use crate::line::one_line;

/// Where in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Of a text file, counted from 1.
    Line(usize),
    /// Of a binary file (after decompression, where it was compressed), counted from 0.
    Byte(usize),
    /// The element of a list inside the file, counted from 0.
    Entry(usize),
}

/// Why a trace could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The file itself.
    Io(std::io::Error),
    /// Its content.
    Malformed {
        /// Where.
        at: Position,
        /// What was expected there, and what was found.
        expected: String,
    },
}

impl ReadError {
    /// Line `number`, counted from 1.
    pub fn line(number: usize, expected: impl Into<String>) -> ReadError {
        ReadError::Malformed {
            at: Position::Line(number),
            expected: expected.into(),
        }
    }

    /// Byte `offset`, counted from 0.
    pub fn byte(offset: usize, expected: impl Into<String>) -> ReadError {
        ReadError::Malformed {
            at: Position::Byte(offset),
            expected: expected.into(),
        }
    }
}

/// The most characters of what was expected, which can repeat what the file has there.
const EXPECTED_LIMIT: usize = 300;

/// One line, whatever is in the file.
impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, expected) = match self {
            ReadError::Io(error) => return write!(f, "{error}"),
            ReadError::Malformed { at, expected } => (at, one_line(expected, EXPECTED_LIMIT)),
        };
        match at {
            Position::Line(n) => write!(f, "line {n}: expected {expected}"),
            Position::Byte(n) => write!(f, "byte {n}: expected {expected}"),
            Position::Entry(n) => write!(f, "entry {n}: expected {expected}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<std::io::Error> for ReadError {
    fn from(error: std::io::Error) -> Self {
        ReadError::Io(error)
    }
}
