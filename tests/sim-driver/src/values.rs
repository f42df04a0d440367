//! Stream memory operations: wait for a value, write a value.
use crate::abi::*;
use crate::action::Action;
use crate::state::lock;

fn submit(stream: Handle, p: Ptr, bytes: u64, action: Action) -> R {
    let mut st = lock();
    let key = st.stream(stream)?;
    // Where the word starts is looked at, not where it ends.
    if !p.is_multiple_of(bytes) || !st.ranges.covers(p, 1) {
        return Err(INVALID_VALUE);
    }
    st.submit(key, action).map(|_| ())
}

/// CUstreamBatchMemOpParams: operation, address, value, flags.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    kind: u32,
    address: Ptr,
    value: u64,
    flags: u32,
    unused: [u64; 2],
}

/// # Safety
/// `operations` points to `count` operations.
unsafe fn batch(stream: Handle, count: u32, operations: *const Operation) -> R {
    if operations.is_null() {
        return Err(INVALID_VALUE);
    }
    for i in 0..count as usize {
        // SAFETY: by contract.
        let o = unsafe { operations.add(i).read_unaligned() };
        let low = o.value & 0xFFFF_FFFF;
        match o.kind {
            1 => submit(
                stream,
                o.address,
                4,
                Action::WaitValue(o.address, low, 4, o.flags),
            )?,
            2 => submit(stream, o.address, 4, Action::WriteValue(o.address, low, 4))?,
            4 => submit(
                stream,
                o.address,
                8,
                Action::WaitValue(o.address, o.value, 8, o.flags),
            )?,
            5 => submit(
                stream,
                o.address,
                8,
                Action::WriteValue(o.address, o.value, 8),
            )?,
            3 | 6 => {}
            _ => return Err(INVALID_VALUE),
        }
    }
    Ok(())
}

api! {
    fn cuStreamWaitValue32_v2 | cuStreamWaitValue32 | cuStreamWaitValue32_v2_ptsz | cuStreamWaitValue32_ptsz (stream: Handle, p: Ptr, value: u32, flags: u32) {
        submit(stream, p, 4, Action::WaitValue(p, u64::from(value), 4, flags))
    }
    fn cuStreamWaitValue64_v2 | cuStreamWaitValue64 | cuStreamWaitValue64_v2_ptsz | cuStreamWaitValue64_ptsz (stream: Handle, p: Ptr, value: u64, flags: u32) {
        submit(stream, p, 8, Action::WaitValue(p, value, 8, flags))
    }
    fn cuStreamWriteValue32_v2 | cuStreamWriteValue32 | cuStreamWriteValue32_v2_ptsz | cuStreamWriteValue32_ptsz (stream: Handle, p: Ptr, value: u32, flags: u32) {
        submit(stream, p, 4, Action::WriteValue(p, u64::from(value), 4))
    }
    fn cuStreamWriteValue64_v2 | cuStreamWriteValue64 | cuStreamWriteValue64_v2_ptsz | cuStreamWriteValue64_ptsz (stream: Handle, p: Ptr, value: u64, flags: u32) {
        submit(stream, p, 8, Action::WriteValue(p, value, 8))
    }
    fn cuStreamBatchMemOp | cuStreamBatchMemOp_v2 | cuStreamBatchMemOp_ptsz | cuStreamBatchMemOp_v2_ptsz (stream: Handle, count: u32, operations: *const Operation, flags: u32) {
        batch(stream, count, operations)
    }
}
