//! The ways by which a program gets at a function's address, and whose address it is given.

pub mod dlsym;
pub mod names;
pub mod private;
pub mod proc_address;
pub mod runtime;
pub mod scope;
pub mod seen;
