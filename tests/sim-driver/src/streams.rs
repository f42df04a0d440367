//! The functions about streams.
use crate::abi::*;
use crate::action::Action;
use crate::ranges::Kind;
use crate::state::lock;
use crate::stream::{wait_points, Sort};
use std::ffi::c_void;

fn create(out: *mut Handle, flags: u32, priority: i32) -> R {
    let mut st = lock();
    let context = st.current()?;
    if out.is_null() || flags > 1 {
        return Err(INVALID_VALUE);
    }
    let sort = if flags & 1 != 0 {
        Sort::NonBlocking
    } else {
        Sort::Blocking
    };
    let key = st.new_stream(context, sort, flags, priority.clamp(-5, 0));
    // SAFETY: the C caller vouches for the out-pointer.
    unsafe { put(out, key) }
}

api! {
    fn cuStreamCreate(out: *mut Handle, flags: u32) {
        create(out, flags, 0)
    }
    fn cuStreamCreateWithPriority(out: *mut Handle, flags: u32, priority: i32) {
        create(out, flags, priority)
    }
    fn cuStreamDestroy | cuStreamDestroy_v2 (stream: Handle) {
        let mut st = lock();
        if stream <= 2 {
            return Err(INVALID_HANDLE);
        }
        let key = st.stream(stream)?;
        st.end_capture_of(key);
        let idle = st.streams[&key].queue.is_empty();
        if idle {
            st.streams.remove(&key);
        } else if let Some(s) = st.streams.get_mut(&key) {
            s.destroyed = true;
        }
        Ok(())
    }
    fn cuStreamSynchronize | cuStreamSynchronize_ptsz (stream: Handle) {
        let mut st = lock();
        let key = st.stream(stream)?;
        st.refuse_while_capturing(Some(key))?;
        let context = st.streams[&key].context;
        let points = st.stream_points(key);
        let st = wait_points(st, &points);
        st.check_context(context)
    }
    fn cuStreamQuery | cuStreamQuery_ptsz (stream: Handle) {
        let mut st = lock();
        let key = st.stream(stream)?;
        st.refuse_while_capturing(Some(key))?;
        let done = st.stream_points(key).iter().all(|p| st.complete(p));
        if done { Ok(()) } else { Err(NOT_READY) }
    }
    fn cuStreamGetFlags | cuStreamGetFlags_ptsz (stream: Handle, flags: *mut u32) {
        let mut st = lock();
        let key = st.stream(stream)?;
        put(flags, st.streams[&key].flags)
    }
    fn cuStreamGetPriority | cuStreamGetPriority_ptsz (stream: Handle, priority: *mut i32) {
        let mut st = lock();
        let key = st.stream(stream)?;
        put(priority, st.streams[&key].priority)
    }
    fn cuStreamGetId | cuStreamGetId_ptsz (stream: Handle, id: *mut u64) {
        let mut st = lock();
        let key = st.stream(stream)?;
        put(id, st.streams[&key].id)
    }
    fn cuStreamGetDevice | cuStreamGetDevice_ptsz (stream: Handle, device: *mut i32) {
        let mut st = lock();
        let key = st.stream(stream)?;
        let context = st.streams[&key].context;
        put(device, st.contexts[&context].device)
    }
    fn cuStreamGetCtx | cuStreamGetCtx_ptsz (stream: Handle, context: *mut Handle) {
        let mut st = lock();
        let key = st.stream(stream)?;
        put(context, st.streams[&key].context)
    }
    fn cuStreamGetCtx_v2 | cuStreamGetCtx_v2_ptsz (stream: Handle, context: *mut Handle, green: *mut Handle) {
        let mut st = lock();
        let key = st.stream(stream)?;
        put_opt(green, 0);
        put(context, st.streams[&key].context)
    }
    fn cuStreamAttachMemAsync | cuStreamAttachMemAsync_ptsz (stream: Handle, p: Ptr, length: usize, flags: u32) {
        let mut st = lock();
        st.stream(stream)?;
        let managed = st.ranges.find(p).is_some_and(|r| r.kind == Kind::Managed);
        managed.then_some(()).ok_or(INVALID_VALUE)
    }
    fn cuStreamCopyAttributes | cuStreamCopyAttributes_ptsz (to: Handle, from: Handle) {
        let mut st = lock();
        let (to, from) = (st.stream(to)?, st.stream(from)?);
        let attributes = st.streams[&from].attributes.clone();
        if let Some(s) = st.streams.get_mut(&to) {
            s.attributes = attributes;
        }
        Ok(())
    }
    fn cuStreamGetAttribute | cuStreamGetAttribute_ptsz (stream: Handle, which: u32, value: *mut [u64; 8]) {
        let mut st = lock();
        let key = st.stream(stream)?;
        let found = st.streams[&key].attributes.iter().find(|a| a.0 == which).map(|a| a.1);
        put(value, found.unwrap_or_default())
    }
    fn cuStreamSetAttribute | cuStreamSetAttribute_ptsz (stream: Handle, which: u32, value: *const [u64; 8]) {
        let mut st = lock();
        let key = st.stream(stream)?;
        if value.is_null() {
            return Err(INVALID_VALUE);
        }
        let value = value.read_unaligned();
        if let Some(s) = st.streams.get_mut(&key) {
            s.attributes.retain(|a| a.0 != which);
            s.attributes.push((which, value));
        }
        Ok(())
    }
    fn cuLaunchHostFunc | cuLaunchHostFunc_ptsz (stream: Handle, f: usize, data: usize) {
        let mut st = lock();
        let key = st.stream(stream)?;
        if f == 0 {
            return Err(INVALID_VALUE);
        }
        st.submit(key, Action::Host(f, data)).map(|_| ())
    }
    fn cuStreamAddCallback | cuStreamAddCallback_ptsz (stream: Handle, f: usize, data: usize, flags: u32) {
        let mut st = lock();
        let key = st.stream(stream)?;
        if f == 0 || flags != 0 {
            return Err(INVALID_VALUE);
        }
        if st.streams[&key].capture.is_some() {
            st.invalidate_stream(key);
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        st.submit(key, Action::Callback(f, data, stream)).map(|_| ())
    }
    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        lock().current()?;
        put_opt(least, 0);
        put_opt(greatest, -5);
        Ok(())
    }
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) {
        let mut st = lock();
        if mode.is_null() || mode.read_unaligned() > 2 {
            return Err(INVALID_VALUE);
        }
        let new = mode.read_unaligned();
        let old = std::mem::replace(&mut st.thread().capture_mode, new);
        put(mode, old)
    }
    fn cuProfilerStart() {
        Ok(())
    }
    fn cuProfilerStop() {
        Ok(())
    }
    fn cuProfilerInitialize(config: *const c_void, output: *const c_void, mode: i32) {
        Ok(())
    }
}
