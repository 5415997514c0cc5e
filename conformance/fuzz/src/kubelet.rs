//! Quantities in a pod's annotations, which a kubelet reads.

use crate::hold;
use pods::quantity::Quantity;

/// The quantities of bandwidth annotations.
pub fn quantity(data: &[u8]) {
    let text = &*hold::text(data);
    let value = |text: &str| Quantity::parse(text).map(|quantity| quantity.value());
    match value(text) {
        Ok(whole) => {
            let (sign, unsigned) = match text.strip_prefix('-') {
                Some(unsigned) => (-1, unsigned),
                None => (1, text.strip_prefix('+').unwrap_or(text)),
            };
            assert_eq!(value(&format!("-{unsigned}")), Ok(-sign * whole), "the other sign");
            assert_eq!(value(&format!("0{unsigned}")), value(unsigned), "a zero more in front");
            if let Some(exact) = exact(unsigned) {
                assert_eq!(i128::from(sign * whole), exact, "{text:?}");
            }
        }
        Err(error) => is_one_line(&error.to_string()),
    }
}

/// The value where machine integers suffice: few digits, and no exponent. Fractions are rounded up.
fn exact(unsigned: &str) -> Option<i128> {
    let split = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() > 12 {
        return None;
    }
    let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let mut divisor = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let factor = match suffix {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "m" => {
            divisor *= 1_000;
            1
        }
        _ => return None,
    };
    let product = digits * factor;
    Some((product / divisor + i128::from(product % divisor > 0)).min(i128::from(i64::MAX)))
}

fn is_one_line(text: &str) {
    assert!(!text.is_empty() && !text.contains(['\n', '\r']), "{text:?} is not one line");
}
