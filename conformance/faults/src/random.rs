//! Random numbers that are the same in every run.

#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn from_seed(seed: u64) -> Self {
        let mut numbers = Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (0..8).for_each(|_| {
            numbers.below(1);
        });
        numbers
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 32).expect("32 bits") % limit
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}
