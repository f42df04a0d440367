//! libcushion.so: stands between a CUDA program and its driver. Translates between C and the pool; decides nothing.

mod abi;
mod entry;
mod exports;
mod process;
mod real;
mod route;
mod table;
