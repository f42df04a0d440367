//! A CUDA driver without a GPU: `libcuda.so.1` for tests.
//!
//! Streams run their work later and on their own, device memory cannot be touched by the host,
//! and errors, captures and address queries answer as the real driver does. See the README.

#![recursion_limit = "256"]

#[macro_use]
mod entry;

mod abi;
mod action;
mod arena;
mod array;
mod capture;
mod capturing;
mod config;
mod context;
mod copies;
mod copy;
mod cost;
mod device;
mod engine;
mod event;
mod extents;
mod external;
mod fault;
mod forked;
mod graph;
mod graphs;
mod host;
mod init;
mod ipc;
mod kernel;
mod launch;
mod library;
mod linker;
mod memory;
mod memset;
mod module;
mod names;
mod nodes;
mod pointer;
mod pool;
mod ranges;
mod settings;
mod state;
mod stats;
mod stream;
mod streams;
mod values;
mod vmm;
