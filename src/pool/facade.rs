//! The pool itself: its lock, how a thread leaves it to call the backing, and the questions that need nothing else.
//!
//! # The lock
//! One mutex over [`State`]. It is never held across a call of the backing: a thread plans under the lock, takes what
//! it plans with out of the tables, leaves through [`Pool::outside`], and finishes or undoes under the lock again.
//! While it is out, its blocks and segments are in no list, so no other thread can reach them.
//!
//! # Forgotten meanwhile
//! [`Pool::forget`] may run while a thread is out. The generation tells it on return: what it holds is void, and its
//! indices mean nothing any more.

use std::sync::{Arc, PoisonError};

use crate::sync::{Apart, Condvar, Mutex, MutexGuard};

use crate::lane;

use super::barriers::Mark;
use super::epochs::Seen;
use super::front::Front;
use super::state::State;
use super::{Block, Budget, Found, PoolStats, Settings, Usage};

/// The caching pool of one device context. All functions may be called from any thread at any time.
#[derive(Debug)]
pub struct Pool {
    pub(super) settings: Settings,
    pub(super) budget: Arc<Budget>,
    pub(super) front: Front,
    state: Apart<Mutex<State>>,
    /// A thread that was out came back. Waited for before an allocation is refused.
    landed: Condvar,
}

/// What came of a call outside the lock.
pub(super) enum Outside<'a, T> {
    /// Under the lock again, with the answer.
    Back(MutexGuard<'a, State>, T),
    /// The pool was forgotten meanwhile.
    Forgotten(T),
}

impl Pool {
    /// An empty pool. Values of `settings` that are out of range are clamped.
    pub fn new(settings: Settings, budget: Arc<Budget>) -> Self {
        let seen = Arc::<Seen>::default();
        Pool {
            settings: settings.in_range(),
            budget,
            front: Front::new(seen.clone()),
            state: Apart(Mutex::new(State::new(seen))),
            landed: Condvar::new(),
        }
    }

    /// The settings in effect.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The budget that its segments are charged to.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// A panic under the lock is a bug that the exported functions contain; the pool goes on.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves the lock for one call of the backing.
    pub(super) fn outside<'a, T>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        call: impl FnOnce() -> T,
    ) -> Outside<'a, T> {
        let generation = state.generation;
        state.in_transit += 1;
        drop(state);
        let answer = call();
        let mut state = self.lock();
        state.in_transit -= 1;
        if state.waiting > 0 {
            self.landed.notify_all();
        }
        if state.generation == generation {
            Outside::Back(state, answer)
        } else {
            Outside::Forgotten(answer)
        }
    }

    /// Waits until a thread that is out has come back. Such a thread waits for the device at most, never for another
    /// thread of the pool.
    pub(super) fn wait_for_landing<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> MutexGuard<'a, State> {
        state.waiting += 1;
        let mut state = self
            .landed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    /// What an address is to this pool; interior addresses are found too.
    #[inline]
    pub fn find(&self, address: u64) -> Found {
        let state = self.lock();
        if let Some(block) = state.bases.get(&state.blocks, address) {
            let live = self.live_block(&state, block);
            return live.map_or(Found::Dead, Found::Live);
        }
        let Some(index) = state.segments.holding(address) else {
            return Found::NotMine;
        };
        let live = state
            .segments
            .block_base(index, address, &state.blocks)
            .and_then(|base| state.bases.get(&state.blocks, base))
            .and_then(|block| self.live_block(&state, block))
            .filter(|block| address - block.base < block.requested_bytes);
        live.map_or(Found::Dead, Found::Live)
    }

    /// The start of a wait that the program itself makes for the whole context: everything freed up to now.
    pub fn mark(&self) -> Mark {
        self.lock().mark()
    }

    /// The wait that began after `mark` was taken has ended well: what was freed before the mark needs no barrier.
    pub fn drained(&self, mark: Mark) {
        let mut state = self.lock();
        state.program_waited(mark);
    }

    /// The context is destroyed: drops everything without a call to the backing. Returns the blocks that were live,
    /// in address order. The pool can be used again (a primary context that was reset comes back to life).
    pub fn forget(&self) -> Vec<Block> {
        let mut state = self.lock();
        self.clear_front(&mut state);
        let mut live = Vec::new();
        for index in state.segments.in_order() {
            let mut block = state.segments[index].first;
            while let Some(entry) = state.blocks.get(block) {
                live.extend(state.live_block(block));
                block = entry.next();
            }
        }
        self.budget.uncharge(state.stats.reserved_bytes.current);
        let old = std::mem::replace(&mut *state, State::new(self.front.epochs()));
        state.front = old.front;
        state.generation = old.generation + 1;
        state.in_transit = old.in_transit;
        state.waiting = old.waiting;
        state.sequence = old.sequence;
        state.stats = old.stats;
        state.stats.forget();
        live
    }

    /// The figures.
    pub fn stats(&self) -> PoolStats {
        let mut state = self.lock();
        self.fold(&mut state, lane::current());
        state.stats.clone()
    }

    /// The figures that answer "how much is free", of one moment.
    pub fn usage(&self) -> Usage {
        let mut state = self.lock();
        self.fold(&mut state, lane::current());
        Usage {
            reserved_bytes: state.stats.reserved_bytes.current,
            allocated_bytes: state.stats.allocated_bytes.current,
            requested_bytes: state.stats.requested_bytes.current,
            held_bytes: state.held_bytes,
            borrowed_bytes: state.borrowed_bytes,
        }
    }

    /// Reserved and not allocated.
    pub fn cached_bytes(&self) -> u64 {
        self.usage().cached_bytes()
    }

    /// Host memory of the tables, in bytes.
    pub fn host_bytes(&self) -> usize {
        let tables = self.lock().host_bytes();
        size_of::<Self>() + tables + self.front.host_bytes()
    }
}
