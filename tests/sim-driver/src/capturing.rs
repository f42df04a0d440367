//! The functions that begin, end and question captures.
use crate::abi::*;
use crate::capture::{Capture, GLOBAL, RELAXED};
use crate::entry::thread;
use crate::graph::Graph;
use crate::state::{lock, State};
use crate::stream::Sort;
use std::collections::BTreeMap;
use std::ffi::c_void;

fn begin(stream: Handle, graph: Option<Handle>, after: Vec<Handle>, mode: u32) -> R {
    let mut st = lock();
    if mode > 2 {
        return Err(INVALID_VALUE);
    }
    let key = st.stream(stream)?;
    let s = &st.streams[&key];
    if s.sort == Sort::Legacy {
        return Err(STREAM_CAPTURE_UNSUPPORTED);
    }
    if s.capture.is_some() {
        return Err(ILLEGAL_STATE);
    }
    let context = s.context;
    let graph = match graph {
        Some(g) if st.graphs.contains_key(&g) => g,
        Some(_) => return Err(INVALID_VALUE),
        None => {
            let g = st.handle();
            st.graphs.insert(g, Graph::default());
            g
        }
    };
    st.last_capture += 1;
    let id = st.last_capture;
    let tails = BTreeMap::from([(key, after)]);
    st.captures.insert(
        id,
        Capture {
            mode,
            thread: thread(),
            origin: key,
            context,
            graph,
            invalid: false,
            tails,
        },
    );
    if let Some(s) = st.streams.get_mut(&key) {
        s.capture = Some(id);
    }
    Ok(())
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn end(stream: Handle, out: *mut Handle) -> R {
    let mut st = lock();
    let key = st.stream(stream)?;
    // SAFETY: passed on; whatever fails leaves no graph.
    unsafe { put(out, 0)? };
    let id = st.streams[&key].capture.ok_or(ILLEGAL_STATE)?;
    let c = st.captures.get_mut(&id).ok_or(UNKNOWN)?;
    if c.origin != key {
        c.invalid = true;
        return Err(STREAM_CAPTURE_UNMATCHED);
    }
    // That it can no longer succeed is told to any thread (measured).
    if !c.invalid && c.thread != thread() && c.mode != RELAXED {
        return Err(STREAM_CAPTURE_WRONG_THREAD);
    }
    let Some(c) = st.forget_capture(id) else {
        return Err(UNKNOWN);
    };
    let origin = c.tails.get(&key).cloned().unwrap_or_default();
    let unjoined = c
        .tails
        .iter()
        .any(|(&s, tail)| s != key && tail.iter().any(|n| !st.reaches(c.graph, &origin, *n)));
    if c.invalid || unjoined {
        st.drop_graph(c.graph);
        return Err(if c.invalid {
            STREAM_CAPTURE_INVALIDATED
        } else {
            STREAM_CAPTURE_UNJOINED
        });
    }
    // SAFETY: passed on.
    unsafe { put(out, c.graph) }
}

/// Status 0 none, 1 active, 2 invalidated; the id; the graph.
fn info(st: &State, key: Handle) -> (i32, u64, Handle) {
    match st.streams[&key]
        .capture
        .and_then(|id| Some((id, st.captures.get(&id)?)))
    {
        None => (0, 0, 0),
        Some((id, c)) => (if c.invalid { 2 } else { 1 }, id, c.graph),
    }
}

/// # Safety
/// The out-pointers are null or valid for writes.
unsafe fn get_info(
    stream: Handle,
    status: *mut i32,
    id: *mut u64,
    graph: *mut Handle,
    after: *mut *const Handle,
    edges: *mut *const c_void,
    count: *mut usize,
) -> R {
    let mut st = lock();
    let key = st.stream(stream)?;
    if !st.implicit_captures(key).is_empty() {
        return Err(STREAM_CAPTURE_IMPLICIT);
    }
    let (now, capture, g) = info(&st, key);
    let tail = st.captures.get(&capture).and_then(|c| c.tails.get(&key));
    // SAFETY: passed on. The list lives in the capture until its next node, as natively.
    unsafe {
        put(status, now)?;
        if now == 1 {
            put_opt(id, capture);
            put_opt(graph, g);
            put_opt(after, tail.map_or(std::ptr::null(), |t| t.as_ptr()));
            put_opt(edges, std::ptr::null());
            put_opt(count, tail.map_or(0, Vec::len));
        }
    }
    Ok(())
}

/// # Safety
/// `p` points to `n` handles.
unsafe fn list(p: *const Handle, n: usize) -> Vec<Handle> {
    if p.is_null() || n == 0 {
        return Vec::new();
    }
    // SAFETY: by contract.
    unsafe { std::slice::from_raw_parts(p, n).to_vec() }
}

fn update(stream: Handle, nodes: Vec<Handle>, flags: u32) -> R {
    let mut st = lock();
    let key = st.stream(stream)?;
    let c = st.capture_of(key).ok_or(ILLEGAL_STATE)?;
    let tail = c.tails.entry(key).or_default();
    if flags & 1 != 0 {
        tail.clear();
    }
    tail.extend(nodes);
    Ok(())
}

api! {
    fn cuStreamBeginCapture | cuStreamBeginCapture_ptsz (stream: Handle) {
        begin(stream, None, Vec::new(), GLOBAL)
    }
    fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz (stream: Handle, mode: u32) {
        begin(stream, None, Vec::new(), mode)
    }
    fn cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz (stream: Handle, graph: Handle, after: *const Handle, edges: *const c_void, count: usize, mode: u32) {
        begin(stream, Some(graph), list(after, count), mode)
    }
    fn cuStreamEndCapture | cuStreamEndCapture_ptsz (stream: Handle, graph: *mut Handle) {
        end(stream, graph)
    }
    fn cuStreamIsCapturing | cuStreamIsCapturing_ptsz (stream: Handle, status: *mut i32) {
        let mut st = lock();
        let key = st.stream(stream)?;
        if !st.implicit_captures(key).is_empty() {
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        put(status, info(&st, key).0)
    }
    fn cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz (stream: Handle, status: *mut i32, id: *mut u64) {
        get_info(stream, status, id, std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut())
    }
    fn cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz (stream: Handle, status: *mut i32, id: *mut u64, graph: *mut Handle, after: *mut *const Handle, count: *mut usize) {
        get_info(stream, status, id, graph, after, std::ptr::null_mut(), count)
    }
    fn cuStreamGetCaptureInfo_v3 | cuStreamGetCaptureInfo_v3_ptsz (stream: Handle, status: *mut i32, id: *mut u64, graph: *mut Handle, after: *mut *const Handle, edges: *mut *const c_void, count: *mut usize) {
        get_info(stream, status, id, graph, after, edges, count)
    }
    fn cuStreamUpdateCaptureDependencies | cuStreamUpdateCaptureDependencies_ptsz (stream: Handle, nodes: *const Handle, count: usize, flags: u32) {
        update(stream, list(nodes, count), flags)
    }
    fn cuStreamUpdateCaptureDependencies_v2 | cuStreamUpdateCaptureDependencies_v2_ptsz (stream: Handle, nodes: *const Handle, edges: *const c_void, count: usize, flags: u32) {
        update(stream, list(nodes, count), flags)
    }
}
