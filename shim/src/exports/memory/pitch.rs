//! Memory in rows.

use super::{direct, pooled, By};
use crate::abi::*;
use crate::device::capture;
use crate::{driver, thread};
use std::ffi::c_uint;
use std::sync::atomic::{AtomicUsize, Ordering};

type RealPitch = unsafe extern "C" fn(*mut CUdeviceptr, *mut usize, usize, usize, c_uint) -> Status;

/// What rows are counted with where it is not known.
const PITCH_ALIGNMENT_BYTES: usize = 512;

/// What the driver rounds a row up to: the pitch it gives a row of one byte. Learnt once; devices of one process are
/// taken to agree, which all that CUDA 11 to 13 supports do (512 bytes).
fn pitch_alignment_bytes(real: RealPitch) -> Option<usize> {
    static ALIGNMENT: AtomicUsize = AtomicUsize::new(0);
    match ALIGNMENT.load(Ordering::Relaxed) {
        0 => {}
        known => return Some(known),
    }
    let driver = driver::get()?;
    let (mut block, mut pitch) = (0, 0);
    // SAFETY: the out-parameters are ours; the block is freed at once.
    unsafe {
        if real(&mut block, &mut pitch, 1, 1, 4) != SUCCESS {
            return None;
        }
        driver::insistently(|| (driver.mem_free)(block));
    }
    if !pitch.is_power_of_two() {
        return None;
    }
    ALIGNMENT.store(pitch, Ordering::Relaxed);
    Some(pitch)
}

/// `cuMemAllocPitch_v2`: rows at the driver's own pitch, the block from the pool.
pub unsafe fn alloc_pitch(
    real: RealPitch,
    address: *mut CUdeviceptr,
    pitch_bytes: *mut usize,
    width_bytes: usize,
    height: usize,
    element_bytes: c_uint,
) -> Status {
    // SAFETY: the caller's arguments, unchanged.
    let native = || unsafe { real(address, pitch_bytes, width_bytes, height, element_bytes) };
    if address.is_null() || pitch_bytes.is_null() || !matches!(element_bytes, 4 | 8 | 16) {
        return native();
    }
    // While a stream captures nothing is learnt: the capture would be lost by that.
    let alignment = match capture::active() {
        true => Some(PITCH_ALIGNMENT_BYTES),
        false => pitch_alignment_bytes(real),
    };
    let pitch = alignment.and_then(|alignment| width_bytes.checked_next_multiple_of(alignment));
    let size = pitch
        .and_then(|pitch| pitch.checked_mul(height))
        .filter(|&size| size > 0);
    let (Some(pitch), Some(size)) = (pitch, size) else {
        return native();
    };
    let answer = thread::with(|thread| pooled(thread, size as u64));
    match answer.by {
        By::Pool => {
            // SAFETY: not null; the caller owes places to write to.
            unsafe {
                address.write(answer.word);
                pitch_bytes.write(pitch);
            }
            SUCCESS
        }
        By::Refusal => {
            // SAFETY: as above. When memory is short, the driver has found the pitch already.
            unsafe {
                address.write(0);
                if answer.code() == OUT_OF_MEMORY {
                    pitch_bytes.write(pitch);
                }
            }
            answer.code()
        }
        By::Driver => direct(address, size as u64, native),
    }
}
