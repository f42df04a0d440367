//! No pool: the driver serves every request.

use std::collections::HashMap;

use super::driver::Figures;
use super::{Driver, Full, Policy, Request};

/// Each allocation is a `cuMemAlloc`, each free a `cuMemFree`. The driver packs requests up to 1 MiB by 512 B and gives
/// larger ones whole pages of 2 MiB (least alignments as measured).
#[derive(Debug)]
pub(super) struct Native {
    driver: Driver,
    live: HashMap<u64, u64>,
}

impl Native {
    pub fn new(driver: Driver) -> Native {
        Native {
            driver,
            live: HashMap::new(),
        }
    }
}

impl Policy for Native {
    fn allocate(&mut self, request: Request) -> Result<(), Full> {
        let granule: u64 = if request.size_bytes > 1 << 20 {
            2 << 20
        } else {
            512
        };
        let bytes = request
            .size_bytes
            .checked_next_multiple_of(granule)
            .ok_or(Full)?;
        self.driver.malloc(bytes)?;
        self.live.insert(request.id, bytes);
        Ok(())
    }

    fn free(&mut self, id: u64) {
        if let Some(bytes) = self.live.remove(&id) {
            self.driver.free(bytes);
        }
    }

    fn largest_cached_bytes(&self) -> u64 {
        0
    }

    fn releasable_bytes(&self) -> u64 {
        0
    }

    fn driver(&self) -> Figures {
        self.driver.figures
    }
}
