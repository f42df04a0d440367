//! What a pool pays for being tight: segments that go back for the slack's sake.
//!
//! # Decision: whoever pays without end may hold a little more
//! Each such segment costs a cuMemFree, which waits for the device, and the cuMemAlloc of the one that takes its place: some 100 us. A program
//! whose sizes change with every step goes on like that for ever. Where it holds gigabytes, more room would have to be much to be
//! of use (`growth`, *Slack*); where it holds some tens of megabytes, it takes next to nothing. So after the first [`FREE`] of
//! these segments each brings [`STEP_BYTES`] of room, up to [`MOST_BYTES`]. `streams` on an H200 gave back 1.2 segments a step of 1.7 ms, and
//! waited for them for 8 % of its time.

/// So many segments go back before it counts: more than a recorded run of PyTorch's takes to fill its pool.
const FREE: u64 = 128;
/// What each further one adds to the slack.
const STEP_BYTES: u64 = 256 << 10;
/// The most that is added.
const MOST_BYTES: u64 = 32 << 20;

/// Segments that went back to make room within the slack.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wear {
    released: u64,
}

impl Wear {
    /// One more goes back.
    pub fn note(&mut self) {
        self.released += 1;
    }

    /// What the pool may hold beyond its slack.
    pub fn spare_bytes(self) -> u64 {
        (self.released.saturating_sub(FREE) * STEP_BYTES).min(MOST_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_late_and_is_bounded() {
        let wear = |released| Wear { released }.spare_bytes();
        assert_eq!([wear(0), wear(FREE)], [0, 0]);
        assert_eq!(wear(FREE + 3), 3 * STEP_BYTES);
        assert_eq!(wear(u64::MAX / STEP_BYTES), MOST_BYTES);
    }
}
