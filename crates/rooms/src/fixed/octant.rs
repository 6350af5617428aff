//! Sines and directions within an eighth of a turn, computed with integers.

use super::{Angle, FRACTION_BITS};

/// An eighth of a turn.
pub(super) const OCTANT: u32 = 1 << 29;
/// Bits of the fraction in the computations below, whose numbers are below 8.
const FINE_BITS: u32 = 60;
const FINE_ONE: i64 = 1 << FINE_BITS;
/// π / 4, and 2⁶² / 2π.
const QUARTER_PI: i64 = 905_502_432_259_640_355;
const STEPS_PER_RADIAN: i64 = 733_972_625_820_500_307;
/// The tangent of a sixteenth of a turn.
const TAN_OF_SIXTEENTH: i64 = 477_555_723_559_750_801;

const fn multiply(one: i64, other: i64) -> i64 {
    ((one as i128 * other as i128) >> FINE_BITS) as i64
}

const fn radians(steps: u32) -> i64 {
    ((steps as i128 * QUARTER_PI as i128) >> OCTANT.trailing_zeros()) as i64
}

const fn to_fixed(fine: i64) -> i64 {
    let dropped = FINE_BITS - FRACTION_BITS;
    (fine + (1 << (dropped - 1))) >> dropped
}

/// The Taylor series, from the last factor to the first: the error is less than 2⁻⁵⁰.
pub(super) const fn sin_of_octant(steps: u32) -> i64 {
    let x = radians(steps);
    let square = multiply(x, x);
    let mut sum = FINE_ONE;
    let mut n = 14;
    while n > 0 {
        sum = FINE_ONE - multiply(square, sum) / (n * (n + 1));
        n -= 2;
    }
    to_fixed(multiply(x, sum))
}

pub(super) const fn cos_of_octant(steps: u32) -> i64 {
    let x = radians(steps);
    let square = multiply(x, x);
    let mut sum = FINE_ONE;
    let mut n = 15;
    while n > 0 {
        sum = FINE_ONE - multiply(square, sum) / (n * (n + 1));
        n -= 2;
    }
    to_fixed(sum)
}

pub(super) const fn atan2(y: i64, x: i64) -> Angle {
    let (width, height) = (x.unsigned_abs(), y.unsigned_abs());
    if width == 0 && height == 0 {
        return Angle(0);
    }
    let (short, long) = if height <= width { (height, width) } else { (width, height) };
    let steps = atan_of_octant((((short as u128) << FINE_BITS) / long as u128) as i64);
    let first = if height <= width { steps } else { Angle::QUARTER.0 - steps };
    let upper = if x >= 0 { first } else { Angle::HALF.0 - first };
    Angle(if y >= 0 { upper } else { upper.wrapping_neg() })
}

/// The arc tangent of a number from 0 to 1, in steps.
const fn atan_of_octant(tangent: i64) -> u32 {
    let (offset, tangent) = if tangent <= TAN_OF_SIXTEENTH {
        (0, tangent)
    } else {
        // atan(t) = π / 4 + atan((t - 1) / (t + 1))
        let turned = (((tangent - FINE_ONE) as i128) << FINE_BITS) / (tangent + FINE_ONE) as i128;
        (QUARTER_PI, turned as i64)
    };
    // The Taylor series: the first omitted term is less than 2⁻³⁷.
    let square = multiply(tangent, tangent);
    let mut sum = 0;
    let mut n = 27;
    while n > 0 {
        sum = FINE_ONE / n - multiply(square, sum);
        n -= 2;
    }
    let steps = (offset + multiply(tangent, sum)) as i128 * STEPS_PER_RADIAN as i128;
    // 2⁶⁰ for the fraction of the angle, 2³⁰ for that of the factor.
    ((steps + (1 << 89)) >> 90).cast_unsigned() as u32
}
