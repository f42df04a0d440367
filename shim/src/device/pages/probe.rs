//! Whether a device can map memory, found by doing it once.

use super::{DriverPages, Fences, Held, PAGE_BYTES};
use crate::abi::*;
use crate::driver::Driver;
use crate::process;
use cushion::pool::{BackingError, Pages, Range};
use std::sync::{Mutex, Once};

/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
const HAS_MAPPING: i32 = 102;
/// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED`.
const HAS_RDMA: i32 = 110;

fn once(why: &str) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        process::say(&format!(
            "CUSHION_BACKING=vmm: {why}; segments are used instead"
        ))
    });
}

impl DriverPages {
    /// Looks whether the device can do it, by doing it once. Says once why not.
    pub fn probe(driver: &'static Driver, device: CUdevice, context: usize) -> Option<DriverPages> {
        let Some(calls) = driver.mapping() else {
            once("the driver lacks the functions");
            return None;
        };
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: the out-parameter is ours.
            let code = unsafe { (calls.device_attribute)(&mut value, which, device) };
            code == SUCCESS && value != 0
        };
        if !attribute(HAS_MAPPING) {
            once("the device does not support it");
            return None;
        }
        let sharing = driver.sharing();
        let mut traits = MemoryTraits {
            rdma_capable: attribute(HAS_RDMA),
            exportable: sharing.is_some(),
            decompression: true,
        };
        let mut pages = DriverPages {
            device,
            context,
            properties: FullProperties::of_device(device, &traits),
            calls,
            sharing,
            held: Mutex::new(Held::default()),
            fences: Fences::default(),
        };
        let mut tried = pages.try_once();
        // Older drivers know no decompression, and some systems have memory that can be mapped and not exported.
        for give_up in [
            |traits: &mut MemoryTraits| traits.decompression = false,
            |traits: &mut MemoryTraits| traits.exportable = false,
        ] {
            if tried != Err(BackingError::Unavailable) {
                break;
            }
            give_up(&mut traits);
            pages.properties = FullProperties::of_device(device, &traits);
            tried = pages.try_once();
        }
        if !traits.exportable {
            pages.sharing = None;
        }
        match tried {
            Ok(()) => Some(pages),
            Err(error) => {
                once(&format!("the driver refused a first try ({error:?})"));
                None
            }
        }
    }

    fn try_once(&self) -> Result<(), BackingError> {
        let outcome = self.map_a_page();
        self.release_all();
        self.lock().ended = false;
        outcome
    }

    fn map_a_page(&self) -> Result<(), BackingError> {
        let address = self.reserve_range(PAGE_BYTES as u64)?;
        let handle = self.create(PAGE_BYTES as u64)?;
        let range = Range {
            address,
            size_bytes: PAGE_BYTES as u64,
        };
        self.map(handle, range)
    }
}
