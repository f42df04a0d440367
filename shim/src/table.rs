//! THE table: every symbol that the shim stands in for, once.
//!
//! From it come the exported functions, the address map that answers `dlsym` and `cuGetProcAddress`, the coverage
//! section of the report and the export gate (`scripts/check-exports`). It has three sections:
//!
//! * [`HOOKS`], the driver's functions. A row is
//!
//!   ```text
//!   KIND symbol(argument: type, ...) = handler;
//!   ```
//!
//!   where the handler is `unsafe fn(real, argument, ...) -> Status` in `exports/`, and `real` is the driver's own
//!   function of that very symbol. The exported function checks that the shim is awake in this process and thread and
//!   that nothing unwinds; else the call goes straight to the driver.
//!
//!   After `---` come the rows that only watch over the order of streams, as `Order symbol "place of the stream"`; the
//!   place `rsp`, which is above any legacy stream, makes every call count. They pass on all arguments untouched,
//!   whatever their types, and their calls are not counted: a launch pays two nanoseconds for them.
//! * [`RUNTIME`], functions of the shared CUDA runtime. A row is a name; the exported function goes on to the runtime
//!   that its caller would have reached without us (`route/runtime.rs`).
//! * [`LIBC`], functions of the C library. A row is a name; each is written by hand (`route/dlsym.rs`,
//!   `process/exit.rs`). `dlopen` is not among them: who calls it decides where it searches.

#[macro_use]
mod rows;
mod ask;
mod hook;
mod index;

pub use hook::{calls, Calls, Hook, Kind};
pub use index::row_of;

use crate::abi::*;
use crate::device::order;
use crate::entry;
use crate::exports::*;
use crate::route::{private, proc_address, runtime};
use ask::{ask, IS_OTHER_STREAM};
use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void, CStr};
use std::mem::offset_of;

/// Whether one of a function's arguments is a stream.
const fn names_stream(arguments: &[&str]) -> bool {
    let mut at = 0;
    while at < arguments.len() && !matches!(arguments[at].as_bytes(), b"stream") {
        at += 1;
    }
    at < arguments.len()
}

/// Whether this is the form of a function for per-thread default streams.
const fn is_twin(symbol: &str) -> bool {
    matches!(
        symbol.as_bytes(),
        [.., b'_', b'p', b't', b'd' | b's', b's' | b'z']
    )
}

hooks! {
    Route cuGetProcAddress(name: *const c_char, address: *mut *mut c_void, version: c_int, flags: c_ulonglong) = proc_address::first;
    Route cuGetProcAddress_v2(name: *const c_char, address: *mut *mut c_void, version: c_int, flags: c_ulonglong, status: *mut c_int) = proc_address::second;
    Route cuGetProcAddress_v2_ptsz(name: *const c_char, address: *mut *mut c_void, version: c_int, flags: c_ulonglong, status: *mut c_int) = proc_address::second;
    Route cuGetExportTable(table: *mut *const c_void, id: *const private::TableId) = private::export_table;
    Effect cuMemAlloc_v2(address: *mut CUdeviceptr, size_bytes: usize) = memory::alloc, with thread;
    Effect cuMemAllocPitch_v2(address: *mut CUdeviceptr, pitch_bytes: *mut usize, width_bytes: usize, height: usize, element_bytes: c_uint) = memory::alloc_pitch;
    Effect cuMemFree_v2(address: CUdeviceptr) = memory::free, with thread;
    Effect cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) = memory::free_async::<false>;
    Effect cuMemFreeAsync_ptsz(address: CUdeviceptr, stream: CUstream) = memory::free_async::<true>;
    Count cuMemAlloc(address: *mut c_uint, size_bytes: c_uint) = plain::pass2;
    Count cuMemAllocPitch(address: *mut c_uint, pitch_bytes: *mut c_uint, width_bytes: c_uint, height: c_uint, element_bytes: c_uint) = plain::pass5;
    Count cuMemFree(address: c_uint) = plain::pass1;
    Count cuMemGetInfo(free_bytes: *mut c_uint, total_bytes: *mut c_uint) = plain::pass2;
    Count cuDeviceTotalMem(total_bytes: *mut c_uint, device: CUdevice) = plain::pass2;
    Count cuMemGetAddressRange(base: *mut c_uint, size_bytes: *mut c_uint, address: c_uint) = plain::pass3;
    Effect cuMemGetInfo_v2(free_bytes: *mut usize, total_bytes: *mut usize) = info::get_info;
    Effect cuDeviceTotalMem_v2(total_bytes: *mut usize, device: CUdevice) = info::total_mem;
    Effect cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size_bytes: *mut usize, address: CUdeviceptr) = pointer::address_range;
    Effect cuPointerGetAttribute(data: *mut c_void, attribute: c_int, address: CUdeviceptr) = pointer::get_attribute;
    Effect cuPointerGetAttributes(count: c_uint, attributes: *mut c_int, data: *mut *mut c_void, address: CUdeviceptr) = pointer::get_attributes;
    Effect cuPointerSetAttribute(value: *const c_void, attribute: c_int, address: CUdeviceptr) = pointer::set_attribute;
    Effect cuMemGetHandleForAddressRange(handle: *mut c_void, address: CUdeviceptr, size_bytes: usize, kind: c_int, flags: c_ulonglong) = pointer::handle_for_range;
    Effect cuMemGetAccess(flags: *mut c_ulonglong, place: *const c_void, address: CUdeviceptr) = pointer::get_access;
    Effect cuIpcGetMemHandle(handle: *mut IpcHandle, address: CUdeviceptr) = ipc::get;
    Effect cuIpcOpenMemHandle(address: *mut CUdeviceptr, handle: IpcHandle, flags: c_uint) = ipc::open;
    Effect cuIpcOpenMemHandle_v2(address: *mut CUdeviceptr, handle: IpcHandle, flags: c_uint) = ipc::open;
    Effect cuIpcCloseMemHandle(address: CUdeviceptr) = ipc::close;
    Effect cuCtxCreate(context: *mut CUcontext, flags: c_uint, device: CUdevice) = context::create;
    Effect cuCtxCreate_v2(context: *mut CUcontext, flags: c_uint, device: CUdevice) = context::create;
    Effect cuCtxCreate_v3(context: *mut CUcontext, affinities: *mut c_void, affinity_count: c_int, flags: c_uint, device: CUdevice) = context::create_v3;
    Effect cuCtxCreate_v4(context: *mut CUcontext, parameters: *mut c_void, flags: c_uint, device: CUdevice) = context::create_v4;
    Effect cuCtxDestroy(context: CUcontext) = context::destroy;
    Effect cuCtxDestroy_v2(context: CUcontext) = context::destroy;
    Watch cuCtxAttach(context: *mut CUcontext, flags: c_uint) = context::attach;
    Effect cuCtxDetach(context: CUcontext) = context::detach;
    Effect cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) = context::primary_retain;
    Effect cuDevicePrimaryCtxRelease(device: CUdevice) = context::primary_release;
    Effect cuDevicePrimaryCtxRelease_v2(device: CUdevice) = context::primary_release;
    Effect cuDevicePrimaryCtxReset(device: CUdevice) = context::primary_reset;
    Effect cuDevicePrimaryCtxReset_v2(device: CUdevice) = context::primary_reset;
    Watch cuCtxDisablePeerAccess(peer: CUcontext) = context::disable_peer;
    Watch cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint) = context::enable_peer;
    Watch cuGreenCtxCreate(context: *mut c_void, resources: *mut c_void, device: CUdevice, flags: c_uint) = context::green_create;
    Watch cuStreamCreate(stream: *mut CUstream, flags: c_uint) = stream::create;
    Watch cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) = stream::create_with_priority;
    Watch cuGreenCtxStreamCreate(stream: *mut CUstream, context: *mut c_void, flags: c_uint, priority: c_int) = stream::create_green;
    Watch cuStreamDestroy(stream: CUstream) = stream::destroy;
    Watch cuStreamDestroy_v2(stream: CUstream) = stream::destroy;
    Watch cuStreamBeginCapture(stream: CUstream) = stream::begin_capture::<false>;
    Watch cuStreamBeginCapture_ptsz(stream: CUstream) = stream::begin_capture::<true>;
    Watch cuStreamBeginCapture_v2(stream: CUstream, mode: c_int) = stream::begin_capture_v2::<false>;
    Watch cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: c_int) = stream::begin_capture_v2::<true>;
    Watch cuStreamBeginCaptureToGraph(stream: CUstream, graph: *mut c_void, nodes: *const c_void, edges: *const c_void, node_count: usize, mode: c_int) = stream::begin_capture_to_graph::<false>;
    Watch cuStreamBeginCaptureToGraph_ptsz(stream: CUstream, graph: *mut c_void, nodes: *const c_void, edges: *const c_void, node_count: usize, mode: c_int) = stream::begin_capture_to_graph::<true>;
    Watch cuStreamEndCapture(stream: CUstream, graph: *mut c_void) = stream::end_capture::<false>;
    Watch cuStreamEndCapture_ptsz(stream: CUstream, graph: *mut c_void) = stream::end_capture::<true>;
    Watch cuCtxSynchronize() = wait::context;
    Watch cuCtxSynchronize_v2(context: CUcontext) = wait::context_v2;
    Watch cuStreamSynchronize(stream: CUstream) = plain::observe1;
    Watch cuStreamSynchronize_ptsz(stream: CUstream) = plain::observe1;
    Watch cuStreamQuery(stream: CUstream) = plain::observe1;
    Watch cuStreamQuery_ptsz(stream: CUstream) = plain::observe1;
    Watch cuEventSynchronize(event: CUevent) = plain::observe1;
    Watch cuEventQuery(event: CUevent) = plain::observe1;
    Count cuMemAllocManaged(address: *mut CUdeviceptr, size_bytes: usize, flags: c_uint) = host::alloc_managed;
    Count cuMemAllocHost(address: *mut *mut c_void, size_bytes: c_uint) = host::alloc_host_v1;
    Count cuMemAllocHost_v2(address: *mut *mut c_void, size_bytes: usize) = host::alloc_host;
    Count cuMemHostAlloc(address: *mut *mut c_void, size_bytes: usize, flags: c_uint) = host::host_alloc;
    Count cuMemFreeHost(address: *mut c_void) = host::free_host;
    Count cuMemHostRegister(address: *mut c_void, size_bytes: usize, flags: c_uint) = host::register;
    Count cuMemHostRegister_v2(address: *mut c_void, size_bytes: usize, flags: c_uint) = host::register;
    Effect cuMemHostGetDevicePointer_v2(device_address: *mut CUdeviceptr, address: *mut c_void, flags: c_uint) = host::device_pointer;
    Effect cuMemHostGetFlags(flags: *mut c_uint, address: *mut c_void) = host::flags;
    Count cuMemHostUnregister(address: *mut c_void) = host::unregister;
    Count cuArrayCreate_v2(array: *mut *mut c_void, descriptor: *const ArrayDescriptor) = array::create;
    Count cuArray3DCreate_v2(array: *mut *mut c_void, descriptor: *const Array3dDescriptor) = array::create_3d;
    Count cuArrayDestroy(array: *mut c_void) = array::destroy;
    Count cuMipmappedArrayCreate(array: *mut *mut c_void, descriptor: *const Array3dDescriptor, level_count: c_uint) = array::create_mipmapped;
    Count cuMipmappedArrayDestroy(array: *mut c_void) = array::destroy_mipmapped;
    Count cuMemAllocAsync(address: *mut CUdeviceptr, size_bytes: usize, stream: CUstream) = ordered::alloc;
    Count cuMemAllocAsync_ptsz(address: *mut CUdeviceptr, size_bytes: usize, stream: CUstream) = ordered::alloc;
    Count cuMemAllocFromPoolAsync(address: *mut CUdeviceptr, size_bytes: usize, pool: *mut c_void, stream: CUstream) = ordered::alloc_from_pool;
    Count cuMemAllocFromPoolAsync_ptsz(address: *mut CUdeviceptr, size_bytes: usize, pool: *mut c_void, stream: CUstream) = ordered::alloc_from_pool;
    Count cuMemCreate(handle: *mut c_ulonglong, size_bytes: usize, properties: *const AllocationProperties, flags: c_ulonglong) = vmm::create;
    Count cuMemRelease(handle: c_ulonglong) = vmm::release;
    Count cuMemRetainAllocationHandle(handle: *mut c_ulonglong, address: *mut c_void) = vmm::retain;
    Count cuMemMap(address: CUdeviceptr, size_bytes: usize, offset_bytes: usize, handle: c_ulonglong, flags: c_ulonglong) = vmm::map;
    Count cuMemUnmap(address: CUdeviceptr, size_bytes: usize) = vmm::unmap;
    Watch cuMemExportToShareableHandle(shareable: *mut c_void, handle: c_ulonglong, kind: c_int, flags: c_ulonglong) = host::share4;
    Watch cuImportExternalMemory(external: *mut c_void, descriptor: *const c_void) = host::share2;
    Count cuGraphAddMemAllocNode(node: *mut c_void, graph: *mut c_void, dependencies: *const c_void, dependency_count: usize, parameters: *mut c_void) = plain::retry5;
    Count cuGraphAddMemFreeNode(node: *mut c_void, graph: *mut c_void, dependencies: *const c_void, dependency_count: usize, address: CUdeviceptr) = plain::pass5;
    Effect cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, size_bytes: usize) = copy::any;
    Effect cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, size_bytes: usize) = copy::any;
    Effect cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, size_bytes: usize, stream: CUstream) = copy::any_async;
    Effect cuMemcpyAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, size_bytes: usize, stream: CUstream) = copy::any_async;
    Effect cuMemcpyHtoD_v2(to: CUdeviceptr, from: *mut c_void, size_bytes: usize) = copy::from_host;
    Effect cuMemcpyHtoD_v2_ptds(to: CUdeviceptr, from: *mut c_void, size_bytes: usize) = copy::from_host;
    Effect cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *mut c_void, size_bytes: usize, stream: CUstream) = copy::from_host_async;
    Effect cuMemcpyHtoDAsync_v2_ptsz(to: CUdeviceptr, from: *mut c_void, size_bytes: usize, stream: CUstream) = copy::from_host_async;
    Effect cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, size_bytes: usize) = copy::to_host;
    Effect cuMemcpyDtoH_v2_ptds(to: *mut c_void, from: CUdeviceptr, size_bytes: usize) = copy::to_host;
    Effect cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, size_bytes: usize, stream: CUstream) = copy::to_host_async;
    Effect cuMemcpyDtoHAsync_v2_ptsz(to: *mut c_void, from: CUdeviceptr, size_bytes: usize, stream: CUstream) = copy::to_host_async;
    Effect cuMemcpyDtoD_v2(to: CUdeviceptr, from: CUdeviceptr, size_bytes: usize) = copy::any;
    Effect cuMemcpyDtoD_v2_ptds(to: CUdeviceptr, from: CUdeviceptr, size_bytes: usize) = copy::any;
    Effect cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, size_bytes: usize, stream: CUstream) = copy::any_async;
    Effect cuMemcpyDtoDAsync_v2_ptsz(to: CUdeviceptr, from: CUdeviceptr, size_bytes: usize, stream: CUstream) = copy::any_async;
    Effect cuMemcpyDtoA_v2(to: *mut c_void, offset: usize, from: CUdeviceptr, size_bytes: usize) = copy::to_array;
    Effect cuMemcpyDtoA_v2_ptds(to: *mut c_void, offset: usize, from: CUdeviceptr, size_bytes: usize) = copy::to_array;
    Effect cuMemcpyAtoD_v2(to: CUdeviceptr, from: *mut c_void, offset: usize, size_bytes: usize) = copy::from_array;
    Effect cuMemcpyAtoD_v2_ptds(to: CUdeviceptr, from: *mut c_void, offset: usize, size_bytes: usize) = copy::from_array;
    Effect cuMemcpyPeer(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, size_bytes: usize) = copy::peer;
    Effect cuMemcpyPeer_ptds(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, size_bytes: usize) = copy::peer;
    Effect cuMemcpyPeerAsync(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, size_bytes: usize, stream: CUstream) = copy::peer_async;
    Effect cuMemcpyPeerAsync_ptsz(to: CUdeviceptr, to_context: CUcontext, from: CUdeviceptr, from_context: CUcontext, size_bytes: usize, stream: CUstream) = copy::peer_async;
    Effect cuMemcpy2D_v2(copy: *const copy::Copy2d) = copy::flat_2d;
    Effect cuMemcpy2D_v2_ptds(copy: *const copy::Copy2d) = copy::flat_2d;
    Effect cuMemcpy2DAsync_v2(copy: *const copy::Copy2d, stream: CUstream) = copy::flat_2d_async;
    Effect cuMemcpy2DAsync_v2_ptsz(copy: *const copy::Copy2d, stream: CUstream) = copy::flat_2d_async;
    Effect cuMemcpy2DUnaligned_v2(copy: *const copy::Copy2d) = copy::flat_2d;
    Effect cuMemcpy2DUnaligned_v2_ptds(copy: *const copy::Copy2d) = copy::flat_2d;
    Effect cuMemcpy3D_v2(copy: *const copy::Copy3d) = copy::flat_3d;
    Effect cuMemcpy3D_v2_ptds(copy: *const copy::Copy3d) = copy::flat_3d;
    Effect cuMemcpy3DAsync_v2(copy: *const copy::Copy3d, stream: CUstream) = copy::flat_3d_async;
    Effect cuMemcpy3DAsync_v2_ptsz(copy: *const copy::Copy3d, stream: CUstream) = copy::flat_3d_async;
    Effect cuMemcpy3DPeer(copy: *const copy::Copy3d) = copy::peer_3d;
    Effect cuMemcpy3DPeer_ptds(copy: *const copy::Copy3d) = copy::peer_3d;
    Effect cuMemcpy3DPeerAsync(copy: *const copy::Copy3d, stream: CUstream) = copy::peer_3d_async;
    Effect cuMemcpy3DPeerAsync_ptsz(copy: *const copy::Copy3d, stream: CUstream) = copy::peer_3d_async;
    Effect cuMemsetD8_v2(to: CUdeviceptr, value: c_uchar, count: usize) = copy::set_8;
    Effect cuMemsetD8_v2_ptds(to: CUdeviceptr, value: c_uchar, count: usize) = copy::set_8;
    Effect cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) = copy::set_8_async;
    Effect cuMemsetD8Async_ptsz(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) = copy::set_8_async;
    Effect cuMemsetD16_v2(to: CUdeviceptr, value: c_ushort, count: usize) = copy::set_16;
    Effect cuMemsetD16_v2_ptds(to: CUdeviceptr, value: c_ushort, count: usize) = copy::set_16;
    Effect cuMemsetD16Async(to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) = copy::set_16_async;
    Effect cuMemsetD16Async_ptsz(to: CUdeviceptr, value: c_ushort, count: usize, stream: CUstream) = copy::set_16_async;
    Effect cuMemsetD32_v2(to: CUdeviceptr, value: c_uint, count: usize) = copy::set_32;
    Effect cuMemsetD32_v2_ptds(to: CUdeviceptr, value: c_uint, count: usize) = copy::set_32;
    Effect cuMemsetD32Async(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) = copy::set_32_async;
    Effect cuMemsetD32Async_ptsz(to: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) = copy::set_32_async;
    Effect cuMemsetD2D8_v2(to: CUdeviceptr, pitch_bytes: usize, value: c_uchar, width: usize, count: usize) = copy::set_2d_8;
    Effect cuMemsetD2D8_v2_ptds(to: CUdeviceptr, pitch_bytes: usize, value: c_uchar, width: usize, count: usize) = copy::set_2d_8;
    Effect cuMemsetD2D8Async(to: CUdeviceptr, pitch_bytes: usize, value: c_uchar, width: usize, count: usize, stream: CUstream) = copy::set_2d_8_async;
    Effect cuMemsetD2D8Async_ptsz(to: CUdeviceptr, pitch_bytes: usize, value: c_uchar, width: usize, count: usize, stream: CUstream) = copy::set_2d_8_async;
    Effect cuMemsetD2D16_v2(to: CUdeviceptr, pitch_bytes: usize, value: c_ushort, width: usize, count: usize) = copy::set_2d_16;
    Effect cuMemsetD2D16_v2_ptds(to: CUdeviceptr, pitch_bytes: usize, value: c_ushort, width: usize, count: usize) = copy::set_2d_16;
    Effect cuMemsetD2D16Async(to: CUdeviceptr, pitch_bytes: usize, value: c_ushort, width: usize, count: usize, stream: CUstream) = copy::set_2d_16_async;
    Effect cuMemsetD2D16Async_ptsz(to: CUdeviceptr, pitch_bytes: usize, value: c_ushort, width: usize, count: usize, stream: CUstream) = copy::set_2d_16_async;
    Effect cuMemsetD2D32_v2(to: CUdeviceptr, pitch_bytes: usize, value: c_uint, width: usize, count: usize) = copy::set_2d_32;
    Effect cuMemsetD2D32_v2_ptds(to: CUdeviceptr, pitch_bytes: usize, value: c_uint, width: usize, count: usize) = copy::set_2d_32;
    Effect cuMemsetD2D32Async(to: CUdeviceptr, pitch_bytes: usize, value: c_uint, width: usize, count: usize, stream: CUstream) = copy::set_2d_32_async;
    Effect cuMemsetD2D32Async_ptsz(to: CUdeviceptr, pitch_bytes: usize, value: c_uint, width: usize, count: usize, stream: CUstream) = copy::set_2d_32_async;
    Effect cuMemcpyWithAttributesAsync(to: CUdeviceptr, from: CUdeviceptr, size_bytes: usize, attributes: *mut c_void, stream: CUstream) = copy::with_attributes_async;
    Effect cuMemcpyWithAttributesAsync_ptsz(to: CUdeviceptr, from: CUdeviceptr, size_bytes: usize, attributes: *mut c_void, stream: CUstream) = copy::with_attributes_async;
    Effect cuMemcpy3DWithAttributesAsync(copy: *mut c_void, flags: c_ulonglong, stream: CUstream) = copy::with_attributes_3d_async;
    Effect cuMemcpy3DWithAttributesAsync_ptsz(copy: *mut c_void, flags: c_ulonglong, stream: CUstream) = copy::with_attributes_3d_async;
    Effect cuMemcpy3DBatchAsync_v2(count: usize, copies: *mut c_void, flags: c_ulonglong, stream: CUstream) = copy::batch_3d_async;
    Effect cuMemcpy3DBatchAsync_v2_ptsz(count: usize, copies: *mut c_void, flags: c_ulonglong, stream: CUstream) = copy::batch_3d_async;
    Effect cuMemcpy3DBatchAsync(count: usize, copies: *mut c_void, failed_at: *mut usize, flags: c_ulonglong, stream: CUstream) = copy::batch_3d_async_v1;
    Effect cuMemcpy3DBatchAsync_ptsz(count: usize, copies: *mut c_void, failed_at: *mut usize, flags: c_ulonglong, stream: CUstream) = copy::batch_3d_async_v1;
    Effect cuMemcpyBatchAsync_v2(to: *mut CUdeviceptr, from: *mut CUdeviceptr, sizes_bytes: *mut usize, count: usize, attributes: *mut c_void, attribute_indexes: *mut usize, attribute_count: usize, stream: CUstream) = copy::batch_async;
    Effect cuMemcpyBatchAsync_v2_ptsz(to: *mut CUdeviceptr, from: *mut CUdeviceptr, sizes_bytes: *mut usize, count: usize, attributes: *mut c_void, attribute_indexes: *mut usize, attribute_count: usize, stream: CUstream) = copy::batch_async;
    Effect cuMemcpyBatchAsync(to: *mut CUdeviceptr, from: *mut CUdeviceptr, sizes_bytes: *mut usize, count: usize, attributes: *mut c_void, attribute_indexes: *mut usize, attribute_count: usize, failed_at: *mut usize, stream: CUstream) = copy::batch_async_v1;
    Effect cuMemcpyBatchAsync_ptsz(to: *mut CUdeviceptr, from: *mut CUdeviceptr, sizes_bytes: *mut usize, count: usize, attributes: *mut c_void, attribute_indexes: *mut usize, attribute_count: usize, failed_at: *mut usize, stream: CUstream) = copy::batch_async_v1;
    Effect cuStreamWaitValue32(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint) = values::wait_async;
    Effect cuStreamWaitValue32_ptsz(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint) = values::wait_async;
    Effect cuStreamWaitValue32_v2(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint) = values::wait_async;
    Effect cuStreamWaitValue32_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint) = values::wait_async;
    Effect cuStreamWaitValue64(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint) = values::wait_async;
    Effect cuStreamWaitValue64_ptsz(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint) = values::wait_async;
    Effect cuStreamWaitValue64_v2(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint) = values::wait_async;
    Effect cuStreamWaitValue64_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint) = values::wait_async;
    Effect cuStreamWriteValue32(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint) = values::word_async;
    Effect cuStreamWriteValue32_ptsz(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint) = values::word_async;
    Effect cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint) = values::word_async;
    Effect cuStreamWriteValue32_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint) = values::word_async;
    Effect cuStreamWriteValue64(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint) = values::word_async;
    Effect cuStreamWriteValue64_ptsz(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint) = values::word_async;
    Effect cuStreamWriteValue64_v2(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint) = values::word_async;
    Effect cuStreamWriteValue64_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint) = values::word_async;
    Effect cuStreamBatchMemOp(stream: CUstream, count: c_uint, operations: *mut values::Operation, flags: c_uint) = values::batch_async;
    Effect cuStreamBatchMemOp_ptsz(stream: CUstream, count: c_uint, operations: *mut values::Operation, flags: c_uint) = values::batch_async;
    Effect cuStreamBatchMemOp_v2(stream: CUstream, count: c_uint, operations: *mut values::Operation, flags: c_uint) = values::batch_async;
    Effect cuStreamBatchMemOp_v2_ptsz(stream: CUstream, count: c_uint, operations: *mut values::Operation, flags: c_uint) = values::batch_async;
    Effect cuGraphAddMemcpyNode(node: *mut c_void, graph: *mut c_void, dependencies: *const c_void, dependency_count: usize, copy: *mut copy::Copy3d, context: CUcontext) = graph::add_copy;
    Effect cuGraphAddMemsetNode(node: *mut c_void, graph: *mut c_void, dependencies: *const c_void, dependency_count: usize, set: *mut graph::Set, context: CUcontext) = graph::add_set;
    Effect cuGraphAddNode(node: *mut c_void, graph: *mut c_void, dependencies: *const c_void, dependency_count: usize, parameters: *mut graph::Parameters) = graph::add;
    Effect cuGraphAddNode_v2(node: *mut c_void, graph: *mut c_void, dependencies: *const c_void, edges: *const c_void, dependency_count: usize, parameters: *mut graph::Parameters) = graph::add_v2;
    Effect cuGraphMemcpyNodeSetParams(node: *mut c_void, copy: *mut copy::Copy3d) = graph::change_copy;
    Effect cuGraphMemsetNodeSetParams(node: *mut c_void, set: *mut graph::Set) = graph::change_set;
    Effect cuGraphNodeSetParams(node: *mut c_void, parameters: *mut graph::Parameters) = graph::change;
    Effect cuGraphExecMemcpyNodeSetParams(executable: *mut c_void, node: *mut c_void, copy: *mut copy::Copy3d, context: CUcontext) = graph::change_copy_in;
    Effect cuGraphExecMemsetNodeSetParams(executable: *mut c_void, node: *mut c_void, set: *mut graph::Set, context: CUcontext) = graph::change_set_in;
    Effect cuGraphExecNodeSetParams(executable: *mut c_void, node: *mut c_void, parameters: *mut graph::Parameters) = graph::change_in;
    Watch cuModuleLoad(module: *mut c_void, path: *const c_void) = plain::retry2;
    Watch cuModuleLoadData(module: *mut c_void, image: *const c_void) = plain::retry2;
    Watch cuModuleLoadFatBinary(module: *mut c_void, image: *const c_void) = plain::retry2;
    Watch cuModuleLoadDataEx(module: *mut c_void, image: *const c_void, option_count: c_uint, options: *mut c_void, values: *mut c_void) = plain::retry5;
    Watch cuModuleGetFunction(function: *mut c_void, module: *mut c_void, name: *const c_void) = plain::retry3;
    Watch cuLibraryGetKernel(kernel: *mut c_void, library: *mut c_void, name: *const c_void) = plain::retry3;
    Watch cuLibraryLoadData(library: *mut c_void, image: *const c_void, jit_options: *mut c_void, jit_values: *mut c_void, jit_count: c_uint, options: *mut c_void, values: *mut c_void, count: c_uint) = plain::retry8;
    Watch cuGraphInstantiateWithFlags(executable: *mut c_void, graph: *mut c_void, flags: c_ulonglong) = plain::retry3;
    Watch cuGraphInstantiateWithParams(executable: *mut c_void, graph: *mut c_void, parameters: *mut c_void) = plain::retry3;
    Watch cuGraphInstantiateWithParams_ptsz(executable: *mut c_void, graph: *mut c_void, parameters: *mut c_void) = plain::retry3;
    Watch cuGraphUpload(executable: *mut c_void, stream: CUstream) = plain::retry2;
    Watch cuGraphUpload_ptsz(executable: *mut c_void, stream: CUstream) = plain::retry2;
    Watch cuGraphLaunch(executable: *mut c_void, stream: CUstream) = stream::launch_graph;
    Watch cuGraphLaunch_ptsz(executable: *mut c_void, stream: CUstream) = stream::launch_graph;
    Watch cuLaunchHostFunc(stream: CUstream, function: *mut c_void, data: *mut c_void) = stream::host_function;
    Watch cuLaunchHostFunc_ptsz(stream: CUstream, function: *mut c_void, data: *mut c_void) = stream::host_function;
    Watch cuLaunchHostFunc_v2(stream: CUstream, function: *mut c_void, data: *mut c_void, mode: c_uint) = stream::host_function_v2;
    Watch cuLaunchHostFunc_v2_ptsz(stream: CUstream, function: *mut c_void, data: *mut c_void, mode: c_uint) = stream::host_function_v2;
    Watch cuStreamAddCallback(stream: CUstream, function: *mut c_void, data: *mut c_void, flags: c_uint) = stream::host_function_v2;
    Watch cuStreamAddCallback_ptsz(stream: CUstream, function: *mut c_void, data: *mut c_void, flags: c_uint) = stream::host_function_v2;
    Watch cuWaitExternalSemaphoresAsync(semaphores: *const c_void, parameters: *const c_void, count: c_uint, stream: CUstream) = stream::await_semaphores_async;
    Watch cuWaitExternalSemaphoresAsync_ptsz(semaphores: *const c_void, parameters: *const c_void, count: c_uint, stream: CUstream) = stream::await_semaphores_async;
    Watch cuMemPoolCreate(pool: *mut c_void, properties: *const c_void) = plain::retry2;
    Watch cuCtxSetLimit(limit: c_int, value: usize) = plain::retry2;
    ---
    Order cuEGLStreamConsumerAcquireFrame "rsp";
    Order cuEGLStreamConsumerReleaseFrame "rsp";
    Order cuEGLStreamProducerPresentFrame "rsp";
    Order cuEGLStreamProducerReturnFrame "rsp";
    Order cuFabricCpyBatchAsync "rcx";
    Order cuFabricCpyBatchAsync_ptsz "rsp";
    Order cuGLMapBufferObjectAsync "rcx";
    Order cuGLMapBufferObjectAsync_ptsz "rsp";
    Order cuGLMapBufferObjectAsync_v2 "rcx";
    Order cuGLMapBufferObject_ptds "rsp";
    Order cuGLUnmapBufferObjectAsync "rsi";
    Order cuGraphicsMapResources "rdx";
    Order cuGraphicsMapResources_ptsz "rsp";
    Order cuGraphicsUnmapResources "rdx";
    Order cuGraphicsUnmapResources_ptsz "rsp";
    Order cuLaunchCooperativeKernel "qword ptr [rsp + 24]";
    Order cuLaunchCooperativeKernelMultiDevice "rsp";
    Order cuLaunchCooperativeKernel_ptsz "rsp";
    Order cuLaunchGridAsync "rcx";
    Order cuLaunchKernel "qword ptr [rsp + 24]";
    Order cuLaunchKernelEx "rsp";
    Order cuLaunchKernelEx_ptsz "rsp";
    Order cuLaunchKernel_ptsz "rsp";
    Order cuLogicalEndpointBindAddr "rsp";
    Order cuMemBatchDecompressAsync "r8";
    Order cuMemBatchDecompressAsync_ptsz "rsp";
    Order cuMemDiscardAndPrefetchBatchAsync "qword ptr [rsp + 16]";
    Order cuMemDiscardAndPrefetchBatchAsync_ptsz "rsp";
    Order cuMemDiscardBatchAsync "r8";
    Order cuMemDiscardBatchAsync_ptsz "rsp";
    Order cuMemMapArrayAsync "rdx";
    Order cuMemMapArrayAsync_ptsz "rsp";
    Order cuMemPrefetchAsync "rcx";
    Order cuMemPrefetchAsync_ptsz "rsp";
    Order cuMemPrefetchAsync_v2 "r8";
    Order cuMemPrefetchAsync_v2_ptsz "rsp";
    Order cuMemPrefetchBatchAsync "qword ptr [rsp + 16]";
    Order cuMemPrefetchBatchAsync_ptsz "rsp";
    Order cuMemcpy2DAsync "rsi";
    Order cuMemcpy3DAsync "rsi";
    Order cuMemcpyAtoA_v2_ptds "rsp";
    Order cuMemcpyAtoHAsync "r8";
    Order cuMemcpyAtoHAsync_v2 "r8";
    Order cuMemcpyAtoHAsync_v2_ptsz "rsp";
    Order cuMemcpyAtoH_v2_ptds "rsp";
    Order cuMemcpyDtoDAsync "rcx";
    Order cuMemcpyDtoHAsync "rcx";
    Order cuMemcpyHtoAAsync "r8";
    Order cuMemcpyHtoAAsync_v2 "r8";
    Order cuMemcpyHtoAAsync_v2_ptsz "rsp";
    Order cuMemcpyHtoA_v2_ptds "rsp";
    Order cuMemcpyHtoDAsync "rcx";
    Order cuSignalExternalSemaphoresAsync "rcx";
    Order cuSignalExternalSemaphoresAsync_ptsz "rsp";
    Order cuStreamAttachMemAsync "rdi";
    Order cuStreamAttachMemAsync_ptsz "rsp";
    Order cuStreamBeginCaptureToCig "rsp";
    Order cuStreamBeginCaptureToCig_ptsz "rsp";
    Order cuStreamBeginRecaptureToGraph "rsp";
    Order cuStreamBeginRecaptureToGraph_ptsz "rsp";
}

runtime! {
    cudaMalloc cudaFree cudaMallocPitch cudaMalloc3D cudaMallocManaged
    cudaMallocHost cudaHostAlloc cudaFreeHost
    cudaMallocArray cudaMalloc3DArray cudaFreeArray cudaMallocMipmappedArray cudaFreeMipmappedArray
    cudaMallocAsync cudaMallocAsync_ptsz cudaFreeAsync cudaFreeAsync_ptsz
    cudaMallocFromPoolAsync cudaMallocFromPoolAsync_ptsz
    cudaMemGetInfo
}

/// Functions of the C library that are exported here too.
pub static LIBC: [&CStr; 4] = [c"dlsym", c"dlvsym", c"_exit", c"_Exit"];

/// Whether the shim exports a runtime function of exactly this name.
pub fn is_runtime(name: &CStr) -> bool {
    RUNTIME.contains(&name)
}
