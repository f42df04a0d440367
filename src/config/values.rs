//! The types of the settings, and how each is read and written.
//!
//! [`Value`] is the one contract: `parse(text(v)) == v`, which a test holds for all of them.

use std::ffi::OsStr;
use std::time::Duration;

use super::{PathPattern, PerDevice, TorchConf};
use crate::units::{duration_setting, parse_duration, parse_size, size_setting, KIB, MIB};

/// A type that a setting can have.
pub(super) trait Value: Sized {
    /// Reads it; `None` when the text is not one.
    fn parse(text: &OsStr) -> Option<Self>;
    /// Writes it so that `parse` reads the same again.
    fn text(&self) -> String;
}

/// An enum whose values are words.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $variant),+
        }

        impl $name {
            /// The word as the setting has it.
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl Value for $name {
            fn parse(text: &OsStr) -> Option<Self> {
                match text.to_str()?.trim() { $($word => Some($name::$variant),)+ _ => None }
            }
            fn text(&self) -> String {
                self.word().to_owned()
            }
        }
    };
}

words! {
    /// How much of the native driver's visible behaviour is kept.
    Mode {
        /// All that a program can see: zeroed memory, native alignment, the host half of a free where it shows.
        Faithful = "faithful",
        /// Gives these three up, and nothing else.
        Fast = "fast",
    }
}

words! {
    /// What a free waits for.
    FreeSync {
        /// On the host while the program could see the difference, else on the device.
        Auto = "auto",
        /// On the device only: the free returns at once.
        Device = "device",
        /// On the host, as native.
        Host = "host",
    }
}

words! {
    /// What a reused block holds when it is handed out.
    Zero {
        /// Zeros, as native.
        On = "on",
        /// Whatever was there.
        Off = "off",
        /// A pattern that is no plausible value, to find programs that read memory which they never wrote.
        Poison = "poison",
    }
}

words! {
    /// Which allocations have their call stack taken.
    Stacks {
        /// None.
        Off = "off",
        /// The first ones of the process, then a stated share.
        Sampled = "sampled",
        /// Every one.
        All = "all",
    }
}

words! {
    /// Where device memory comes from.
    Backing {
        /// Segments, by cuMemAlloc.
        Segments = "segments",
        /// Memory that is mapped where it is needed, if the driver can do it.
        Vmm = "vmm",
    }
}

impl Backing {
    /// Whether memory is to be mapped.
    pub fn is_mapped(self) -> bool {
        self == Backing::Vmm
    }
}

/// Whether `cushion ctl` can speak to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ctl {
    /// The background thread listens.
    On,
    /// It does not.
    Off,
}

impl Value for Ctl {
    fn parse(text: &OsStr) -> Option<Self> {
        bool::parse(text).map(|is_on| if is_on { Ctl::On } else { Ctl::Off })
    }

    fn text(&self) -> String {
        match self {
            Ctl::On => "on".to_owned(),
            Ctl::Off => "off".to_owned(),
        }
    }
}

impl Mode {
    /// The free-sync mode it implies.
    pub const fn free_sync(self) -> FreeSync {
        match self {
            Mode::Faithful => FreeSync::Auto,
            Mode::Fast => FreeSync::Device,
        }
    }

    /// The zero mode it implies.
    pub const fn zero(self) -> Zero {
        match self {
            Mode::Faithful => Zero::On,
            Mode::Fast => Zero::Off,
        }
    }

    /// The alignment it implies for allocations above 1 MiB.
    pub const fn alignment_bytes(self) -> u64 {
        match self {
            Mode::Faithful => 2 * MIB,
            Mode::Fast => 64 * KIB,
        }
    }
}

/// From 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent(pub u32);

/// A percentage, or `off`.
impl Value for Option<Percent> {
    fn parse(text: &OsStr) -> Option<Self> {
        match text.to_str()?.trim() {
            "off" => Some(None),
            number => {
                let number = number.strip_suffix('%').unwrap_or(number).trim_end();
                let plain = number.bytes().all(|b| b.is_ascii_digit());
                let percent = plain.then(|| number.parse().ok())??;
                (1..=100)
                    .contains(&percent)
                    .then_some(Some(Percent(percent)))
            }
        }
    }

    fn text(&self) -> String {
        self.map_or_else(|| "off".to_owned(), |percent| percent.0.to_string())
    }
}

/// Where a report or a trace goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportTarget {
    /// None is written.
    Off,
    /// To the path that this pattern makes.
    Path(PathPattern),
}

impl Default for ReportTarget {
    fn default() -> Self {
        ReportTarget::Path(PathPattern::default())
    }
}

impl Value for ReportTarget {
    fn parse(text: &OsStr) -> Option<Self> {
        if text == "off" {
            return Some(ReportTarget::Off);
        }
        PathPattern::parse(text).map(ReportTarget::Path)
    }

    fn text(&self) -> String {
        match self {
            ReportTarget::Off => "off".to_owned(),
            ReportTarget::Path(pattern) => pattern.to_string(),
        }
    }
}

impl Value for bool {
    fn parse(text: &OsStr) -> Option<Self> {
        match text.to_str()?.trim().to_ascii_lowercase().as_str() {
            "1" | "on" | "true" | "yes" => Some(true),
            "0" | "off" | "false" | "no" => Some(false),
            _ => None,
        }
    }

    fn text(&self) -> String {
        u8::from(*self).to_string()
    }
}

/// A duration; zero, or `off`, for what is never done.
impl Value for Duration {
    fn parse(text: &OsStr) -> Option<Self> {
        match text.to_str()?.trim() {
            "off" => Some(Duration::ZERO),
            text => parse_duration(text),
        }
    }

    fn text(&self) -> String {
        duration_setting(*self)
    }
}

/// The alignment: a power of two from 64K to 2M.
impl Value for u64 {
    fn parse(text: &OsStr) -> Option<Self> {
        let bytes = parse_size(text.to_str()?)?;
        (bytes.is_power_of_two() && (64 * KIB..=2 * MIB).contains(&bytes)).then_some(bytes)
    }

    fn text(&self) -> String {
        size_setting(*self)
    }
}

/// A size above zero, or `off`.
impl Value for Option<u64> {
    fn parse(text: &OsStr) -> Option<Self> {
        match text.to_str()?.trim() {
            "off" => Some(None),
            size => parse_size(size).filter(|bytes| *bytes > 0).map(Some),
        }
    }

    fn text(&self) -> String {
        self.map_or_else(|| "off".to_owned(), size_setting)
    }
}

impl Value for PerDevice<f64> {
    fn parse(text: &OsStr) -> Option<Self> {
        PerDevice::parse(text.to_str()?, parse_fraction)
    }

    fn text(&self) -> String {
        PerDevice::text(self, |share| share.to_string())
    }
}

impl Value for PerDevice<u64> {
    fn parse(text: &OsStr) -> Option<Self> {
        PerDevice::parse(text.to_str()?, |size| {
            parse_size(size).filter(|bytes| *bytes > 0)
        })
    }

    fn text(&self) -> String {
        PerDevice::text(self, |bytes| size_setting(*bytes))
    }
}

impl Value for TorchConf {
    fn parse(text: &OsStr) -> Option<Self> {
        TorchConf::parse(text.to_str()?)
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

/// A share in (0, 1], in plain decimal notation.
pub(super) fn parse_fraction(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let share = plain.then(|| text.parse::<f64>().ok())??;
    (share > 0.0 && share <= 1.0).then_some(share)
}
