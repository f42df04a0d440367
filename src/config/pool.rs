//! What the settings mean for a pool: the one place where they meet, for the process and for the replay alike.

use super::{Config, Zero};
use crate::pool::Settings;

/// A signalling pattern: a large odd number as an integer, not a number at all as a float of 16, 32 or 64 bits.
const POISON: u8 = 0xff;

impl Config {
    /// How each pool of a process with this configuration behaves.
    pub fn pool_settings(&self) -> Settings {
        Settings {
            max_split_size_bytes: self.max_split_size_bytes.value,
            alignment_bytes: self.alignment_bytes.value,
            scrub: match self.zero.value {
                Zero::On => Some(0),
                Zero::Off => None,
                Zero::Poison => Some(POISON),
            },
            ..Settings::default()
        }
    }
}
