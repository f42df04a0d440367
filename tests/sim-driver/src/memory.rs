//! cuMemAlloc and cuMemFree, and questions about memory as a whole.
use crate::abi::*;
use crate::arena;
use crate::config;
use crate::cost;
use crate::ranges::{Kind, Range};
use crate::state::{lock, State};
use crate::stream::wait_points;

pub const PITCH: u64 = 512;

impl State {
    /// New zeroed device memory of the current context.
    pub fn alloc_device(&mut self, size: u64, kind: Kind) -> R<Ptr> {
        let (context, device) = self.current_device()?;
        self.alloc_for(context, device, size, kind)
    }

    pub fn alloc_for(&mut self, context: Handle, device: i32, size: u64, kind: Kind) -> R<Ptr> {
        let arena = self.device(device)?.arena()?;
        let block = arena.alloc(size)?;
        let (base, host) = (arena.address(&block), arena.host(&block));
        self.ranges.add(Range {
            base,
            size,
            host,
            kind,
            device,
            context,
            id: 0,
            block: Some(block),
            sync_memops: false,
            leaving: false,
            access: true,
            reached_by: Vec::new(),
        });
        Ok(base)
    }

    /// Host pages that the driver made: managed and pinned memory.
    pub fn alloc_host(&mut self, context: Handle, device: i32, size: u64, kind: Kind) -> R<Ptr> {
        let length = size
            .checked_next_multiple_of(4096)
            .filter(|n| *n < 1 << 46)
            .ok_or(OUT_OF_MEMORY)?;
        // SAFETY: a new anonymous mapping, placed by the kernel.
        let p = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if p == libc::MAP_FAILED {
            return Err(OUT_OF_MEMORY);
        }
        let base = p as u64;
        self.ranges.add(Range {
            base,
            size,
            host: base,
            kind,
            device,
            context,
            id: 0,
            block: None,
            sync_memops: false,
            leaving: false,
            access: true,
            reached_by: Vec::new(),
        });
        Ok(base)
    }

    /// Forgets a range and gives its memory back.
    pub fn release(&mut self, base: Ptr) {
        let Some(r) = self.ranges.remove(base) else {
            return;
        };
        match r.kind {
            Kind::Managed | Kind::Pinned(_) => {
                arena::unmap(r.base, r.size.next_multiple_of(4096));
            }
            Kind::Registered(_) => {}
            Kind::Mapped(_) => self.unmapped(&r),
            Kind::Opened | Kind::External => self.closed(&r),
            Kind::Device | Kind::Module | Kind::Async(_) | Kind::Graph => {
                if let Kind::Async(pool) = r.kind {
                    self.pool_returned(pool, r.size);
                }
                if let (Some(block), Ok(d)) = (r.block, self.device(r.device)) {
                    if let Ok(arena) = d.arena() {
                        arena.set_exported(r.id, false);
                        arena.free(block);
                    }
                }
            }
        }
    }

    /// Live allocations of a device and handles of its memory, and their bytes as programs asked for them.
    pub fn live_bytes(&self, device: i32) -> (u64, u64) {
        let live = self.ranges.iter().filter(|r| {
            r.device == device
                && matches!(
                    r.kind,
                    Kind::Device | Kind::Async(_) | Kind::Managed | Kind::Graph
                )
        });
        let (count, bytes) = live.fold((0, 0), |(n, b), r| (n + 1, b + r.size));
        let (handle_count, handle_bytes) = self.live_handles(device);
        (count + handle_count, bytes + handle_bytes)
    }
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn alloc(out: *mut Ptr, size: u64, managed: bool) -> R {
    let mut st = lock();
    let (context, device) = st.current_device()?;
    // Refused for a capture before its arguments are looked at (measured).
    st.refuse_while_capturing(None)?;
    // SAFETY: the caller vouches for it. Failures leave a null pointer, as natively.
    unsafe { put(out, 0)? };
    if size == 0 {
        return Err(INVALID_VALUE);
    }
    let p = if managed {
        st.alloc_host(context, device, size, Kind::Managed)?
    } else {
        st.alloc_for(context, device, size, Kind::Device)?
    };
    drop(st);
    cost::charge_bytes(size, false);
    // SAFETY: as above.
    unsafe { put(out, p) }
}

pub fn free(p: Ptr) -> R {
    let mut st = lock();
    let block = st.ranges.at(p).filter(|r| !r.leaving);
    let (context, device, size, kind) = match block {
        Some(r) => (r.context, r.device, r.size, r.kind),
        None => {
            // The current context's error and captures come before what is wrong with the address (measured).
            st.current_error()?;
            st.refuse_while_capturing(None)?;
            return if p == 0 { Ok(()) } else { Err(INVALID_VALUE) };
        }
    };
    if !matches!(
        kind,
        Kind::Device | Kind::Async(_) | Kind::Managed | Kind::Graph | Kind::External
    ) {
        st.refuse_while_capturing(None)?;
        return Err(INVALID_VALUE);
    }
    if context != 0 {
        st.check_context(context)?;
    }
    st.refuse_while_capturing(None)?;
    let id = st.ranges.at_mut(p).map(|r| {
        r.leaving = true;
        r.id
    });
    // The whole device comes to rest first, whether it used this block or not.
    let points = st.device_points(device);
    st = wait_points(st, &points);
    match st.ranges.at_mut(p) {
        Some(r) if Some(r.id) != id => {}
        Some(r) if kind == Kind::Graph => {
            let there = r.access;
            r.leaving = false;
            if !there {
                return Err(INVALID_VALUE);
            }
            st.free_graph_memory(p);
        }
        _ => st.release(p),
    }
    let answer = if context != 0 {
        st.check_context(context)
    } else {
        Ok(())
    };
    drop(st);
    cost::charge_bytes(size, true);
    answer
}

api! {
    fn cuMemAlloc_v2(out: *mut Ptr, size: usize) {
        alloc(out, size as u64, false)
    }
    fn cuMemAllocManaged(out: *mut Ptr, size: usize, flags: u32) {
        if flags != 1 && flags != 2 {
            return Err(INVALID_VALUE);
        }
        alloc(out, size as u64, true)
    }
    fn cuMemAllocPitch_v2(out: *mut Ptr, pitch: *mut usize, width: usize, height: usize, element: u32) {
        // Told first of all, whatever is wrong with the call (measured).
        put_opt(out, 0);
        put_opt(pitch, 0);
        lock().current()?;
        if pitch.is_null() || !matches!(element, 4 | 8 | 16) || width == 0 || height == 0 {
            return Err(INVALID_VALUE);
        }
        let row = (width as u64).checked_next_multiple_of(PITCH).ok_or(INVALID_VALUE)?;
        // Found before the memory (measured).
        put(pitch, row as usize)?;
        alloc(out, row.checked_mul(height as u64).ok_or(INVALID_VALUE)?, false)
    }
    fn cuMemFree_v2(p: Ptr) {
        free(p)
    }
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let mut st = lock();
        let (_, device) = st.current_device()?;
        let left = st.device(device)?.arena()?.free_bytes();
        if free.is_null() || total.is_null() {
            return Err(INVALID_VALUE);
        }
        put(free, left as usize)?;
        put(total, config::get().memory as usize)
    }
    fn cuMemGetAddressRange_v2(base: *mut Ptr, size: *mut usize, p: Ptr) {
        let mut st = lock();
        st.current()?;
        if base.is_null() && size.is_null() {
            // Nothing is asked: nothing is looked up (measured).
            return Ok(());
        }
        let r = st.ranges.find(p).filter(|r| !r.leaving).ok_or(NOT_FOUND)?;
        put_opt(base, r.base);
        put_opt(size, r.size as usize);
        Ok(())
    }
}
