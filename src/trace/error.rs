//! What a reader says about a file it cannot read.

use std::fmt;

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

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => write!(f, "{error}"),
            ReadError::Malformed {
                at: Position::Line(n),
                expected,
            } => write!(f, "line {n}: expected {expected}"),
            ReadError::Malformed {
                at: Position::Byte(n),
                expected,
            } => write!(f, "byte {n}: expected {expected}"),
            ReadError::Malformed {
                at: Position::Entry(n),
                expected,
            } => write!(f, "entry {n}: expected {expected}"),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<std::io::Error> for ReadError {
    fn from(error: std::io::Error) -> Self {
        ReadError::Io(error)
    }
}
