//! Finding functions that are not ours: the C library's, the driver's. Reads the loaded objects themselves, since the
//! symbols that this library exports would be the first answer to any question asked of the dynamic linker.
//!
//! Never loads anything: a driver is found when the program has loaded one.

pub mod driver;
mod kept;
pub mod linker;
pub mod loaded;
pub mod object;
mod pages;
pub mod patch;
mod slots;
pub mod symbols;
pub mod unseen;
pub mod whereabouts;
