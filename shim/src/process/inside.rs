//! Which threads are in a hook, and with it perhaps in the driver.
//!
//! A thread says so by plain stores, which cost nothing; who wants to know pays for both sides with membarrier(2): what a
//! thread stored before it looked at the state of the process is seen, or it sees the state.

use cushion::lane::LANE_COUNT;
use std::sync::atomic::{compiler_fence, AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// On cache lines of its own (two, since processors fetch them in pairs): each has one writer.
#[repr(align(128))]
struct Mark(AtomicBool);

static MARKS: [Mark; LANE_COUNT] = [const { Mark(AtomicBool::new(false)) }; LANE_COUNT];

/// For threads that have no lane, and where membarrier is not to be had.
const GRACE: Duration = Duration::from_millis(1);

/// The thread of this lane is in a hook, or is not any more.
#[inline]
pub fn mark(lane: Option<usize>, is_inside: bool) {
    if let Some(mark) = lane.and_then(|lane| MARKS.get(lane)) {
        mark.0.store(is_inside, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }
}

/// Waits until all other threads that came before now have left, but not for longer than this: one may wait for the device.
pub fn wait_for_others(own: Option<usize>, longest: Duration) {
    let deadline = Instant::now() + longest;
    fence_all();
    std::thread::sleep(GRACE);
    for (lane, mark) in MARKS.iter().enumerate() {
        while Some(lane) != own && mark.0.load(Ordering::Acquire) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Every running thread of the process passes a memory barrier.
fn fence_all() {
    for command in [
        libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
        libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED,
    ] {
        // SAFETY: takes plain numbers, and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn who_leaves_waits_for_those_inside_and_for_nobody_for_ever() {
        let (inside, is_inside) = channel();
        let other = std::thread::spawn(move || {
            mark(Some(5), true);
            inside.send(()).expect("the test waits");
            std::thread::sleep(Duration::from_millis(50));
            mark(Some(5), false);
        });
        is_inside.recv().expect("the thread sends");
        wait_for_others(Some(6), Duration::from_secs(60));
        assert!(!MARKS[5].0.load(Ordering::Acquire));
        other.join().expect("no panic");

        mark(Some(7), true);
        wait_for_others(Some(7), Duration::from_secs(60));
        wait_for_others(None, Duration::from_millis(20));
        mark(Some(7), false);
    }
}
