//! Bitmaps over the granules of a segment.

/// One bit per granule.
#[derive(Debug, Clone)]
pub(super) struct Bits {
    words: Vec<u64>,
}

/// The bits of word `word` that lie in `[from, to)`.
#[inline]
fn mask_in(word: usize, from: usize, to: usize) -> u64 {
    let low = from.saturating_sub(word * 64);
    let high = (to - word * 64).min(64);
    (u64::MAX << low) & (u64::MAX >> (64 - high))
}

impl Bits {
    pub fn new(count: usize, value: bool) -> Self {
        let mut bits = Bits {
            words: vec![0; count.div_ceil(64).max(1)],
        };
        if value {
            bits.set_range(0, count);
        }
        bits
    }

    pub fn host_bytes(&self) -> usize {
        self.words.capacity() * 8
    }

    pub fn set_range(&mut self, from: usize, to: usize) {
        if from < to {
            for word in from / 64..=(to - 1) / 64 {
                self.words[word] |= mask_in(word, from, to);
            }
        }
    }

    pub fn clear_range(&mut self, from: usize, to: usize) {
        if from < to {
            for word in from / 64..=(to - 1) / 64 {
                self.words[word] &= !mask_in(word, from, to);
            }
        }
    }

    pub fn is_set(&self, at: usize) -> bool {
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    /// The first granule in `[from, to)` whose bit is `value`.
    pub fn next(&self, from: usize, to: usize, value: bool) -> Option<usize> {
        if from >= to {
            return None;
        }
        let skipped = if value { 0 } else { u64::MAX };
        let (first, last) = (from / 64, (to - 1) / 64);
        let head = (self.words[first] ^ skipped) & (u64::MAX << (from % 64));
        let (word, bits) = if head != 0 {
            (first, head)
        } else {
            let rest = &self.words[first + 1..=last];
            let at = rest.iter().position(|&word| word != skipped)?;
            (first + 1 + at, rest[at] ^ skipped)
        };
        let at = word * 64 + bits.trailing_zeros() as usize;
        (at < to).then_some(at)
    }

    /// The last set bit at or below `at`.
    fn previous(&self, at: usize) -> Option<usize> {
        let mut word = at / 64;
        let mut bits = self.words[word] & (u64::MAX >> (63 - at % 64));
        loop {
            if bits != 0 {
                return Some(word * 64 + 63 - bits.leading_zeros() as usize);
            }
            word = word.checked_sub(1)?;
            bits = self.words[word];
        }
    }
}

/// Where blocks start. A second level says which words of the first are not empty, so that the start below any address
/// is a few words away whatever the size of the segment.
#[derive(Debug, Clone)]
pub(super) struct Starts {
    bits: Bits,
    words_in_use: Bits,
}

impl Starts {
    pub fn new(count: usize) -> Self {
        Starts {
            bits: Bits::new(count, false),
            words_in_use: Bits::new(count.div_ceil(64), false),
        }
    }

    pub fn host_bytes(&self) -> usize {
        size_of::<Self>() + self.bits.host_bytes() + self.words_in_use.host_bytes()
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.bits.words.iter().map(|word| word.count_ones()).sum()
    }

    #[inline]
    pub fn set(&mut self, at: usize) {
        self.bits.words[at / 64] |= 1 << (at % 64);
        self.words_in_use.words[at / 4096] |= 1 << (at / 64 % 64);
    }

    #[inline]
    pub fn clear(&mut self, at: usize) {
        let word = &mut self.bits.words[at / 64];
        *word &= !(1 << (at % 64));
        if *word == 0 {
            self.words_in_use.words[at / 4096] &= !(1 << (at / 64 % 64));
        }
    }

    pub fn is_set(&self, at: usize) -> bool {
        self.bits.is_set(at)
    }

    /// The last start at or below granule `at`.
    pub fn at_or_below(&self, at: usize) -> Option<usize> {
        let here = self.bits.words[at / 64] & (u64::MAX >> (63 - at % 64));
        if here != 0 {
            return Some(at / 64 * 64 + 63 - here.leading_zeros() as usize);
        }
        let word = self.words_in_use.previous((at / 64).checked_sub(1)?)?;
        Some(word * 64 + 63 - self.bits.words[word].leading_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_set_clear_and_are_found() {
        let mut bits = Bits::new(1000, false);
        bits.set_range(60, 200);
        assert_eq!(bits.next(0, 1000, true), Some(60));
        assert_eq!(bits.next(60, 1000, false), Some(200));
        assert_eq!(bits.next(0, 60, true), None);
        bits.clear_range(64, 128);
        assert_eq!(bits.next(64, 1000, true), Some(128));
        assert!(bits.is_set(63) && !bits.is_set(64) && bits.is_set(199) && !bits.is_set(200));
        bits.set_range(7, 7);
        assert!(!bits.is_set(7));
        let full = Bits::new(70, true);
        assert_eq!(full.next(0, 70, false), None);
    }

    #[test]
    fn starts_are_found_from_above() {
        let count = 300_000;
        let mut starts = Starts::new(count);
        let mut set = std::collections::BTreeSet::new();
        let mut random = 7u64;
        for _ in 0..20_000 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let at = (random >> 33) as usize % count;
            if set.remove(&at) {
                starts.clear(at);
            } else if random >> 20 & 7 == 0 {
                set.insert(at);
                starts.set(at);
            }
            let below = (random >> 13) as usize % count;
            assert_eq!(
                starts.at_or_below(below),
                set.range(..=below).next_back().copied()
            );
        }
    }
}
