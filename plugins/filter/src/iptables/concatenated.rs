//! Elements of sets whose key has several fields, spelled as comparisons field by field.

use netops::nft::{Base, Cmp, ElementInfo, Expr, Meta, Register};

use super::sets::prefixes;

/// A field of a key: the register that a rule loads it to, its place in the key, and its bytes.
struct Field {
    to: Register,
    start: usize,
    bytes: usize,
    is_address: bool,
}

/// The comparisons for each element, a rule each; `None`: the rule loads one field, or one that cannot be spelled.
pub(super) fn spelled(
    loads: &[Expr],
    from: Register,
    elements: &[ElementInfo],
    is_map: bool,
) -> Option<Vec<Vec<Expr>>> {
    let first = loads.iter().rposition(|expr| loaded(expr).is_some_and(|(to, ..)| to == from))?;
    let fields: Vec<Field> = loads.get(first..)?.iter().filter_map(|expr| field(expr, from)).collect();
    let bytes = fields.last().map(|field| (field.start + field.bytes).next_multiple_of(4))?;
    if fields.len() < 2 || elements.iter().any(|element| element.key.len() != bytes) {
        return None;
    }
    let mut rules = Vec::new();
    for element in elements {
        let mut alternatives: Vec<Vec<Expr>> = vec![Vec::new()];
        for field in &fields {
            let range = field.start..field.start + field.bytes;
            let low = element.key.get(range.clone())?;
            let high = element.key_end.as_ref().map_or(Some(low), |end| end.get(range))?;
            let compared = field.compare(low, high)?;
            let with =
                |rule: &Vec<Expr>| compared.iter().map(|more| [rule.as_slice(), more].concat()).collect::<Vec<_>>();
            alternatives = alternatives.iter().flat_map(with).collect();
        }
        let verdict = element.verdict.clone().map(Expr::Verdict);
        if verdict.is_some() != is_map {
            return None;
        }
        rules.extend(alternatives.into_iter().map(|rule| rule.into_iter().chain(verdict.clone()).collect::<Vec<_>>()));
    }
    (rules.len() <= super::sets::ELEMENTS_MAX).then_some(rules)
}

/// The register, the number of bytes, and whether they are an address.
fn loaded(expr: &Expr) -> Option<(Register, usize, bool)> {
    match expr {
        Expr::Meta(Meta::IifName | Meta::OifName, to) => Some((*to, 16, false)),
        Expr::Meta(Meta::L4Proto | Meta::NfProto, to) => Some((*to, 1, false)),
        Expr::Meta(Meta::Mark, to) => Some((*to, 4, false)),
        Expr::Payload { base, length, to, .. } => {
            let bytes = usize::try_from(*length).ok()?;
            Some((*to, bytes, *base == Base::Network && matches!(bytes, 4 | 16)))
        }
        _ => None,
    }
}

fn field(expr: &Expr, from: Register) -> Option<Field> {
    let (to, bytes, is_address) = loaded(expr)?;
    let start = to.offset_bytes()?.checked_sub(from.offset_bytes()?)?;
    Some(Field { to, start, bytes, is_address })
}

impl Field {
    /// Comparisons that are true for the values from `low` to `high`, each by itself.
    fn compare(&self, low: &[u8], high: &[u8]) -> Option<Vec<Vec<Expr>>> {
        let equal = |key: &[u8]| Expr::Cmp(Cmp::Eq, self.to, key.to_vec());
        if low == high {
            return Some(vec![vec![equal(low)]]);
        }
        let is_all = low.iter().all(|byte| *byte == 0) && high.iter().all(|byte| *byte == 0xff);
        if is_all {
            return Some(vec![Vec::new()]);
        }
        if !self.is_address {
            return None;
        }
        let number = |key: &[u8]| key.iter().fold(0_u128, |all, byte| all << 8 | u128::from(*byte));
        let width = u32::try_from(self.bytes * 8).ok()?;
        let key = |number: u128| number.to_be_bytes().into_iter().skip(16 - self.bytes).collect::<Vec<u8>>();
        let highest = u128::MAX >> (128 - width);
        let compare = |(network, length): (u128, u32)| {
            let mask = highest.checked_shl(width - length).unwrap_or(0) & highest;
            if length == width {
                vec![equal(&key(network))]
            } else {
                vec![Expr::Mask(self.to, key(mask)), equal(&key(network))]
            }
        };
        Some(prefixes(number(low), number(high), width).into_iter().map(compare).collect())
    }
}
