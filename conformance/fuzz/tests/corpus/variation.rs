//! Variations of seeds: small damage, as a cut, a doubled part, a part of another seed, a token of the format.

/// An endless supply, the same for the same name.
pub(crate) struct Variations {
    state: u64,
}

impl Variations {
    pub(crate) fn new(name: &str) -> Self {
        Self { state: name.bytes().fold(1, |sum: u64, byte| sum.rotate_left(7) ^ u64::from(byte)) }
    }

    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `end`; 0 if there is none.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.random() % (end.max(1) as u64)).unwrap_or_default()
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let index = self.below(from.len());
        from.get(index)
    }

    /// A stretch of `bytes`, mostly short.
    fn stretch(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        let most = if self.below(4) == 0 { bytes.len() } else { 8 };
        let length = self.below(most.min(bytes.len() - start) + 1);
        start..start + length
    }

    pub(crate) fn next(&mut self, seeds: &[Vec<u8>], tokens: &[&str]) -> Vec<u8> {
        let mut bytes = self.pick(seeds).cloned().unwrap_or_default();
        for _ in 0..=self.below(4) {
            self.damage(&mut bytes, seeds, tokens);
        }
        bytes
    }

    fn damage(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>], tokens: &[&str]) {
        let stretch = self.stretch(bytes);
        let at = self.below(bytes.len());
        match self.below(8) {
            0 => drop(bytes.drain(stretch)),
            1 => {
                let copy = bytes[stretch.clone()].to_vec();
                drop(bytes.splice(stretch.end..stretch.end, copy));
            }
            2 => {
                let other = self.pick(seeds).cloned().unwrap_or_default();
                let part = self.stretch(&other);
                drop(bytes.splice(stretch, other[part].iter().copied()));
            }
            3 => {
                let token = self.pick(tokens).copied().unwrap_or_default();
                drop(bytes.splice(stretch, token.bytes()));
            }
            4 => {
                let token = self.pick(tokens).copied().unwrap_or_default();
                drop(bytes.splice(stretch.start..stretch.start, token.bytes()));
            }
            5 => bytes.truncate(at),
            6 => {
                let byte = [0, 1, 4, 0x10, 0x7f, 0x80, 0xfe, 0xff, b'"', b'0'][self.below(10)];
                bytes.iter_mut().skip(at).take(1).for_each(|place| *place = byte);
            }
            _ => {
                let bit = 1 << self.below(8);
                bytes.iter_mut().skip(at).take(1).for_each(|place| *place ^= bit);
            }
        }
    }
}
