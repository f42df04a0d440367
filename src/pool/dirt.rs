//! Which granules of a segment are not clean.
//!
//! # Decision: where it changes, not what it is
//! A bit for each granule is 512 bytes for a segment of 2 MiB, more than all else that is known of a dozen blocks in it. They
//! have few borders between clean and dirty, so the borders are kept, in order, as long as they are few: they take less
//! memory than bits, and a search among them is short.

use super::bits::Bits;

/// Most borders: a search takes eight steps, a change moves 1 KiB.
const MOST_BORDERS: usize = 256;
/// Room is made for so many borders at a time.
const STEP_BORDERS: usize = 8;

#[derive(Debug)]
pub(super) struct Dirt {
    granules: u32,
    map: Map,
}

#[derive(Debug)]
enum Map {
    /// Clean up to the first, dirty up to the second, and so on.
    Borders(Vec<u32>),
    Bits(Bits),
}

impl Dirt {
    /// Of a segment of so many granules, all clean or all dirty.
    pub fn new(granules: usize, is_dirty: bool) -> Self {
        let mut dirt = Dirt {
            granules: granules as u32,
            map: Map::Borders(Vec::new()),
        };
        dirt.put(0, granules, is_dirty);
        dirt
    }

    pub fn host_bytes(&self) -> usize {
        let map = match &self.map {
            Map::Borders(borders) => borders.capacity() * size_of::<u32>(),
            Map::Bits(bits) => bits.host_bytes(),
        };
        size_of::<Self>() + map
    }

    /// Makes `[from, to)` dirty.
    #[inline]
    pub fn set_range(&mut self, from: usize, to: usize) {
        self.put(from, to, true);
    }

    /// Makes `[from, to)` clean.
    #[inline]
    pub fn clear_range(&mut self, from: usize, to: usize) {
        self.put(from, to, false);
    }

    fn put(&mut self, from: usize, to: usize, is_dirty: bool) {
        if from >= to {
            return;
        }
        match &mut self.map {
            Map::Bits(bits) if from > 0 || to < self.granules as usize => match is_dirty {
                true => bits.set_range(from, to),
                false => bits.clear_range(from, to),
            },
            Map::Bits(_) => {
                let whole = [0, self.granules];
                let borders = if is_dirty { &whole[..] } else { &[] };
                self.map = Map::Borders(borders.to_vec());
            }
            Map::Borders(borders) => {
                put_borders(borders, (from as u32, to as u32), is_dirty);
                let most = MOST_BORDERS.min(self.granules as usize / u32::BITS as usize);
                if borders.len() > most.max(STEP_BORDERS) {
                    self.count_bits();
                }
            }
        }
    }

    /// There are too many borders.
    #[cold]
    fn count_bits(&mut self) {
        let Map::Borders(borders) = &self.map else {
            return;
        };
        let mut bits = Bits::new(self.granules as usize, false);
        for pair in borders.chunks_exact(2) {
            bits.set_range(pair[0] as usize, pair[1] as usize);
        }
        self.map = Map::Bits(bits);
    }

    /// The first `count` granules in `[from, to)` that are clean, in one of the first `looks` clean stretches.
    #[inline]
    pub fn clean_room(&self, from: usize, to: usize, count: usize, looks: usize) -> Option<usize> {
        let borders = match &self.map {
            Map::Borders(borders) => borders,
            Map::Bits(_) => return self.clean_room_of_bits(from, to, count, looks),
        };
        let border = |at: usize| borders.get(at).map_or(to, |&border| border as usize);
        let mut start = from;
        let mut above = borders.partition_point(|&border| border as usize <= from);
        if above % 2 == 1 {
            start = border(above);
            above += 1;
        }
        for _ in 0..looks {
            if start + count > to {
                return None;
            }
            if border(above) >= start + count {
                return Some(start);
            }
            start = border(above + 1);
            above += 2;
        }
        None
    }

    fn clean_room_of_bits(
        &self,
        mut from: usize,
        to: usize,
        count: usize,
        looks: usize,
    ) -> Option<usize> {
        for _ in 0..looks {
            let start = self.next(from, to, false)?;
            if start + count > to {
                return None;
            }
            match self.next(start, start + count, true) {
                None => return Some(start),
                Some(dirty) => from = dirty,
            }
        }
        None
    }

    /// The first granule in `[from, to)` that is dirty, or clean.
    #[inline]
    pub fn next(&self, from: usize, to: usize, is_dirty: bool) -> Option<usize> {
        let borders = match &self.map {
            Map::Borders(borders) => borders,
            Map::Bits(bits) => return bits.next(from, to, is_dirty),
        };
        if from >= to {
            return None;
        }
        let above = borders.partition_point(|&border| border as usize <= from);
        if (above % 2 == 1) == is_dirty {
            return Some(from);
        }
        let end = self.granules as usize;
        let next = borders.get(above).map_or(end, |&border| border as usize);
        (next < to).then_some(next)
    }
}

/// Makes `[from, to)` dirty or clean. Dirt that ends with the segment has its border there, so borders come in pairs.
#[inline]
fn put_borders(borders: &mut Vec<u32>, (from, to): (u32, u32), is_dirty: bool) {
    let first = borders.partition_point(|&border| border < from);
    let last = first + borders[first..].partition_point(|&border| border <= to);
    // What is before and behind is what it was.
    let (adds_from, adds_to) = ((first % 2 == 1) != is_dirty, (last % 2 == 1) != is_dirty);
    let (count, removed) = (usize::from(adds_from) + usize::from(adds_to), last - first);
    let length = borders.len();
    if count > removed {
        let more = count - removed;
        if length + more > borders.capacity() {
            borders.reserve_exact(STEP_BORDERS);
        }
        borders.resize(length + more, 0);
        borders.copy_within(last..length, last + more);
    } else if count < removed {
        borders.copy_within(last..length, first + count);
        borders.truncate(length + count - removed);
    }
    if adds_from {
        borders[first] = from;
    }
    if adds_to {
        borders[first + usize::from(adds_from)] = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64, below: usize) -> usize {
        *state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (*state >> 33) as usize % below
    }

    #[test]
    fn agrees_with_a_list_of_granules() {
        let mut seed = 3;
        let mut counted_bits = 0;
        for granules in [1, 2, 10, 64, 1000, 4096] {
            for is_dirty in [false, true] {
                let mut dirt = Dirt::new(granules, is_dirty);
                let mut model = vec![is_dirty; granules];
                for turn in 0..2000 {
                    let from = random(&mut seed, granules);
                    // Long ranges at times, so that borders become few again.
                    let most = if turn % 64 == 0 { granules } else { 4 };
                    let mut to = (from + 1 + random(&mut seed, most)).min(granules);
                    let mut from = from;
                    if turn % 500 == 499 {
                        (from, to) = (0, granules);
                    }
                    let value = random(&mut seed, 2) == 0;
                    match value {
                        true => dirt.set_range(from, to),
                        false => dirt.clear_range(from, to),
                    }
                    model[from..to].fill(value);
                    let (low, high) =
                        (random(&mut seed, granules), random(&mut seed, granules + 1));
                    for value in [false, true] {
                        let next = (low..high).find(|&at| model[at] == value);
                        assert_eq!(dirt.next(low, high, value), next, "{low}..{high}");
                    }
                    let count = 1 + random(&mut seed, 3);
                    let is_room = |at: &usize| !model[*at..*at + count].contains(&true);
                    let room = (low..(high + 1).saturating_sub(count)).find(is_room);
                    assert_eq!(dirt.clean_room(low, high, count, usize::MAX), room);
                    counted_bits += usize::from(matches!(dirt.map, Map::Bits(_)));
                }
                for (at, &value) in model.iter().enumerate() {
                    assert_eq!(dirt.next(at, at + 1, true).is_some(), value);
                }
            }
        }
        assert!(counted_bits > 1000, "both ways are seen");
    }

    #[test]
    fn few_borders_take_little_memory() {
        let mut dirt = Dirt::new(4096, false);
        let bits_bytes = Bits::new(4096, false).host_bytes();
        for block in 0..12 {
            dirt.set_range(block * 300, block * 300 + 150);
        }
        assert!(dirt.host_bytes() * 3 < bits_bytes);
        for granule in 0..2048 {
            dirt.set_range(granule * 2, granule * 2 + 1);
            dirt.clear_range(granule * 2 + 1, granule * 2 + 2);
        }
        assert!(dirt.host_bytes() <= bits_bytes + size_of::<Dirt>());
    }
}
