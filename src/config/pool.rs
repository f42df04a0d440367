//! What the settings mean for a pool: the one place where they meet, for the process and for the replay alike.

use super::{Config, Zero};
use crate::pool::Settings;

/// A signalling pattern: a large odd number as an integer, not a number at all as a float of 16, 32 or 64 bits.
const POISON: u8 = 0xff;

impl Config {
    /// How each pool of a process with this configuration behaves, on a device (by its ordinal) or on any that has no
    /// settings of its own.
    pub fn pool_settings(&self, device: Option<u32>) -> Settings {
        let ahead = &self.preallocate_bytes.value;
        Settings {
            max_split_size_bytes: self.max_split_size_bytes.value,
            alignment_bytes: self.alignment_bytes.value,
            scrub: match self.zero.value {
                Zero::On => Some(0),
                Zero::Off => None,
                Zero::Poison => Some(POISON),
            },
            gc_threshold_percent: self.gc_threshold_percent.value.map(|percent| percent.0),
            preallocate_bytes: device
                .map_or(ahead.all, |device| ahead.get(device))
                .unwrap_or(0),
            ..Settings::default()
        }
    }
}
