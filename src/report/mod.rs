//! Reports: what one process holds on its devices, who asked for it, and how it lies in memory.
//!
//! The shim fills a [`ReportInput`] by value, [`build`] makes a [`Report`] of it, [`write`] puts it in place whole.
//! [`read`] takes it in again. The format is versioned ([`FORMAT_VERSION`]) and described by `docs/report.schema.json`,
//! which is generated from the structs in `format`. This room asks no driver, takes no lock and prints nothing.

mod build;
mod figures;
mod format;
mod fragmentation;
mod hex;
mod input;
mod json;
mod leaks;
mod map;
mod read;
mod write;

pub use build::{build, History};
pub use figures::{merge_stats, retire_stats};
pub use format::*;
pub use hex::Hex;
pub use input::{PoolInput, ReportInput};
pub use json::to_json;
pub use read::{parse, read, ReadError};
pub use write::write;

#[cfg(test)]
mod tests;
