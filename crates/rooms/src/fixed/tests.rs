//! Compares with `f64`, whose functions are exact to 2⁻⁵² here, and pins the bits, which must be the same everywhere.

use std::{
    f64::consts::{PI, TAU},
    ops::Neg as _,
};

use proptest::prelude::*;

use super::*;

const STEP: f64 = 1.0 / 4_294_967_296.0;

fn float(fixed: Fixed) -> f64 {
    fixed.0 as f64 * STEP
}

fn radians_of(angle: Angle) -> f64 {
    f64::from(angle.0) * STEP * TAU
}

fn check_sine(angle: Angle) {
    let (sine, cosine) = (float(angle.sin()), float(angle.cos()));
    assert!((sine - radians_of(angle).sin()).abs() <= STEP, "sin {angle:?}: {sine}");
    assert!((cosine - radians_of(angle).cos()).abs() <= STEP, "cos {angle:?}: {cosine}");
}

/// The difference between an angle and the one that `f64` computes, in steps.
fn atan_error(x: f64, y: f64, angle: Angle) -> f64 {
    let error = (f64::from(angle.0) - y.atan2(x) / TAU / STEP).abs() % 4_294_967_296.0;
    error.min(4_294_967_296.0 - error)
}

#[test]
fn sines_are_exact_to_a_step_over_the_whole_turn() {
    // Two million irregularly spaced angles, and each border of an octant with its neighbours.
    for number in 0..2_000_000_u32 {
        check_sine(Angle(number.wrapping_mul(2_654_435_761)));
    }
    for octant in 0..8_u32 {
        for near in 0..1_000 {
            check_sine(Angle((octant * OCTANT).wrapping_add(near)));
            check_sine(Angle((octant * OCTANT).wrapping_sub(near)));
        }
    }
    let corners = [0, 90, 180, 270].map(|degrees| (Angle::degrees(degrees).cos(), Angle::degrees(degrees).sin()));
    let (one, zero) = (Fixed::ONE, Fixed::ZERO);
    assert_eq!(corners, [(one, zero), (zero, one), (-one, zero), (zero, -one)]);
}

#[test]
fn directions_are_exact_to_a_step_over_the_whole_turn() {
    for number in 0..1_000_000_u32 {
        let angle = Angle(number.wrapping_mul(2_654_435_761));
        let (x, y) = (radians_of(angle).cos() * 1e9, radians_of(angle).sin() * 1e9);
        let found = Angle::of(Fixed((x / STEP) as i64), Fixed((y / STEP) as i64));
        assert!(angle.to(found).abs() <= 1, "{angle:?} {found:?}");
    }
    for (x, y, degrees) in [(1, 0, 0), (1, 1, 45), (0, 1, 90), (-1, 1, 135), (-1, 0, 180), (-1, -1, 225), (0, -1, 270)]
    {
        assert_eq!(Angle::of(x.into(), y.into()), Angle::degrees(degrees), "{x} {y}");
    }
    assert_eq!(Angle::of(Fixed::ZERO, Fixed::ZERO), Angle(0));
    let from = Position { x: 67_108_863, y: 0 };
    assert_eq!(Angle::between(from, Position { x: 0, y: 67_108_863 }), Angle::degrees(135));
    for bits in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
        for other in [i64::MIN, -1, 0, 1, i64::MAX] {
            let angle = Angle::of(Fixed(bits), Fixed(other));
            if (bits, other) != (0, 0) {
                assert!(atan_error(bits as f64, other as f64, angle) <= 1.0, "{bits} {other} {angle:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn directions_of_arbitrary_vectors_are_exact(x in any::<i64>(), y in any::<i64>(), shift in 0..63_u32) {
        let (x, y) = (x >> shift, y >> ((62 - shift) / 2));
        prop_assume!((x, y) != (0, 0));
        let angle = Angle::of(Fixed(x), Fixed(y));
        prop_assert!(atan_error(x as f64, y as f64, angle) <= 1.0, "{} {} {:?}", x, y, angle);
        prop_assert_eq!(Angle::of(Fixed(x), Fixed(y).neg()).0.wrapping_add(angle.0), 0);
    }

    #[test]
    fn arithmetic_equals_that_of_wider_integers(a in any::<i64>(), b in any::<i64>(), shift in 0..64_u32) {
        let (a, b) = (a >> (shift / 2), b.checked_shr(shift).unwrap_or(0));
        let bounded = |bits: i128| Fixed(i64::try_from(bits.clamp(i64::MIN.into(), i64::MAX.into())).expect("bounded"));
        let (wide, other) = (i128::from(a), i128::from(b));
        prop_assert_eq!(Fixed(a) + Fixed(b), bounded(wide + other));
        prop_assert_eq!(Fixed(a) - Fixed(b), bounded(wide - other));
        prop_assert_eq!(Fixed(a) * Fixed(b), bounded((wide * other).div_euclid(ONE.into())));
        prop_assert_eq!(-Fixed(a), bounded(-wide));
        if b != 0 {
            // Off by at most half a step.
            let quotient = i128::from((Fixed(a) / Fixed(b)).0);
            let is_bounded = quotient == i64::MAX.into() || quotient == i64::MIN.into();
            let rest = (wide * i128::from(ONE) - quotient * other).abs();
            prop_assert!(is_bounded || rest * 2 <= other.abs(), "{} / {} = {}", a, b, quotient);
        }
        prop_assert_eq!(i128::from(Fixed(a).floor()), wide.div_euclid(ONE.into()));
    }

    #[test]
    fn roots_are_the_largest_that_fit(bits in 0..=i64::MAX, shift in 0..63_u32, other in any::<i64>()) {
        let square = bits >> shift;
        let root = i128::from(Fixed(square).sqrt().0);
        let wide = i128::from(square) << 32;
        prop_assert!(root * root <= wide && (root + 1) * (root + 1) > wide);
        let (x, y) = (bits >> shift, other >> (shift + 1).min(63));
        let length = i128::from(Fixed::hypot(Fixed(x), Fixed(y)).0);
        let sum = i128::from(x).pow(2) + i128::from(y).pow(2);
        prop_assert!(length == i64::MAX.into() || length * length <= sum && (length + 1) * (length + 1) > sum);
    }
}

#[test]
fn undefined_results_saturate() {
    let [one, zero] = [Fixed::ONE, Fixed::ZERO];
    assert_eq!([one / zero, -one / zero, zero / zero], [Fixed::MAX, Fixed::MIN, zero]);
    assert_eq!([Fixed::ratio(3, 0), Fixed::ratio(-3, 0), Fixed::ratio(0, 0)], [Fixed::MAX, Fixed::MIN, zero]);
    assert_eq!(
        [Fixed::MAX * Fixed::MAX, Fixed::MIN * Fixed::MAX, Fixed::MIN * Fixed::MIN],
        [Fixed::MAX, Fixed::MIN, Fixed::MAX]
    );
    assert_eq!([-Fixed::MIN, Fixed::MIN.abs(), Fixed::MIN / -one], [Fixed::MAX; 3]);
    assert_eq!([Fixed::MIN.sqrt(), (-one).sqrt(), Fixed::hypot(Fixed::MIN, Fixed::MIN)], [zero, zero, Fixed::MAX]);
    assert_eq!((Fixed::MAX.round(), Fixed::MIN.round(), Fixed::MIN.floor()), (i32::MAX, i32::MIN, i32::MIN));
}

#[test]
fn numbers_are_rounded_and_displayed() {
    let of = |n, d| Fixed::ratio(n, d);
    assert_eq!([of(7, 2), of(-7, 2), of(1, 3)].map(Fixed::floor), [3, -4, 0]);
    assert_eq!([of(7, 2), of(-7, 2), of(10, 3), of(-10, 3)].map(Fixed::round), [4, -3, 3, -3]);
    assert_eq!(
        [of(1, 3), of(-1, 3), of(1, -3), of(-2, -3)].map(Fixed::to_bits),
        [1_431_655_765, -1_431_655_765, -1_431_655_765, 2_863_311_531]
    );
    assert_eq!(
        [of(7, 2), of(-7, 2), of(-1, 8), Fixed::MIN].map(|fixed| fixed.to_string()),
        ["3.500000", "-3.500000", "-0.125000", "-2147483648.000000"]
    );
}

#[test]
fn angles_turn_the_shorter_way() {
    let degrees = Angle::degrees;
    assert_eq!((degrees(350).to(degrees(10)), degrees(10).to(degrees(350))), (238_609_295, -238_609_295));
    assert_eq!((degrees(-90), degrees(i32::MIN), degrees(450)), (degrees(270), degrees(232), Angle::QUARTER));
    assert_eq!(degrees(270) + degrees(180) - degrees(45), degrees(45));
}

#[test]
fn the_bits_are_the_same_in_every_build() {
    let mut hash = 0_u64;
    let mut take_in =
        |bits: i64| hash = (hash ^ bits.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
    for number in 0..50_000_u32 {
        let angle = Angle(number.wrapping_mul(2_654_435_761));
        let (x, y) = (angle.cos(), angle.sin());
        let distance = Fixed::hypot(x * Fixed::from(number.cast_signed()), y);
        for fixed in [x, y, distance, distance.sqrt(), x / distance, x * y] {
            take_in(fixed.to_bits());
        }
        take_in(Angle::of(x, y).to_bits().into());
    }
    assert_eq!(hash, 0xd842_dec3_3588_54ed, "{hash:#x}");
    assert!((float(Fixed::ratio(355, 113)) - PI).abs() < 1e-6);
}

#[test]
fn the_next_whole_number_above_is_found() {
    for (number, above) in
        [(Fixed::ratio(5, 2), 3), (Fixed::from(2), 2), (Fixed::ratio(-5, 2), -2), (Fixed::MAX, i32::MAX)]
    {
        assert_eq!(number.ceil(), above, "{number}");
    }
    assert_eq!(Fixed::MIN.ceil(), i32::MIN);
}

#[test]
fn a_turn_takes_the_shorter_way_and_stops_at_its_target() {
    let at = Angle::degrees;
    for (from, to, at_most, result) in [
        (at(0), at(90), at(30), at(30)),
        (at(0), at(-90), at(30), at(-30)),
        (at(80), at(90), at(30), at(90)),
        (at(90), at(90), at(0), at(90)),
        (at(10), Angle::from_bits(0), Angle::HALF, at(0)),
        (at(0), Angle::HALF, Angle::from_bits(u32::MAX), Angle::HALF),
    ] {
        let turned = from.turned_towards(to, at_most);
        // Degrees are rounded down to a step.
        assert!(turned.to(result).abs() <= 1, "{from:?} {to:?} {at_most:?}: {turned:?}");
    }
    assert_eq!(-Angle::QUARTER, Angle::degrees(270));
}

#[test]
fn assignment_operators_equal_the_operators() {
    let mut number = Fixed::ratio(5, 2);
    number *= Fixed::from(4);
    number /= Fixed::from(5);
    assert_eq!(number, Fixed::from(2));
}
