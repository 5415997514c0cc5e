//! Quantities in Kubernetes' notation: `10M`, `1.5Gi`, `3e6`. Exact: no floating point.

/// An invalid quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no quantity: {reason}")]
pub struct QuantityError {
    /// The text.
    pub text: String,
    /// The rule that it breaks.
    pub reason: QuantityRule,
}

/// The rules of the grammar (`apimachinery/pkg/api/resource`: `<number><suffix>`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityRule {
    /// There is no digit.
    #[error("it has to start with a number, such as 10 or 1.5")]
    Number,
    /// There are more digits than `DIGITS_MAX`.
    #[error("it may have 18 digits")]
    Digits,
    /// The text after the number is no suffix.
    #[error("after the number come nothing, n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e3")]
    Suffix,
    /// The text after `e` or `E` is no whole number.
    #[error("after e or E comes a whole number")]
    Exponent,
}

/// As many digits, times the largest power of two, fit into 128 bits.
const DIGITS_MAX: usize = 18;

/// The factor of the suffix.
enum Factor {
    TenTo(i64),
    TwoTo(u32),
}

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
///
/// # Errors
/// The rule that the text breaks.
pub fn parse(text: &str) -> Result<i64, QuantityError> {
    read(text).map_err(|reason| QuantityError { text: text.to_owned(), reason })
}

fn read(text: &str) -> Result<i64, QuantityRule> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let suffix_at = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(suffix_at);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    // A second point is not a digit either.
    if digits.is_empty() || fraction.contains('.') {
        return Err(QuantityRule::Number);
    }
    let significant = digits.trim_start_matches('0');
    if significant.len() > DIGITS_MAX {
        return Err(QuantityRule::Digits);
    }
    let number: i128 = if significant.is_empty() { 0 } else { significant.parse().unwrap_or(i128::MAX) };
    let (number, tens) = match factor(suffix)? {
        Factor::TenTo(exponent) => (number, exponent),
        Factor::TwoTo(exponent) => (number << exponent, 0),
    };
    let tens = tens.saturating_sub(i64::try_from(fraction.len()).unwrap_or(i64::MAX));
    let power = u32::try_from(tens.unsigned_abs()).ok().and_then(|tens| 10_i128.checked_pow(tens));
    let value = match power {
        _ if number == 0 => 0,
        Some(power) if tens >= 0 => number.saturating_mul(power),
        Some(power) => number / power + i128::from(number % power > 0),
        None if tens >= 0 => i128::MAX,
        None => 1,
    };
    Ok(sign * i64::try_from(value).unwrap_or(i64::MAX))
}

fn factor(suffix: &str) -> Result<Factor, QuantityRule> {
    Ok(match suffix {
        "" => Factor::TenTo(0),
        "n" => Factor::TenTo(-9),
        "u" => Factor::TenTo(-6),
        "m" => Factor::TenTo(-3),
        "k" => Factor::TenTo(3),
        "M" => Factor::TenTo(6),
        "G" => Factor::TenTo(9),
        "T" => Factor::TenTo(12),
        "P" => Factor::TenTo(15),
        "E" => Factor::TenTo(18),
        "Ki" => Factor::TwoTo(10),
        "Mi" => Factor::TwoTo(20),
        "Gi" => Factor::TwoTo(30),
        "Ti" => Factor::TwoTo(40),
        "Pi" => Factor::TwoTo(50),
        "Ei" => Factor::TwoTo(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).ok_or(QuantityRule::Suffix)?;
            let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
            if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(QuantityRule::Exponent);
            }
            // More digits than fit have one of two results: zero or the maximum.
            let most = if exponent.starts_with('-') { i64::from(i32::MIN) } else { i64::from(i32::MAX) };
            Factor::TenTo(exponent.parse::<i32>().map_or(most, i64::from))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(texts: &str, expected: &Expect) {
        let text = texts.split_whitespace().map(|text| match parse(text) {
            Ok(value) => format!("{text} = {value}\n"),
            Err(error) => format!("{text}: {}\n", error.reason),
        });
        expected.assert_eq(&text.collect::<String>());
    }

    #[test]
    fn suffixes_multiply() {
        check(
            "0 12 +12 -12 1k 1M 1G 1T 1P 1E 1Ki 1Mi 1Gi 1Ti 1Pi 1Ei 3e3 3E3 12e-1 1500e+1 007k",
            &expect![[r#"
                0 = 0
                12 = 12
                +12 = 12
                -12 = -12
                1k = 1000
                1M = 1000000
                1G = 1000000000
                1T = 1000000000000
                1P = 1000000000000000
                1E = 1000000000000000000
                1Ki = 1024
                1Mi = 1048576
                1Gi = 1073741824
                1Ti = 1099511627776
                1Pi = 1125899906842624
                1Ei = 1152921504606846976
                3e3 = 3000
                3E3 = 3000
                12e-1 = 2
                1500e+1 = 15000
                007k = 7000
            "#]],
        );
    }

    #[test]
    fn fractions_round_away_from_zero_and_nothing_is_lost_before() {
        check(
            "1.5k 1. .5 -.5 100m 1n 999999u 1000000u 0.1Ki 1.00000000000000001 -1.1 0.0 0n 4.6566128730773926e9 \
             0.30000000000000001Mi",
            &expect![[r#"
                1.5k = 1500
                1. = 1
                .5 = 1
                -.5 = -1
                100m = 1
                1n = 1
                999999u = 1
                1000000u = 1
                0.1Ki = 103
                1.00000000000000001 = 2
                -1.1 = -2
                0.0 = 0
                0n = 0
                4.6566128730773926e9 = 4656612874
                0.30000000000000001Mi = 314573
            "#]],
        );
    }

    #[test]
    fn what_does_not_fit_is_the_most_that_does() {
        check(
            "922337203685477580e1 922337203685477581e1 -922337203685477581e1 8Ei 999999999999999999Ei 1e99 0e99999999999 \
             1e99999999999 1e-99999999999 000000000000000000000000000001k",
            &expect![[r#"
                922337203685477580e1 = 9223372036854775800
                922337203685477581e1 = 9223372036854775807
                -922337203685477581e1 = -9223372036854775807
                8Ei = 9223372036854775807
                999999999999999999Ei = 9223372036854775807
                1e99 = 9223372036854775807
                0e99999999999 = 0
                1e99999999999 = 9223372036854775807
                1e-99999999999 = 1
                000000000000000000000000000001k = 1000
            "#]],
        );
    }

    #[test]
    fn what_is_no_quantity_says_which_rule_it_breaks() {
        check(
            ". - + k 1.2.3 1x 1K 1kb 1ki 1e 1e+ 1e1.5 1e1k 1_000 ١ 1.5.Gi 1234567890123456789",
            &expect![[r#"
                .: it has to start with a number, such as 10 or 1.5
                -: it has to start with a number, such as 10 or 1.5
                +: it has to start with a number, such as 10 or 1.5
                k: it has to start with a number, such as 10 or 1.5
                1.2.3: it has to start with a number, such as 10 or 1.5
                1x: after the number come nothing, n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e3
                1K: after the number come nothing, n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e3
                1kb: after the number come nothing, n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e3
                1ki: after the number come nothing, n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e3
                1e: after e or E comes a whole number
                1e+: after e or E comes a whole number
                1e1.5: after e or E comes a whole number
                1e1k: after e or E comes a whole number
                1_000: after the number come nothing, n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e3
                ١: it has to start with a number, such as 10 or 1.5
                1.5.Gi: it has to start with a number, such as 10 or 1.5
                1234567890123456789: it may have 18 digits
            "#]],
        );
        assert_eq!(
            parse("").unwrap_err().to_string(),
            r#""" is no quantity: it has to start with a number, such as 10 or 1.5"#
        );
    }
}
