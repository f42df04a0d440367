//! One file per family of hooked functions: check the arguments, make one call down, translate the answer. No policy here.
//!
//! Each handler gets the driver's own function first, then the program's arguments as they came. `# Safety` is the same
//! for all of them and is stated here once: **the caller owes what the driver's documentation asks of a caller of the
//! function of that name**; a handler passes the arguments on unchanged, and reads an out-parameter only after success.

pub mod array;
pub mod context;
pub mod copy;
pub mod graph;
pub mod host;
pub mod info;
pub mod ipc;
pub mod memory;
pub mod ordered;
pub mod plain;
pub mod pointer;
pub mod stream;
pub mod values;
pub mod vmm;
pub mod wait;
