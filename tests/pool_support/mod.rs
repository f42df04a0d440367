//! Backings made of arithmetic, for tests of the pool.
#![allow(dead_code)] // Each test file uses a part of it.

pub mod arithmetic;
pub mod costless;
pub mod program;
pub mod random;
pub mod trace;
pub mod watched;
