//! Replays a trace through pools of different policies, with no GPU.
//!
//! # What is modelled, and how
//! *Requests* come in the order of the trace, one at a time. *The driver* is arithmetic ([`Driver`]): it has addresses
//! without end, a limit if one is given, and counts its calls and what they would cost ([`Costs`]).
//!
//! *Streams.* The pools that bind memory to streams ([`Name::Torch`], [`Name::TorchExpandable`]) get the stream of each
//! allocation from the trace. The cushion pool knows no streams: it orders reuse by barriers, which the model counts
//! and charges for; while a trace has shown one stream only, no barrier is needed, as in a real process.
//!
//! *Completion.* A free in a trace stands where the memory became free for reuse in its own stream: the recorders of
//! PyTorch note completed frees, and cushion's frees need no completion, because reuse on the device waits for it. So
//! no free is delayed here, and what the device still has to do never changes where a block goes; it would change only
//! the time that a real `cuMemFree` waits, which a trace does not tell and the cost model leaves out.
//!
//! *Devices* are replayed apart, each with a pool of its own.

pub mod advise;
mod costs;
mod cushion;
mod driver;
mod native;
mod outcome;
mod policy;
mod power_of_two;
mod run;
mod torch;

pub use costs::Costs;
pub use driver::{Calls, Driver, Figures, Full};
pub use outcome::{table, Outcome, Sample};
pub use policy::{Name, Options, Policy, Request};
pub use run::{replay, Workload};
