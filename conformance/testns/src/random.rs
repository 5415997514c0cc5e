//! Random numbers that a seed repeats.

/// A generator (SplitMix64, by Steele, Lea and Flood). Written by hand: ten lines, and a seed means the same for ever.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed. `what` keeps the numbers of two cases of one seed apart.
    pub fn new(seed: u64, what: &str) -> Self {
        // FNV-1a: std's hashes may change from one release to the next.
        let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(seed ^ what.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 if that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let number = usize::try_from(self.number() >> 1).unwrap_or(usize::MAX);
        number.checked_rem(limit).unwrap_or(0)
    }

    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len())]
    }

    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let numbers = |seed, what| {
            let mut random = Random::new(seed, what);
            [random.number(), random.number(), random.number()]
        };
        assert_eq!(numbers(1, "a"), numbers(1, "a"));
        assert_ne!(numbers(1, "a"), numbers(2, "a"));
        assert_ne!(numbers(1, "a"), numbers(1, "b"));
        let mut random = Random::new(7, "");
        let seen: std::collections::BTreeSet<_> = (0..200).map(|_| random.below(8)).collect();
        assert_eq!(seen.len(), 8);
        assert_eq!(random.below(0), 0);
    }
}
