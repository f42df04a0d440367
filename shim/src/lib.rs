//! libcushion.so: stands between a CUDA program and its driver. Translates between C and the pool; decides nothing.
//!
//! * [`table`]: every symbol that is stood in for.
//! * [`real`]: finding the functions that are not ours.
//! * [`route`]: which address a program gets when it asks for one.
//! * [`entry`]: the way into every hook; [`thread`]: what it keeps for each thread.
//! * [`process`]: the life of the process: load, waking, fork, exit.
//! * [`exports`]: the hooks themselves.
//! * [`device`]: contexts and their pools, the driver under them, what the program's work means for both.
//! * [`emit`]: when reports are written, and what of.
//! * [`ledger`], [`stack`]: who holds memory; [`trace`]: all that ever happened to it.
//! * [`driver`]: the driver functions that the shim itself calls.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
compile_error!(
    "cushion-shim is written for x86-64 Linux with glibc: registers and the dynamic linker's ways"
);

mod abi;
mod device;
mod driver;
mod emit;
mod entry;
mod exports;
mod ledger;
mod process;
mod real;
mod route;
mod stack;
mod table;
mod thread;
mod trace;
