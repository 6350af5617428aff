//! Compares decimal numbers as text, digit by digit: exact for any length.

use std::cmp::Ordering;

/// Maximum length of a number, as in Centrifugo.
const BYTES_MAX: usize = 200;
/// Maximum number of fraction digits, as in Centrifugo.
const FRACTION_DIGITS_MAX: usize = 19;

/// A number without leading zeros and without zeros at the end of the fraction.
struct Number<'a> {
    is_negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
}

/// Compares `one` to `other`; `None` if either is not a number such as `-12.50`.
pub(super) fn compare(one: &str, other: &str) -> Option<Ordering> {
    let (one, other) = (Number::read(one)?, Number::read(other)?);
    let sizes = || one.whole.len().cmp(&other.whole.len()).then_with(|| one.whole.cmp(other.whole));
    let size = || sizes().then_with(|| one.fraction.cmp(other.fraction));
    Some(match (one.is_negative, other.is_negative) {
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
        (false, false) => size(),
        (true, true) => size().reverse(),
    })
}

impl<'a> Number<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() > BYTES_MAX {
            return None;
        }
        let (is_negative, digits) = match bytes {
            [b'-', digits @ ..] => (true, digits),
            [b'+', digits @ ..] | digits => (false, digits),
        };
        let (whole, fraction) = match memchr::memchr(b'.', digits) {
            Some(point) => (&digits[..point], Some(&digits[point + 1..])),
            None => (digits, None),
        };
        let are_digits = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let is_number = are_digits(whole)
            && fraction.is_none_or(|fraction| are_digits(fraction) && fraction.len() <= FRACTION_DIGITS_MAX);
        if !is_number {
            return None;
        }
        let fraction = fraction.unwrap_or_default();
        let whole = &whole[whole.iter().take_while(|digit| **digit == b'0').count()..];
        let zeros = fraction.iter().rev().take_while(|digit| **digit == b'0').count();
        let fraction = &fraction[..fraction.len() - zeros];
        Some(Self { is_negative: is_negative && !(whole.is_empty() && fraction.is_empty()), whole, fraction })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_numbers_is_limited() {
        let equal = |text: &str| compare(text, text) == Some(Ordering::Equal);
        let whole = |digits: usize| "7".repeat(digits);
        assert!(equal(&whole(BYTES_MAX)) && !equal(&whole(BYTES_MAX + 1)));
        let fraction = |digits: usize| format!("0.{}", "7".repeat(digits));
        assert!(equal(&fraction(FRACTION_DIGITS_MAX)) && !equal(&fraction(FRACTION_DIGITS_MAX + 1)));
    }

    #[test]
    fn negative_zero_equals_zero() {
        assert_eq!(compare("-0.0", "0"), Some(Ordering::Equal));
        assert_eq!(compare("-0.5", "0.5"), Some(Ordering::Less));
        assert_eq!(compare("-5", "5"), Some(Ordering::Less));
    }
}
