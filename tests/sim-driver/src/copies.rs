//! The copy functions, and the descriptors of copies in two and three dimensions.
use crate::abi::*;
use crate::array;
use crate::copy::{copy, Copy3, Place, Side};

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
