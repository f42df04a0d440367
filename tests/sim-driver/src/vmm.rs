//! Virtual memory management: reserve addresses, create memory, map it.
use crate::abi::*;
use crate::arena::{self, Block, CHUNK};
use crate::ranges::{Kind, Range};
use crate::state::{lock, State};
use std::ffi::c_void;

const DEVICE: u32 = 1;

pub struct Reservation {
    pub size: u64,
}

pub struct Physical {
    size: u64,
    device: i32,
    properties: Properties,
    /// References of the program: create, import, retain.
    held: u32,
    mapped: u32,
    host: u64,
    backing: Backing,
}

enum Backing {
    Arena(Block),
    /// A file of its own, so that other processes can have it; and what the device is charged.
    File(i32, u64),
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    kind: u32,
    pub handle_types: u32,
    location_type: u32,
    location_id: i32,
    meta: usize,
    flags: u64,
}

impl Properties {
    pub fn rdma_capable(&self) -> bool {
        self.flags >> 8 & 0xff != 0
    }

    pub fn decompression(&self) -> bool {
        self.flags >> 16 & 2 != 0
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Access {
    location_type: u32,
    location_id: i32,
    flags: u32,
}

impl State {
    /// Handles of a device's own memory, and their bytes.
    pub fn live_handles(&self, device: i32) -> (u64, u64) {
        // What was imported is charged to nobody here.
        let own = |p: &&Physical| p.device == device && !matches!(p.backing, Backing::File(_, 0));
        self.physical
            .values()
            .filter(own)
            .fold((0, 0), |(n, b), p| (n + 1, b + p.size))
    }

    /// Those of the memory behind a mapping.
    pub fn mapped_properties(&self, r: &Range) -> Option<Properties> {
        let Kind::Mapped(h) = r.kind else { return None };
        self.physical.get(&h).map(|p| p.properties)
    }

    fn drop_physical(&mut self, h: Handle) {
        if !self
            .physical
            .get(&h)
            .is_some_and(|p| p.held == 0 && p.mapped == 0)
        {
            return;
        }
        let Some(p) = self.physical.remove(&h) else {
            return;
        };
        let arena = self.device(p.device).and_then(|d| d.arena());
        match p.backing {
            Backing::Arena(block) => {
                if let Ok(a) = arena {
                    a.free(block);
                }
            }
            Backing::File(fd, charged) => {
                if let Ok(a) = arena {
                    a.used = a.used.saturating_sub(charged);
                }
                arena::unmap(p.host, p.size);
                // SAFETY: the descriptor is this handle's own.
                unsafe { libc::close(fd) };
            }
        }
    }

    /// A mapping has gone from the ranges.
    pub fn unmapped(&mut self, r: &Range) {
        if let Kind::Mapped(h) = r.kind {
            if let Some(p) = self.physical.get_mut(&h) {
                p.mapped -= 1;
            }
            self.drop_physical(h);
        }
    }

    fn file_backed(
        &mut self,
        fd: i32,
        size: u64,
        charged: u64,
        properties: Properties,
    ) -> R<Handle> {
        let host = arena::map_file(fd, 0, size)?;
        let h = self.handle();
        let device = if properties.location_type == DEVICE {
            properties.location_id
        } else {
            0
        };
        self.physical.insert(
            h,
            Physical {
                size,
                device,
                properties,
                held: 1,
                mapped: 0,
                host,
                backing: Backing::File(fd, charged),
            },
        );
        Ok(h)
    }

    /// The mappings that make up `[p, p + n)` exactly.
    fn whole_mappings(&self, p: Ptr, n: u64) -> R<Vec<Ptr>> {
        let (mut at, mut out) = (p, Vec::new());
        while at < p + n {
            let r = self
                .ranges
                .at(at)
                .filter(|r| matches!(r.kind, Kind::Mapped(_)))
                .ok_or(INVALID_VALUE)?;
            out.push(at);
            at = r.end();
        }
        if at == p + n {
            Ok(out)
        } else {
            Err(INVALID_VALUE)
        }
    }
}

api! {
    fn cuMemAddressReserve(out: *mut Ptr, size: usize, align: usize, wanted: Ptr, flags: u64) {
        let mut st = lock();
        if out.is_null() || size == 0 || !(size as u64).is_multiple_of(CHUNK) || flags != 0 {
            return Err(INVALID_VALUE);
        }
        if size as u64 > 1 << 46 {
            return Err(OUT_OF_MEMORY);
        }
        let base = arena::reserve(size as u64, align.next_power_of_two() as u64)?;
        st.reservations.insert(base, Reservation { size: size as u64 });
        put(out, base)
    }
    fn cuMemAddressFree(p: Ptr, size: usize) {
        let mut st = lock();
        if st.reservations.get(&p).is_none_or(|r| r.size != size as u64)
            || !st.ranges.overlapping(p, p + size as u64).is_empty()
        {
            return Err(INVALID_VALUE);
        }
        st.reservations.remove(&p);
        arena::unmap(p, size as u64);
        Ok(())
    }
    fn cuMemCreate(out: *mut Handle, size: usize, properties: *const Properties, flags: u64) {
        let mut st = lock();
        if out.is_null() || properties.is_null() || size == 0 || !(size as u64).is_multiple_of(CHUNK) || flags != 0 {
            return Err(INVALID_VALUE);
        }
        let properties = properties.read_unaligned();
        let size = size as u64;
        if properties.kind != 1 {
            return Err(INVALID_VALUE);
        }
        if properties.location_type != DEVICE {
            let fd = arena::memory_file("simcuda-host", size)?;
            let h = st.file_backed(fd, size, 0, properties)?;
            return put(out, h);
        }
        let arena = st.device(properties.location_id)?.arena()?;
        if properties.handle_types != 0 {
            arena.charge(size)?;
            let fd = arena::memory_file("simcuda-vmm", size)?;
            let h = st.file_backed(fd, size, size, properties)?;
            return put(out, h);
        }
        let block = arena.whole_chunks(size)?;
        let host = arena.host(&block);
        let h = st.handle();
        st.physical.insert(
            h,
            Physical { size, device: properties.location_id, properties, held: 1, mapped: 0, host, backing: Backing::Arena(block) },
        );
        put(out, h)
    }
    fn cuMemRelease(handle: Handle) {
        let mut st = lock();
        let p = st.physical.get_mut(&handle).filter(|p| p.held > 0).ok_or(INVALID_VALUE)?;
        p.held -= 1;
        st.drop_physical(handle);
        Ok(())
    }
    fn cuMemMap(p: Ptr, size: usize, offset: usize, handle: Handle, flags: u64) {
        let mut st = lock();
        let size = size as u64;
        let (whole, host, device) = {
            let ph = st.physical.get(&handle).filter(|p| p.held > 0).ok_or(INVALID_VALUE)?;
            (ph.size, ph.host, ph.device)
        };
        if size == 0 || !p.is_multiple_of(CHUNK) || !size.is_multiple_of(CHUNK) || flags != 0 {
            return Err(INVALID_VALUE);
        }
        if offset != 0 || size != whole {
            return Err(if size > whole { INVALID_VALUE } else { NOT_SUPPORTED });
        }
        let reserved = st.reservations.range(..=p).next_back().is_some_and(|(b, r)| p + size <= b + r.size);
        if !reserved {
            return Err(INVALID_VALUE);
        }
        if !st.ranges.overlapping(p, p + size).is_empty() {
            return Err(INVALID_VALUE);
        }
        st.ranges.add(Range {
            base: p,
            size,
            host,
            kind: Kind::Mapped(handle),
            device,
            context: 0,
            id: 0,
            block: None,
            sync_memops: false,
            leaving: false,
            access: false,
            reached_by: Vec::new(),
        });
        if let Some(ph) = st.physical.get_mut(&handle) {
            ph.mapped += 1;
        }
        Ok(())
    }
    fn cuMemUnmap(p: Ptr, size: usize) {
        let mut st = lock();
        for base in st.whole_mappings(p, size as u64)? {
            st.release(base);
        }
        Ok(())
    }
    fn cuMemSetAccess(p: Ptr, size: usize, access: *const Access, count: usize) {
        let mut st = lock();
        if access.is_null() || count == 0 || size == 0 {
            return Err(INVALID_VALUE);
        }
        let mappings = st.whole_mappings(p, size as u64)?;
        for i in 0..count {
            let a = access.add(i).read_unaligned();
            if a.location_type == DEVICE {
                st.device(a.location_id)?;
            }
            for base in &mappings {
                if let Some(r) = st.ranges.at_mut(*base) {
                    r.reached_by.retain(|device| *device != a.location_id);
                    if a.flags != 0 {
                        r.reached_by.push(a.location_id);
                    }
                    r.access = !r.reached_by.is_empty();
                }
            }
        }
        Ok(())
    }
    fn cuMemGetAccess(flags: *mut u64, location: *const Access, p: Ptr) {
        let st = lock();
        let of_device = |r: &&Range| matches!(r.kind, Kind::Mapped(_) | Kind::Device);
        let r = st.ranges.find(p).filter(of_device).ok_or(INVALID_VALUE)?;
        put(flags, if r.access { 3 } else { 0 })
    }
    fn cuMemGetAllocationGranularity(out: *mut usize, properties: *const Properties, option: u32) {
        if properties.is_null() || option > 1 {
            return Err(INVALID_VALUE);
        }
        put(out, CHUNK as usize)
    }
    fn cuMemGetAllocationPropertiesFromHandle(out: *mut Properties, handle: Handle) {
        let st = lock();
        put(out, st.physical.get(&handle).ok_or(INVALID_VALUE)?.properties)
    }
    fn cuMemRetainAllocationHandle(out: *mut Handle, p: Ptr) {
        let mut st = lock();
        let Some(Kind::Mapped(h)) = st.ranges.find(p).map(|r| r.kind) else { return Err(INVALID_VALUE) };
        if let Some(ph) = st.physical.get_mut(&h) {
            ph.held += 1;
        }
        put(out, h)
    }
    fn cuMemExportToShareableHandle(out: *mut c_void, handle: Handle, kind: u32, flags: u64) {
        let st = lock();
        let p = st.physical.get(&handle).ok_or(INVALID_VALUE)?;
        match p.backing {
            Backing::File(fd, _) if kind == 1 && p.properties.handle_types & 1 != 0 => {
                let copy = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0);
                if copy < 0 { Err(304) } else { put(out.cast(), copy) }
            }
            _ => Err(INVALID_VALUE),
        }
    }
    fn cuMemImportFromShareableHandle(out: *mut Handle, shared: usize, kind: u32) {
        if kind != 1 {
            return Err(NOT_SUPPORTED);
        }
        let mut st = lock();
        let mut stat: libc::stat = std::mem::zeroed();
        let fd = libc::fcntl(shared as i32, libc::F_DUPFD_CLOEXEC, 0);
        if fd < 0 || libc::fstat(fd, &mut stat) != 0 || stat.st_size <= 0 {
            return Err(INVALID_VALUE);
        }
        let properties = Properties { kind: 1, handle_types: 1, location_type: DEVICE, location_id: 0, meta: 0, flags: 0 };
        let h = st.file_backed(fd, stat.st_size as u64, 0, properties)?;
        put(out, h)
    }
}
