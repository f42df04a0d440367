//! How much compressed data may grow.
//!
//! # Decision: in proportion to the file
//! Deflate makes a thousand bytes of one, and a reader makes twenty of each of those: a file of megabytes would take all
//! memory. Recorded traces grow to some five times their length, and the most regular ones that a program can make to a few
//! hundred times, so what counts is the sum: [`FLAT_BYTES`] for any file (twenty million events), and [`FACTOR`] for each
//! of its bytes. The layers of a file (gzip around the chunks of cushion's own format) share one allowance.

use std::io::{self, Read};

/// What any file may grow to.
const FLAT_BYTES: u64 = 64 << 20;
/// What a file may grow to for each of its bytes.
const FACTOR: u64 = 64;

/// What is left of what one file may grow to.
#[derive(Debug)]
pub(super) struct Allowance {
    left_bytes: u64,
}

impl Allowance {
    /// Of a file of this length.
    pub fn of(file_bytes: usize) -> Allowance {
        let by_length = (file_bytes as u64).saturating_mul(FACTOR);
        Allowance {
            left_bytes: by_length.saturating_add(FLAT_BYTES),
        }
    }

    /// Takes `bytes` of it.
    ///
    /// # Errors
    /// With what a reader says then it expected.
    pub fn take(&mut self, bytes: u64) -> Result<(), String> {
        self.left_bytes = self.left_bytes.checked_sub(bytes).ok_or_else(|| {
            let flat = FLAT_BYTES >> 20;
            format!("compressed data that grows to at most {FACTOR} times the file's length and {flat} MiB")
        })?;
        Ok(())
    }

    /// Reads `compressed` to its end.
    ///
    /// # Errors
    /// The reader's own, or that of [`Allowance::take`].
    pub fn inflate(&mut self, compressed: impl Read) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        let most_bytes = self.left_bytes.saturating_add(1);
        compressed.take(most_bytes).read_to_end(&mut plain)?;
        self.take(plain.len() as u64).map_err(io::Error::other)?;
        Ok(plain)
    }
}
