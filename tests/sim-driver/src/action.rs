//! What queued operations do, how long they take, and what they wait for.
use crate::abi::*;
use crate::copy::Copy3;
use crate::kernel::Launch;
use crate::memset::Fill;
use crate::state::State;
use crate::{config, ipc};
use std::time::Duration;

/// What an operation does when its time has come.
#[derive(Clone, Debug)]
pub enum Action {
    Nothing,
    Kernel(Launch),
    Copy(Copy3),
    Fill(Fill),
    /// The event's record of this generation is complete.
    Record(Handle, u64),
    /// A graph records an event, or waits for it; replaced when it is launched.
    Event(Handle, bool),
    /// cuLaunchHostFunc: function and argument.
    Host(usize, usize),
    /// cuStreamAddCallback: function, argument and the stream.
    Callback(usize, usize, Handle),
    /// Memory of a graph appears.
    Alloc(Ptr),
    /// Stream-ordered free.
    Free(Ptr),
    /// Wait for, or write, a 4 or 8 byte value: address, value, bytes, comparison.
    WaitValue(Ptr, u64, u64, u32),
    WriteValue(Ptr, u64, u64),
    /// Wait for another process's record of an event.
    WaitShared(u64, u64),
}

pub fn condition_holds(st: &State, action: &Action) -> bool {
    match *action {
        Action::WaitValue(p, value, bytes, how) => {
            let Ok(pieces) = st.ranges.pieces(p, 1) else {
                return true;
            };
            // SAFETY: the piece is in live memory, whose pages have all of an aligned word.
            let now = unsafe {
                if bytes == 4 {
                    u64::from((pieces[0].0 as *const u32).read_volatile())
                } else {
                    (pieces[0].0 as *const u64).read_volatile()
                }
            };
            match how & 3 {
                0 if bytes == 4 => (now as i32).wrapping_sub(value as i32) >= 0,
                0 => (now as i64).wrapping_sub(value as i64) >= 0,
                1 => now == value,
                2 => now & value != 0,
                _ => now | value != if bytes == 4 { 0xFFFF_FFFF } else { u64::MAX },
            }
        }
        Action::WaitShared(page, generation) => ipc::shared_done(page, generation),
        _ => true,
    }
}

pub fn duration(action: &Action) -> Duration {
    match action {
        Action::Kernel(l) => l.duration(),
        Action::Copy(c) if config::get().h200_costs => {
            Duration::from_nanos(c.bytes() / if c.between_devices() { 2_100 } else { 50 })
        }
        Action::Fill(f) if config::get().h200_costs => Duration::from_nanos(f.bytes() / 4_000),
        _ => Duration::ZERO,
    }
}

pub fn perform(st: &mut State, action: &Action) -> R {
    match action {
        Action::Nothing | Action::Host(..) | Action::Callback(..) | Action::Event(..) => Ok(()),
        Action::WaitValue(..) | Action::WaitShared(..) => Ok(()),
        Action::Kernel(l) => l.run(st),
        Action::Copy(c) => c.run(st),
        Action::Fill(f) => f.run(st),
        Action::Record(event, generation) => {
            st.event_done(*event, *generation);
            Ok(())
        }
        Action::Alloc(p) => {
            st.graph_memory(*p, true);
            Ok(())
        }
        Action::Free(p) => {
            st.free_in_order(*p);
            Ok(())
        }
        Action::WriteValue(p, value, bytes) => {
            let pieces = st.ranges.pieces(*p, 1)?;
            // SAFETY: as above.
            unsafe {
                if *bytes == 4 {
                    (pieces[0].0 as *mut u32).write_volatile(*value as u32)
                } else {
                    (pieces[0].0 as *mut u64).write_volatile(*value)
                }
            }
            Ok(())
        }
    }
}
