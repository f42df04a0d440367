//! The driver as arithmetic: addresses, a limit, a bill.

use serde::Serialize;

use super::costs::{seconds, Costs};

/// Calls made to the driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// `cuMemAlloc`.
    pub malloc: u64,
    /// `cuMemFree`.
    pub free: u64,
    /// `cuMemCreate` (one for each handle; so are map, unmap and release).
    pub create: u64,
    /// `cuMemMap`.
    pub map: u64,
    /// `cuMemSetAccess` (one for each range).
    pub access: u64,
    /// `cuMemUnmap`.
    pub unmap: u64,
    /// `cuMemRelease`.
    pub release: u64,
}

impl Calls {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.malloc + self.free + self.create + self.map + self.access + self.unmap + self.release
    }
}

/// The driver has no memory left below its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// A model of the driver of one device.
#[derive(Debug, Clone)]
pub struct Driver {
    costs: Costs,
    limit_bytes: Option<u64>,
    next_address: u64,
    /// The counters.
    pub figures: Figures,
}

/// What a driver counts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    /// Calls that take or give back memory.
    pub calls: Calls,
    /// Device-side barriers, not counted in `calls`.
    pub fences: u64,
    /// What all of it would have taken on the host.
    pub seconds: f64,
    /// Held now.
    pub reserved_bytes: u64,
    /// The most ever held.
    pub peak_reserved_bytes: u64,
}

/// More than any device can address. Without a limit it is the limit, since the pools keep a bit for each granule.
const ADDRESSED_BYTES: u64 = 1 << 48;

/// New memory starts at a multiple of this, as the driver's does above 1 MiB.
const PAGE_BYTES: u64 = 2 << 20;

impl Driver {
    /// A driver with all of `limit_bytes` free; `None`: all that can be addressed.
    pub fn new(costs: Costs, limit_bytes: Option<u64>) -> Driver {
        Driver {
            costs,
            limit_bytes,
            next_address: 1 << 40,
            figures: Figures::default(),
        }
    }

    /// The most it can give.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.limit_bytes
    }

    /// Address space of `bytes`, never handed out twice.
    pub fn addresses(&mut self, bytes: u64) -> u64 {
        let address = self.next_address;
        let end = address
            .saturating_add(bytes)
            .checked_next_multiple_of(PAGE_BYTES);
        self.next_address = end.unwrap_or(u64::MAX);
        address
    }

    /// `cuMemAlloc`.
    pub fn malloc(&mut self, bytes: u64) -> Result<u64, Full> {
        self.take(bytes)?;
        self.figures.calls.malloc += 1;
        self.figures.seconds += seconds(&self.costs.malloc_us, bytes);
        Ok(self.addresses(bytes))
    }

    /// `cuMemFree`.
    pub fn free(&mut self, bytes: u64) {
        self.figures.reserved_bytes -= bytes.min(self.figures.reserved_bytes);
        self.figures.calls.free += 1;
        self.figures.seconds += seconds(&self.costs.free_us, bytes);
    }

    /// Creates `count` handles of `handle_bytes` each, maps them one after the other and gives access to the range.
    pub fn map(&mut self, count: u64, handle_bytes: u64) -> Result<(), Full> {
        self.take(count * handle_bytes)?;
        self.figures.calls.create += count;
        self.figures.calls.map += count;
        self.figures.calls.access += 1;
        let Costs {
            create_us,
            map_us,
            access_us,
            ..
        } = &self.costs;
        let each = [create_us, map_us, access_us]
            .iter()
            .map(|curve| seconds(curve, handle_bytes))
            .sum::<f64>();
        self.figures.seconds += count as f64 * each;
        Ok(())
    }

    /// Unmaps and releases `count` handles of `handle_bytes`.
    pub fn unmap(&mut self, count: u64, handle_bytes: u64) {
        self.figures.reserved_bytes -= (count * handle_bytes).min(self.figures.reserved_bytes);
        self.figures.calls.unmap += count;
        self.figures.calls.release += count;
        let Costs {
            unmap_us,
            release_us,
            ..
        } = &self.costs;
        let each = seconds(unmap_us, handle_bytes) + seconds(release_us, handle_bytes);
        self.figures.seconds += count as f64 * each;
    }

    /// `cuMemCreate`.
    pub fn create(&mut self, bytes: u64) -> Result<(), Full> {
        self.take(bytes)?;
        self.figures.calls.create += 1;
        self.figures.seconds += seconds(&self.costs.create_us, bytes);
        Ok(())
    }

    /// `cuMemMap` and `cuMemSetAccess` of one handle.
    pub fn map_handle(&mut self, bytes: u64) {
        self.figures.calls.map += 1;
        self.figures.calls.access += 1;
        self.figures.seconds += seconds(&self.costs.map_us, bytes);
        self.figures.seconds += seconds(&self.costs.access_us, bytes);
    }

    /// `cuMemUnmap` of one handle.
    pub fn unmap_handle(&mut self, bytes: u64) {
        self.figures.calls.unmap += 1;
        self.figures.seconds += seconds(&self.costs.unmap_us, bytes);
    }

    /// `cuMemRelease` of a handle that is mapped nowhere.
    pub fn destroy(&mut self, bytes: u64) {
        self.figures.reserved_bytes -= bytes.min(self.figures.reserved_bytes);
        self.figures.calls.release += 1;
        self.figures.seconds += seconds(&self.costs.release_us, bytes);
    }

    /// A device-side barrier.
    pub fn fence(&mut self) {
        self.figures.fences += 1;
        self.figures.seconds += self.costs.fence_us * 1e-6;
    }

    /// A wait of the host for the device.
    pub fn synchronize(&mut self) {
        self.figures.seconds += self.costs.synchronize_us * 1e-6;
    }

    /// Starts filling `ranges` ranges of memory.
    pub fn fill(&mut self, ranges: usize) {
        self.figures.seconds += ranges as f64 * self.costs.fill_us * 1e-6;
    }

    fn take(&mut self, bytes: u64) -> Result<(), Full> {
        let after = self.figures.reserved_bytes.checked_add(bytes).ok_or(Full)?;
        if after > self.limit_bytes.unwrap_or(u64::MAX).min(ADDRESSED_BYTES) {
            return Err(Full);
        }
        self.figures.reserved_bytes = after;
        self.figures.peak_reserved_bytes = self.figures.peak_reserved_bytes.max(after);
        Ok(())
    }
}
