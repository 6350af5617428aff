use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Applies a patch as a client does, following the description of the format.
fn apply(old: &[u8], patch: &[u8]) -> Option<Vec<u8>> {
    let mut rest = patch;
    let mut number = |ends: &[u8]| {
        let length = rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && !b"_~".contains(byte))?;
        let value = rest[..length].iter().try_fold(0_u64, |value, digit| {
            let digit = match digit {
                b'0'..=b'9' => digit - b'0',
                b'A'..=b'Z' => digit - b'A' + 10,
                b'_' => 36,
                b'a'..=b'z' => digit - b'a' + 37,
                _ => 63,
            };
            value.checked_mul(64)?.checked_add(digit.into())
        })?;
        let end = rest[length];
        rest = &rest[length + 1..];
        let literal = if end == b':' { rest.get(..value as usize)? } else { &[] };
        rest = &rest[literal.len()..];
        ends.contains(&end).then_some((value as usize, end, literal))
    };
    let (length, ..) = number(b"\n")?;
    let mut new = Vec::new();
    loop {
        match number(b"@:;")? {
            (bytes, b'@', _) => {
                let (from, ..) = number(b",")?;
                new.extend_from_slice(old.get(from..from + bytes)?);
            }
            (_, b':', literal) => new.extend_from_slice(literal),
            (sum, ..) => {
                return (rest.is_empty() && new.len() == length && sum == checksum(&new) as usize).then_some(new);
            }
        }
    }
}

fn check(old: &[u8], new: &[u8]) -> Option<usize> {
    let patch = DeltaEncoder::default().patch(old, new)?;
    assert_eq!(apply(old, &patch).as_deref(), Some(new));
    assert!(patch.len() < new.len());
    assert!(str::from_utf8(new).is_err() || str::from_utf8(&patch).is_ok(), "a text's patch is a text");
    Some(patch.len())
}

#[test]
fn small_changes_give_small_patches() {
    let old = format!(r#"{{"symbol":"BTC","bids":[{}],"seq":1}}"#, "[101.25,3],".repeat(40));
    for (new, bytes_max) in [
        (old.replace("\"seq\":1}", "\"seq\":2}"), 20),
        (old.replace("BTC", "ETHEREUM"), 30),
        (old.replace("BTC", "ETH").replace("\"seq\":1}", "\"seq\":22}"), 30),
        (old.clone(), 15),
        (format!("[{old},{old}]"), 40),
        (old[old.len() / 2..].to_owned(), 20),
    ] {
        let patch_bytes = check(old.as_bytes(), new.as_bytes()).expect("a patch");
        assert!(patch_bytes <= bytes_max, "{patch_bytes} bytes for {new}");
    }
}

#[test]
fn patches_that_are_not_smaller_are_refused() {
    for (old, new) in [("", ""), ("", "a"), ("a", ""), ("1", "2"), ("abcdefgh", "12345678"), ("{}", r#"{"a":1}"#)] {
        assert_eq!(check(old.as_bytes(), new.as_bytes()), None, "{old:?} {new:?}");
    }
}

#[test]
fn patches_do_not_split_characters() {
    // € and 䂬 share their last bytes, and € and ₭ their first.
    let filler = "x".repeat(40);
    for (one, other) in [("€", "䂬"), ("€", "₭"), ("€", "é"), ("😀", "😁")] {
        let (old, new) = (format!("{filler}{one}{filler}"), format!("{filler}{other}{filler}"));
        assert!(check(old.as_bytes(), new.as_bytes()).is_some());
    }
}

#[test]
fn encoding_takes_linear_time() {
    // The worst case for a search by hash: all blocks of the old bytes and all positions of the new bytes have the same
    // hash, but no match is long enough to skip far.
    let old = |bytes: usize| b"a".repeat(bytes);
    let new = |bytes: usize| b"aaaaaaaaaaaaaaaaaaaaaaaab".repeat(bytes / 25);
    let work = |bytes: usize| {
        COMPARED.set(0);
        DeltaEncoder::default().patch(&old(bytes), &new(bytes));
        COMPARED.get()
    };
    let (small, large) = (work(10_000), work(100_000));
    assert!(small > 10_000, "{small} bytes compared");
    assert!(large <= small * 11, "{small} bytes compared, of ten times as many {large}");
    assert!(large <= 100_000 * 4 * TRIES_MAX, "{large} bytes compared");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn byte_patches_round_trip(old in vec(0..4_u8, 0..300), new in vec(0..4_u8, 0..300)) {
        check(&old, &new);
    }

    #[test]
    fn patches_of_edited_bytes_round_trip(old in vec(any::<u8>(), 0..400), cuts in vec((0..400_usize, 0..60_usize), 0..6)) {
        let mut new = Vec::new();
        for (at, bytes) in cuts {
            new.extend(old.iter().skip(at).take(bytes));
            new.push(7);
        }
        check(&old, &new);
    }

    #[test]
    fn text_patches_round_trip(parts in vec("[a-c€éö😀]{0,30}", 4..8), order in vec(0..4_usize, 0..12)) {
        let old = parts.concat();
        let new: String = order.iter().map(|part| parts[*part].as_str()).collect();
        check(old.as_bytes(), new.as_bytes());
    }
}
