//! Where events wait for the file: a few buffers, each for some of the threads, so that threads seldom meet.
//!
//! # Decision: how events of many threads get one order
//! Every event takes a turn, a number from one counter. An allocation takes it after its memory was given out and a free
//! before its memory goes back, so the turns are the truth about addresses whichever buffer an event waits in. A turn is
//! taken with the event's buffer locked, and all buffers are emptied under all of their locks: what a batch lacks has
//! later turns than all it has. The exception is a free, whose turn comes first and whose place in a buffer only when the
//! free has succeeded: it may come a batch late, and the encoder knows how to take that ([`super::codec::Encoder`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Event;

/// So many buffers.
const SHARDS: usize = 16;

/// An event with its turn.
pub(super) type Waiting = (u64, Event);

#[derive(Debug)]
pub(super) struct Inbox {
    shards: [Mutex<Shard>; SHARDS],
    names: Mutex<Vec<(u32, String)>>,
    turns: AtomicU64,
    closed: AtomicBool,
    /// Events that each buffer holds at most.
    limit: usize,
}

#[derive(Debug, Default)]
struct Shard {
    events: Vec<Waiting>,
    lost: u64,
}

/// What one drain takes out.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// In the order of their turns.
    pub events: Vec<Waiting>,
    pub names: Vec<(u32, String)>,
    pub lost: u64,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It waits, or it was dropped and counted, or the recording has ended.
    Done,
    /// It waits, and its buffer has just become half full: it is time for a flush.
    HalfFull,
}

impl Inbox {
    /// Takes no memory until the first event comes.
    pub fn new(limit: usize) -> Inbox {
        Inbox {
            shards: Default::default(),
            names: Mutex::default(),
            turns: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            limit,
        }
    }

    /// Takes a turn.
    pub fn turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    /// Leaves an event in its thread's buffer. Without a turn of its own it takes one now.
    pub fn put(&self, turn: Option<u64>, event: Event) -> Recorded {
        let mut shard = lock(&self.shards[event.thread as usize % SHARDS]);
        if self.closed.load(Ordering::Relaxed) {
            return Recorded::Done;
        }
        let waiting = shard.events.len();
        if waiting >= self.limit {
            shard.lost += 1;
            return Recorded::Done;
        }
        if shard.events.capacity() == 0 {
            // All at once: a buffer that grew step by step would be copied on the program's time.
            shard.events.reserve_exact(self.limit);
        }
        let turn = turn.unwrap_or_else(|| self.turn());
        shard.events.push((turn, event));
        if waiting + 1 == self.limit.div_ceil(2) {
            Recorded::HalfFull
        } else {
            Recorded::Done
        }
    }

    pub fn name(&self, site: u32, name: String) {
        lock(&self.names).push((site, name));
    }

    /// Events from now on are ignored.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Takes out all that waits. `spares` are empty buffers to leave in exchange, and get those back that were emptied.
    pub fn drain(&self, spares: &mut Vec<Vec<Waiting>>) -> Batch {
        let mut batch = Batch {
            names: std::mem::take(&mut lock(&self.names)),
            ..Batch::default()
        };
        let mut full = Vec::with_capacity(SHARDS);
        let mut shards: Vec<_> = self.shards.iter().map(lock).collect();
        for shard in &mut shards {
            batch.lost += std::mem::take(&mut shard.lost);
            if !shard.events.is_empty() {
                let spare = spares.pop().unwrap_or_default();
                full.push(std::mem::replace(&mut shard.events, spare));
            }
        }
        drop(shards);
        batch.events.reserve_exact(full.iter().map(Vec::len).sum());
        for mut events in full {
            batch.events.append(&mut events);
            spares.push(events);
        }
        // Runs that are in order already, but for frees that took their turn early.
        batch.events.sort_by_key(|(turn, _)| *turn);
        batch
    }
}

/// A panic while a lock was held leaves at worst a lost event: going on is right.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(thread: u64, id: u64) -> Event {
        Event {
            thread,
            ..Event::alloc(id, 1, 0)
        }
    }

    #[test]
    fn threads_come_out_in_the_order_of_their_turns() {
        let inbox = Inbox::new(8);
        inbox.put(None, of(1, 0));
        let early = inbox.turn();
        inbox.put(None, of(2, 2));
        inbox.put(Some(early), of(3, 1));
        inbox.put(None, of(1, 3));
        let ids: Vec<u64> = inbox
            .drain(&mut Vec::new())
            .events
            .iter()
            .map(|(_, e)| e.id)
            .collect();
        assert_eq!(ids, [0, 1, 2, 3]);
    }

    #[test]
    fn a_full_buffer_counts_what_it_drops_and_says_when_it_is_half_full() {
        let inbox = Inbox::new(4);
        let said: Vec<Recorded> = (0..6).map(|id| inbox.put(None, of(0, id))).collect();
        let half = said.iter().position(|r| *r == Recorded::HalfFull);
        assert_eq!(half, Some(1));
        let mut spares = Vec::new();
        let batch = inbox.drain(&mut spares);
        assert_eq!((batch.events.len(), batch.lost), (4, 2));
        assert_eq!(spares.len(), 1, "its buffer is used again");
        inbox.close();
        inbox.put(None, of(0, 9));
        assert!(inbox.drain(&mut spares).events.is_empty());
    }
}
