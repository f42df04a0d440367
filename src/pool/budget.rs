//! How much of one device the process may hold.

use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// No limit, as the atomic holds it.
const UNLIMITED: u64 = u64::MAX;

/// The memory of one device that this process holds, against its limit. Shared by the pools of that device and by
/// whoever takes device memory past them. The pools charge whole segments.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: AtomicU64,
    used_bytes: AtomicU64,
    device_bytes: Option<u64>,
}

/// A charge that would have gone past the limit. Nothing was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverLimit {
    /// Charged at that moment.
    pub used_bytes: u64,
    /// The limit.
    pub limit_bytes: u64,
}

impl Budget {
    /// A budget of which nothing is used. `None`: no limit; only the driver refuses.
    pub fn new(limit_bytes: Option<u64>) -> Self {
        Budget {
            limit_bytes: AtomicU64::new(limit_bytes.unwrap_or(UNLIMITED)),
            used_bytes: AtomicU64::new(0),
            device_bytes: None,
        }
    }

    /// The same for a device of a known size.
    pub fn of_device(limit_bytes: Option<u64>, device_bytes: u64) -> Self {
        Budget {
            device_bytes: Some(device_bytes).filter(|&bytes| bytes > 0),
            ..Budget::new(limit_bytes)
        }
    }

    /// The most that can be held: the limit, or without one what the device has, if that is known.
    pub fn most_bytes(&self) -> Option<u64> {
        self.limit_bytes().or(self.device_bytes)
    }

    /// The limit, if there is one.
    pub fn limit_bytes(&self) -> Option<u64> {
        Some(self.limit_bytes.load(Relaxed)).filter(|&limit| limit != UNLIMITED)
    }

    /// Sets or lifts the limit. What is already held beyond it stays held; only new charges are refused.
    pub fn set_limit_bytes(&self, limit_bytes: Option<u64>) {
        self.limit_bytes
            .store(limit_bytes.unwrap_or(UNLIMITED), Relaxed);
    }

    /// What is held now.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    /// Charges `bytes`, or nothing at all if that would pass the limit. Charge before taking memory from the driver,
    /// so that two threads cannot both take the last of it.
    pub fn charge(&self, bytes: u64) -> Result<(), OverLimit> {
        let limit_bytes = self.limit_bytes.load(Relaxed);
        self.used_bytes
            .fetch_update(Relaxed, Relaxed, |used| {
                used.checked_add(bytes).filter(|&sum| sum <= limit_bytes)
            })
            .map(|_| ())
            .map_err(|used_bytes| OverLimit {
                used_bytes,
                limit_bytes,
            })
    }

    /// Takes back a charge, after the driver has the memory again.
    pub fn uncharge(&self, bytes: u64) {
        let before = self
            .used_bytes
            .fetch_update(Relaxed, Relaxed, |used| Some(used.saturating_sub(bytes)));
        debug_assert!(
            before.is_ok_and(|used| used >= bytes),
            "uncharged more than was charged"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_up_to_the_limit_and_not_past_it() {
        let budget = Budget::new(Some(100));
        assert_eq!(budget.charge(100), Ok(()));
        assert_eq!(
            budget.charge(1),
            Err(OverLimit {
                used_bytes: 100,
                limit_bytes: 100
            })
        );
        assert!(budget.charge(u64::MAX).is_err());
        budget.uncharge(40);
        assert_eq!(budget.used_bytes(), 60);
        budget.set_limit_bytes(Some(50));
        assert!(budget.charge(0).is_err());
        budget.set_limit_bytes(None);
        assert_eq!(budget.limit_bytes(), None);
        assert_eq!(budget.charge(1 << 50), Ok(()));
        assert!(budget.charge(u64::MAX).is_err(), "the sum must not wrap");
    }
}
