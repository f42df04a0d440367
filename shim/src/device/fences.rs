//! Barriers of one context that can be asked whether they have passed, without waiting.
//!
//! # Decision: which are kept
//! An event is kept for each of a few barriers, the newest and ever fewer of the older ones: how far the device is behind is
//! not known, and an event for every barrier would be too many. What is not kept is not known to have passed. An event is
//! kept only after its record and its waits have succeeded: one whose record failed would tell of an earlier barrier.

use crate::abi::*;
use crate::driver::{Driver, Shield};
use cushion::pool::Fence;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Barriers kept at most.
const KEPT: usize = 8;

/// See the module.
#[derive(Default)]
pub struct Fences(Mutex<Book>);

#[derive(Default)]
struct Book {
    latest: u64,
    /// Number and event, oldest first.
    kept: Vec<(u64, usize)>,
    spare: Vec<usize>,
}

impl Fences {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event of the context that nobody uses, if there is one.
    pub fn spare(&self) -> Option<CUevent> {
        self.lock().spare.pop().map(|event| event as CUevent)
    }

    /// An event that tells of nothing.
    pub fn give_back(&self, event: CUevent) {
        self.lock().spare.push(event as usize);
    }

    /// A barrier is in place that has passed when `event` has.
    pub fn keep(&self, event: CUevent) -> Fence {
        let mut book = self.lock();
        book.latest += 1;
        let number = book.latest;
        if book.kept.len() == KEPT {
            let Book { kept, spare, .. } = &mut *book;
            let mut at = 0;
            kept.retain(|&(_, event)| {
                at += 1;
                let stays = at % 2 == 1;
                if !stays {
                    spare.push(event);
                }
                stays
            });
        }
        book.kept.push((number, event as usize));
        Fence(number)
    }

    /// Whether this one is known to have passed.
    pub fn has_passed(&self, driver: &Driver, fence: Fence) -> bool {
        let Some(query) = driver.event_query else {
            return false;
        };
        // Out of the book while it is asked, so that nobody records it anew meanwhile.
        let event = {
            let mut book = self.lock();
            let at = book.kept.iter().position(|&(number, _)| number == fence.0);
            let Some(at) = at else {
                return false;
            };
            book.kept.remove(at).1
        };
        let passed = {
            let _shield = Shield::raise(driver);
            // SAFETY: the event is ours and alive.
            (unsafe { query(event as CUevent) }) == SUCCESS
        };
        let mut book = self.lock();
        if passed {
            book.spare.push(event);
        } else {
            let at = book.kept.partition_point(|&(number, _)| number < fence.0);
            book.kept.insert(at, (fence.0, event));
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_and_some_older_ones_are_kept() {
        let fences = Fences::default();
        let numbers: Vec<u64> = (0..100)
            .map(|event| fences.keep(event as CUevent).0)
            .collect();
        assert_eq!(numbers, (1..=100).collect::<Vec<u64>>());
        let book = fences.lock();
        assert!(book.kept.len() <= KEPT && book.kept.iter().any(|kept| kept.0 == 100));
        assert!(
            book.kept.first().is_some_and(|kept| kept.0 < 50),
            "one from long ago"
        );
        assert_eq!(book.kept.len() + book.spare.len(), 100, "no event is lost");
    }
}
