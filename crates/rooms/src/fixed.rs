//! Numbers and angles that are the same on every machine and in every build, for the rules of games.
//!
//! Floating-point functions such as `sin` differ between machines and compilers, so that a recording of a game which uses
//! them does not replay. These use integers only, allocate nothing and never panic: a result that is out of range is the
//! nearest number that there is, in debug and release builds alike.

use std::{
    fmt,
    ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign},
};

use crate::Position;

/// A number with 32 bits before the binary point, the sign included, and 32 behind it: about ±2,147,483,648 in steps of
/// 0.00000000023. More than any position on a map, and fine enough to move objects by parts of a unit.
///
/// ```
/// use dunlin_rooms::{Angle, Fixed};
///
/// let speed = Fixed::ratio(5, 2);
/// let way = speed * Angle::degrees(60).cos();
/// assert_eq!((way.round(), way > Fixed::from(1), (speed / Fixed::from(0)).floor()), (1, true, 2_147_483_647));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fixed(i64);

/// A direction, or a part of a turn. 0 is to the right, a quarter of a turn is downwards, as `y` grows. Sums begin anew after
/// a full turn, of which there are 2³² steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Angle(u32);

const FRACTION_BITS: u32 = 32;
const ONE: i64 = 1 << FRACTION_BITS;

impl Fixed {
    /// 0.
    pub const ZERO: Self = Self(0);
    /// 1.
    pub const ONE: Self = Self(ONE);
    /// The largest number.
    pub const MAX: Self = Self(i64::MAX);
    /// The smallest number.
    pub const MIN: Self = Self(i64::MIN);

    /// `numerator` / `denominator`, rounded to the nearest step; of a half, away from 0. For constants, such as a speed.
    pub const fn ratio(numerator: i32, denominator: i32) -> Self {
        Self(divide(numerator as i128, denominator as i128))
    }

    /// From the number of steps, as [`Fixed::to_bits`] gives: to save it.
    pub const fn from_bits(bits: i64) -> Self {
        Self(bits)
    }

    /// The number of steps of 2⁻³².
    pub const fn to_bits(self) -> i64 {
        self.0
    }

    /// The next whole number below, or itself.
    pub const fn floor(self) -> i32 {
        (self.0 >> FRACTION_BITS) as i32
    }

    /// The nearest whole number; of a half, the greater one.
    pub const fn round(self) -> i32 {
        (self.0.saturating_add(ONE / 2) >> FRACTION_BITS) as i32
    }

    /// Without its sign.
    #[must_use]
    pub const fn abs(self) -> Self {
        Self(self.0.saturating_abs())
    }

    /// The square root, rounded down; 0 of a negative number.
    #[must_use]
    pub const fn sqrt(self) -> Self {
        if self.0 <= 0 {
            return Self::ZERO;
        }
        Self(((self.0 as i128) << FRACTION_BITS).isqrt() as i64)
    }

    /// The length of the vector (`x`, `y`), rounded down.
    #[must_use]
    pub const fn hypot(x: Self, y: Self) -> Self {
        let (x, y) = (x.0.unsigned_abs() as u128, y.0.unsigned_abs() as u128);
        Self(saturated((x * x + y * y).isqrt().cast_signed()))
    }
}

impl Angle {
    /// Half a turn.
    pub const HALF: Self = Self(1 << 31);
    /// A quarter of a turn.
    pub const QUARTER: Self = Self(1 << 30);

    /// From the number of steps, as [`Angle::to_bits`] gives.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The number of steps, of which a turn has 2³².
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// An angle in degrees, of which a turn has 360.
    pub const fn degrees(degrees: i32) -> Self {
        Self((((degrees.rem_euclid(360) as u64) << 32) / 360) as u32)
    }

    /// The direction of the vector (`x`, `y`); 0 for (0, 0). At most a step away from the exact one.
    pub const fn of(x: Fixed, y: Fixed) -> Self {
        atan2(y.0, x.0)
    }

    /// The direction from one place to another; 0 if they are the same.
    pub const fn between(from: Position, to: Position) -> Self {
        atan2(to.y as i64 - from.y as i64, to.x as i64 - from.x as i64)
    }

    /// The sine, at most a step of [`Fixed`] away from the exact one.
    pub const fn sin(self) -> Fixed {
        let turned = self.0 & (Self::HALF.0 - 1);
        // The second quarter is the first one backwards.
        let first = if turned > Self::QUARTER.0 { Self::HALF.0 - turned } else { turned };
        let sine = if first <= OCTANT { sin_of_octant(first) } else { cos_of_octant(Self::QUARTER.0 - first) };
        Fixed(if self.0 & Self::HALF.0 == 0 { sine } else { -sine })
    }

    /// The cosine, as exact.
    pub const fn cos(self) -> Fixed {
        Self(self.0.wrapping_add(Self::QUARTER.0)).sin()
    }

    /// How far it is to turn from this direction to `other`, the shorter way: the number of steps, negative for a turn to
    /// the left on a screen. At most half a turn.
    pub const fn to(self, other: Self) -> i32 {
        other.0.wrapping_sub(self.0).cast_signed()
    }
}

/// An eighth of a turn.
const OCTANT: u32 = 1 << 29;
/// Fractions in the computations below: numbers below 8.
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

/// Taylor's series, from the last factor to the first: what is left out is less than 2⁻⁵⁰.
const fn sin_of_octant(steps: u32) -> i64 {
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

const fn cos_of_octant(steps: u32) -> i64 {
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

const fn atan2(y: i64, x: i64) -> Angle {
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
    // Taylor's series: the first term that is left out is less than 2⁻³⁷.
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

const fn saturated(bits: i128) -> i64 {
    if bits > i64::MAX as i128 {
        i64::MAX
    } else if bits < i64::MIN as i128 {
        i64::MIN
    } else {
        bits as i64
    }
}

const fn divide(numerator: i128, denominator: i128) -> i64 {
    if denominator == 0 {
        return saturated(numerator.signum() * i64::MAX as i128 * 2);
    }
    let (scaled, sign) = ((numerator.abs() << FRACTION_BITS), numerator.signum() * denominator.signum());
    let size = denominator.abs();
    saturated(sign * ((scaled + size / 2) / size))
}

impl From<i32> for Fixed {
    fn from(whole: i32) -> Self {
        Self(i64::from(whole) << FRACTION_BITS)
    }
}

impl Add for Fixed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Fixed {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Rounded down to a step.
impl Mul for Fixed {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self(saturated((i128::from(self.0) * i128::from(other.0)) >> FRACTION_BITS))
    }
}

/// Rounded to the nearest step. A division by 0 is the largest or the smallest number, and 0 / 0 is 0.
impl Div for Fixed {
    type Output = Self;

    fn div(self, other: Self) -> Self {
        Self(divide(self.0.into(), other.0.into()))
    }
}

impl Neg for Fixed {
    type Output = Self;

    fn neg(self) -> Self {
        Self(self.0.saturating_neg())
    }
}

impl AddAssign for Fixed {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Fixed {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

/// Beyond a full turn it begins anew.
impl Add for Angle {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

/// Beyond a full turn it begins anew.
impl Sub for Angle {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }
}

/// With six digits behind the point, rounded down.
impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.unsigned_abs();
        let millionths = ((u128::from(size) * 1_000_000) >> FRACTION_BITS) % 1_000_000;
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}.{millionths:06}", size >> FRACTION_BITS)
    }
}

impl fmt::Debug for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
