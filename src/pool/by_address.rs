//! Numbers by address, in order: which segment lies where.
//!
//! Runs of neighbours in short arrays, 12 bytes each; a map of the library's takes 30. What comes in rising order, as a driver
//! gives addresses, fills its run.

/// Most in a run. To put one into the middle moves a kilobyte at most.
const RUN: usize = 128;

/// An address and its number.
#[derive(Debug, Clone, Copy)]
struct Item([u32; 3]);

impl Item {
    #[inline]
    fn new(address: u64, number: u32) -> Self {
        Item([address as u32, (address >> 32) as u32, number])
    }

    #[inline]
    fn address(self) -> u64 {
        u64::from(self.0[1]) << 32 | u64::from(self.0[0])
    }

    #[inline]
    fn number(self) -> u32 {
        self.0[2]
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ByAddress {
    /// None is empty.
    runs: Vec<Vec<Item>>,
    /// The first address of each run.
    firsts: Vec<u64>,
}

impl ByAddress {
    /// The run that `address` belongs to.
    #[inline]
    fn run_of(&self, address: u64) -> usize {
        let above = self.firsts.partition_point(|&first| first <= address);
        above.saturating_sub(1)
    }

    /// Adds a number. `false`: there is one at this address.
    pub fn insert(&mut self, address: u64, number: u32) -> bool {
        let item = Item::new(address, number);
        let mut run = self.run_of(address);
        if self.runs.is_empty() {
            self.add_run(0, vec![item]);
            return true;
        }
        let mut at = self.runs[run].partition_point(|item| item.address() < address);
        if self.runs[run].get(at).map(|item| item.address()) == Some(address) {
            return false;
        }
        if self.runs[run].len() == RUN {
            if at == RUN {
                self.add_run(run + 1, vec![item]);
                return true;
            }
            let upper = self.runs[run].split_off(RUN / 2);
            self.runs[run].shrink_to_fit();
            self.add_run(run + 1, upper);
            if at > RUN / 2 {
                (run, at) = (run + 1, at - RUN / 2);
            }
        }
        self.runs[run].insert(at, item);
        self.firsts[run] = self.runs[run][0].address();
        true
    }

    fn add_run(&mut self, at: usize, run: Vec<Item>) {
        self.firsts.insert(at, run[0].address());
        self.runs.insert(at, run);
    }

    /// Takes the number at `address` out.
    pub fn remove(&mut self, address: u64) -> Option<u32> {
        let run = self.run_of(address);
        let items = self.runs.get_mut(run)?;
        let at = items.partition_point(|item| item.address() < address);
        let item = *items.get(at).filter(|item| item.address() == address)?;
        items.remove(at);
        let left = items.len();
        if left == 0 {
            self.runs.remove(run);
            self.firsts.remove(run);
            return Some(item.number());
        }
        self.firsts[run] = items[0].address();
        self.join_next(run);
        if run > 0 {
            self.join_next(run - 1);
        }
        Some(item.number())
    }

    /// Two runs that are half of one together become one.
    fn join_next(&mut self, run: usize) {
        let is_short = |pair: &[Vec<Item>]| pair[0].len() + pair[1].len() <= RUN / 2;
        if self.runs.get(run..run + 2).is_some_and(is_short) {
            let upper = self.runs.remove(run + 1);
            self.firsts.remove(run + 1);
            self.runs[run].extend(upper);
        }
    }

    /// The number at or next below `address`.
    #[inline]
    pub fn at_or_below(&self, address: u64) -> Option<u32> {
        let items = self.runs.get(self.run_of(address))?;
        let above = items.partition_point(|item| item.address() <= address);
        Some(items[above.checked_sub(1)?].number())
    }

    /// The number at or next above `address`.
    pub fn at_or_above(&self, address: u64) -> Option<u32> {
        let run = self.run_of(address);
        let items = self.runs.get(run)?;
        let at = items.partition_point(|item| item.address() < address);
        let item = items.get(at).or_else(|| self.runs.get(run + 1)?.first())?;
        Some(item.number())
    }

    /// All, in address order.
    pub fn in_order(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flatten().map(|item| item.number())
    }

    /// Bytes of host memory.
    pub fn host_bytes(&self) -> usize {
        let items: usize = self.runs.iter().map(Vec::capacity).sum();
        items * size_of::<Item>()
            + self.runs.capacity() * size_of::<Vec<Item>>()
            + self.firsts.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn agrees_with_a_map() {
        let (mut by_address, mut model) = (ByAddress::default(), BTreeMap::new());
        let mut random = 1u64;
        for turn in 0..60_000u32 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            // It grows, and shrinks again.
            let grows = turn < 30_000;
            let address = (random >> 40) % 9000 * 512 + (u64::from(u32::MAX) << 20);
            if (random >> 33).is_multiple_of(4) || (model.contains_key(&address) && !grows) {
                assert_eq!(by_address.remove(address), model.remove(&address));
            } else if grows {
                let is_new = !model.contains_key(&address);
                assert_eq!(by_address.insert(address, turn), is_new);
                model.entry(address).or_insert(turn);
            }
            let below = model
                .range(..=address)
                .next_back()
                .map(|(_, &number)| number);
            assert_eq!(by_address.at_or_below(address), below);
            let above = model.range(address..).next().map(|(_, &number)| number);
            assert_eq!(by_address.at_or_above(address), above);
            if turn % 1000 == 0 {
                assert!(by_address.in_order().eq(model.values().copied()));
            }
        }
        for address in model.into_keys() {
            assert!(by_address.remove(address).is_some());
        }
        assert!(by_address.runs.is_empty() && by_address.at_or_below(u64::MAX).is_none());
    }

    #[test]
    fn what_comes_in_order_is_kept_close_together() {
        let mut by_address = ByAddress::default();
        (0..10_000).for_each(|number| assert!(by_address.insert(u64::from(number) << 21, number)));
        assert!(by_address.host_bytes() < 10_000 * 13);
        (0..10_000u64)
            .filter(|number| number % 64 > 0)
            .for_each(|number| {
                assert_eq!(by_address.remove(number << 21), Some(number as u32));
            });
        assert!(by_address.runs.len() <= 10);
    }
}
