//! The operators of numbers and angles.

use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

use super::{Angle, FRACTION_BITS, Fixed, divide, saturated};

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

impl MulAssign for Fixed {
    fn mul_assign(&mut self, other: Self) {
        *self = *self * other;
    }
}

impl DivAssign for Fixed {
    fn div_assign(&mut self, other: Self) {
        *self = *self / other;
    }
}

/// Wraps around after a full turn.
impl Add for Angle {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

/// Wraps around after a full turn.
impl Sub for Angle {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }
}

/// The same angle in the other direction.
impl Neg for Angle {
    type Output = Self;

    fn neg(self) -> Self {
        Self(self.0.wrapping_neg())
    }
}
