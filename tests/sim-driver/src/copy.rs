//! Copies: what is copied, the checks at the call, the copy itself, and the API.
use crate::abi::*;
use crate::action::Action;
use crate::ranges::Kind;
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
fn check(st: &State, c: &Copy3, side: &Side, device_side: bool, capturing: bool) -> R<Where> {
    match &side.place {
        Place::Memory(p) => {
            let (first, span) = c.span(side);
            let at = p.checked_add(first).ok_or(INVALID_VALUE)?;
            if let Some(range) = st.ranges.find(at) {
                let base = st.ranges.find(*p).map(|r| r.base);
                if device_side && range.kind == Kind::Device && base != Some(range.base) {
                    return Err(INVALID_VALUE);
                }
                let promised = capturing && st.ranges.promised(at, span);
                if !st.ranges.covers(at, span) && !range.on_host() && !promised {
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

/// Fills in the pitches and rows that a description leaves open.
fn complete(st: &State, c: &mut Copy3) -> R {
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
    Ok(())
}

/// Checks a copy that is to be a graph's node, as the driver does when the node is made.
pub fn as_node(st: &State, (mut c, device_to, device_from): (Copy3, bool, bool)) -> R<Action> {
    if c.bytes() > 0 {
        complete(st, &mut c)?;
        check(st, &c, &c.to, device_to, true)?;
        check(st, &c, &c.from, device_from, true)?;
    }
    Ok(Action::Copy(c))
}

/// Checks a copy, queues it, and waits where the real driver does.
pub fn copy(mut c: Copy3, device_to: bool, device_from: bool, stream: Option<Handle>) -> R {
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
    complete(&st, &mut c)?;
    let capturing = st.streams[&key].capture.is_some();
    let to = check(&st, &c, &c.to, device_to, capturing)?;
    let from = check(&st, &c, &c.from, device_from, capturing)?;
    if let (Where::Pageable, false, Place::Memory(p)) = (&from, capturing, &c.from.place) {
        let (first, span) = c.span(&c.from);
        let bytes = host_bytes(p + first, span)?;
        (c.from.place, c.from.x, c.from.y, c.from.z) = (Place::Bytes(Arc::new(bytes)), 0, 0, 0);
    }
    let host_target = matches!(to, Where::Pageable) || touches_host(&st, &c);
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
