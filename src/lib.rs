//! The rooms of cushion that know no CUDA: the pool, the ledger, the reports, the traces and the command line.
//!
//! The doors go one way: `shim` (the preloaded library, a crate of its own) uses this crate; nothing here knows the shim.
#![forbid(unsafe_code)]

#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
pub mod ctl;
pub mod ipc_handle;
pub mod lane;
pub mod ledger;
pub(crate) mod line;
pub mod place;
pub mod pool;
pub mod replay;
pub mod report;
pub(crate) mod source;
pub(crate) mod sync;
pub mod trace;
pub mod units;
