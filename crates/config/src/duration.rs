//! Durations in Go's notation: `1h30m`, `2.5s`, `250ms`, `0`.

use std::{fmt, iter::Peekable, str::Bytes};

/// Go represents durations as nanoseconds in 64 bits: about 292 years.
const NANOS_MAX: u128 = i64::MAX as u128;

/// Why a text is not a duration. The message shows a valid one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotADuration {
    /// Not a sequence of numbers with units.
    Syntax,
    /// A number without a unit.
    Unit,
    /// Not a whole number of milliseconds.
    TooFine,
    /// More than 292 years.
    TooLong,
}

/// Parses a duration into milliseconds; the result is negative for text with a minus sign. The grammar is that of Go's
/// `time.ParseDuration`.
pub(super) fn parse_ms(text: &str) -> Result<i64, NotADuration> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    let mut bytes = rest.bytes().peekable();
    let mut nanos: u128 = 0;
    if bytes.peek().is_none() {
        return Err(NotADuration::Syntax);
    }
    while bytes.peek().is_some() {
        nanos += part(&mut bytes)?;
        if nanos > NANOS_MAX {
            return Err(NotADuration::TooLong);
        }
    }
    if !nanos.is_multiple_of(1_000_000) {
        return Err(NotADuration::TooFine);
    }
    let ms = i64::try_from(nanos / 1_000_000).map_err(|_| NotADuration::TooLong)?;
    Ok(if negative { -ms } else { ms })
}

/// Formats a duration in its shortest form: the inverse of [`parse_ms`].
pub(super) fn format_ms(ms: u64) -> String {
    match ms {
        0 => "0s".to_owned(),
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        _ if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
        _ => format!("{ms}ms"),
    }
}

/// One number and its unit, in nanoseconds.
fn part(bytes: &mut Peekable<Bytes<'_>>) -> Result<u128, NotADuration> {
    let mut digits = 0_usize;
    let mut whole: u128 = 0;
    while let Some(digit) = digit(bytes) {
        digits += 1;
        whole = whole
            .checked_mul(10)
            .and_then(|w| w.checked_add(digit))
            .filter(|w| *w <= NANOS_MAX)
            .ok_or(NotADuration::TooLong)?;
    }
    // The fraction is `numerator / 10^places`. Digits beyond 18 places are below a nanosecond in every unit.
    let (mut numerator, mut denominator): (u128, u128) = (0, 1);
    if bytes.next_if_eq(&b'.').is_some() {
        while let Some(digit) = digit(bytes) {
            digits += 1;
            if denominator < 1_000_000_000_000_000_000 {
                numerator = numerator * 10 + digit;
                denominator *= 10;
            }
        }
    }
    if digits == 0 {
        return Err(NotADuration::Syntax);
    }
    let unit = unit(bytes)?;
    Ok(whole * unit + numerator * unit / denominator)
}

fn digit(bytes: &mut Peekable<Bytes<'_>>) -> Option<u128> {
    bytes.next_if(u8::is_ascii_digit).map(|digit| u128::from(digit - b'0'))
}

/// Parses a unit and returns it in nanoseconds.
fn unit(bytes: &mut Peekable<Bytes<'_>>) -> Result<u128, NotADuration> {
    let mut name = Vec::with_capacity(3);
    while let Some(byte) = bytes.next_if(|byte| !byte.is_ascii_digit() && *byte != b'.') {
        if name.len() == 3 {
            return Err(NotADuration::Syntax);
        }
        name.push(byte);
    }
    match name.as_slice() {
        b"ns" => Ok(1),
        // The micro sign and the Greek letter.
        b"us" | b"\xc2\xb5s" | b"\xce\xbcs" => Ok(1_000),
        b"ms" => Ok(1_000_000),
        b"s" => Ok(1_000_000_000),
        b"m" => Ok(60_000_000_000),
        b"h" => Ok(3_600_000_000_000),
        b"" => Err(NotADuration::Unit),
        _ => Err(NotADuration::Syntax),
    }
}

impl fmt::Display for NotADuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax => "is not a duration; write one such as \"25s\", \"250ms\" or \"1h30m\"",
            Self::Unit => "has no unit; write a duration such as \"25s\", \"250ms\" or \"1h30m\"",
            Self::TooFine => "is not a whole number of milliseconds: write a duration such as \"250ms\"",
            Self::TooLong => "is too long: write at most 292 years",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, ms) in [
            ("0", 0),
            ("0s", 0),
            ("-0", 0),
            ("25s", 25_000),
            ("1000ms", 1_000),
            ("720h", 2_592_000_000),
            ("1h30m", 5_400_000),
            ("1h1h", 7_200_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("+2m", 120_000),
            ("-1s", -1_000),
            ("1000us", 1),
            ("1000µs", 1),
            ("1000μs", 1),
            ("1000000ns", 1),
            ("0.000000000000000000000000s", 0),
            ("292y", i64::MIN),
        ] {
            let read = parse_ms(text);
            if ms == i64::MIN {
                assert_eq!(read, Err(NotADuration::Syntax), "{text}");
            } else {
                assert_eq!(read, Ok(ms), "{text}");
            }
        }
    }

    #[test]
    fn an_invalid_duration_has_a_reason() {
        for (text, why) in [
            ("", NotADuration::Syntax),
            ("-", NotADuration::Syntax),
            (".", NotADuration::Syntax),
            (".s", NotADuration::Syntax),
            ("s", NotADuration::Syntax),
            ("ten seconds", NotADuration::Syntax),
            ("1d", NotADuration::Syntax),
            ("1s ", NotADuration::Syntax),
            ("1 s", NotADuration::Syntax),
            ("--1s", NotADuration::Syntax),
            ("25", NotADuration::Unit),
            ("1h30", NotADuration::Unit),
            ("1us", NotADuration::TooFine),
            ("0.1ms", NotADuration::TooFine),
            ("2562048h", NotADuration::TooLong),
            ("99999999999999999999999999999999999999999999s", NotADuration::TooLong),
        ] {
            assert_eq!(parse_ms(text), Err(why), "{text:?}");
        }
        assert!(parse_ms("2562047h").is_ok());
    }

    proptest! {
        #[test]
        fn durations_round_trip(ms in 0..=9_223_372_036_854_u64) {
            prop_assert_eq!(parse_ms(&format_ms(ms)), i64::try_from(ms).map_err(|_| NotADuration::TooLong));
        }

        #[test]
        fn no_text_panics(text in "[-+.0-9hmsunµ ]{0,40}") {
            let _ = parse_ms(&text);
        }
    }
}
