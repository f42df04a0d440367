//! Every setting of cushion: one table ([`VARIABLES`]), one struct ([`Config`]), read once from the environment.
//!
//! This room only reads. It prints nothing, ends nothing, and has no behaviour: lines for the user come back as
//! [`Warning`]s, and what a setting does is decided where it is used.
//!
//! Precedence: `CUSHION_X` over the same setting in `CUSHION_CONF` over what `CUSHION_MODE` implies over the default.
//! An empty value counts as not set.

mod pattern;
mod per_device;
mod pool;
mod table;
mod torch_conf;
mod values;
mod warning;

pub use pattern::{rank_of, PathFacts, PathPattern};
pub use per_device::PerDevice;
pub use table::{markdown, Variable, VARIABLES};
pub use torch_conf::TorchConf;
pub use values::{Backing, Ctl, FreeSync, Mode, Percent, ReportTarget, Stacks, Zero};
pub use warning::Warning;

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where a value came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    #[default]
    Default,
    /// This environment variable set it: its own, `CUSHION_CONF`, or `CUSHION_MODE` by implication.
    Variable(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Origin::Default => "default",
            Origin::Variable(name) => name,
        })
    }
}

/// One value and where it came from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting<T> {
    /// The value in force.
    pub value: T,
    /// Who set it.
    pub origin: Origin,
}

impl<T> Setting<T> {
    /// A value that nobody set.
    fn default_to(value: T) -> Self {
        Setting {
            value,
            origin: Origin::Default,
        }
    }

    /// Replaces the value unless somebody has set it.
    fn imply(&mut self, value: T, origin: Origin) {
        if self.origin == Origin::Default {
            *self = Setting { value, origin };
        }
    }
}

/// One setting as text, for reports and tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SettingText {
    /// Name of the environment variable.
    pub name: String,
    /// The value in force, written as the variable would have it.
    pub value: String,
    /// `default`, or the environment variable that it came from.
    pub origin: String,
}

/// As large as a trace grows when nobody says otherwise: some hundred million events.
const TRACE_LIMIT_BYTES: u64 = 1 << 30;

/// All settings of one process.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `CUSHION_DISABLE`: every call goes to the driver untouched.
    pub disable: Setting<bool>,
    /// `CUSHION_MODE`: already applied to the settings it implies.
    pub mode: Setting<Mode>,
    /// `CUSHION_FREE_SYNC`: whether a free waits on the host.
    pub free_sync: Setting<FreeSync>,
    /// `CUSHION_ZERO`: what a reused block holds.
    pub zero: Setting<Zero>,
    /// `CUSHION_ALIGNMENT`: least alignment of allocations above 1 MiB.
    pub alignment_bytes: Setting<u64>,
    /// `CUSHION_MAX_SPLIT_SIZE`: blocks of at least this size are never split. `None`: all may be.
    pub max_split_size_bytes: Setting<Option<u64>>,
    /// `CUSHION_MEMORY_FRACTION`: share of each device's memory.
    pub memory_fraction: Setting<PerDevice<f64>>,
    /// `CUSHION_MEMORY_LIMIT`: bytes of each device's memory.
    pub memory_limit_bytes: Setting<PerDevice<u64>>,
    /// `CUSHION_GC_THRESHOLD`: per cent of the limit from which on idle memory goes back before the pool grows. `None`: off.
    pub gc_threshold_percent: Setting<Option<Percent>>,
    /// `CUSHION_IDLE_TRIM`: time for which memory may be idle before it goes back; zero means for ever.
    pub idle_trim: Setting<Duration>,
    /// `CUSHION_PREALLOCATE`: bytes of each device taken when a context first allocates.
    pub preallocate_bytes: Setting<PerDevice<u64>>,
    /// `CUSHION_CONF`: as given; already applied to the settings it names.
    pub conf: Setting<TorchConf>,
    /// `CUSHION_REPORT`: where reports go.
    pub report: Setting<ReportTarget>,
    /// `CUSHION_REPORT_INTERVAL`: time between reports; zero means only at the end.
    pub report_interval: Setting<Duration>,
    /// `CUSHION_BACKING`: where device memory comes from.
    pub backing: Setting<Backing>,
    /// `CUSHION_STACKS`: which allocations have their call stack taken.
    pub stacks: Setting<Stacks>,
    /// `CUSHION_TRACE`: where every allocation and free is recorded.
    pub trace: Setting<ReportTarget>,
    /// `CUSHION_TRACE_LIMIT`: size at which a trace stops growing. `None`: it grows without bound.
    pub trace_limit_bytes: Setting<Option<u64>>,
    /// `CUSHION_CTL`: whether `cushion ctl` can speak to the process.
    pub ctl: Setting<Ctl>,
    /// The process's rank in its job (`%r`), from the launcher's variables.
    pub rank: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        let mode = Mode::Faithful;
        Config {
            disable: Setting::default_to(false),
            mode: Setting::default_to(mode),
            free_sync: Setting::default_to(mode.free_sync()),
            zero: Setting::default_to(mode.zero()),
            alignment_bytes: Setting::default_to(mode.alignment_bytes()),
            max_split_size_bytes: Setting::default_to(None),
            memory_fraction: Setting::default_to(PerDevice::default()),
            memory_limit_bytes: Setting::default_to(PerDevice::default()),
            gc_threshold_percent: Setting::default_to(None),
            idle_trim: Setting::default_to(Duration::ZERO),
            preallocate_bytes: Setting::default_to(PerDevice::default()),
            conf: Setting::default_to(TorchConf::default()),
            report: Setting::default_to(ReportTarget::default()),
            report_interval: Setting::default_to(Duration::from_secs(30)),
            backing: Setting::default_to(Backing::Segments),
            stacks: Setting::default_to(Stacks::Sampled),
            ctl: Setting::default_to(Ctl::Off),
            trace: Setting::default_to(ReportTarget::Off),
            trace_limit_bytes: Setting::default_to(Some(TRACE_LIMIT_BYTES)),
            rank: None,
        }
    }
}

impl Config {
    /// Reads the settings from an environment. Never fails: what cannot be used is named in a warning and the default
    /// (or the next source by precedence) stays.
    ///
    /// Give it the whole environment: it also looks for unknown `CUSHION_*` names and for the launcher's rank.
    pub fn from_vars(vars: impl IntoIterator<Item = (String, OsString)>) -> (Config, Vec<Warning>) {
        let mut config = Config::default();
        let mut warnings = Vec::new();
        let mut ours = Vec::new();
        let mut ranks = Vec::new();
        for (name, value) in vars {
            match VARIABLES.iter().find(|variable| variable.name == name) {
                Some(_) if value.is_empty() => {}
                Some(variable) => ours.push((variable, value)),
                None if name.starts_with("CUSHION_") => warnings.push(Warning::unknown(&name)),
                None => ranks.push((name, value)),
            }
        }
        config.rank = rank_of(&ranks);
        // Later sources win, so the combined variable goes first.
        ours.sort_by_key(|(variable, _)| variable.name != torch_conf::NAME);
        let mut refused = Vec::new();
        for (variable, value) in ours {
            if !(variable.set)(&mut config, &value, Origin::Variable(variable.name)) {
                refused.push((variable, value));
            } else if variable.name == torch_conf::NAME {
                warnings.extend(torch_conf::apply(&mut config));
            }
        }
        config.imply_mode();
        for (variable, value) in refused {
            warnings.push(Warning::bad_value(variable, &value, &config));
        }
        (config, warnings)
    }

    /// Gives the settings that the mode implies to those that nobody set.
    fn imply_mode(&mut self) {
        let Setting {
            value: mode,
            origin,
        } = self.mode;
        self.free_sync.imply(mode.free_sync(), origin);
        self.zero.imply(mode.zero(), origin);
        self.alignment_bytes.imply(mode.alignment_bytes(), origin);
    }

    /// The most memory that the process may hold on a device, of `total_bytes`: the smaller of fraction and limit.
    /// `device` is the ordinal as the program sees it. `None`: no limit is set.
    pub fn device_limit_bytes(&self, device: u32, total_bytes: u64) -> Option<u64> {
        let fraction = self.memory_fraction.value.get(device);
        let by_fraction = fraction.map(|share| (total_bytes as f64 * share) as u64);
        let by_limit = self.memory_limit_bytes.value.get(device);
        by_fraction.into_iter().chain(by_limit).min()
    }

    /// Every setting as text, in the order of the table.
    pub fn settings(&self) -> Vec<SettingText> {
        VARIABLES
            .iter()
            .map(|variable| SettingText {
                name: variable.name.to_owned(),
                value: (variable.text)(self),
                origin: (variable.origin)(self).to_string(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
