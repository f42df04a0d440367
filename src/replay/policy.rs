//! What a policy is, and the list of them.

use std::fmt;
use std::str::FromStr;

use super::cushion::Cushion;
use super::driver::Figures;
use super::native::Native;
use super::power_of_two::PowerOfTwo;
use super::torch::{Expandable, Torch};
use super::{Costs, Driver, Full};
use crate::pool::Settings;

/// One allocation of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Names it until it is freed.
    pub id: u64,
    /// At least 1.
    pub size_bytes: u64,
    /// The stream it is for.
    pub stream: u64,
}

/// A pool under comparison, with the driver below it.
pub trait Policy {
    /// Serves a request. After [`Full`] the pool is as before, less what it gave back to make room.
    fn allocate(&mut self, request: Request) -> Result<(), Full>;

    /// Takes a block back. Ids that are not live (their request was refused) are ignored.
    fn free(&mut self, id: u64);

    /// The largest request, on the default stream, that would succeed now without taking memory from the driver.
    fn largest_cached_bytes(&self) -> u64;

    /// What the pool could give back to the driver now.
    fn releasable_bytes(&self) -> u64;

    /// The bill so far.
    fn driver(&self) -> Figures;
}

/// Names of policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// This project's pool on plain segments.
    Cushion,
    /// This project's pool on mapped memory.
    CushionVmm,
    /// PyTorch's caching allocator with its defaults.
    Torch,
    /// The same with `expandable_segments:True`.
    TorchExpandable,
    /// A cache of exact powers of two.
    PowerOfTwo,
    /// No pool: each allocation is a driver call.
    None,
}

impl Name {
    /// All, in the order of the tables.
    pub const ALL: [Name; 6] = [
        Name::Cushion,
        Name::CushionVmm,
        Name::Torch,
        Name::TorchExpandable,
        Name::PowerOfTwo,
        Name::None,
    ];

    /// As the command line has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Name::Cushion => "cushion",
            Name::CushionVmm => "cushion-vmm",
            Name::Torch => "torch",
            Name::TorchExpandable => "torch-expandable",
            Name::PowerOfTwo => "power-of-two",
            Name::None => "none",
        }
    }

    /// A pool of this policy, empty.
    pub fn build(self, options: &Options) -> Box<dyn Policy> {
        let driver = Driver::new(options.costs.clone(), options.limit_bytes);
        match self {
            Name::Cushion => Box::new(Cushion::new(driver, options.settings, false)),
            Name::CushionVmm => Box::new(Cushion::new(driver, options.settings, true)),
            Name::Torch => Box::new(Torch::new(driver)),
            Name::TorchExpandable => Box::new(Expandable::new(driver)),
            Name::PowerOfTwo => Box::new(PowerOfTwo::new(driver)),
            Name::None => Box::new(Native::new(driver)),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        Name::ALL
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| {
                let names = Name::ALL.map(Name::as_str).join(", ");
                format!("no policy is called '{text}'; there are: {names}")
            })
    }
}

/// How a replay is run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Of the driver's calls.
    pub costs: Costs,
    /// Memory of the device. `None`: without end.
    pub limit_bytes: Option<u64>,
    /// Of the `cushion` policy.
    pub settings: Settings,
    /// How many points of reserved memory over the trace to keep; 0 for none.
    pub samples: usize,
}
