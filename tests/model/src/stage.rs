//! A pool, what it stands on, and threads of a program.

use std::sync::Arc;

use cushion::pool::{Budget, Pool, Settings};

use crate::pool_support::program::{assert_nothing_left, Live, Program};
use crate::pool_support::watched::Watched;

pub const MIB: u64 = 1 << 20;

/// One thread's part. What it still holds at its end is freed by [`Stage::end`].
pub type Part = Box<dyn FnOnce(&mut Program) + Send>;

/// A part from a closure.
pub fn part(work: impl FnOnce(&mut Program) + Send + 'static) -> Part {
    Box::new(work)
}

pub struct Stage {
    pub pool: Arc<Pool>,
    pub backing: Arc<Watched>,
    left: Vec<Live>,
}

/// No scrubbing, and segments of one size, so that scenarios are small.
pub fn plain() -> Settings {
    Settings {
        scrub: None,
        large_segment_bytes: 4 * MIB,
        ..Settings::default()
    }
}

impl Stage {
    pub fn new(settings: Settings, capacity_bytes: u64, limit_bytes: Option<u64>) -> Self {
        Stage {
            backing: Arc::new(Watched::new(capacity_bytes, settings.scrub.is_some())),
            pool: Arc::new(Pool::new(settings, Arc::new(Budget::new(limit_bytes)))),
            left: Vec::new(),
        }
    }

    /// Live blocks of these sizes.
    pub fn live<const COUNT: usize>(&self, sizes_bytes: [u64; COUNT]) -> [Live; COUNT] {
        let mut program = Program::new(&self.pool, &self.backing);
        sizes_bytes.map(|size_bytes| program.allocate(size_bytes, false, false).expect("room"))
    }

    /// Free blocks of these sizes, not behind a barrier.
    pub fn cached<const COUNT: usize>(&self, sizes_bytes: [u64; COUNT]) {
        let live = self.live(sizes_bytes);
        let mut program = Program::new(&self.pool, &self.backing);
        program.live.extend(live);
        program.end();
    }

    /// Blocks that stay live to the end.
    pub fn keep(&mut self, blocks: impl IntoIterator<Item = Live>) {
        self.left.extend(blocks);
    }

    /// Runs each part on a thread of its own, the last one here, and waits for them.
    pub fn run(&mut self, mut parts: Vec<Part>) {
        let own = parts.pop();
        let threads: Vec<_> = parts
            .into_iter()
            .map(|part| {
                let (pool, backing) = (self.pool.clone(), self.backing.clone());
                loom::thread::spawn(move || play(&pool, &backing, part))
            })
            .collect();
        if let Some(part) = own {
            let left = play(&self.pool, &self.backing, part);
            self.left.extend(left);
        }
        for thread in threads {
            let left = thread.join().expect("the thread ended well");
            self.left.extend(left);
        }
    }

    /// The recount; then everything is freed and given back, and nothing is left.
    pub fn end(self) {
        self.backing.fail_at_random(0, 0);
        self.pool.check();
        let limit_bytes = self.pool.budget().limit_bytes();
        assert!(limit_bytes.is_none_or(|limit| self.backing.peak_bytes() <= limit));
        let mut program = Program::new(&self.pool, &self.backing);
        program.live = self.left;
        program.end();
        assert_nothing_left(&self.pool, &*self.backing, || self.backing.reserved_bytes());
    }
}

fn play(pool: &Pool, backing: &Watched, part: Part) -> Vec<Live> {
    let mut program = Program::new(pool, backing);
    part(&mut program);
    assert!(program.held.is_empty(), "unhold what was held");
    program.live
}
