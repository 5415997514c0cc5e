//! A page of the index file: fifteen slots, and a checksum that detects a damaged, torn or foreign page.

/// Bytes of a page. A page is written by one `pwrite`, so a killed process leaves it old or new.
pub(super) const PAGE_BYTES: usize = 512;
pub(super) const SLOTS: usize = 15;
const SLOT_BYTES: usize = 32;
const PASSED_AT: usize = SLOTS * SLOT_BYTES;
const USED_AT: usize = PASSED_AT + 4;
const CHECKSUM_AT: usize = PAGE_BYTES - 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `value` is an owner's hash, `key` an address it holds.
    Owner,
    /// As `Owner`, and this crate made the reservation since the machine started.
    OwnerThisBoot,
    /// `value` is a word of the trie of taken addresses, `key` its prefix, `level` its height.
    Word,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) kind: Kind,
    pub(super) v6: bool,
    pub(super) level: u8,
    pub(super) value: u64,
    pub(super) key: u128,
}

/// A page in memory: its slots, without gaps.
#[derive(Debug, Clone, Default)]
pub(super) struct Page {
    pub(super) slots: Vec<Slot>,
    /// How many entries found no room here and went to a later page: zero ends a search.
    pub(super) passed: u32,
}

impl Slot {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let kind = match self.kind {
            Kind::Owner => 1,
            Kind::OwnerThisBoot => 2,
            Kind::Word => 3,
        };
        bytes.extend_from_slice(&[kind, u8::from(self.v6), self.level, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&self.value.to_le_bytes());
        bytes.extend_from_slice(&self.key.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let kind = match bytes.first()? {
            1 => Kind::Owner,
            2 => Kind::OwnerThisBoot,
            3 => Kind::Word,
            _ => return None,
        };
        Some(Self {
            kind,
            v6: *bytes.get(1)? == 1,
            level: *bytes.get(2)?,
            value: u64_at(bytes, 8)?,
            key: u128::from_le_bytes(bytes.get(16..32)?.try_into().ok()?),
        })
    }
}

impl Page {
    /// The page as bytes. `seed` and `number` are included in the checksum: a page of an older index or in a wrong
    /// place does not pass.
    pub(super) fn encode(&self, seed: u64, number: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PAGE_BYTES);
        for slot in &self.slots {
            slot.encode(&mut bytes);
        }
        bytes.resize(PASSED_AT, 0);
        bytes.extend_from_slice(&self.passed.to_le_bytes());
        bytes.extend_from_slice(&u16::try_from(self.slots.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.resize(CHECKSUM_AT, 0);
        let sum = checksum(&bytes, seed ^ number);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The page in `bytes`, `None` if they are not a whole page of this index at this place.
    pub(super) fn decode(bytes: &[u8], seed: u64, number: u64) -> Option<Self> {
        let body = bytes.get(..CHECKSUM_AT)?;
        if u64_at(bytes, CHECKSUM_AT)? != checksum(body, seed ^ number) {
            return None;
        }
        let used = usize::from(u16::from_le_bytes(bytes.get(USED_AT..USED_AT + 2)?.try_into().ok()?));
        let slots = body.get(..used.checked_mul(SLOT_BYTES)?)?.chunks(SLOT_BYTES).map(Slot::decode);
        Some(Self {
            slots: slots.collect::<Option<_>>()?,
            passed: u32::from_le_bytes(body.get(PASSED_AT..PASSED_AT + 4)?.try_into().ok()?),
        })
    }
}

/// The little-endian number at `at`.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Against accidents, not against malice: a process that can write here can write the reservations too.
pub(super) fn checksum(bytes: &[u8], seed: u64) -> u64 {
    let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    bytes.chunks(8).map(word).fold(mix(seed), |sum, word| mix(sum ^ word))
}

/// Spreads the bits of a number over all of it (the finaliser of SplitMix64, a bijection).
pub(super) fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let slot = |level: u8| Slot { kind: Kind::Word, v6: true, level, value: u64::MAX - 7, key: u128::MAX >> level };
        Page { slots: (0..15).map(slot).collect(), passed: 3 }
    }

    #[test]
    fn a_page_survives_the_file() {
        let bytes = page().encode(7, 9);
        assert_eq!(bytes.len(), PAGE_BYTES);
        let back = Page::decode(&bytes, 7, 9).unwrap();
        assert_eq!((back.slots, back.passed), (page().slots, 3));
    }

    #[test]
    fn any_flipped_bit_and_any_other_place_is_noticed() {
        let good = page().encode(7, 9);
        for bit in 0..PAGE_BYTES * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Page::decode(&bad, 7, 9).is_none(), "bit {bit}");
        }
        assert!(Page::decode(&good, 8, 9).is_none());
        assert!(Page::decode(&good, 7, 8).is_none());
        assert!(Page::decode(&good[..511], 7, 9).is_none());
        assert!(Page::decode(&[0; PAGE_BYTES], 7, 9).is_none());
    }
}
