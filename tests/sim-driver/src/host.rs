//! Host memory that the device can reach: pinned and registered.
use crate::abi::*;
use crate::cost;
use crate::ranges::{Kind, Range};
use crate::state::{lock, Guard};
use crate::stream::wait_points;

const DEVICE_MAP: u32 = 2;

/// # Safety
/// `out` is null or valid for a write.
unsafe fn alloc(out: *mut Ptr, size: usize, flags: u32) -> R {
    let mut st = lock();
    let (context, device) = st.current_device()?;
    st.refuse_while_capturing(None)?;
    if out.is_null() || flags > 7 {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null; the caller vouches for it.
    unsafe { put(out, 0)? };
    if size == 0 {
        return Ok(());
    }
    let p = st.alloc_host(
        context,
        device,
        size as u64,
        Kind::Pinned(flags | DEVICE_MAP),
    )?;
    drop(st);
    cost::charge_pinned(size as u64, false);
    // SAFETY: as above.
    unsafe { put(out, p) }
}

/// Waits for everything queued anywhere: host memory may be used by any device.
fn rest(st: Guard) -> Guard {
    let points = st.points(|_| true);
    wait_points(st, &points)
}

api! {
    fn cuMemHostAlloc(out: *mut Ptr, size: usize, flags: u32) {
        alloc(out, size, flags)
    }
    fn cuMemAllocHost_v2(out: *mut Ptr, size: usize) {
        alloc(out, size, 0)
    }
    fn cuMemFreeHost(p: Ptr) {
        if p == 0 {
            return Ok(());
        }
        let mut st = lock();
        match st.ranges.at_mut(p) {
            Some(r) if matches!(r.kind, Kind::Pinned(_)) && !r.leaving => r.leaving = true,
            _ => return Err(INVALID_VALUE),
        }
        let mut st = rest(st);
        let size = st.ranges.at(p).map_or(0, |r| r.size);
        st.release(p);
        drop(st);
        cost::charge_pinned(size, true);
        Ok(())
    }
    fn cuMemHostRegister_v2 | cuMemHostRegister (p: Ptr, size: usize, flags: u32) {
        let mut st = lock();
        let (context, device) = st.current_device()?;
        if p == 0 || size == 0 {
            return Err(INVALID_VALUE);
        }
        let end = p.checked_add(size as u64).ok_or(INVALID_VALUE)?;
        // The host cannot reach device memory, live or not (measured of live memory, mapped too).
        if st.in_window(p) || st.in_window(end - 1) {
            return Err(INVALID_VALUE);
        }
        if !st.ranges.overlapping(p, end).is_empty() {
            return Err(HOST_MEMORY_ALREADY_REGISTERED);
        }
        st.ranges.add(Range {
            base: p,
            size: size as u64,
            host: p,
            kind: Kind::Registered(flags | DEVICE_MAP),
            device,
            context,
            id: 0,
            block: None,
            sync_memops: false,
            leaving: false,
            access: true,
            reached_by: Vec::new(),
        });
        Ok(())
    }
    fn cuMemHostUnregister(p: Ptr) {
        let st = lock();
        match st.ranges.at(p) {
            Some(r) if matches!(r.kind, Kind::Registered(_)) => {}
            Some(_) => return Err(INVALID_VALUE),
            None => return Err(HOST_MEMORY_NOT_REGISTERED),
        }
        let mut st = rest(st);
        st.release(p);
        Ok(())
    }
    fn cuMemHostGetDevicePointer_v2(out: *mut Ptr, p: Ptr, flags: u32) {
        let st = lock();
        // Mapped device memory is taken for host memory (measured).
        let fits = |r: &&Range| (r.on_host() || matches!(r.kind, Kind::Mapped(_))) && flags == 0;
        let r = st.ranges.find(p).filter(fits).ok_or(INVALID_VALUE)?;
        put(out, p.max(r.base))
    }
    fn cuMemHostGetFlags(flags: *mut u32, p: Ptr) {
        let st = lock();
        match st.ranges.find(p).map(|r| r.kind) {
            Some(Kind::Pinned(f) | Kind::Registered(f)) => put(flags, f),
            Some(Kind::Mapped(_)) => put(flags, 0),
            _ => Err(INVALID_VALUE),
        }
    }
}
