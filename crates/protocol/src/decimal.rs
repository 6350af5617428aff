//! Formats numbers without an allocation.

/// A number written in decimal digits.
pub struct Decimal {
    digits: [u8; DIGITS_MAX],
    start: usize,
}

/// `u64::MAX` has this many digits.
const DIGITS_MAX: usize = 20;

impl Decimal {
    /// Writes `number`.
    pub fn new(mut number: u64) -> Self {
        let mut decimal = Self { digits: [b'0'; DIGITS_MAX], start: DIGITS_MAX };
        loop {
            decimal.start -= 1;
            decimal.digits[decimal.start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return decimal;
            }
        }
    }

    /// The digits.
    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start..]
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Decimal;

    #[test]
    fn decimals_match_the_standard_formatter() {
        for number in (0..=20).map(|power| 10_u64.saturating_pow(power)).flat_map(|number| [number - 1, number]) {
            assert_eq!(Decimal::new(number).as_str(), number.to_string());
        }
    }
}
