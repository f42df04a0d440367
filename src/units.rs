//! Sizes and durations as people write them: `512K`, `1.5G`, `20GiB`, plain bytes; `30s`, `500ms`, `2m`, `0`.
//!
//! Every unit of size is a power of two, whichever way it is spelled (`K`, `KB`, `KiB` are all 1024 bytes), as CUDA
//! users, Slurm and PyTorch have it. Arithmetic is exact: `1.5G` is 1,610,612,736 bytes, and no float is involved.

use std::fmt;
use std::time::Duration;

/// 1024 bytes.
pub const KIB: u64 = 1 << 10;
/// 1024 KiB.
pub const MIB: u64 = 1 << 20;
/// 1024 MiB.
pub const GIB: u64 = 1 << 30;
/// 1024 GiB.
pub const TIB: u64 = 1 << 40;

/// Suffix and bytes, largest first.
const SIZE_UNITS: [(&str, u64); 4] = [("T", TIB), ("G", GIB), ("M", MIB), ("K", KIB)];

/// Suffix and nanoseconds.
const DURATION_UNITS: [(&str, u64); 5] = [
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a size in bytes. `None` for anything that is not a whole, plain number of bytes or a decimal number with a unit.
pub fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split_number(text)?;
    let unit = unit.to_ascii_uppercase();
    let scale = match unit.strip_suffix("IB").or(unit.strip_suffix('B')) {
        Some("") if unit == "B" => 1,
        None if unit.is_empty() => 1,
        stem => {
            let stem = stem.unwrap_or(&unit);
            SIZE_UNITS.iter().find(|(name, _)| *name == stem)?.1
        }
    };
    if scale == 1 && number.contains('.') {
        return None;
    }
    scaled(number, scale)
}

/// Parses a duration. A number without a unit is seconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_number(text)?;
    let unit = if unit.is_empty() { "s" } else { unit };
    let scale = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?.1;
    scaled(number, scale).map(Duration::from_nanos)
}

/// Splits `1.5 GiB` into `1.5` and `GiB`.
fn split_number(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    number
        .starts_with(|c: char| c.is_ascii_digit())
        .then(|| (number, unit.trim_start()))
}

/// `number` (digits, at most one point) times `scale`, rounded down; `None` when malformed or too large.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // Past 18 digits a fraction no longer moves the result; without them everything below fits 128 bits.
    let all_digits = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    let fraction = all_digits.then(|| &fraction[..fraction.len().min(18)])?;
    let ten_power = 10u128.pow(fraction.len() as u32);
    let whole_part = u128::from(whole.parse::<u64>().ok()?) * u128::from(scale);
    let fraction_part = fraction.parse::<u128>().ok()? * u128::from(scale) / ten_power;
    u64::try_from(whole_part + fraction_part).ok()
}

/// A size as a setting would be written: exact, in the largest unit that divides it (`128M`, `1536M`, `1000`).
pub fn size_setting(bytes: u64) -> String {
    SIZE_UNITS
        .iter()
        .find(|(_, scale)| bytes > 0 && bytes.is_multiple_of(*scale))
        .map_or_else(
            || bytes.to_string(),
            |(name, scale)| format!("{}{name}", bytes / scale),
        )
}

/// A duration as a setting would be written: exact to the microsecond (`30s`, `500ms`, `0`).
pub fn duration_setting(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0 => "0".to_owned(),
        _ if micros.is_multiple_of(1_000_000) => format!("{}s", micros / 1_000_000),
        _ if micros.is_multiple_of(1_000) => format!("{}ms", micros / 1_000),
        _ => format!("{micros}us"),
    }
}

/// Prints bytes for people: `512 B`, `1.50 GiB`. Rounded; for exact text see [`size_setting`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match SIZE_UNITS.iter().find(|(_, scale)| self.0 >= *scale) {
            Some((name, scale)) => format!("{:.2} {name}iB", self.0 as f64 / *scale as f64),
            None => format!("{} B", self.0),
        };
        f.pad(&text)
    }
}

/// Prints seconds for people: `12 ms`, `4.2 s`, `3 min 20 s`, `2 h 05 min`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seconds(pub f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0;
        let whole = seconds as u64;
        let text = match whole {
            0 => format!("{:.0} ms", seconds * 1e3),
            1..60 => format!("{seconds:.1} s"),
            60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
            _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("100B", 100),
            ("512K", 512 * KIB),
            ("512k", 512 * KIB),
            ("128M", 128 * MIB),
            ("128 MB", 128 * MIB),
            ("1.5G", GIB + GIB / 2),
            ("20GiB", 20 * GIB),
            ("20gib", 20 * GIB),
            (" 2T ", 2 * TIB),
            ("0.1K", 102),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn sizes_that_are_none() {
        for text in [
            "",
            " ",
            "K",
            "-1",
            "+1",
            "1e9",
            "1.5",
            "1.",
            ".5G",
            "1..5G",
            "1.5.5G",
            "0x10",
            "5X",
            "5iB",
            "5KK",
            "1,5G",
            "inf",
            "17000000T",
            "99999999999999999999",
            "1G1",
            "٣K",
        ] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn durations_as_people_write_them() {
        for (text, millis) in [
            ("0", 0),
            ("30s", 30_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("1.5s", 1_500),
            ("30", 30_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Some(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for text in ["", "s", "-1s", "1d", "30S", "1e3s", "999999999999h"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn figures_for_people() {
        assert_eq!(Bytes(511).to_string(), "511 B");
        assert_eq!(Bytes(1536).to_string(), "1.50 KiB");
        assert_eq!(format!("{:>10}", Bytes(GIB)), "  1.00 GiB");
        assert_eq!(Seconds(0.012).to_string(), "12 ms");
        assert_eq!(Seconds(200.0).to_string(), "3 min 20 s");
        assert_eq!(Seconds(7500.0).to_string(), "2 h 05 min");
    }

    proptest! {
        #[test]
        fn a_printed_size_reads_back(bytes: u64) {
            prop_assert_eq!(parse_size(&size_setting(bytes)), Some(bytes));
        }

        #[test]
        fn a_printed_duration_reads_back(micros in 0u64..1 << 52) {
            let duration = Duration::from_micros(micros);
            prop_assert_eq!(parse_duration(&duration_setting(duration)), Some(duration));
        }

        #[test]
        fn no_text_upsets_the_parsers(text in ".{0,40}", number in "[0-9.]{0,60}[a-zA-Z]{0,4}") {
            let _ = (parse_size(&text), parse_duration(&text));
            let _ = (parse_size(&number), parse_duration(&number));
        }
    }
}
