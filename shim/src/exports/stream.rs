//! Streams and their captures: the driver does the work, the shim learns what the pool must respect.

use crate::abi::*;
use crate::device::{capture, contexts, order, reclaim};
use std::ffi::{c_int, c_uint, c_void};

/// The stream meant: in the per-thread twins of a function the null stream is the thread's own.
pub fn named<const PER_THREAD: bool>(stream: CUstream) -> CUstream {
    if PER_THREAD && stream.is_null() {
        PER_THREAD_STREAM
    } else {
        stream
    }
}

/// `cuStreamCreate`.
pub unsafe fn create(
    real: unsafe extern "C" fn(*mut CUstream, c_uint) -> Status,
    stream: *mut CUstream,
    flags: c_uint,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    reclaim::retried(|| unsafe { real(stream, flags) })
}

/// `cuStreamCreateWithPriority`.
pub unsafe fn create_with_priority(
    real: unsafe extern "C" fn(*mut CUstream, c_uint, c_int) -> Status,
    stream: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    reclaim::retried(|| unsafe { real(stream, flags, priority) })
}

/// `cuGreenCtxStreamCreate`.
pub unsafe fn create_green(
    real: unsafe extern "C" fn(*mut CUstream, *mut c_void, c_uint, c_int) -> Status,
    stream: *mut CUstream,
    context: *mut c_void,
    flags: c_uint,
    priority: c_int,
) -> Status {
    order::lose("a stream of a green context was made");
    // SAFETY: the caller's arguments, unchanged.
    reclaim::retried(|| unsafe { real(stream, context, flags, priority) })
}

/// `cuGraphLaunch`.
pub unsafe fn launch_graph(
    real: unsafe extern "C" fn(*mut c_void, CUstream) -> Status,
    executable: *mut c_void,
    stream: CUstream,
) -> Status {
    order::lose("a graph was launched");
    contexts::note_work_anywhere();
    // It may have host functions, and wait for semaphores.
    contexts::before_hold();
    // SAFETY: the caller's arguments, unchanged.
    reclaim::retried(|| unsafe { real(executable, stream) })
}

/// `cuLaunchHostFunc`: what it does nobody knows, and it may wait for what the program does next.
pub unsafe fn host_function(
    real: unsafe extern "C" fn(CUstream, *mut c_void, *mut c_void) -> Status,
    stream: CUstream,
    function: *mut c_void,
    data: *mut c_void,
) -> Status {
    order::note_stream(stream);
    contexts::before_hold();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real(stream, function, data) }
}

/// `cuLaunchHostFunc_v2`, `cuStreamAddCallback`: the same with flags.
pub unsafe fn host_function_v2(
    real: unsafe extern "C" fn(CUstream, *mut c_void, *mut c_void, c_uint) -> Status,
    stream: CUstream,
    function: *mut c_void,
    data: *mut c_void,
    flags: c_uint,
) -> Status {
    order::note_stream(stream);
    contexts::before_hold();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real(stream, function, data, flags) }
}

/// `cuWaitExternalSemaphoresAsync`: another process or interface signals them.
pub unsafe fn await_semaphores_async(
    real: unsafe extern "C" fn(*const c_void, *const c_void, c_uint, CUstream) -> Status,
    semaphores: *const c_void,
    parameters: *const c_void,
    count: c_uint,
    stream: CUstream,
) -> Status {
    order::note_stream(stream);
    contexts::before_hold();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real(semaphores, parameters, count, stream) }
}

/// `cuStreamDestroy`, `cuStreamDestroy_v2`.
pub unsafe fn destroy(real: unsafe extern "C" fn(CUstream) -> Status, stream: CUstream) -> Status {
    let ended = capture::end(stream);
    // SAFETY: the caller's arguments, unchanged.
    let code = unsafe { real(stream) };
    if code != SUCCESS {
        capture::put_back(ended);
    }
    code
}

/// `cuStreamBeginCapture`.
pub unsafe fn begin_capture<const PER_THREAD: bool>(
    real: unsafe extern "C" fn(CUstream) -> Status,
    stream: CUstream,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    capture::begin(named::<PER_THREAD>(stream), || unsafe { real(stream) })
}

/// `cuStreamBeginCapture_v2`.
pub unsafe fn begin_capture_v2<const PER_THREAD: bool>(
    real: unsafe extern "C" fn(CUstream, c_int) -> Status,
    stream: CUstream,
    mode: c_int,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    capture::begin(named::<PER_THREAD>(stream), || unsafe {
        real(stream, mode)
    })
}

/// `cuStreamBeginCaptureToGraph`.
pub unsafe fn begin_capture_to_graph<const PER_THREAD: bool>(
    real: unsafe extern "C" fn(
        CUstream,
        *mut c_void,
        *const c_void,
        *const c_void,
        usize,
        c_int,
    ) -> Status,
    stream: CUstream,
    graph: *mut c_void,
    nodes: *const c_void,
    edges: *const c_void,
    node_count: usize,
    mode: c_int,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    capture::begin(named::<PER_THREAD>(stream), || unsafe {
        real(stream, graph, nodes, edges, node_count, mode)
    })
}

/// `cuStreamEndCapture`.
pub unsafe fn end_capture<const PER_THREAD: bool>(
    real: unsafe extern "C" fn(CUstream, *mut c_void) -> Status,
    stream: CUstream,
    graph: *mut c_void,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    let code = unsafe { real(stream, graph) };
    // A capture that could not be ended here (another thread's) goes on; what it is now, the driver is asked when it matters.
    let stream = named::<PER_THREAD>(stream);
    if code == SUCCESS || !capture::is_capturing(stream) {
        capture::end(stream);
    }
    code
}
