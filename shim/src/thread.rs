//! What the shim keeps for each thread, in one place: a look-up of thread storage is a call of the dynamic linker's, so a
//! hook makes one.
//!
//! Everything here is plain data without a destructor, so it can be used to the very end of a thread. What has one is kept
//! by [`Keeper`], which clears what points at it when it goes.

use crate::abi::Status;
use crate::device::contexts::Context;
use cushion::ledger::Sampler;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// See the module.
pub struct Thread {
    /// It is in a hook.
    pub busy: Cell<bool>,
    /// It is ending the order of the one stream.
    pub ends_order: Cell<bool>,
    /// What the driver's function of the row answered in this hook, if it was called.
    pub answer: Cell<Option<Status>>,
    /// Contexts that it has taken out of the registry, to end them.
    pub ending: Cell<u32>,
    /// It uses the context remembered.
    pub in_context: Cell<bool>,
    /// The context that it used last.
    pub last: Cell<Last>,
    /// Its lane (`cushion::lane`), once it has used a context.
    lane: Cell<Option<u8>>,
    /// It was held up at the end of the process.
    pub was_held_up: Cell<bool>,
    /// Its place in the sampling of stacks.
    pub sampler: Cell<Sampler>,
}

/// A context, with its handle and the generation that this holds for. As long as it is here, the thread's [`Keeper`] has it.
#[derive(Clone, Copy)]
pub struct Last {
    pub handle: usize,
    pub generation: u64,
    pub context: *const Context,
}

impl Last {
    const NONE: Last = Last {
        handle: 0,
        generation: 0,
        context: std::ptr::null(),
    };
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            busy: Cell::new(false),
            ends_order: Cell::new(false),
            answer: Cell::new(None),
            ending: Cell::new(0),
            in_context: Cell::new(false),
            last: Cell::new(Last::NONE),
            lane: Cell::new(None),
            was_held_up: Cell::new(false),
            sampler: Cell::new(Sampler::new()),
        }
    };
    static KEEPER: Keeper = const { Keeper(RefCell::new(None)) };
}

/// Runs `with` on the calling thread's.
#[inline]
pub fn with<R>(with: impl FnOnce(&Thread) -> R) -> R {
    THREAD.with(with)
}

impl Thread {
    /// Its lane, if it has one.
    #[inline]
    pub fn lane(&self) -> Option<usize> {
        self.lane.get().map(usize::from)
    }

    /// Remembers a context, and finds the thread's lane. `false`: the thread is ending, or in the midst of this.
    pub fn remember(&self, handle: usize, generation: u64, context: &Arc<Context>) -> bool {
        // Before the keeper is there, so that the keeper goes before the lane: thread storage goes in reverse order.
        let lane = cushion::lane::current();
        KEEPER
            .try_with(|keeper| {
                let Ok(mut kept) = keeper.0.try_borrow_mut() else {
                    return false;
                };
                self.last.set(Last {
                    handle,
                    generation,
                    context: Arc::as_ptr(context),
                });
                self.lane.set(lane.map(|lane| lane as u8));
                let before = kept.replace(context.clone());
                // Its end may run code of anybody's, which finds nothing borrowed.
                drop(kept);
                drop(before);
                true
            })
            .unwrap_or(false)
    }
}

/// Keeps the context that [`Thread::last`] names.
struct Keeper(RefCell<Option<Arc<Context>>>);

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = THREAD.try_with(|thread| {
            thread.last.set(Last::NONE);
            thread.lane.set(None);
        });
    }
}
