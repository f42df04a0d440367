//! Stream-ordered allocation: cuMemAllocAsync, cuMemFreeAsync and memory pools.
use crate::abi::*;
use crate::action::Action;
use crate::config;
use crate::ranges::{Kind, Range};
use crate::state::{lock, State};
use std::ffi::c_void;

pub struct Pool {
    pub device: i32,
    reuse: [i32; 3],
    threshold: u64,
    used: u64,
    used_high: u64,
}

impl Pool {
    pub fn new(device: i32) -> Pool {
        Pool {
            device,
            reuse: [1; 3],
            threshold: 0,
            used: 0,
            used_high: 0,
        }
    }
}

impl State {
    pub fn pool_returned(&mut self, pool: Handle, size: u64) {
        if let Some(p) = self.pools.get_mut(&pool) {
            p.used = p.used.saturating_sub(size);
        }
    }

    /// The end of a stream-ordered free.
    pub fn free_in_order(&mut self, p: Ptr) {
        match self.ranges.at(p).map(|r| r.kind) {
            Some(Kind::Graph) => self.free_graph_memory(p),
            Some(_) => self.release(p),
            None => {}
        }
    }

    fn alloc_from(&mut self, pool: Option<Handle>, size: u64, stream: Handle) -> R<Ptr> {
        let key = self.stream(stream)?;
        let context = self.streams[&key].context;
        let device = self.contexts.get(&context).ok_or(INVALID_CONTEXT)?.device;
        let pool = match pool {
            Some(p) => p,
            None => self.device(device)?.pool,
        };
        let device = self.pools.get(&pool).ok_or(INVALID_VALUE)?.device;
        if self.streams[&key].capture.is_some() {
            let p = self.reserve_graph_memory(size)?;
            self.capture_node(key, Action::Alloc(p))?;
            return Ok(p);
        }
        let p = self.alloc_for(context, device, size, Kind::Async(pool))?;
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.used += size;
            pool.used_high = pool.used_high.max(pool.used);
        }
        Ok(p)
    }
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn alloc(out: *mut Ptr, size: usize, pool: Option<Handle>, stream: Handle) -> R {
    let mut st = lock();
    st.stream(stream)?;
    // SAFETY: passed on. Failures leave a null pointer.
    unsafe { put(out, 0)? };
    if size == 0 {
        return Err(INVALID_VALUE);
    }
    let p = st.alloc_from(pool, size as u64, stream)?;
    // SAFETY: passed on.
    unsafe { put(out, p) }
}

fn device_pool(device: i32, default: bool) -> R<Handle> {
    let mut st = lock();
    let d = st.device(device)?;
    Ok(if default { d.default_pool } else { d.pool })
}

/// CUmemPoolProps, as far as it is looked at.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    kind: u32,
    handle_types: u32,
    location_type: u32,
    location_id: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Location {
    kind: u32,
    id: i32,
}

api! {
    fn cuMemAllocAsync | cuMemAllocAsync_ptsz (out: *mut Ptr, size: usize, stream: Handle) {
        alloc(out, size, None, stream)
    }
    fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz (out: *mut Ptr, size: usize, pool: Handle, stream: Handle) {
        alloc(out, size, Some(pool), stream)
    }
    fn cuMemFreeAsync | cuMemFreeAsync_ptsz (p: Ptr, stream: Handle) {
        let mut st = lock();
        let key = st.stream(stream)?;
        if p == 0 {
            return Ok(());
        }
        let capturing = st.streams[&key].capture.is_some();
        // All but stream-ordered memory is freed as cuMemFree would, as far as other streams' captures go (measured).
        let in_order = |r: &Range| !r.leaving && matches!(r.kind, Kind::Async(_) | Kind::Graph);
        if !capturing && !st.ranges.at(p).is_some_and(in_order) {
            st.refuse_while_capturing(None)?;
        }
        match st.ranges.at_mut(p) {
            Some(r) if !r.leaving && matches!(r.kind, Kind::Device | Kind::Async(_) | Kind::Graph) => {
                r.leaving = !capturing;
            }
            _ => return Err(INVALID_VALUE),
        }
        let queued = st.submit(key, Action::Free(p));
        if let (Err(_), Some(r)) = (&queued, st.ranges.at_mut(p)) {
            r.leaving = false;
        }
        queued.map(|_| ())
    }
    fn cuDeviceGetDefaultMemPool(out: *mut Handle, device: i32) {
        put(out, device_pool(device, true)?)
    }
    fn cuDeviceGetMemPool(out: *mut Handle, device: i32) {
        put(out, device_pool(device, false)?)
    }
    fn cuDeviceSetMemPool(device: i32, pool: Handle) {
        let mut st = lock();
        if st.pools.get(&pool).ok_or(INVALID_VALUE)?.device != device {
            return Err(INVALID_VALUE);
        }
        st.device(device)?.pool = pool;
        Ok(())
    }
    fn cuMemGetDefaultMemPool | cuMemGetMemPool (out: *mut Handle, location: *const Location, kind: u32) {
        if location.is_null() || (*location).kind != 1 {
            return Err(INVALID_VALUE);
        }
        put(out, device_pool((*location).id, true)?)
    }
    fn cuMemPoolCreate(out: *mut Handle, properties: *const Properties) {
        if properties.is_null() || (*properties).location_type != 1 {
            return Err(INVALID_VALUE);
        }
        let device = (*properties).location_id;
        if !(0..config::get().devices).contains(&device) {
            return Err(INVALID_DEVICE);
        }
        let mut st = lock();
        let h = st.handle();
        st.pools.insert(h, Pool::new(device));
        put(out, h)
    }
    fn cuMemPoolDestroy(pool: Handle) {
        let mut st = lock();
        if st.devices.iter().any(|d| d.default_pool == pool) {
            return Err(INVALID_VALUE);
        }
        st.pools.remove(&pool).ok_or(INVALID_VALUE)?;
        for d in st.devices.iter_mut().filter(|d| d.pool == pool) {
            d.pool = d.default_pool;
        }
        Ok(())
    }
    fn cuMemPoolTrimTo(pool: Handle, keep: usize) {
        lock().pools.get(&pool).map(|_| ()).ok_or(INVALID_VALUE)
    }
    fn cuMemPoolGetAttribute(pool: Handle, which: i32, value: *mut c_void) {
        let st = lock();
        let p = st.pools.get(&pool).ok_or(INVALID_VALUE)?;
        match which {
            1..=3 => put(value.cast(), p.reuse[which as usize - 1]),
            4 => put(value.cast(), p.threshold),
            5 | 7 => put(value.cast(), p.used),
            6 | 8 => put(value.cast(), p.used_high),
            _ => Err(INVALID_VALUE),
        }
    }
    fn cuMemPoolSetAttribute(pool: Handle, which: i32, value: *const c_void) {
        let mut st = lock();
        let p = st.pools.get_mut(&pool).ok_or(INVALID_VALUE)?;
        if value.is_null() {
            return Err(INVALID_VALUE);
        }
        match which {
            1..=3 => p.reuse[which as usize - 1] = value.cast::<i32>().read_unaligned(),
            4 => p.threshold = value.cast::<u64>().read_unaligned(),
            6 | 8 => p.used_high = p.used,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    }
    fn cuMemPoolSetAccess(pool: Handle, map: *const c_void, count: usize) {
        lock().pools.get(&pool).map(|_| ()).ok_or(INVALID_VALUE)
    }
    fn cuMemPoolGetAccess(flags: *mut u32, pool: Handle, location: *const Location) {
        put(flags, 3)
    }
    fn cuMemPoolExportPointer(out: *mut u8, p: Ptr) {
        let of_pool = lock().ranges.find(p).is_some_and(|r| matches!(r.kind, Kind::Async(_)));
        Err(if of_pool { NOT_SUPPORTED } else { INVALID_VALUE })
    }
}
