//! The settings of this process, read from the environment when the shim wakes, and what they mean at this moment.

use crate::abi::*;
use crate::ledger::{self, Kind};
use cushion::config::{Config, FreeSync, Warning};
use cushion::pool;
use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the environment says.
pub struct Settings {
    /// Every variable, parsed.
    pub config: Config,
    /// What could not be used, for stderr.
    pub warnings: Vec<Warning>,
}

static SETTINGS: OnceCell<Settings> = OnceCell::new();
/// Another process can see this one's device memory, or this one another's.
static SHARED: AtomicBool = AtomicBool::new(false);

/// The settings, read on first use.
pub fn get() -> &'static Settings {
    SETTINGS.get_or_init(|| {
        // A name that is no text cannot be one of ours.
        let vars =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let (config, warnings) = Config::from_vars(vars);
        Settings { config, warnings }
    })
}

/// How each pool on a device behaves.
pub fn pool(device: CUdevice) -> pool::Settings {
    get().config.pool_settings(u32::try_from(device).ok())
}

/// Whether, and why, a free waits on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostWait {
    /// Whether it waits.
    pub waits: bool,
    /// In the report's words.
    pub reason: &'static str,
}

impl Settings {
    /// What holds at this moment (design.md, "Free and reuse").
    pub fn host_wait_now(&self) -> HostWait {
        let (waits, reason) = match self.config.free_sync.value {
            FreeSync::Host => (true, "CUSHION_FREE_SYNC=host"),
            FreeSync::Device => (false, "CUSHION_FREE_SYNC=device"),
            FreeSync::Auto if SHARED.load(Ordering::Relaxed) => {
                (true, "memory is shared with another process or interface")
            }
            FreeSync::Auto if ledger::live_bytes(Kind::PinnedHost) > 0 => {
                (true, "the program holds pinned host memory")
            }
            FreeSync::Auto if ledger::live_bytes(Kind::RegisteredHost) > 0 => {
                (true, "the program holds registered host memory")
            }
            FreeSync::Auto if ledger::live_bytes(Kind::Managed) > 0 => {
                (true, "the program holds managed memory")
            }
            FreeSync::Auto => (false, "no host memory that the device can write"),
        };
        HostWait { waits, reason }
    }

    /// Whether a free waits at this moment.
    pub fn host_wait(&self) -> bool {
        self.host_wait_now().waits || super::order::unfenceable()
    }
}

/// Passes the code of a call that shares memory on, and remembers it if it succeeded.
pub fn note_shared(code: Status) -> Status {
    if code == SUCCESS {
        SHARED.store(true, Ordering::Relaxed);
    }
    code
}
