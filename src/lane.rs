//! A small number for each running thread, which no other has at the same time: the lane it drives in.
//!
//! What is kept by lane has one writer at a time, so it needs loads and stores and no locked instruction. A lane is given
//! back when its thread ends, and the next thread that takes it goes on with what is kept there. Threads beyond
//! [`LANE_COUNT`] have none, and take the shared ways.

#[cfg(not(loom))]
pub use own::{current, is_taken};

/// The model checker's threads are one thread of the system, and it numbers them itself.
#[cfg(loom)]
pub fn current() -> Option<usize> {
    let name = format!("{:?}", loom::thread::current().id());
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|&lane| lane < LANE_COUNT)
}

/// So many threads at once have a lane.
pub const LANE_COUNT: usize = if cfg!(loom) { 8 } else { 64 };

#[cfg(not(loom))]
mod own {
    use super::LANE_COUNT;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A bit for each lane in use.
    static TAKEN: AtomicU64 = AtomicU64::new(0);

    /// This thread's, not asked for yet.
    const UNKNOWN: u8 = u8::MAX;
    /// This thread came when all were in use. It does not ask again.
    const NONE: u8 = u8::MAX - 1;

    struct Own(Cell<u8>);

    thread_local! {
        static OWN: Own = const { Own(Cell::new(UNKNOWN)) };
    }

    impl Drop for Own {
        fn drop(&mut self) {
            let lane = self.0.replace(NONE);
            if usize::from(lane) < LANE_COUNT {
                TAKEN.fetch_and(!(1 << lane), Ordering::Release);
            }
        }
    }

    /// The calling thread's lane, below [`LANE_COUNT`]. `None`: there are more threads than lanes, or the thread is ending.
    #[inline]
    pub fn current() -> Option<usize> {
        OWN.try_with(|own| match own.0.get() {
            UNKNOWN => take(own),
            NONE => None,
            lane => Some(usize::from(lane)),
        })
        .ok()
        .flatten()
    }

    /// Whether a running thread has this lane.
    pub fn is_taken(lane: usize) -> bool {
        lane < LANE_COUNT && TAKEN.load(Ordering::Acquire) & 1 << lane != 0
    }

    #[cold]
    fn take(own: &Own) -> Option<usize> {
        let lowest_vacant = |taken: u64| {
            let lane = (!taken).trailing_zeros();
            (lane < LANE_COUNT as u32).then(|| taken | 1 << lane)
        };
        let before = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, lowest_vacant);
        let lane = before.map_or(NONE, |taken| (!taken).trailing_zeros() as u8);
        own.0.set(lane);
        (lane != NONE).then_some(usize::from(lane))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_two_threads_share_a_lane_and_an_ended_thread_gives_its_own_back() {
        let own = current().expect("few threads run");
        assert_eq!(current(), Some(own));
        for _ in 0..3 * LANE_COUNT {
            let other = std::thread::spawn(current).join().expect("no panic");
            assert!(other.is_some_and(|lane| lane != own && lane < LANE_COUNT));
        }
        // Threads of other tests come and go.
        let is_vacant = |_| (0..LANE_COUNT).any(|lane| !is_taken(lane));
        assert!(is_taken(own) && (0..100).any(is_vacant) && !is_taken(LANE_COUNT));
    }
}
