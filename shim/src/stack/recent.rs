//! Stacks that this thread has lately: known again without unwinding, by the return addresses in their places.
//!
//! # Decision: when a stack is the same
//! The unwinder reads each frame's return address from a place that follows from the frame below. So where the innermost
//! place is the same, and every place still holds the address that it held, the stack is the same. (A frame whose size
//! varies could leave an old address in its old place; the allocation would then count for the wrong call site, which is
//! the worst that can come of it.) Only places between here and the top of the thread's own stack are remembered: these
//! can be read at any time. Code that runs on a stack of its own, as coroutines do, is unwound each time.

use super::DEPTH;
use cushion::ledger::SiteId;
use std::cell::RefCell;

/// Stacks remembered by each thread; a few kilobytes, and only once it has taken one.
const KNOWN_MAX: usize = 16;

/// Where return addresses are and what they are, innermost first.
#[derive(Clone, Copy)]
pub struct Places {
    places: [(usize, u64); DEPTH],
    count: usize,
}

struct Known {
    /// A place in the frame that asks: the same path through the shim at the same depth.
    here: usize,
    /// Objects that had been unloaded: after another, the same addresses may mean other code.
    unloaded_count: u64,
    places: Places,
    site: SiteId,
}

struct Recent {
    known: Vec<Known>,
    oldest: usize,
    /// The thread's own stack.
    low: usize,
    high: usize,
}

thread_local! {
    static RECENT: RefCell<Option<Recent>> = const { RefCell::new(None) };
}

impl Places {
    pub const fn new() -> Self {
        Places {
            places: [(0, 0); DEPTH],
            count: 0,
        }
    }

    /// The next return address is at `place`. There are at most as many as frames.
    pub fn add(&mut self, place: usize, address: u64) {
        self.places[self.count] = (place, address);
        self.count += 1;
    }

    fn all(&self) -> &[(usize, u64)] {
        &self.places[..self.count]
    }
}

/// The site of the stack that begins at `here`, if it is known.
pub fn find(here: usize, unloaded_count: u64) -> Option<SiteId> {
    RECENT
        .try_with(|recent| {
            let recent = recent.try_borrow().ok()?;
            let same = |known: &&Known| {
                known.here == here
                    && known.unloaded_count == unloaded_count
                    // SAFETY: between `here` and the top of this thread's stack (`remember`), so mapped; aligned.
                    && known.places.all().iter().all(|&(place, address)| unsafe {
                        (place as *const u64).read_volatile() == address
                    })
            };
            recent.as_ref()?.known.iter().find(same).map(|k| k.site)
        })
        .ok()
        .flatten()
}

/// The stack that begins at `here` is `site`'s.
pub fn remember(here: usize, unloaded_count: u64, places: &Places, site: SiteId) {
    let _ = RECENT.try_with(|recent| {
        let Ok(mut recent) = recent.try_borrow_mut() else {
            return;
        };
        let recent = recent.get_or_insert_with(|| {
            let (low, high) = own_stack();
            Recent {
                known: Vec::with_capacity(KNOWN_MAX),
                oldest: 0,
                low,
                high,
            }
        });
        let is_own = |&(place, address): &(usize, u64)| {
            place % align_of::<u64>() == 0
                && (here..recent.high.saturating_sub(size_of::<u64>())).contains(&place)
                // SAFETY: between here and the top of this thread's stack, so mapped; aligned.
                && unsafe { (place as *const u64).read_volatile() } == address
        };
        if here < recent.low || places.count == 0 || !places.all().iter().all(is_own) {
            return;
        }
        let known = Known {
            here,
            unloaded_count,
            places: *places,
            site,
        };
        if recent.known.len() < KNOWN_MAX {
            recent.known.push(known);
        } else {
            recent.known[recent.oldest] = known;
            recent.oldest = (recent.oldest + 1) % KNOWN_MAX;
        }
    });
}

/// Lowest address of this thread's stack, and one past the highest; nothing if the C library cannot say.
fn own_stack() -> (usize, usize) {
    // SAFETY: the attributes are filled by the first call, read by the second and given back by the third.
    unsafe {
        let mut attributes = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return (0, 0);
        }
        let (mut low, mut size) = (std::ptr::null_mut(), 0);
        let code = libc::pthread_attr_getstack(&attributes, &mut low, &mut size);
        libc::pthread_attr_destroy(&mut attributes);
        match code {
            0 => (low as usize, low as usize + size),
            _ => (0, 0),
        }
    }
}
