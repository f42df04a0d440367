//! Memory and events of other processes.
//!
//! A memory handle names the exporting process, its device file and the place in it; the importer
//! opens that file through /proc. The last 8 bytes are zero and are not looked at, as natively.
use crate::abi::*;
use crate::arena::{self, memory_file, nonce};
use crate::event::Event;
use crate::ranges::{Kind, Range};
use crate::state::{lock, State};
use crate::stream::wait_points;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::Mutex;
use std::time::Duration;

const MEMORY: u64 = 0x314d_454d_434d_4953;
const EVENT: u64 = 0x3154_5645_434d_4953;

/// A handle of either sort, without its last 8 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bytes {
    magic: u64,
    nonce: u64,
    pid: u32,
    fd: i32,
    device: u32,
    flags: u32,
    offset: u64,
    size: u64,
    id: u64,
    unused: u64,
}

/// Another process's memory, open here.
pub struct Opened {
    pub handle: Option<Bytes>,
    pub count: u32,
    pub mapping: u64,
    /// The addresses it is seen at, from here on.
    pub window: u64,
    pub length: u64,
}

impl State {
    pub fn closed(&mut self, r: &Range) {
        if let Some(o) = self.opened.remove(&r.base) {
            arena::unmap(o.mapping, o.length);
            arena::unmap(o.window, o.length);
        }
    }
}

/// The exporter's file, if that process still is the one that made the handle.
fn file_of(h: &Bytes) -> R<i32> {
    let path = format!("/proc/{}/fd/{}", h.pid, h.fd);
    let link = std::fs::read_link(&path).map_err(|_| INVALID_VALUE)?;
    if !link
        .to_string_lossy()
        .contains(&format!("simcuda:{:016x}", h.nonce))
    {
        return Err(INVALID_VALUE);
    }
    let file = File::options()
        .read(true)
        .write(true)
        .open(&path)
        .map_err(|_| INVALID_VALUE)?;
    Ok(file.into_raw_fd())
}

fn export(p: Ptr) -> R<Bytes> {
    let mut st = lock();
    st.current()?;
    let r = st
        .ranges
        .find(p)
        .filter(|r| r.kind == Kind::Device && !r.leaving)
        .ok_or(INVALID_VALUE)?;
    let (device, size, id, block) = (r.device, r.size, r.id, r.block.ok_or(INVALID_VALUE)?);
    let arena = st.device(device)?.arena()?;
    arena.set_exported(id, true);
    let fd = arena.fd;
    Ok(Bytes {
        magic: MEMORY,
        nonce: nonce(),
        pid: std::process::id(),
        fd,
        device: device as u32,
        flags: 0,
        offset: block.offset,
        size,
        id,
        unused: 0,
    })
}

fn open(h: Bytes) -> R<Ptr> {
    let mut st = lock();
    let (context, device) = st.current_device()?;
    if h.magic != MEMORY {
        return Err(INVALID_VALUE);
    }
    if h.nonce == nonce() {
        return Err(INVALID_CONTEXT);
    }
    if let Some((&base, o)) = st.opened.iter_mut().find(|(_, o)| o.handle == Some(h)) {
        o.count += 1;
        return Ok(base);
    }
    let fd = file_of(&h)?;
    if !arena::is_exported(fd, h.id) {
        // SAFETY: the descriptor was just opened.
        unsafe { libc::close(fd) };
        return Err(INVALID_VALUE);
    }
    // Whole chunks, as the real driver maps them.
    let first = h.offset / arena::CHUNK * arena::CHUNK;
    let length = (h.offset + h.size).next_multiple_of(arena::CHUNK) - first;
    let mapping = arena::map_file(fd, first, length);
    // SAFETY: the mapping keeps the file.
    unsafe { libc::close(fd) };
    let (mapping, window) = (mapping?, arena::reserve(length, arena::CHUNK)?);
    let base = window + (h.offset - first);
    st.opened.insert(
        base,
        Opened {
            handle: Some(h),
            count: 1,
            mapping,
            window,
            length,
        },
    );
    st.ranges.add(Range {
        base,
        size: h.size,
        host: mapping + (h.offset - first),
        kind: Kind::Opened,
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

/// Pages of interprocess events: their files, by address.
static PAGES: Mutex<Option<HashMap<u64, i32>>> = Mutex::new(None);

/// A page with two counters: records begun, and records done.
pub fn new_page() -> R<u64> {
    let fd = memory_file(&format!("simcuda:{:016x}", nonce()), 4096)?;
    let page = arena::map_file(fd, 0, 4096)?;
    let mut pages = PAGES.lock().unwrap_or_else(|e| e.into_inner());
    pages.get_or_insert_default().insert(page, fd);
    Ok(page)
}

fn counter(page: u64, index: u64) -> &'static AtomicU64 {
    // SAFETY: event pages are never unmapped, and hold two counters.
    unsafe { &*((page + 8 * index) as *const AtomicU64) }
}

pub fn shared_begin(page: u64) -> u64 {
    counter(page, 0).fetch_add(1, AcqRel) + 1
}

pub fn shared_begun(page: u64) -> u64 {
    counter(page, 0).load(Acquire)
}

pub fn shared_set_done(page: u64, generation: u64) {
    counter(page, 1).fetch_max(generation, AcqRel);
}

pub fn shared_done(page: u64, generation: u64) -> bool {
    counter(page, 1).load(Acquire) >= generation
}

pub fn shared_idle(page: u64) -> bool {
    shared_done(page, shared_begun(page))
}

pub fn shared_wait(page: u64) {
    let generation = shared_begun(page);
    while !shared_done(page, generation) {
        std::thread::sleep(Duration::from_micros(50));
    }
}

api! {
    fn cuIpcGetMemHandle(out: *mut Bytes, p: Ptr) {
        put(out, export(p)?)
    }
    fn cuIpcOpenMemHandle | cuIpcOpenMemHandle_v2 (out: *mut Ptr, handle: Bytes, flags: u32) {
        if out.is_null() || flags != 1 {
            return Err(INVALID_VALUE);
        }
        put(out, open(Bytes { unused: 0, ..handle })?)
    }
    fn cuIpcCloseMemHandle(p: Ptr) {
        let mut st = lock();
        let o = st.opened.get_mut(&p).filter(|o| o.handle.is_some()).ok_or(INVALID_VALUE)?;
        o.count -= 1;
        if o.count > 0 {
            return Ok(());
        }
        let points = st.points(|_| true);
        let mut st = wait_points(st, &points);
        st.release(p);
        Ok(())
    }
    fn cuIpcGetEventHandle(out: *mut Bytes, event: Handle) {
        let st = lock();
        let page = st.event(event)?.shared.ok_or(INVALID_HANDLE)?;
        let pages = PAGES.lock().unwrap_or_else(|e| e.into_inner());
        let fd = pages.as_ref().and_then(|p| p.get(&page)).copied().ok_or(INVALID_HANDLE)?;
        put(out, Bytes { magic: EVENT, nonce: nonce(), pid: std::process::id(), fd, device: 0, flags: 0, offset: 0, size: 0, id: 0, unused: 0 })
    }
    fn cuIpcOpenEventHandle(out: *mut Handle, handle: Bytes) {
        let mut st = lock();
        let context = st.current()?;
        if handle.magic != EVENT {
            return Err(INVALID_VALUE);
        }
        if handle.nonce == nonce() {
            return Err(INVALID_CONTEXT);
        }
        let fd = file_of(&handle)?;
        let page = arena::map_file(fd, 0, 4096);
        libc::close(fd);
        let mut event = Event::new(context, 6);
        event.shared = Some(page?);
        event.recorded = true;
        let h = st.handle();
        st.events.insert(h, event);
        put(out, h)
    }
}
