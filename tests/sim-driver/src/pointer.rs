//! What a pointer is: cuPointerGetAttribute and its kin.
use crate::abi::*;
use crate::ranges::{Kind, Range};
use crate::state::{lock, State};
use std::ffi::c_void;

const CONTEXT: i32 = 1;
const MEMORY_TYPE: i32 = 2;
const DEVICE_POINTER: i32 = 3;
const HOST_POINTER: i32 = 4;
const SYNC_MEMOPS: i32 = 6;
const BUFFER_ID: i32 = 7;
const IS_MANAGED: i32 = 8;
const DEVICE_ORDINAL: i32 = 9;
const LEGACY_IPC: i32 = 10;
const RANGE_START: i32 = 11;
const RANGE_SIZE: i32 = 12;
const MAPPED: i32 = 13;
const HANDLE_TYPES: i32 = 14;
const GPU_DIRECT: i32 = 15;
const ACCESS_FLAGS: i32 = 16;
const MEMPOOL: i32 = 17;
const MAPPING_SIZE: i32 = 18;
const MAPPING_BASE: i32 = 19;
const BLOCK_ID: i32 = 20;
const DECOMPRESS: i32 = 21;

/// An attribute's value, in the width that is written.
enum Value {
    Byte(bool),
    Word(u32),
    Long(u64),
}

impl Value {
    /// # Safety
    /// `p` is valid for a write of the attribute's type.
    unsafe fn write(self, p: *mut c_void) -> R {
        // SAFETY: passed on.
        unsafe {
            match self {
                Value::Byte(v) => put(p.cast(), v as u8),
                Value::Word(v) => put(p.cast(), v),
                Value::Long(v) => put(p.cast(), v),
            }
        }
    }
}

fn value(st: &State, r: &Range, which: i32, p: Ptr) -> R<Value> {
    use Value::*;
    let host = r.on_host();
    let chunk = r.block.map_or((r.base, r.size), |b| {
        (r.base - (b.offset - b.chunk.0), b.chunk.1)
    });
    Ok(match which {
        CONTEXT => Long(r.context as u64),
        MEMORY_TYPE => Word(if host { 1 } else { 2 }),
        DEVICE_POINTER => Long(p),
        HOST_POINTER if host || r.kind == Kind::Managed => Long(p),
        SYNC_MEMOPS => Byte(r.sync_memops),
        BUFFER_ID | BLOCK_ID => Long(r.id),
        IS_MANAGED => Byte(r.kind == Kind::Managed),
        DEVICE_ORDINAL => Word(r.device as u32),
        LEGACY_IPC => Byte(r.kind == Kind::Device),
        RANGE_START => Long(r.base),
        RANGE_SIZE => Long(r.size),
        MAPPED => Byte(true),
        HANDLE_TYPES => Long(st.mapped_properties(r).map_or(0, |p| p.handle_types.into())),
        GPU_DIRECT => Byte(match st.mapped_properties(r) {
            Some(properties) => properties.rdma_capable(),
            None => !host && r.kind != Kind::Managed,
        }),
        ACCESS_FLAGS => Word(if r.access { 3 } else { 0 }),
        MEMPOOL => Long(if let Kind::Async(pool) = r.kind {
            pool as u64
        } else {
            0
        }),
        MAPPING_SIZE => Long(chunk.1),
        MAPPING_BASE => Long(chunk.0),
        DECOMPRESS => Byte(match st.mapped_properties(r) {
            Some(properties) => properties.decompression(),
            None => r.kind == Kind::Device,
        }),
        _ => return Err(INVALID_VALUE),
    })
}

/// What the plural form says of a pointer the driver does not know, if anything.
fn value_of_unknown(which: i32) -> Option<Value> {
    match which {
        CONTEXT | DEVICE_POINTER | HOST_POINTER | BUFFER_ID | MEMPOOL => Some(Value::Long(0)),
        MEMORY_TYPE => Some(Value::Word(0)),
        DEVICE_ORDINAL => Some(Value::Word(-2i32 as u32)),
        IS_MANAGED | MAPPED | SYNC_MEMOPS | LEGACY_IPC => Some(Value::Byte(false)),
        _ => None,
    }
}

api! {
    fn cuPointerGetAttribute(data: *mut c_void, which: i32, p: Ptr) {
        let mut st = lock();
        let context = st.top();
        let r = st.ranges.find(p).filter(|r| !r.leaving).ok_or(INVALID_VALUE)?;
        // Where it is depends on who asks (measured).
        if which == DEVICE_POINTER && context == 0 {
            return Err(INVALID_CONTEXT);
        }
        value(&st, r, which, p)?.write(data)
    }
    fn cuPointerGetAttributes(count: u32, which: *const i32, data: *const *mut c_void, p: Ptr) {
        if count == 0 || which.is_null() || data.is_null() {
            return Err(INVALID_VALUE);
        }
        let st = lock();
        let r = st.ranges.find(p).filter(|r| !r.leaving);
        for i in 0..count as usize {
            let (which, data) = (*which.add(i), *data.add(i));
            if which <= 0 || which > DECOMPRESS {
                return Err(INVALID_VALUE);
            }
            let v = match r {
                Some(r) => value(&st, r, which, p).ok(),
                None => value_of_unknown(which),
            };
            if let Some(v) = v {
                v.write(data)?;
            }
        }
        Ok(())
    }
    fn cuPointerSetAttribute(data: *const c_void, which: i32, p: Ptr) {
        if data.is_null() {
            return Err(INVALID_VALUE);
        }
        let on = *data.cast::<u8>() != 0;
        let mut st = lock();
        let r = st.ranges.find(p).filter(|r| !r.leaving).ok_or(INVALID_VALUE)?;
        let mapped = matches!(r.kind, Kind::Mapped(_));
        st.refuse_while_capturing(None)?;
        if mapped {
            return Err(NOT_SUPPORTED);
        }
        if which != SYNC_MEMOPS {
            return Err(INVALID_VALUE);
        }
        if let Some(r) = st.ranges.find_mut(p) {
            r.sync_memops = on;
        }
        Ok(())
    }
    fn cuMemGetHandleForAddressRange(out: *mut c_void, p: Ptr, size: usize, kind: i32, flags: u64) {
        Err(NOT_SUPPORTED)
    }
    fn cuMemRangeGetAttribute(data: *mut c_void, n: usize, which: i32, p: Ptr, count: usize) {
        let st = lock();
        st.ranges.find(p).filter(|r| r.kind == Kind::Managed).ok_or(INVALID_VALUE)?;
        if n >= 4 { put(data.cast(), -2i32) } else { Err(INVALID_VALUE) }
    }
}
