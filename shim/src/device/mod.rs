//! The device side: contexts and their pools, the real driver under them, and what the program's work means for both.

pub mod backing;
pub mod blocks;
pub mod capture;
pub mod contexts;
pub mod fences;
pub mod idle;
pub mod imports;
pub mod lane;
pub mod limits;
pub mod order;
pub mod pages;
pub mod physical;
pub mod reclaim;
pub mod scrub;
pub mod settings;
pub mod share;
