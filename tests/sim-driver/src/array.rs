//! Arrays, mipmapped arrays, textures and surfaces: memory without an address.
use crate::abi::*;
use crate::arena;
use crate::ranges::Kind;
use crate::state::{lock, State};

pub struct Array {
    pub context: Handle,
    device: i32,
    /// Where the driver keeps the bytes.
    pub host: u64,
    pub bytes: u64,
    pub pitch: u64,
    pub rows: u64,
    charged: u64,
    descriptor: Descriptor3D,
    levels: Vec<Handle>,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Descriptor3D {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    kind: u32,
    target: u64,
}

/// Bytes of one channel of a format.
fn width_of(format: u32) -> R<u64> {
    match format {
        0x01 | 0x08 => Ok(1),
        0x02 | 0x09 | 0x10 => Ok(2),
        0x03 | 0x0a | 0x20 => Ok(4),
        _ => Err(INVALID_VALUE),
    }
}

impl State {
    fn new_array(&mut self, d: Descriptor3D) -> R<Handle> {
        let (context, device) = self.current_device()?;
        if d.width == 0 || !matches!(d.channels, 1 | 2 | 4) {
            return Err(INVALID_VALUE);
        }
        let pitch = d.width as u64 * width_of(d.format)? * u64::from(d.channels);
        let rows = d.height.max(1) as u64;
        let bytes = pitch
            .checked_mul(rows)
            .and_then(|n| n.checked_mul(d.depth.max(1) as u64))
            .filter(|n| *n < 1 << 46)
            .ok_or(OUT_OF_MEMORY)?;
        let charged = bytes.next_multiple_of(64 << 10);
        self.device(device)?.arena()?.charge(charged)?;
        let fd = arena::memory_file("simcuda-array", bytes.next_multiple_of(4096))?;
        let host = arena::map_file(fd, 0, bytes.next_multiple_of(4096));
        // SAFETY: the mapping keeps the file.
        unsafe { libc::close(fd) };
        let h = self.handle();
        self.arrays.insert(
            h,
            Array {
                context,
                device,
                host: host?,
                bytes,
                pitch,
                rows,
                charged,
                descriptor: d,
                levels: Vec::new(),
            },
        );
        Ok(h)
    }

    pub fn drop_array(&mut self, h: Handle) {
        let Some(a) = self.arrays.remove(&h) else {
            return;
        };
        arena::unmap(a.host, a.bytes.next_multiple_of(4096));
        if let Ok(arena) = self.device(a.device).and_then(|d| d.arena()) {
            arena.used = arena.used.saturating_sub(a.charged);
        }
        for level in a.levels {
            self.drop_array(level);
        }
    }
}

/// Prefetch and advice are for managed memory only.
pub fn advise(p: Ptr, n: usize) -> R {
    let st = lock();
    let managed = st.ranges.find(p).is_some_and(|r| r.kind == Kind::Managed);
    if managed && st.ranges.covers(p, n as u64) {
        Ok(())
    } else {
        Err(INVALID_VALUE)
    }
}

fn destroy(h: Handle) -> R {
    let st = lock();
    if !st.arrays.contains_key(&h) {
        return Err(INVALID_HANDLE);
    }
    let points = st.points(|_| true);
    let mut st = crate::stream::wait_points(st, &points);
    st.drop_array(h);
    Ok(())
}

/// # Safety
/// `resource` is null or points to a descriptor.
unsafe fn object(out: *mut u64, resource: *const Resource) -> R {
    let mut st = lock();
    if resource.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: not null; the caller vouches for it.
    let r = unsafe { resource.read_unaligned() };
    let fits = match r.kind {
        0 | 1 => st.arrays.contains_key(&(r.target as Handle)),
        // Of linear memory only the alignment is looked at.
        2 | 3 => r.target % 512 == 0,
        _ => false,
    };
    if !fits {
        return Err(INVALID_VALUE);
    }
    let h = st.handle() as u64;
    // SAFETY: passed on.
    unsafe { put(out, h) }
}

api! {
    fn cuArrayCreate_v2(out: *mut Handle, descriptor: *const Descriptor) {
        if descriptor.is_null() {
            return Err(INVALID_VALUE);
        }
        let d = descriptor.read_unaligned();
        let d = Descriptor3D { width: d.width, height: d.height, depth: 0, format: d.format, channels: d.channels, flags: 0 };
        let h = lock().new_array(d)?;
        put(out, h)
    }
    fn cuArray3DCreate_v2(out: *mut Handle, descriptor: *const Descriptor3D) {
        if descriptor.is_null() {
            return Err(INVALID_VALUE);
        }
        let h = lock().new_array(descriptor.read_unaligned())?;
        put(out, h)
    }
    fn cuArrayDestroy(array: Handle) {
        destroy(array)
    }
    fn cuArrayGetDescriptor_v2(out: *mut Descriptor, array: Handle) {
        let st = lock();
        let d = st.arrays.get(&array).ok_or(INVALID_HANDLE)?.descriptor;
        put(out, Descriptor { width: d.width, height: d.height, format: d.format, channels: d.channels })
    }
    fn cuArray3DGetDescriptor_v2(out: *mut Descriptor3D, array: Handle) {
        let st = lock();
        put(out, st.arrays.get(&array).ok_or(INVALID_HANDLE)?.descriptor)
    }
    fn cuMipmappedArrayCreate(out: *mut Handle, descriptor: *const Descriptor3D, levels: u32) {
        if descriptor.is_null() || levels == 0 {
            return Err(INVALID_VALUE);
        }
        let d = descriptor.read_unaligned();
        let mut st = lock();
        let h = st.new_array(d)?;
        for level in 1..levels.min(16) {
            let at = |n: usize| if n == 0 { 0 } else { (n >> level).max(1) };
            let smaller = Descriptor3D { width: at(d.width), height: at(d.height), depth: at(d.depth), ..d };
            match st.new_array(smaller) {
                Ok(l) => {
                    if let Some(a) = st.arrays.get_mut(&h) {
                        a.levels.push(l);
                    }
                }
                Err(code) => {
                    st.drop_array(h);
                    return Err(code);
                }
            }
        }
        put(out, h)
    }
    fn cuMipmappedArrayGetLevel(out: *mut Handle, array: Handle, level: u32) {
        let st = lock();
        let a = st.arrays.get(&array).ok_or(INVALID_HANDLE)?;
        let h = if level == 0 { Some(array) } else { a.levels.get(level as usize - 1).copied() };
        put(out, h.ok_or(INVALID_VALUE)?)
    }
    fn cuMipmappedArrayDestroy(array: Handle) {
        destroy(array)
    }
    fn cuTexObjectCreate(out: *mut u64, resource: *const Resource, texture: usize, view: usize) {
        object(out, resource)
    }
    fn cuTexObjectDestroy(texture: u64) {
        Ok(())
    }
    fn cuSurfObjectCreate(out: *mut u64, resource: *const Resource) {
        object(out, resource)
    }
    fn cuSurfObjectDestroy(surface: u64) {
        Ok(())
    }
}
