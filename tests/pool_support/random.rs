//! Numbers that are as good as random and come again.

/// A generator for tests: the same numbers for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, count: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % count
    }

    /// A size of one of these octaves (0: 1 byte), each as likely as the next.
    pub fn size_bytes(&mut self, octaves: std::ops::Range<u64>) -> u64 {
        let octave = octaves.start + self.below(octaves.end - octaves.start);
        (1 << octave) + self.below(1 << octave)
    }
}
