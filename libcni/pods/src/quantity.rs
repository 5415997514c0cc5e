//! Quantities in Kubernetes' notation (`apimachinery/pkg/api/resource`): `10M`, `1.5Gi`, `3e6`. Exact: no floating point.

/// A text that is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no quantity: want up to 18 digits, such as 10 or 1.5, then nothing, n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e3"
)]
pub struct QuantityError(pub String);

/// As many digits, times the largest power of two, fit into 128 bits.
const DIGITS_MAX: usize = 18;

/// Suffixes of decimal quantities with their powers of ten, and of binary ones with their powers of two.
const TENS: [(&str, i32); 10] =
    [("", 0), ("n", -9), ("u", -6), ("m", -3), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const TWOS: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// Parses a sign, a decimal number and a suffix as a whole number: fractions are rounded away from zero, and larger values
/// become the maximum, both as in Kubernetes.
///
/// ```
/// use pods::quantity::parse;
///
/// assert_eq!(parse("10M"), Ok(10_000_000));
/// assert_eq!(parse("1.5Ki"), Ok(1536));
/// assert_eq!(parse("100m"), Ok(1)); // a tenth: fractions round up
/// ```
/// Errors: the text is no quantity.
pub fn parse(text: &str) -> Result<i64, QuantityError> {
    read(text).ok_or_else(|| QuantityError(text.to_owned()))
}

fn read(text: &str) -> Option<i64> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let suffix_at = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(suffix_at);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let is_short = digits.trim_start_matches('0').len() <= DIGITS_MAX;
    // A second point is not a digit either.
    let number = digits.parse::<i128>().ok().filter(|_| is_short)?;
    let of = |exponent: &str| exponent.parse::<i32>().ok();
    let tens = TENS.iter().find(|(name, _)| *name == suffix).map(|(_, tens)| *tens);
    let twos = TWOS.iter().find(|(name, _)| *name == suffix).map(|(_, twos)| *twos);
    let tens = match (tens, twos) {
        (Some(tens), _) => tens,
        (None, Some(_)) => 0,
        (None, None) => suffix.strip_prefix(['e', 'E']).and_then(of)?,
    };
    let number = number << twos.unwrap_or_default();
    let tens = tens.saturating_sub(i32::try_from(fraction.len()).unwrap_or(i32::MAX));
    let value = match 10_i128.checked_pow(tens.unsigned_abs()) {
        _ if number == 0 => 0,
        Some(power) if tens >= 0 => number.saturating_mul(power),
        Some(power) => number / power + i128::from(number % power > 0),
        None if tens >= 0 => i128::MAX,
        None => 1,
    };
    Some(sign * i64::try_from(value).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn quantities_are_those_of_kubernetes() {
        const MOST: i64 = i64::MAX;
        for (text, value) in [
            // Suffixes multiply.
            ("0", 0),
            ("+12", 12),
            ("-12", -12),
            ("1k", 1000),
            ("1E", 1_000_000_000_000_000_000),
            ("1Ki", 1024),
            ("1Ei", 1_152_921_504_606_846_976),
            ("3E3", 3000),
            ("12e-1", 2),
            ("1500e+1", 15_000),
            ("007k", 7000),
            // Fractions round away from zero, and nothing is lost before.
            ("1.", 1),
            ("-.5", -1),
            ("100m", 1),
            ("1000000u", 1),
            ("0.1Ki", 103),
            ("1.00000000000000001", 2),
            ("4.6566128730773926e9", 4_656_612_874),
            ("0.30000000000000001Mi", 314_573),
            // What does not fit is the most that does.
            ("922337203685477580e1", 9_223_372_036_854_775_800),
            ("-922337203685477581e1", -MOST),
            ("8Ei", MOST),
            ("1e99", MOST),
            ("0e999999999", 0),
            ("1e-999999999", 1),
            ("000000000000000000000000000001k", 1000),
        ] {
            assert_eq!(parse(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        let texts = ". - + k 1.2.3 1x 1K 1kb 1ki 1e 1e+ 1e1.5 1e1k 1_000 ١ 1.5.Gi 1234567890123456789 1e99999999999";
        for text in texts.split(' ').chain([""]) {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("{text:?} is no quantity: want up to 18 digits")), "{error}");
        }
    }
}
