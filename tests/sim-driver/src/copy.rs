//! Copies: what is copied, the checks at the call, the copy itself, and the API.
use crate::abi::*;
use crate::array;
use crate::engine::Action;
use crate::state::{lock, Guard, State};
use crate::stream::wait_points;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Place {
    /// An address that the driver knows, or host memory.
    Memory(Ptr),
    /// What pageable host memory held when the copy was asked for.
    Bytes(Arc<Vec<u8>>),
    Array(Handle),
}

#[derive(Clone, Debug)]
pub struct Side {
    pub place: Place,
    pub x: u64,
    pub y: u64,
    pub z: u64,
    pub pitch: u64,
    pub rows: u64,
}

impl Side {
    pub fn linear(p: Ptr) -> Side {
        Side {
            place: Place::Memory(p),
            x: 0,
            y: 0,
            z: 0,
            pitch: 0,
            rows: 0,
        }
    }

    fn offset(&self, y: u64, z: u64) -> u64 {
        self.x + (self.y + y) * self.pitch + (self.z + z) * self.pitch * self.rows
    }
}

#[derive(Clone, Debug)]
pub struct Copy3 {
    pub to: Side,
    pub from: Side,
    pub width: u64,
    pub height: u64,
    pub depth: u64,
}

impl Copy3 {
    pub fn linear(to: Ptr, from: Ptr, bytes: u64) -> Copy3 {
        Copy3 {
            to: Side::linear(to),
            from: Side::linear(from),
            width: bytes,
            height: 1,
            depth: 1,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.width * self.height * self.depth
    }

    pub fn between_devices(&self) -> bool {
        !matches!(self.from.place, Place::Bytes(_))
    }

    /// First byte and length of the part of a side's memory that is touched.
    fn span(&self, side: &Side) -> (u64, u64) {
        let first = side.offset(0, 0);
        (
            first,
            side.offset(self.height - 1, self.depth - 1) + self.width - first,
        )
    }

    /// As a kernel copies: only memory that the device can reach.
    pub fn run_on_device(&self, st: &State) -> R {
        for side in [&self.to, &self.from] {
            if let Place::Memory(p) = side.place {
                st.ranges.pieces(p, self.width)?;
            }
        }
        self.run(st)
    }

    pub fn run(&self, st: &State) -> R {
        let mut row = Vec::new();
        for z in 0..self.depth {
            for y in 0..self.height {
                let from = pieces(st, &self.from, y, z, self.width)?;
                let to = pieces(st, &self.to, y, z, self.width)?;
                if let ([f], [t]) = (from.as_slice(), to.as_slice()) {
                    // SAFETY: both pieces are live memory of that length.
                    unsafe { std::ptr::copy(f.0 as *const u8, t.0 as *mut u8, f.1 as usize) };
                    continue;
                }
                row.clear();
                for (at, n) in from {
                    // SAFETY: as above.
                    row.extend_from_slice(unsafe {
                        std::slice::from_raw_parts(at as *const u8, n as usize)
                    });
                }
                let mut rest = row.as_slice();
                for (at, n) in to {
                    let (head, tail) = rest.split_at(n as usize);
                    // SAFETY: as above.
                    unsafe { std::ptr::copy(head.as_ptr(), at as *mut u8, n as usize) };
                    rest = tail;
                }
            }
        }
        Ok(())
    }
}

/// One row of a side as pieces of driver or host memory.
fn pieces(st: &State, side: &Side, y: u64, z: u64, width: u64) -> R<Vec<(u64, u64)>> {
    match &side.place {
        Place::Memory(p) => {
            let at = p + side.offset(y, z);
            if st.ranges.find(at).is_some() || st.in_window(at) {
                st.ranges.pieces(at, width)
            } else {
                Ok(vec![(at, width)])
            }
        }
        Place::Bytes(b) => Ok(vec![(b.as_ptr() as u64 + side.offset(y, z), width)]),
        Place::Array(a) => {
            let a = st.arrays.get(a).ok_or(ILLEGAL_ADDRESS)?;
            Ok(vec![(a.host + side.offset(y, z), width)])
        }
    }
}

/// How a call treats the host.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Sync,
    Async,
}

enum Where {
    Known,
    Pageable,
}

/// Whether a side's memory may be used, and of what sort it is.
fn check(st: &State, c: &Copy3, side: &Side, device_side: bool) -> R<Where> {
    match &side.place {
        Place::Memory(p) => {
            let (first, span) = c.span(side);
            let at = p.checked_add(first).ok_or(INVALID_VALUE)?;
            if st.ranges.find(at).is_some() {
                let host = st.ranges.find(at).is_some_and(|r| r.on_host());
                if !st.ranges.covers(at, span) && !host {
                    return Err(INVALID_VALUE);
                }
                return Ok(Where::Known);
            }
            if device_side || at == 0 || st.in_window(at) {
                return Err(INVALID_VALUE);
            }
            Ok(Where::Pageable)
        }
        Place::Bytes(_) => Ok(Where::Known),
        Place::Array(a) => {
            let a = st.arrays.get(a).ok_or(INVALID_HANDLE)?;
            let (first, span) = c.span(side);
            if side.x + c.width > a.pitch || first + span > a.bytes {
                return Err(INVALID_VALUE);
            }
            Ok(Where::Known)
        }
    }
}

/// Checks a copy, queues it, and waits where the real driver does.
fn copy(mut c: Copy3, device_to: bool, device_from: bool, stream: Option<Handle>) -> R {
    let mut st = lock();
    let mode = if stream.is_some() {
        Mode::Async
    } else {
        Mode::Sync
    };
    let key = st.stream(stream.unwrap_or(0))?;
    if c.bytes() == 0 {
        return Ok(());
    }
    for side in [&mut c.to, &mut c.from] {
        if let Place::Array(a) = side.place {
            let a = st.arrays.get(&a).ok_or(INVALID_HANDLE)?;
            (side.pitch, side.rows) = (a.pitch, a.rows);
        }
        side.pitch = if side.pitch == 0 { c.width } else { side.pitch };
        side.rows = side.rows.max(c.height);
    }
    if (c.height > 1 || c.depth > 1) && (c.to.pitch < c.width || c.from.pitch < c.width) {
        return Err(INVALID_VALUE);
    }
    let to = check(&st, &c, &c.to, device_to)?;
    let from = check(&st, &c, &c.from, device_from)?;
    let capturing = st.streams[&key].capture.is_some();
    if let (Where::Pageable, false, Place::Memory(p)) = (&from, capturing, &c.from.place) {
        let (first, span) = c.span(&c.from);
        let bytes = host_bytes(p + first, span)?;
        (c.from.place, c.from.x, c.from.y, c.from.z) = (Place::Bytes(Arc::new(bytes)), 0, 0, 0);
    }
    let host_target = matches!(to, Where::Pageable) || touches_host(&st, &c);
    if mode == Mode::Sync {
        st.refuse_while_capturing(None)?;
    }
    let point = st.submit(key, Action::Copy(c))?;
    let waits = match mode {
        // Between device addresses the host does not wait.
        Mode::Sync => host_target || matches!(from, Where::Pageable),
        Mode::Async => matches!(to, Where::Pageable) && !capturing,
    };
    if waits {
        return finish(st, key, point);
    }
    Ok(())
}

/// A copy of the program's own memory; an address without memory is an error, not a fault.
fn host_bytes(at: u64, n: u64) -> R<Vec<u8>> {
    let mut bytes: Vec<u8> = Vec::with_capacity(n as usize);
    let to = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: n as usize,
    };
    let from = libc::iovec {
        iov_base: at as *mut _,
        iov_len: n as usize,
    };
    // SAFETY: the target has room for n bytes; the kernel checks the source.
    unsafe {
        let got = libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0);
        if got < 0 && *libc::__errno_location() != libc::EFAULT {
            // Not allowed here: read it as anyone would.
            std::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), n as usize);
        } else if got < n as isize && got < MAX_TRANSFER {
            return Err(INVALID_VALUE);
        } else if (got as u64) < n {
            let rest = (n - got as u64) as usize;
            let (from, to) = (at + got as u64, bytes.as_mut_ptr().add(got as usize));
            std::ptr::copy_nonoverlapping(from as *const u8, to, rest);
        }
        bytes.set_len(n as usize);
    }
    Ok(bytes)
}

/// The most that one process_vm_readv transfers.
const MAX_TRANSFER: isize = 0x7fff_f000;

fn touches_host(st: &State, c: &Copy3) -> bool {
    [&c.to, &c.from].iter().any(|s| match s.place {
        Place::Memory(p) => st.ranges.find(p).is_none_or(|r| r.on_host()),
        _ => false,
    })
}

fn finish(st: Guard, key: Handle, point: (Handle, u64)) -> R {
    let context = st.streams[&key].context;
    wait_points(st, &[point]).check_context(context)
}

/// A memset: elements of 1, 2 or 4 bytes, in rows.
#[derive(Clone, Debug)]
pub struct Fill {
    pub to: Ptr,
    pub pitch: u64,
    pub element: u64,
    pub value: u32,
    pub width: u64,
    pub height: u64,
}

impl Fill {
    pub fn bytes(&self) -> u64 {
        self.element * self.width * self.height
    }

    pub fn run(&self, st: &State) -> R {
        let value = self.value.to_le_bytes();
        for y in 0..self.height {
            let row = self.to + y * self.pitch;
            let mut phase = 0;
            for (at, n) in st.ranges.pieces(row, self.width * self.element)? {
                // SAFETY: a piece of live memory of that length.
                let bytes = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, n as usize) };
                if self.element == 1 {
                    bytes.fill(value[0]);
                    continue;
                }
                for b in bytes {
                    *b = value[phase];
                    phase = (phase + 1) % self.element as usize;
                }
            }
        }
        Ok(())
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memcpy2D {
    src_x: usize,
    src_y: usize,
    src_type: u32,
    src_host: u64,
    src_device: Ptr,
    src_array: Handle,
    src_pitch: usize,
    dst_x: usize,
    dst_y: usize,
    dst_type: u32,
    dst_host: u64,
    dst_device: Ptr,
    dst_array: Handle,
    dst_pitch: usize,
    width: usize,
    height: usize,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Memcpy3D {
    src_x: usize,
    src_y: usize,
    src_z: usize,
    src_lod: usize,
    src_type: u32,
    src_host: u64,
    src_device: Ptr,
    src_array: Handle,
    src_context: Handle,
    src_pitch: usize,
    src_height: usize,
    dst_x: usize,
    dst_y: usize,
    dst_z: usize,
    dst_lod: usize,
    dst_type: u32,
    dst_host: u64,
    dst_device: Ptr,
    dst_array: Handle,
    dst_context: Handle,
    dst_pitch: usize,
    dst_height: usize,
    width: usize,
    height: usize,
    depth: usize,
}

/// A place by memory type: host, device, array, unified; and whether it must be the device's.
fn place(kind: u32, host: u64, device: Ptr, array: Handle) -> R<(Place, bool)> {
    match kind {
        1 => Ok((Place::Memory(host), false)),
        2 => Ok((Place::Memory(device), true)),
        3 => Ok((Place::Array(array), true)),
        4 => Ok((Place::Memory(device), false)),
        _ => Err(INVALID_VALUE),
    }
}

/// # Safety
/// `p` is null or points to a descriptor.
unsafe fn copy_2d(p: *const Memcpy2D, stream: Option<Handle>) -> R {
    if p.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null; the caller vouches for it.
    let d = unsafe { p.read_unaligned() };
    let (from, device_from) = place(d.src_type, d.src_host, d.src_device, d.src_array)?;
    let (to, device_to) = place(d.dst_type, d.dst_host, d.dst_device, d.dst_array)?;
    let side = |place, x, y, pitch| Side {
        place,
        x: x as u64,
        y: y as u64,
        z: 0,
        pitch: pitch as u64,
        rows: 0,
    };
    let c = Copy3 {
        to: side(to, d.dst_x, d.dst_y, d.dst_pitch),
        from: side(from, d.src_x, d.src_y, d.src_pitch),
        width: d.width as u64,
        height: d.height as u64,
        depth: 1,
    };
    copy(c, device_to, device_from, stream)
}

/// The copy a 3D descriptor asks for, and which of its sides must be the device's.
///
/// # Safety
/// `p` is null or points to a descriptor.
pub unsafe fn described(p: *const Memcpy3D) -> R<(Copy3, bool, bool)> {
    if p.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null; the caller vouches for it.
    let d = unsafe { p.read_unaligned() };
    let (from, device_from) = place(d.src_type, d.src_host, d.src_device, d.src_array)?;
    let (to, device_to) = place(d.dst_type, d.dst_host, d.dst_device, d.dst_array)?;
    let c = Copy3 {
        to: Side {
            place: to,
            x: d.dst_x as u64,
            y: d.dst_y as u64,
            z: d.dst_z as u64,
            pitch: d.dst_pitch as u64,
            rows: d.dst_height as u64,
        },
        from: Side {
            place: from,
            x: d.src_x as u64,
            y: d.src_y as u64,
            z: d.src_z as u64,
            pitch: d.src_pitch as u64,
            rows: d.src_height as u64,
        },
        width: d.width as u64,
        height: d.height as u64,
        depth: d.depth as u64,
    };
    Ok((c, device_to, device_from))
}

/// # Safety
/// As for [`described`].
unsafe fn copy_3d(p: *const Memcpy3D, stream: Option<Handle>) -> R {
    // SAFETY: passed on.
    let (c, to, from) = unsafe { described(p)? };
    copy(c, to, from, stream)
}

fn linear(to: Ptr, from: Ptr, n: usize, sides: (bool, bool), stream: Option<Handle>) -> R {
    copy(Copy3::linear(to, from, n as u64), sides.0, sides.1, stream)
}

/// A 1D part of an array, addressed in bytes.
fn in_array(array: Handle, offset: usize) -> Side {
    Side {
        place: Place::Array(array),
        x: offset as u64,
        y: 0,
        z: 0,
        pitch: 0,
        rows: 0,
    }
}

fn with_array(to: Side, from: Side, n: usize, stream: Option<Handle>) -> R {
    copy(
        Copy3 {
            to,
            from,
            width: n as u64,
            height: 1,
            depth: 1,
        },
        false,
        false,
        stream,
    )
}

api! {
    fn cuMemcpy | cuMemcpy_ptds (to: Ptr, from: Ptr, n: usize) {
        linear(to, from, n, (false, false), None)
    }
    fn cuMemcpyAsync | cuMemcpyAsync_ptsz (to: Ptr, from: Ptr, n: usize, stream: Handle) {
        linear(to, from, n, (false, false), Some(stream))
    }
    fn cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds (to: Ptr, from: Ptr, n: usize) {
        linear(to, from, n, (true, false), None)
    }
    fn cuMemcpyHtoDAsync_v2 | cuMemcpyHtoDAsync_v2_ptsz (to: Ptr, from: Ptr, n: usize, stream: Handle) {
        linear(to, from, n, (true, false), Some(stream))
    }
    fn cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds (to: Ptr, from: Ptr, n: usize) {
        linear(to, from, n, (false, true), None)
    }
    fn cuMemcpyDtoHAsync_v2 | cuMemcpyDtoHAsync_v2_ptsz (to: Ptr, from: Ptr, n: usize, stream: Handle) {
        linear(to, from, n, (false, true), Some(stream))
    }
    fn cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds (to: Ptr, from: Ptr, n: usize) {
        linear(to, from, n, (true, true), None)
    }
    fn cuMemcpyDtoDAsync_v2 | cuMemcpyDtoDAsync_v2_ptsz (to: Ptr, from: Ptr, n: usize, stream: Handle) {
        linear(to, from, n, (true, true), Some(stream))
    }
    fn cuMemcpyPeer | cuMemcpyPeer_ptds (to: Ptr, to_context: Handle, from: Ptr, from_context: Handle, n: usize) {
        linear(to, from, n, (true, true), None)
    }
    fn cuMemcpyPeerAsync | cuMemcpyPeerAsync_ptsz (to: Ptr, to_context: Handle, from: Ptr, from_context: Handle, n: usize, stream: Handle) {
        linear(to, from, n, (true, true), Some(stream))
    }
    fn cuMemcpy2D_v2 | cuMemcpy2D_v2_ptds | cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds (p: *const Memcpy2D) {
        copy_2d(p, None)
    }
    fn cuMemcpy2DAsync_v2 | cuMemcpy2DAsync_v2_ptsz (p: *const Memcpy2D, stream: Handle) {
        copy_2d(p, Some(stream))
    }
    fn cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds | cuMemcpy3DPeer | cuMemcpy3DPeer_ptds (p: *const Memcpy3D) {
        copy_3d(p, None)
    }
    fn cuMemcpy3DAsync_v2 | cuMemcpy3DAsync_v2_ptsz | cuMemcpy3DPeerAsync | cuMemcpy3DPeerAsync_ptsz (p: *const Memcpy3D, stream: Handle) {
        copy_3d(p, Some(stream))
    }
    fn cuMemcpyHtoA_v2 | cuMemcpyHtoA_v2_ptds (array: Handle, offset: usize, from: Ptr, n: usize) {
        with_array(in_array(array, offset), Side::linear(from), n, None)
    }
    fn cuMemcpyHtoAAsync_v2 | cuMemcpyHtoAAsync_v2_ptsz (array: Handle, offset: usize, from: Ptr, n: usize, stream: Handle) {
        with_array(in_array(array, offset), Side::linear(from), n, Some(stream))
    }
    fn cuMemcpyAtoH_v2 | cuMemcpyAtoH_v2_ptds (to: Ptr, array: Handle, offset: usize, n: usize) {
        with_array(Side::linear(to), in_array(array, offset), n, None)
    }
    fn cuMemcpyAtoHAsync_v2 | cuMemcpyAtoHAsync_v2_ptsz (to: Ptr, array: Handle, offset: usize, n: usize, stream: Handle) {
        with_array(Side::linear(to), in_array(array, offset), n, Some(stream))
    }
    fn cuMemcpyDtoA_v2 | cuMemcpyDtoA_v2_ptds (array: Handle, offset: usize, from: Ptr, n: usize) {
        with_array(in_array(array, offset), Side::linear(from), n, None)
    }
    fn cuMemcpyAtoD_v2 | cuMemcpyAtoD_v2_ptds (to: Ptr, array: Handle, offset: usize, n: usize) {
        with_array(Side::linear(to), in_array(array, offset), n, None)
    }
    fn cuMemcpyAtoA_v2 | cuMemcpyAtoA_v2_ptds (to: Handle, to_offset: usize, from: Handle, from_offset: usize, n: usize) {
        with_array(in_array(to, to_offset), in_array(from, from_offset), n, None)
    }
    fn cuMemcpyBatchAsync | cuMemcpyBatchAsync_ptsz (to: *const Ptr, from: *const Ptr, sizes: *const usize, count: usize, attributes: usize, indices: usize, attribute_count: usize, failed: *mut usize, stream: Handle) {
        for i in 0..count {
            put_opt(failed, i);
            linear(*to.add(i), *from.add(i), *sizes.add(i), (false, false), Some(stream))?;
        }
        Ok(())
    }
    fn cuMemcpyBatchAsync_v2 | cuMemcpyBatchAsync_v2_ptsz (to: *const Ptr, from: *const Ptr, sizes: *const usize, count: usize, attributes: usize, indices: usize, attribute_count: usize, stream: Handle) {
        for i in 0..count {
            linear(*to.add(i), *from.add(i), *sizes.add(i), (false, false), Some(stream))?;
        }
        Ok(())
    }
    fn cuMemPrefetchAsync | cuMemPrefetchAsync_ptsz (p: Ptr, n: usize, device: i32, stream: Handle) {
        array::advise(p, n)
    }
    fn cuMemPrefetchAsync_v2 | cuMemPrefetchAsync_v2_ptsz (p: Ptr, n: usize, location: u64, flags: u32, stream: Handle) {
        array::advise(p, n)
    }
    fn cuMemAdvise(p: Ptr, n: usize, advice: u32, device: i32) {
        array::advise(p, n)
    }
    fn cuMemAdvise_v2(p: Ptr, n: usize, advice: u32, location: u64) {
        array::advise(p, n)
    }
}
