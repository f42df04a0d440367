//! A program on top of a pool: what it believes it holds, checked against what the pool and the backing say.

use std::collections::HashSet;

use cushion::pool::{Backing, Block, Found, FreeMode, FreeOutcome, Pool, Range, Refusal, Request};

use super::watched::{set_capturing, Watched};

#[derive(Debug, Clone, Copy)]
pub struct Live {
    pub range: Range,
    pub requested_bytes: u64,
    pub tag: u64,
    pub sequence: u64,
    pub holds: u32,
    pub retired: bool,
}

/// One thread of a program.
pub struct Program<'a> {
    pub pool: &'a Pool,
    pub backing: &'a Watched,
    /// Another lane than the thread's, for threads that take turns in a known order.
    pub lane: Option<usize>,
    pub live: Vec<Live>,
    /// Freed while held.
    pub held: Vec<Live>,
    next_tag: u64,
    sequences: HashSet<u64>,
}

impl<'a> Program<'a> {
    pub fn new(pool: &'a Pool, backing: &'a Watched) -> Self {
        Program {
            pool,
            backing,
            lane: None,
            live: vec![],
            held: vec![],
            next_tag: 1,
            sequences: HashSet::new(),
        }
    }

    pub fn allocate(
        &mut self,
        size_bytes: u64,
        capturing: bool,
        isolated: bool,
    ) -> Result<Live, Refusal> {
        let tag = self.next_tag;
        self.next_tag += 1;
        set_capturing(capturing);
        let lane = self.lane.or_else(cushion::lane::current);
        let answer = self.pool.allocate_on(
            lane,
            self.backing,
            Request {
                size_bytes,
                tag,
                capturing,
                isolated,
            },
        );
        set_capturing(false);
        let grant = answer?;
        let alignment = if size_bytes <= 1 << 20 {
            512
        } else {
            self.pool.settings().alignment_bytes
        };
        assert_eq!(grant.address % alignment, 0);
        assert!(grant.allocated_bytes >= size_bytes);
        assert!(
            self.sequences.insert(grant.sequence),
            "BUFFER_ID came twice"
        );
        let range = Range {
            address: grant.address,
            size_bytes: grant.allocated_bytes,
        };
        self.backing.hand_out(range);
        let live = Live {
            range,
            requested_bytes: size_bytes,
            tag,
            sequence: grant.sequence,
            holds: 0,
            retired: false,
        };
        self.live.push(live);
        Ok(live)
    }

    pub fn free(&mut self, index: usize, host_wait: bool, capturing: bool) -> FreeOutcome {
        let live = self.live.swap_remove(index);
        self.backing.done_with(live.range);
        if live.holds > 0 || live.retired {
            self.backing.keep(live.range);
        }
        set_capturing(capturing);
        let lane = self.lane.or_else(cushion::lane::current);
        let outcome = self.pool.free_on(
            lane,
            self.backing,
            live.range.address,
            FreeMode {
                host_wait,
                capturing,
            },
        );
        set_capturing(false);
        match outcome {
            FreeOutcome::Freed {
                requested_bytes,
                tag,
            } => {
                assert_eq!((requested_bytes, tag), (live.requested_bytes, live.tag));
                if live.holds > 0 {
                    self.held.push(live);
                }
            }
            FreeOutcome::Failed(_) => {
                if live.holds > 0 || live.retired {
                    self.backing.no_longer_keep(live.range);
                }
                self.backing.not_done_with(live.range);
                self.live.push(live);
            }
            other => panic!("a live block answers {other:?}"),
        }
        outcome
    }

    /// What the pool says about an address at `offset` into a live block.
    pub fn find(&self, index: usize, offset: u64) {
        let live = self.live[index];
        let offset = offset % live.range.size_bytes;
        match self.pool.find(live.range.address + offset) {
            Found::Live(Block {
                base,
                requested_bytes,
                allocated_bytes,
                sequence,
                tag,
                segment,
                whole_segment,
            }) => {
                assert!(
                    offset < live.requested_bytes,
                    "past the requested size is not the block"
                );
                assert_eq!(
                    (base, allocated_bytes),
                    (live.range.address, live.range.size_bytes)
                );
                assert_eq!((requested_bytes, tag), (live.requested_bytes, live.tag));
                assert_eq!(sequence, live.sequence);
                assert!(segment.address <= base);
                assert!(base + allocated_bytes <= segment.address + segment.size_bytes);
                assert_eq!(whole_segment, segment == live.range);
            }
            Found::Dead => assert!(offset >= live.requested_bytes, "a live byte is dead"),
            Found::NotMine => panic!("OURS: a live block is not known"),
        }
    }

    pub fn hold(&mut self, index: usize) {
        self.live[index].holds += 1;
        assert!(self.pool.hold(self.live[index].range.address));
    }

    pub fn unhold_live(&mut self, index: usize) {
        let live = &mut self.live[index];
        assert_eq!(self.pool.unhold(live.range.address), live.holds > 0);
        live.holds = live.holds.saturating_sub(1);
    }

    pub fn unhold_freed(&mut self, index: usize) {
        let held = &mut self.held[index];
        held.holds -= 1;
        if held.holds == 0 {
            let held = self.held.swap_remove(index);
            if !held.retired {
                self.backing.no_longer_keep(held.range);
            }
            assert!(self.pool.unhold(held.range.address));
        } else {
            assert!(self.pool.unhold(held.range.address));
        }
    }

    pub fn retire(&mut self, index: usize) {
        self.live[index].retired = true;
        assert!(self.pool.retire_on_free(self.live[index].range.address));
    }

    /// Lets go of everything, with a backing that works.
    pub fn end(&mut self) {
        while !self.held.is_empty() {
            self.unhold_freed(0);
        }
        for index in 0..self.live.len() {
            while self.live[index].holds > 0 {
                self.unhold_live(index);
            }
        }
        while !self.live.is_empty() {
            let outcome = self.free(self.live.len() / 2, false, false);
            assert!(matches!(outcome, FreeOutcome::Freed { .. }), "{outcome:?}");
        }
    }
}

/// After everything was freed: everything can be given back, and nothing is left anywhere.
pub fn assert_nothing_left<B: Backing>(pool: &Pool, backing: &B, reserved_bytes: impl Fn() -> u64) {
    pool.check();
    pool.trim(backing, 0);
    pool.check();
    let stats = pool.stats();
    assert_eq!(stats.allocations.current, 0);
    assert_eq!(stats.requested_bytes.current, 0);
    assert_eq!(stats.allocated_bytes.current, 0);
    assert_eq!(stats.active_bytes.current, 0);
    assert_eq!(stats.reserved_bytes.current, 0);
    assert_eq!(stats.segments.current, 0);
    assert_eq!(pool.usage(), Default::default());
    assert_eq!(pool.budget().used_bytes(), 0);
    assert_eq!(reserved_bytes(), 0);
    assert!(pool.snapshot().segments.is_empty());
}
