//! Contexts: the stack of each thread, primary contexts, and what dies with a context.
use crate::abi::*;
use crate::engine::Point;
use crate::state::{lock, Guard, State};
use crate::stream::{wait_points, Sort};
use std::ffi::c_void;

pub struct Context {
    pub device: i32,
    pub primary: bool,
    pub alive: bool,
    pub flags: u32,
    pub id: u64,
    pub attached: u32,
    /// A sticky error: what every later call answers.
    pub error: Option<i32>,
    pub legacy: Handle,
    /// The stream of context-wide events.
    pub hidden: Handle,
    /// What streams made later must wait for.
    pub barrier: Vec<Point>,
    pub limits: [usize; 16],
    pub cache_config: i32,
    pub bank_config: i32,
    pub peers: Vec<Handle>,
}

/// Stack size, printf FIFO, malloc heap, runtime sync depth, pending launches, fetch granularity.
const LIMITS: [usize; 16] = [
    1024, 1_048_576, 8_388_608, 2, 2048, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

impl State {
    pub fn check_context(&self, context: Handle) -> R {
        match self.contexts.get(&context) {
            None => Err(INVALID_CONTEXT),
            Some(c) if !c.alive => Err(CONTEXT_IS_DESTROYED),
            Some(Context {
                error: Some(code), ..
            }) => Err(*code),
            Some(_) => Ok(()),
        }
    }

    pub fn top(&mut self) -> Handle {
        self.thread().contexts.last().copied().unwrap_or(0)
    }

    /// The calling thread's context, if it can be used.
    pub fn current(&mut self) -> R<Handle> {
        let context = self.top();
        if context == 0 {
            return Err(INVALID_CONTEXT);
        }
        self.check_context(context)?;
        Ok(context)
    }

    /// The sticky error of the calling thread's context, if there are both.
    pub fn current_error(&mut self) -> R {
        let top = self.top();
        let error = self.contexts.get(&top).and_then(|c| c.error);
        error.map_or(Ok(()), Err)
    }

    pub fn current_device(&mut self) -> R<(Handle, i32)> {
        let context = self.current()?;
        Ok((context, self.contexts[&context].device))
    }

    fn make_context(&mut self, key: Handle, device: i32, flags: u32, primary: bool) -> R {
        self.device(device)?.arena()?;
        let id = self.handle() as u64;
        self.contexts.insert(
            key,
            Context {
                device,
                primary,
                alive: true,
                flags,
                id,
                attached: 1,
                error: None,
                legacy: 0,
                hidden: 0,
                barrier: Vec::new(),
                limits: LIMITS,
                cache_config: 0,
                bank_config: 2,
                peers: Vec::new(),
            },
        );
        let legacy = self.new_stream(key, Sort::Legacy, 0, 0);
        let hidden = self.new_stream(key, Sort::Hidden, 0, 0);
        if let Some(s) = self.streams.get_mut(&legacy) {
            s.default = true;
        }
        if let Some(c) = self.contexts.get_mut(&key) {
            (c.legacy, c.hidden) = (legacy, hidden);
        }
        Ok(())
    }

    /// Frees all that a context owns; its work must have ended.
    fn drop_context(&mut self, context: Handle) {
        if let Some(c) = self.contexts.get_mut(&context) {
            c.alive = false;
            c.barrier.clear();
        }
        self.captures.retain(|_, c| c.context != context);
        self.streams.retain(|_, s| s.context != context);
        self.events.retain(|_, e| e.context != context);
        self.modules.retain(|_, m| m.context != context);
        self.functions.retain(|_, f| f.context != context);
        for t in self.threads.values_mut() {
            t.streams.remove(&context);
        }
        let owned: Vec<Ptr> = self
            .ranges
            .iter()
            .filter(|r| r.context == context)
            .map(|r| r.base)
            .collect();
        for base in owned {
            self.release(base);
        }
        let arrays: Vec<Handle> = self
            .arrays
            .iter()
            .filter(|(_, a)| a.context == context)
            .map(|(&h, _)| h)
            .collect();
        for a in arrays {
            self.drop_array(a);
        }
    }
}

/// Waits for all work of a context, then drops it.
fn destroy(mut st: Guard, context: Handle) -> Guard {
    st.invalidate_context(context);
    let points = st.points(|s| s.context == context);
    st = wait_points(st, &points);
    st.drop_context(context);
    st
}

fn create(out: *mut Handle, flags: u32, device: i32) -> R {
    let mut st = lock();
    st.device(device)?;
    if out.is_null() {
        return Err(INVALID_VALUE);
    }
    let key = st.handle();
    st.make_context(key, device, flags, false)?;
    st.thread().contexts.push(key);
    // SAFETY: the C caller vouches for the out-pointer.
    unsafe { put(out, key) }
}

fn release_primary(device: i32, all: bool) -> R {
    let mut st = lock();
    let d = st.device(device)?;
    if d.primary_count == 0 {
        return if all { Ok(()) } else { Err(INVALID_CONTEXT) };
    }
    if !all {
        d.primary_count -= 1;
        if d.primary_count > 0 {
            return Ok(());
        }
    }
    let key = d.primary;
    if st.contexts.get(&key).is_some_and(|c| c.alive) {
        st = destroy(st, key);
    }
    if all {
        // A reset leaves the references: the next use makes the context anew.
        let d = st.device(device)?;
        d.primary_count = 0;
    }
    Ok(())
}

fn synchronize(context: Handle) -> R {
    let mut st = lock();
    let context = if context == 0 { st.current()? } else { context };
    st.check_context(context)?;
    if st.captures_in(context) {
        st.invalidate_context(context);
        return Err(STREAM_CAPTURE_UNSUPPORTED);
    }
    let points = st.points(|s| s.context == context);
    wait_points(st, &points).check_context(context)
}

fn set_current(context: Handle) -> R {
    let mut st = lock();
    if context == 0 {
        st.thread().contexts.pop();
        return Ok(());
    }
    match st.contexts.get(&context) {
        None => return Err(INVALID_CONTEXT),
        Some(c) if !c.alive => return Err(CONTEXT_IS_DESTROYED),
        Some(_) => {}
    }
    let stack = &mut st.thread().contexts;
    stack.pop();
    stack.push(context);
    Ok(())
}

fn pop(out: *mut Handle) -> R {
    let mut st = lock();
    let context = st.thread().contexts.pop().ok_or(INVALID_CONTEXT)?;
    // SAFETY: the C caller vouches for the out-pointer.
    unsafe { put_opt(out, context) };
    Ok(())
}

fn push(context: Handle) -> R {
    let mut st = lock();
    if !st.contexts.get(&context).is_some_and(|c| c.alive) {
        return Err(INVALID_CONTEXT);
    }
    st.thread().contexts.push(context);
    Ok(())
}

api! {
    fn cuDevicePrimaryCtxRetain(out: *mut Handle, device: i32) {
        let mut st = lock();
        let (key, flags) = {
            let d = st.device(device)?;
            (d.primary, d.primary_flags)
        };
        if out.is_null() {
            return Err(INVALID_VALUE);
        }
        if !st.contexts.get(&key).is_some_and(|c| c.alive) {
            st.make_context(key, device, flags, true)?;
        }
        st.device(device)?.primary_count += 1;
        put(out, key)
    }
    fn cuDevicePrimaryCtxRelease | cuDevicePrimaryCtxRelease_v2 (device: i32) {
        release_primary(device, false)
    }
    fn cuDevicePrimaryCtxReset | cuDevicePrimaryCtxReset_v2 (device: i32) {
        release_primary(device, true)
    }
    fn cuDevicePrimaryCtxSetFlags | cuDevicePrimaryCtxSetFlags_v2 (device: i32, flags: u32) {
        lock().device(device)?.primary_flags = flags;
        Ok(())
    }
    fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) {
        let mut st = lock();
        let (key, set) = {
            let d = st.device(device)?;
            (d.primary, d.primary_flags)
        };
        put_opt(flags, set);
        put_opt(active, st.contexts.get(&key).is_some_and(|c| c.alive) as i32);
        Ok(())
    }
    fn cuCtxCreate(out: *mut Handle, flags: u32, device: i32) {
        // What a driver of CUDA 13 answers, whatever it is asked for (measured).
        Err(OUT_OF_MEMORY)
    }
    fn cuCtxCreate_v2(out: *mut Handle, flags: u32, device: i32) {
        create(out, flags, device)
    }
    fn cuCtxCreate_v3(out: *mut Handle, affinity: *const c_void, count: i32, flags: u32, device: i32) {
        create(out, flags, device)
    }
    fn cuCtxCreate_v4(out: *mut Handle, parameters: *const c_void, flags: u32, device: i32) {
        create(out, flags, device)
    }
    fn cuCtxDestroy | cuCtxDestroy_v2 (context: Handle) {
        let mut st = lock();
        match st.contexts.get(&context) {
            Some(c) if c.alive && !c.primary => {}
            _ => return Err(INVALID_CONTEXT),
        }
        if st.top() == context {
            st.thread().contexts.pop();
        }
        drop(destroy(st, context));
        Ok(())
    }
    fn cuCtxAttach(out: *mut Handle, flags: u32) {
        let mut st = lock();
        let context = st.current()?;
        if let Some(c) = st.contexts.get_mut(&context) {
            c.attached += 1;
        }
        put(out, context)
    }
    fn cuCtxDetach(context: Handle) {
        let mut st = lock();
        let c = st.contexts.get_mut(&context).filter(|c| c.alive).ok_or(INVALID_CONTEXT)?;
        c.attached = c.attached.saturating_sub(1);
        if c.attached == 0 && !c.primary {
            if st.top() == context {
                st.thread().contexts.pop();
            }
            drop(destroy(st, context));
        }
        Ok(())
    }
    fn cuCtxGetCurrent(out: *mut Handle) {
        let context = lock().top();
        put(out, context)
    }
    fn cuCtxSetCurrent(context: Handle) {
        set_current(context)
    }
    fn cuCtxPushCurrent | cuCtxPushCurrent_v2 (context: Handle) {
        push(context)
    }
    fn cuCtxPopCurrent | cuCtxPopCurrent_v2 (out: *mut Handle) {
        pop(out)
    }
    fn cuCtxGetDevice(device: *mut i32) {
        let mut st = lock();
        let context = st.top();
        let c = st.contexts.get(&context).ok_or(INVALID_CONTEXT)?;
        if !c.alive {
            return Err(CONTEXT_IS_DESTROYED);
        }
        put(device, c.device)
    }
    fn cuCtxGetDevice_v2(device: *mut i32, context: Handle) {
        let mut st = lock();
        let context = if context == 0 { st.top() } else { context };
        let c = st.contexts.get(&context).ok_or(INVALID_CONTEXT)?;
        put(device, c.device)
    }
    fn cuCtxGetId(context: Handle, id: *mut u64) {
        let mut st = lock();
        let context = if context == 0 { st.top() } else { context };
        let c = st.contexts.get(&context).filter(|c| c.alive).ok_or(INVALID_CONTEXT)?;
        put(id, c.id)
    }
    fn cuCtxSynchronize() {
        synchronize(0)
    }
    fn cuCtxSynchronize_v2(context: Handle) {
        synchronize(context)
    }
}
