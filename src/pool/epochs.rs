//! Which freed memory is behind a barrier.
//!
//! A free joins the current epoch. Whoever wants a barrier closes the epoch, leaves the lock, asks the backing, and on
//! its return says that everything up to that epoch is fenced (invariant FENCED). Frees that happen meanwhile are in a
//! later epoch.

use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::collections::VecDeque;
use std::sync::Arc;

/// The current epoch and the fenced one, as they can be read without the lock. Written under it.
#[derive(Debug, Default)]
#[repr(align(128))] // Every free in front reads it.
pub(super) struct Seen {
    current: AtomicU64,
    fenced: AtomicU64,
}

impl Seen {
    /// The epoch that frees join now.
    #[inline]
    pub fn current(&self) -> u64 {
        self.current.load(SeqCst)
    }

    /// Whether memory freed in `epoch` is behind a barrier.
    #[inline]
    pub fn is_fenced(&self, epoch: u64) -> bool {
        epoch <= self.fenced.load(SeqCst)
    }
}

#[derive(Debug)]
pub(super) struct Epochs {
    seen: Arc<Seen>,
    /// Free bytes by epoch not yet fenced, in rising order of epochs; epochs without bytes are left out.
    unfenced: VecDeque<(u64, u64)>,
    pub unfenced_bytes: u64,
}

impl Epochs {
    pub fn new(seen: Arc<Seen>) -> Self {
        // Epoch 0 is fresh memory, which needs no barrier.
        seen.current.store(1, SeqCst);
        seen.fenced.store(0, SeqCst);
        Epochs {
            seen,
            unfenced: VecDeque::new(),
            unfenced_bytes: 0,
        }
    }

    /// Bytes of host memory.
    pub fn host_bytes(&self) -> usize {
        size_of::<Seen>() + self.unfenced.capacity() * size_of::<(u64, u64)>()
    }

    /// The epoch that frees join now.
    #[inline]
    pub fn current(&self) -> u64 {
        self.seen.current()
    }

    /// Whether memory freed in `epoch` is behind a barrier.
    #[inline]
    pub fn is_fenced(&self, epoch: u64) -> bool {
        self.seen.is_fenced(epoch)
    }

    /// Closes the current epoch and says which it was.
    pub fn close(&mut self) -> u64 {
        self.seen.current.fetch_add(1, SeqCst)
    }

    /// A barrier that was asked for after `epoch` closed is in place.
    pub fn fence(&mut self, epoch: u64) {
        debug_assert!(epoch < self.current(), "an open epoch cannot be fenced");
        let fenced = self.seen.fenced.fetch_max(epoch, SeqCst).max(epoch);
        while let Some(&(oldest, bytes)) = self.unfenced.front() {
            if oldest > fenced {
                break;
            }
            self.unfenced_bytes -= bytes;
            self.unfenced.pop_front();
        }
    }

    /// `bytes` freed in `epoch` came into the free lists.
    #[inline]
    pub fn add(&mut self, epoch: u64, bytes: u64) {
        if self.is_fenced(epoch) {
            return;
        }
        self.unfenced_bytes += bytes;
        if let Some(newest) = self.unfenced.back_mut() {
            if newest.0 == epoch {
                newest.1 += bytes;
                return;
            }
        }
        match self
            .unfenced
            .binary_search_by_key(&epoch, |&(epoch, _)| epoch)
        {
            Ok(at) => self.unfenced[at].1 += bytes,
            Err(at) => self.unfenced.insert(at, (epoch, bytes)),
        }
    }

    /// `bytes` freed in `epoch` left the free lists.
    #[inline]
    pub fn subtract(&mut self, epoch: u64, bytes: u64) {
        if self.is_fenced(epoch) {
            return;
        }
        self.unfenced_bytes -= bytes;
        if let Some(newest) = self.unfenced.back_mut() {
            if newest.0 == epoch {
                newest.1 -= bytes;
                return;
            }
        }
        if let Ok(at) = self
            .unfenced
            .binary_search_by_key(&epoch, |&(epoch, _)| epoch)
        {
            self.unfenced[at].1 -= bytes;
            if self.unfenced[at].1 == 0 {
                self.unfenced.remove(at);
            }
        }
    }

    /// Free bytes of `epoch` that wait for a barrier.
    pub fn unfenced_bytes_of(&self, epoch: u64) -> u64 {
        self.unfenced
            .iter()
            .find(|(of, _)| *of == epoch)
            .map_or(0, |&(_, bytes)| bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_covers_what_was_freed_before_it_and_no_more() {
        let mut epochs = Epochs::new(Arc::default());
        assert!(epochs.is_fenced(0));
        let first = epochs.current();
        epochs.add(first, 512);
        let closed = epochs.close();
        assert_eq!(closed, first);
        let second = epochs.current();
        epochs.add(second, 1024);
        assert_eq!(epochs.unfenced_bytes, 1536);
        epochs.fence(closed);
        assert!(epochs.is_fenced(first) && !epochs.is_fenced(second));
        assert_eq!(epochs.unfenced_bytes, 1024);
        epochs.subtract(first, 512);
        epochs.subtract(second, 1024);
        assert_eq!(epochs.unfenced_bytes, 0);
        let newer = epochs.close();
        epochs.fence(newer);
        epochs.fence(closed);
        assert!(
            epochs.is_fenced(newer),
            "an older fence that returns late takes nothing back"
        );
    }
}
