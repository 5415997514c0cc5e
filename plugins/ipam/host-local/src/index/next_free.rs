//! The taken addresses, as a trie of 64-bit words: finds the next free one after any address, at a cost that depends
//! neither on the range's size nor on how many addresses in a row are taken.
//!
//! A bit of a word at level 0 is an address: set if taken. A bit at level n + 1 is a word at level n: set if *that
//! word is full*. A word of zeros is not stored. So words above level 0 exist only over full ones, 64 times fewer
//! a level, and with r reservations in the store no search climbs higher than log64(r) + 1 levels.

use super::page::{Kind, Slot};
use super::table::{Damaged, Table, word_home};
use crate::address::{Address, Family};
use crate::range::Span;

const FULL: u64 = u64::MAX;
/// Six bits of the address select the bit in a word.
const BITS: u32 = 6;

fn find(table: &mut Table, v6: bool, level: u8, prefix: u128) -> Result<Option<Slot>, Damaged> {
    let wanted = |slot: &Slot| slot.kind == Kind::Word && slot.v6 == v6 && slot.level == level && slot.key == prefix;
    Ok(table.list(word_home(v6, level, prefix), wanted)?.first().copied())
}

fn word(table: &mut Table, v6: bool, level: u8, prefix: u128) -> Result<u64, Damaged> {
    Ok(find(table, v6, level, prefix)?.map_or(0, |slot| slot.value))
}

fn bit_of(place: u128) -> u64 {
    1 << (place & 63)
}

pub(super) fn take(table: &mut Table, address: Address) -> Result<(), Damaged> {
    set(table, address, true)
}

pub(super) fn give_back(table: &mut Table, address: Address) -> Result<(), Damaged> {
    set(table, address, false)
}

/// Sets or clears the address's bit and, as long as a word became full or stopped being so, the one above.
fn set(table: &mut Table, address: Address, taken: bool) -> Result<(), Damaged> {
    let v6 = address.family == Family::V6;
    let mut place = address.bits;
    for level in 0..=(128 / 6) {
        let old = find(table, v6, level, place >> BITS)?;
        let before = old.map_or(0, |slot| slot.value);
        let after = if taken { before | bit_of(place) } else { before & !bit_of(place) };
        match (old, after) {
            _ if before == after => return Ok(()),
            (Some(slot), 0) => table.remove(&slot)?,
            (Some(slot), _) => table.set_word(&slot, after)?,
            (None, _) => {
                table.insert(Slot { kind: Kind::Word, v6, level, value: after, key: place >> BITS })?;
            }
        }
        if before != FULL && after != FULL {
            return Ok(());
        }
        place >>= BITS;
    }
    Ok(())
}

pub(super) fn next(table: &mut Table, span: Span) -> Result<Option<Address>, Damaged> {
    let v6 = span.first.family == Family::V6;
    let last = span.last.bits;
    let (mut level, mut place) = (0u8, span.first.bits);
    loop {
        // The word's part before the start counts as full.
        let open = !word(table, v6, level, place >> BITS)? & (FULL << (place & 63));
        if open != 0 {
            place = place & !63 | u128::from(open.trailing_zeros());
            break;
        }
        level += 1;
        place = (place >> BITS) + 1;
        let shift = BITS * u32::from(level);
        if shift >= u128::BITS || place > last >> shift {
            return Ok(None);
        }
    }
    // Down to the first address of the first word that is not full.
    while level > 0 {
        level -= 1;
        let free = (!word(table, v6, level, place)?).trailing_zeros();
        if free >= u64::BITS {
            return Err(Damaged); // the word above says that it is not full
        }
        place = place << BITS | u128::from(free);
    }
    Ok((place <= last).then_some(Address { bits: place, ..span.first }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn v6(bits: u128) -> Address {
        Address { family: Family::V6, bits }
    }

    fn slow(taken: &BTreeSet<u128>, first: u128, last: u128) -> Option<u128> {
        (first..=last).find(|bits| !taken.contains(bits))
    }

    #[test]
    fn a_long_run_is_passed_in_a_few_pages() {
        let mut table = Table::new(1, 1);
        let base = 0xfd00_u128 << 112;
        for bits in base..base + 70_000 {
            take(&mut table, v6(bits)).unwrap();
        }
        let span = Span { first: v6(base + 1), last: v6(base | u128::from(u64::MAX)) };
        assert_eq!(next(&mut table, span), Ok(Some(v6(base + 70_000))));
        give_back(&mut table, v6(base + 4096)).unwrap();
        assert_eq!(next(&mut table, span), Ok(Some(v6(base + 4096))));
        for bits in base..base + 70_000 {
            give_back(&mut table, v6(bits)).unwrap();
        }
        assert_eq!(table.entries, 0, "nothing is left of it");
    }

    #[test]
    fn both_ends_of_the_address_space_work() {
        let mut table = Table::new(1, 1);
        for bits in [0, u128::MAX, u128::MAX - 1] {
            take(&mut table, v6(bits)).unwrap();
        }
        assert_eq!(next(&mut table, Span { first: v6(0), last: v6(5) }), Ok(Some(v6(1))));
        let top = Span { first: v6(u128::MAX - 1), last: v6(u128::MAX) };
        assert_eq!(next(&mut table, top), Ok(None));
        let v4 = |bits| Address { family: Family::V4, bits };
        assert_eq!(next(&mut table, Span { first: v4(0), last: v4(5) }), Ok(Some(v4(0))), "families are apart");
    }

    proptest! {
        #[test]
        fn the_trie_agrees_with_a_set(
            steps in proptest::collection::vec((any::<bool>(), 0u128..5000, 0u128..400), 1..60),
            queries in proptest::collection::vec((0u128..5200, 0u128..600), 1..40),
        ) {
            let (mut table, mut taken) = (Table::new(3, 1), BTreeSet::new());
            for (add, start, length) in steps {
                for bits in start..start + length {
                    if add {
                        taken.insert(bits);
                        take(&mut table, v6(bits)).unwrap();
                    } else {
                        taken.remove(&bits);
                        give_back(&mut table, v6(bits)).unwrap();
                    }
                }
            }
            for (first, length) in queries {
                let span = Span { first: v6(first), last: v6(first + length) };
                prop_assert_eq!(next(&mut table, span).unwrap().map(|a| a.bits), slow(&taken, first, first + length));
            }
        }
    }
}
