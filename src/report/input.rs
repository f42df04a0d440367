//! What a report is made of, by value.

use super::{Context, Coverage, Process, Reason};
use crate::config::SettingText;
use crate::ledger::LedgerSnapshot;
use crate::pool::PoolSnapshot;

/// Everything that the shim knows at one moment. Facts that need no computing are already in the report's own form.
#[derive(Debug, Clone, Default)]
pub struct ReportInput {
    /// Why the report is made.
    pub reason: Reason,
    /// Now, in seconds since 1970.
    pub now_unix_seconds: f64,
    /// Now, on the clock of the tags.
    pub now_ms: u64,
    /// The process.
    pub process: Process,
    /// [`crate::config::Config::settings`].
    pub settings: Vec<SettingText>,
    /// Every context that existed.
    pub contexts: Vec<Context>,
    /// The devices that the process used; figures and pools are filled in from `pools`.
    pub devices: Vec<super::Device>,
    /// The pools.
    pub pools: Vec<PoolInput>,
    /// [`crate::ledger::Ledger::snapshot`].
    pub ledger: LedgerSnapshot,
    /// What was hooked, counted and not known.
    pub coverage: Coverage,
}

/// One pool. Pools of destroyed contexts count in the device's sums: give one such entry for each device, with `retired`
/// set, the stats of all of them ([`super::merge_stats`] of [`super::retire_stats`]) and no segments.
#[derive(Debug, Clone, Default)]
pub struct PoolInput {
    /// The shim's number for the context.
    pub context: u64,
    /// Ordinal of the device.
    pub device: u32,
    /// Whether the context is gone.
    pub retired: bool,
    /// Seconds that the program's threads waited on behalf of frees.
    pub wait_seconds: f64,
    /// The pool.
    pub snapshot: PoolSnapshot,
}
