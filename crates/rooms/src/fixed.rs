//! Numbers and angles for the rules of games, with the same results on every machine and in every build.
//!
//! Floating-point functions such as `sin` differ between machines and compilers, so a recording of a game that uses
//! them may not replay. These types use only integers, never allocate and never panic: a result out of range saturates,
//! in debug and release builds alike.

mod octant;
mod operators;

use std::fmt;

use self::octant::{OCTANT, atan2, cos_of_octant, sin_of_octant};
use crate::Position;

/// A fixed-point number with 32 bits before the binary point, including the sign, and 32 after it: about ±2,147,483,648
/// in steps of 0.00000000023. This covers any position on a map, and is fine enough to move objects by parts of a unit.
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

/// A direction, or a part of a turn. 0 is to the right, a quarter of a turn is downwards, as `y` grows. A turn has 2³²
/// steps, and sums wrap around.
///
/// ```
/// # use dunlin_rooms as dunlin_game;
/// use dunlin_game::{Angle, Fixed};
///
/// // A ship turns left by 15° and moves by a unit and a half.
/// let course = Angle::degrees(90) - Angle::degrees(15);
/// let (dx, dy) = (Fixed::ratio(3, 2) * course.cos(), Fixed::ratio(3, 2) * course.sin());
/// assert!(dx > Fixed::ZERO && dy > Fixed::ONE);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Angle(u32);

const FRACTION_BITS: u32 = 32;
const ONE: i64 = 1 << FRACTION_BITS;

impl Fixed {
    /// 0.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Fixed;
    ///
    /// let (mut fuel, burnt) = (Fixed::ONE, Fixed::ratio(3, 2));
    /// fuel = (fuel - burnt).max(Fixed::ZERO);
    /// assert_eq!(fuel, Fixed::ZERO);
    /// ```
    pub const ZERO: Self = Self(0);
    /// 1.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Fixed;
    ///
    /// assert_eq!(Fixed::ONE, Fixed::from(1));
    /// ```
    pub const ONE: Self = Self(ONE);
    /// The largest number.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Fixed;
    ///
    /// assert_eq!(Fixed::MAX + Fixed::ONE, Fixed::MAX);
    /// ```
    pub const MAX: Self = Self(i64::MAX);
    /// The smallest number.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Fixed;
    ///
    /// assert_eq!(Fixed::MIN - Fixed::ONE, Fixed::MIN);
    /// ```
    pub const MIN: Self = Self(i64::MIN);

    /// `numerator` / `denominator`, rounded to the nearest step; halves are rounded away from 0. For constants, such as
    /// a speed.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Fixed;
    ///
    /// /// Units per tick.
    /// const SPEED: Fixed = Fixed::ratio(640, 60);
    /// assert_eq!((SPEED * Fixed::from(60)).round(), 640);
    /// ```
    pub const fn ratio(numerator: i32, denominator: i32) -> Self {
        Self(divide(numerator as i128, denominator as i128))
    }

    /// A number from its number of steps, as returned by [`Fixed::to_bits`]. For saved states.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Fixed;
    ///
    /// let speed = Fixed::ratio(5, 2);
    /// assert_eq!(Fixed::from_bits(speed.to_bits()), speed);
    /// ```
    pub const fn from_bits(bits: i64) -> Self {
        Self(bits)
    }

    /// The number of steps of 2⁻³².
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Fixed;
    ///
    /// let saved = Fixed::ONE.to_bits().to_le_bytes();
    /// assert_eq!(Fixed::from_bits(i64::from_le_bytes(saved)), Fixed::ONE);
    /// ```
    pub const fn to_bits(self) -> i64 {
        self.0
    }

    /// The largest whole number that is not greater.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Fixed;
    ///
    /// assert_eq!((Fixed::ratio(5, 2).floor(), Fixed::ratio(-5, 2).floor()), (2, -3));
    /// ```
    pub const fn floor(self) -> i32 {
        (self.0 >> FRACTION_BITS) as i32
    }

    /// The smallest whole number that is not less; it saturates at the largest whole number.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Fixed;
    ///
    /// // How many ticks a door takes to open, at 2.5 units per tick.
    /// assert_eq!((Fixed::from(64) / Fixed::ratio(5, 2)).ceil(), 26);
    /// ```
    pub const fn ceil(self) -> i32 {
        (self.0.saturating_add(ONE - 1) >> FRACTION_BITS) as i32
    }

    /// The nearest whole number; halves are rounded up.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Fixed;
    ///
    /// assert_eq!((Fixed::ratio(5, 2).round(), Fixed::ratio(-5, 2).round()), (3, -2));
    /// ```
    pub const fn round(self) -> i32 {
        (self.0.saturating_add(ONE / 2) >> FRACTION_BITS) as i32
    }

    /// The absolute value.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Fixed;
    ///
    /// assert_eq!(Fixed::from(-3).abs(), Fixed::from(3));
    /// ```
    #[must_use]
    pub const fn abs(self) -> Self {
        Self(self.0.saturating_abs())
    }

    /// The square root, rounded down; 0 for a negative number.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Fixed;
    ///
    /// assert_eq!(Fixed::ratio(9, 4).sqrt(), Fixed::ratio(3, 2));
    /// assert_eq!(Fixed::from(-1).sqrt(), Fixed::ZERO);
    /// ```
    #[must_use]
    pub const fn sqrt(self) -> Self {
        if self.0 <= 0 {
            return Self::ZERO;
        }
        Self(((self.0 as i128) << FRACTION_BITS).isqrt() as i64)
    }

    /// The length of the vector (`x`, `y`), rounded down.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Fixed;
    ///
    /// assert_eq!(Fixed::hypot(Fixed::from(3), Fixed::from(-4)), Fixed::from(5));
    /// ```
    #[must_use]
    pub const fn hypot(x: Self, y: Self) -> Self {
        let (x, y) = (x.0.unsigned_abs() as u128, y.0.unsigned_abs() as u128);
        Self(saturated((x * x + y * y).isqrt().cast_signed()))
    }
}

impl Angle {
    /// Half a turn.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Angle;
    ///
    /// let back = Angle::degrees(30) + Angle::HALF;
    /// assert!(Angle::degrees(210).to(back).abs() <= 1, "210°, but for rounding");
    /// ```
    pub const HALF: Self = Self(1 << 31);
    /// A quarter of a turn.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Angle;
    ///
    /// assert_eq!(Angle::QUARTER, Angle::degrees(90));
    /// ```
    pub const QUARTER: Self = Self(1 << 30);

    /// An angle from its number of steps, as returned by [`Angle::to_bits`].
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Angle;
    ///
    /// // An input has two bytes for a direction.
    /// let angle = Angle::from_bits(u32::from(u16::from_le_bytes([0, 0x40])) << 16);
    /// assert_eq!(angle, Angle::QUARTER);
    /// ```
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The number of steps. A turn has 2³².
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Angle;
    ///
    /// // The state of an object has two bytes for a direction.
    /// let [_, _, low, high] = Angle::QUARTER.to_bits().to_le_bytes();
    /// assert_eq!([low, high], [0, 0x40]);
    /// ```
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// An angle in degrees. A turn has 360.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Angle;
    ///
    /// assert_eq!(Angle::degrees(-90), Angle::degrees(270));
    /// ```
    pub const fn degrees(degrees: i32) -> Self {
        Self((((degrees.rem_euclid(360) as u64) << 32) / 360) as u32)
    }

    /// The direction of the vector (`x`, `y`); 0 for (0, 0). The error is at most one step.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{Angle, Fixed};
    ///
    /// // Down on the screen, as `y` grows.
    /// assert_eq!(Angle::of(Fixed::ZERO, Fixed::ONE), Angle::QUARTER);
    /// ```
    pub const fn of(x: Fixed, y: Fixed) -> Self {
        atan2(y.0, x.0)
    }

    /// The direction from one position to another; 0 if they are equal.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{Angle, Position};
    ///
    /// let (from, to) = (Position { x: 500, y: 500 }, Position { x: 100, y: 500 });
    /// assert_eq!(Angle::between(from, to), Angle::HALF, "to the left");
    /// ```
    pub const fn between(from: Position, to: Position) -> Self {
        atan2(to.y as i64 - from.y as i64, to.x as i64 - from.x as i64)
    }

    /// The sine. The error is at most one step of [`Fixed`].
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{Angle, Fixed};
    ///
    /// assert_eq!(Angle::QUARTER.sin(), Fixed::ONE);
    /// ```
    pub const fn sin(self) -> Fixed {
        let turned = self.0 & (Self::HALF.0 - 1);
        // The second quarter mirrors the first one.
        let first = if turned > Self::QUARTER.0 { Self::HALF.0 - turned } else { turned };
        let sine = if first <= OCTANT { sin_of_octant(first) } else { cos_of_octant(Self::QUARTER.0 - first) };
        Fixed(if self.0 & Self::HALF.0 == 0 { sine } else { -sine })
    }

    /// The cosine, with the same precision as the sine.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::{Angle, Fixed};
    ///
    /// assert_eq!(Angle::HALF.cos(), Fixed::from(-1));
    /// ```
    pub const fn cos(self) -> Fixed {
        Self(self.0.wrapping_add(Self::QUARTER.0)).sin()
    }

    /// The shortest turn from this direction to `other`: the number of steps, negative for a turn to the left on a
    /// screen. At most half a turn.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Angle;
    ///
    /// /// Whether a guard who looks in a direction sees a place in another one: 45° to either side.
    /// fn sees(looks: Angle, place: Angle) -> bool {
    ///     looks.to(place).abs() <= Angle::degrees(45).to_bits().cast_signed()
    /// }
    /// assert!(sees(Angle::degrees(350), Angle::degrees(20)));
    /// assert!(!sees(Angle::degrees(350), Angle::degrees(50)));
    /// ```
    pub const fn to(self, other: Self) -> i32 {
        other.0.wrapping_sub(self.0).cast_signed()
    }

    /// This direction, turned towards `other` the shorter way, by `at_most`. If `at_most` is more than half a turn, the
    /// result is `other`.
    ///
    /// ```
    /// # use dunlin_rooms as dunlin_game;
    /// use dunlin_game::Angle;
    ///
    /// // A missile turns by 3° in a tick.
    /// let turn = Angle::degrees(3);
    /// let mut missile = Angle::degrees(0);
    /// missile = missile.turned_towards(Angle::degrees(-90), turn);
    /// assert_eq!(missile, Angle::degrees(0) - turn);
    /// assert_eq!(missile.turned_towards(Angle::degrees(-2), turn), Angle::degrees(-2));
    /// ```
    #[must_use]
    pub const fn turned_towards(self, other: Self, at_most: Self) -> Self {
        let way = self.to(other);
        if way.unsigned_abs() <= at_most.0 {
            other
        } else if way < 0 {
            Self(self.0.wrapping_sub(at_most.0))
        } else {
            Self(self.0.wrapping_add(at_most.0))
        }
    }
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

/// Six digits after the point, rounded down.
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
