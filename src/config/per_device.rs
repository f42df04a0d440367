//! A value for all devices, or for some: `0.8`, `0:0.5,1:0.8`, or `0.8,1:0.5`.

use std::collections::BTreeMap;

/// A value for every device, with exceptions by ordinal.
#[derive(Debug, Clone, PartialEq)]
pub struct PerDevice<T> {
    /// For devices that have no entry of their own.
    pub all: Option<T>,
    /// By ordinal, as the program sees the devices (after `CUDA_VISIBLE_DEVICES`).
    pub by_device: BTreeMap<u32, T>,
}

impl<T> Default for PerDevice<T> {
    fn default() -> Self {
        PerDevice {
            all: None,
            by_device: BTreeMap::new(),
        }
    }
}

impl<T: Copy> PerDevice<T> {
    /// The value for one device.
    pub fn get(&self, device: u32) -> Option<T> {
        self.by_device.get(&device).copied().or(self.all)
    }

    /// Reads it; each device, and the value for all, at most once. `off` is no value for any device.
    pub(super) fn parse(text: &str, item: impl Fn(&str) -> Option<T>) -> Option<Self> {
        let mut values = PerDevice::default();
        if text.trim() == "off" {
            return Some(values);
        }
        for part in text.split(',') {
            let repeated = match part.split_once(':') {
                Some((device, value)) => {
                    let device = device.trim().parse().ok()?;
                    values.by_device.insert(device, item(value.trim())?)
                }
                None => values.all.replace(item(part.trim())?),
            };
            if repeated.is_some() {
                return None;
            }
        }
        Some(values)
    }

    /// Writes it as [`PerDevice::parse`] reads it.
    pub(super) fn text(&self, item: impl Fn(&T) -> String) -> String {
        let all = self.all.iter().map(&item);
        let some = self
            .by_device
            .iter()
            .map(|(device, value)| format!("{device}:{}", item(value)));
        let parts: Vec<String> = all.chain(some).collect();
        if parts.is_empty() {
            "off".to_owned()
        } else {
            parts.join(",")
        }
    }
}
