//! A cache of exact powers of two, as simple pools keep it.

use std::collections::{BTreeMap, HashMap};

use super::driver::Figures;
use super::{Driver, Full, Policy, Request};

/// Every request is rounded up to a power of two (512 B at least) and is a driver allocation of its own; freed blocks
/// wait for a request of their class. When the driver is full, everything cached goes back to it.
#[derive(Debug)]
pub(super) struct PowerOfTwo {
    driver: Driver,
    /// Blocks cached, by size.
    cached: BTreeMap<u64, u64>,
    live: HashMap<u64, u64>,
}

impl PowerOfTwo {
    pub fn new(driver: Driver) -> PowerOfTwo {
        PowerOfTwo {
            driver,
            cached: BTreeMap::new(),
            live: HashMap::new(),
        }
    }

    fn release_cached(&mut self) {
        for (size, count) in std::mem::take(&mut self.cached) {
            (0..count).for_each(|_| self.driver.free(size));
        }
    }
}

impl Policy for PowerOfTwo {
    fn allocate(&mut self, request: Request) -> Result<(), Full> {
        let size = request
            .size_bytes
            .max(512)
            .checked_next_power_of_two()
            .ok_or(Full)?;
        match self.cached.get_mut(&size).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => {
                if self.driver.malloc(size).is_err() {
                    self.release_cached();
                    self.driver.malloc(size)?;
                }
            }
        }
        self.live.insert(request.id, size);
        Ok(())
    }

    fn free(&mut self, id: u64) {
        if let Some(size) = self.live.remove(&id) {
            *self.cached.entry(size).or_default() += 1;
        }
    }

    fn largest_cached_bytes(&self) -> u64 {
        self.cached
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(size, _)| *size)
            .max()
            .unwrap_or(0)
    }

    fn releasable_bytes(&self) -> u64 {
        self.cached.iter().map(|(size, count)| size * count).sum()
    }

    fn driver(&self) -> Figures {
        self.driver.figures
    }
}
