//! The driver's types and codes as the shim passes them through.
//!
//! Types come from cudarc's generated bindings; result codes travel as plain integers, because a driver newer than the
//! bindings may answer a code that a Rust enum does not have.

use cudarc::driver::sys::CUresult;
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
/// `CUDA_ERROR_NOT_READY`.
pub const NOT_READY: Status = CUresult::CUDA_ERROR_NOT_READY as Status;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub const INVALID_CONTEXT: Status = CUresult::CUDA_ERROR_INVALID_CONTEXT as Status;
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
pub const CONTEXT_IS_DESTROYED: Status = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED as Status;

/// `CUipcMemHandle`: passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle {
    /// Opaque bytes.
    pub bytes: [u8; 64],
}

/// `CUDA_ARRAY_DESCRIPTOR` (the 64-bit form). The format is an integer, since a newer driver may know more of them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArrayDescriptor {
    /// Elements.
    pub width: usize,
    /// Elements; 0 for one dimension.
    pub height: usize,
    /// `CUarray_format`.
    pub format: u32,
    /// 1, 2 or 4 for the plain formats.
    pub channel_count: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Array3dDescriptor {
    /// Elements.
    pub width: usize,
    /// Elements; 0 for one dimension.
    pub height: usize,
    /// Elements or layers; 0 for two dimensions.
    pub depth: usize,
    /// `CUarray_format`.
    pub format: u32,
    /// 1, 2 or 4 for the plain formats.
    pub channel_count: u32,
    /// `CUDA_ARRAY3D_*`.
    pub flags: u32,
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    /// `CUmemLocationType`; an integer, since a newer driver may know more kinds.
    pub kind: i32,
    /// Ordinal.
    pub id: i32,
}

/// The head of `CUmemAllocationProp`, as far as the shim reads it.
#[repr(C)]
pub struct AllocationProperties {
    /// `CUmemAllocationType`.
    pub kind: i32,
    /// `CUmemAllocationHandleType` bits.
    pub handle_types: i32,
    /// Where.
    pub location: Location,
}

/// What physical memory can be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryTraits {
    /// By network cards and other devices.
    pub rdma_capable: bool,
    /// By other processes, as a file descriptor.
    pub exportable: bool,
    /// By the device's decompression engine (since CUDA 12.8).
    pub decompression: bool,
}

/// `CUmemAllocationProp`, all of it.
#[repr(C)]
pub struct FullProperties {
    head: AllocationProperties,
    win32_metadata: usize,
    compression: u8,
    rdma_capable: u8,
    usage: u16,
    reserved: [u8; 4],
}

impl FullProperties {
    /// Plain memory of one device. The traits are those that memory of cuMemAlloc has by itself.
    pub fn of_device(device: CUdevice, traits: &MemoryTraits) -> Self {
        const PINNED: i32 = 1;
        const DESCRIPTOR: i32 = 1;
        const DECOMPRESSION: u16 = 2;
        FullProperties {
            head: AllocationProperties {
                kind: PINNED,
                handle_types: if traits.exportable { DESCRIPTOR } else { 0 },
                location: Location {
                    kind: LOCATION_DEVICE,
                    id: device,
                },
            },
            win32_metadata: 0,
            compression: 0,
            rdma_capable: traits.rdma_capable.into(),
            usage: if traits.decompression {
                DECOMPRESSION
            } else {
                0
            },
            reserved: [0; 4],
        }
    }
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub struct AccessDescription {
    location: Location,
    flags: i32,
}

impl AccessDescription {
    /// The device may read and write.
    pub fn full(device: CUdevice) -> Self {
        const READ_WRITE: i32 = 3;
        AccessDescription {
            location: Location {
                kind: LOCATION_DEVICE,
                id: device,
            },
            flags: READ_WRITE,
        }
    }
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub const LOCATION_DEVICE: i32 = 1;

/// The legacy default stream, as the functions without `_ptsz` take it.
pub const LEGACY_STREAM: CUstream = std::ptr::null_mut();
/// `CU_STREAM_PER_THREAD`.
pub const PER_THREAD_STREAM: CUstream = 2 as CUstream;
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
pub const CAPTURE_UNSUPPORTED: Status = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED as Status;
/// `CUDA_ERROR_NOT_SUPPORTED`.
pub const NOT_SUPPORTED: Status = CUresult::CUDA_ERROR_NOT_SUPPORTED as Status;
