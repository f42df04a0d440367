//! `CUSHION_CONF`: PyTorch's allocator syntax (`max_split_size_mb:128,per_process_memory_fraction:0.8`), for the
//! settings that both have.

use std::fmt;

use super::values::parse_fraction;
use super::{Config, Origin, PerDevice, Percent, Setting, Warning};
use crate::units::MIB;

/// Name of the variable.
pub(super) const NAME: &str = "CUSHION_CONF";

/// Keys that PyTorch knows and cushion has no setting for.
const PYTORCH_ONLY: [&str; 13] = [
    "backend",
    "expandable_segments",
    "graph_capture_record_stream_reuse",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "roundup_power2_divisions",
    "throw_on_cudamalloc_oom",
];

/// Keys and values in the order given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TorchConf(Vec<(String, String)>);

impl TorchConf {
    /// Splits at commas outside brackets, then at the first colon. `None` when a part has no key, no value or an
    /// unclosed bracket.
    pub fn parse(text: &str) -> Option<Self> {
        let mut depth = 0i32;
        let mut parts = vec![String::new()];
        for c in text.chars().filter(|c| !c.is_whitespace()) {
            depth += i32::from(c == '[') - i32::from(c == ']');
            match parts.last_mut() {
                Some(part) if c != ',' || depth > 0 => part.push(c),
                _ => parts.push(String::new()),
            }
        }
        let pair = |part: &String| {
            let (key, value) = part.split_once(':')?;
            let whole = !key.is_empty() && !value.is_empty();
            whole.then(|| (key.to_owned(), value.to_owned()))
        };
        let pairs = parts.iter().filter(|part| !part.is_empty()).map(pair);
        if depth == 0 {
            pairs.collect::<Option<_>>().map(TorchConf)
        } else {
            None
        }
    }
}

impl fmt::Display for TorchConf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self
            .0
            .iter()
            .map(|(key, value)| format!("{key}:{value}"))
            .collect();
        f.pad(&pairs.join(","))
    }
}

/// Sets what `config.conf` names; returns a line for each key that could not be used.
pub(super) fn apply(config: &mut Config) -> Vec<Warning> {
    let pairs = config.conf.value.0.clone();
    let warning = |(key, value): &(String, String)| set(config, key, value).err();
    pairs.iter().filter_map(warning).collect()
}

fn set(config: &mut Config, key: &str, value: &str) -> Result<(), Warning> {
    let origin = Origin::Variable(NAME);
    let bad = |allowed| Warning::bad_conf(key, value, allowed);
    match key {
        "max_split_size_mb" => {
            let mib = value.parse::<u64>().ok().filter(|mib| *mib > 0);
            // PyTorch users write huge numbers for "no limit".
            let bytes = mib.map(|mib| mib.saturating_mul(MIB));
            let value = Some(bytes.ok_or_else(|| bad("a whole number of MiB above 0"))?);
            config.max_split_size_bytes = Setting { value, origin };
        }
        "per_process_memory_fraction" => {
            let share = parse_fraction(value);
            let all = Some(share.ok_or_else(|| bad("a number above 0, at most 1"))?);
            let value = PerDevice {
                all,
                ..PerDevice::default()
            };
            config.memory_fraction = Setting { value, origin };
        }
        "garbage_collection_threshold" => {
            let share = parse_fraction(value);
            let share = share.ok_or_else(|| bad("a number above 0, at most 1"))?;
            let percent = ((share * 100.0).round() as u32).clamp(1, 100);
            let value = Some(Percent(percent));
            config.gc_threshold_percent = Setting { value, origin };
        }
        _ if PYTORCH_ONLY.contains(&key) => return Err(Warning::foreign_conf(key)),
        _ => return Err(Warning::unknown_conf(key)),
    }
    Ok(())
}
