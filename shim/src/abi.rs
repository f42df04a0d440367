//! The driver's types and codes as the shim passes them through.
//!
//! Types come from cudarc's generated bindings; result codes travel as plain integers, because a driver newer than the
//! bindings may answer a code that a Rust enum does not have.

use cudarc::driver::sys::CUresult;
#[allow(unused_imports)]
pub use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUstream};

/// A `CUresult` of any driver version.
pub type Status = i32;

/// `CUDA_SUCCESS`.
pub const SUCCESS: Status = CUresult::CUDA_SUCCESS as Status;
/// `CUDA_ERROR_INVALID_VALUE`.
pub const INVALID_VALUE: Status = CUresult::CUDA_ERROR_INVALID_VALUE as Status;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: Status = CUresult::CUDA_ERROR_OUT_OF_MEMORY as Status;
/// `CUDA_ERROR_NOT_FOUND`.
pub const NOT_FOUND: Status = CUresult::CUDA_ERROR_NOT_FOUND as Status;
/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
pub const PER_THREAD_FLAG: std::ffi::c_ulonglong = 2;
