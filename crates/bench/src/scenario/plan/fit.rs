//! Least squares with several causes, and how sure a prediction is.

use crate::scenario::compare::student;

/// A quantity as the sum of its causes, each with a coefficient.
pub struct Fit {
    coefficients: Vec<f64>,
    /// The inverse of the matrix of the normal equations.
    inverse: Vec<Vec<f64>>,
    /// Variance of what the causes do not explain, relative to the value with [`Scatter::Relative`].
    variance: f64,
    scatter: Scatter,
    /// Points beyond the number of coefficients.
    freedom: usize,
}

/// How measurements scatter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scatter {
    /// By the same amount everywhere.
    Absolute,
    /// In proportion to their values.
    Relative,
}

/// A predicted value, with the interval that holds a measurement with a confidence of 95 %.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Fit {
    /// Points are the causes and the measured value. None if there are too few, or if they do not tell the causes apart.
    pub fn of<const N: usize>(points: &[([f64; N], f64)], scatter: Scatter) -> Option<Self> {
        let freedom = points.len().checked_sub(N).filter(|freedom| *freedom > 0)?;
        if points.iter().any(|(_, value)| *value <= 0.0) {
            return None;
        }
        let weight = |value: f64| if scatter == Scatter::Relative { 1.0 / value } else { 1.0 };
        let rows = || {
            points.iter().map(|(causes, value)| (causes.map(|cause| cause * weight(*value)), value * weight(*value)))
        };
        let mut matrix = vec![vec![0.0; N]; N];
        let mut right = vec![0.0; N];
        for (causes, value) in rows() {
            for (row, one) in causes.iter().enumerate() {
                right[row] += one * value;
                for (column, other) in causes.iter().enumerate() {
                    matrix[row][column] += one * other;
                }
            }
        }
        let inverse = inverted(matrix)?;
        let coefficients: Vec<f64> = inverse.iter().map(|row| dot(row, &right)).collect();
        let rest: f64 = rows().map(|(causes, value)| (value - dot(&causes, &coefficients)).powi(2)).sum();
        Some(Fit { coefficients, inverse, variance: rest / freedom as f64, scatter, freedom })
    }

    /// The value for other causes.
    pub fn predict(&self, causes: &[f64]) -> Estimate {
        let value = dot(causes, &self.coefficients).max(0.0);
        let spread = dot(causes, &self.inverse.iter().map(|row| dot(row, causes)).collect::<Vec<_>>());
        let own = if self.scatter == Scatter::Relative { value * value } else { 1.0 };
        let half = student(self.freedom) * (self.variance * (own + spread)).max(0.0).sqrt();
        Estimate { value, low: (value - half).max(0.0), high: value + half }
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

/// The inverse by Gauss-Jordan elimination; none if the matrix has none.
fn inverted(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let size = matrix.len();
    let unit = |row: usize| (0..size).map(move |column| f64::from(u8::from(row == column)));
    // Causes have different sizes, so that a pivot is small only in comparison with its column.
    let scale: Vec<f64> = (0..size).map(|at| matrix[at][at].abs()).collect();
    for (at, row) in matrix.iter_mut().enumerate() {
        row.extend(unit(at));
    }
    for at in 0..size {
        let largest = (at..size).max_by(|one, other| matrix[*one][at].abs().total_cmp(&matrix[*other][at].abs()))?;
        matrix.swap(at, largest);
        let pivot = matrix[at][at];
        if pivot.abs() <= scale[at] * 1e-9 {
            return None;
        }
        for cell in &mut matrix[at] {
            *cell /= pivot;
        }
        let of_pivot = matrix[at].clone();
        for (_, row) in matrix.iter_mut().enumerate().filter(|(number, _)| *number != at) {
            let factor = row[at];
            for (cell, subtracted) in row.iter_mut().zip(&of_pivot) {
                *cell -= factor * subtracted;
            }
        }
    }
    Some(matrix.into_iter().map(|row| row[size..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_each_cause_is_found() {
        // 0.01 cores, 40 µs a publication and 5 µs a delivery.
        let cost = |publications: f64, deliveries: f64| 0.01 + 40e-6 * publications + 5e-6 * deliveries;
        let point = |publications, deliveries| ([1.0, publications, deliveries], cost(publications, deliveries));
        let points = [point(600.0, 3e3), point(25.0, 10e3), point(25.0, 20e3), point(25.0, 50e3)];
        for scatter in [Scatter::Absolute, Scatter::Relative] {
            let estimate = Fit::of(&points, scatter).unwrap().predict(&[1.0, 100.0, 1e6]);
            assert!((estimate.value - cost(100.0, 1e6)).abs() < 1e-6, "{estimate:?}");
            assert!(estimate.high - estimate.low < 1e-6, "nothing scatters");
        }
    }

    #[test]
    fn a_prediction_is_less_sure_far_away() {
        let values = [(1.0, 11.0), (2.0, 21.0), (3.0, 32.0), (4.0, 41.0), (5.0, 51.0)];
        let points = values.map(|(x, value)| ([1.0, x], value));
        let fit = Fit::of(&points, Scatter::Absolute).unwrap();
        let (near, far) = (fit.predict(&[1.0, 3.0]), fit.predict(&[1.0, 300.0]));
        assert!(near.low < 31.0 && near.high > 32.0 && near.high - near.low < 10.0, "{near:?}");
        assert!(far.high - far.low > 10.0 * (near.high - near.low), "{far:?}");
        // Least squares by hand: slope 10, intercept 1.2, variance 0.8 / 3, t of three degrees 3.182.
        let half = 3.182 * (0.8_f64 / 3.0 * (1.0 + 0.2)).sqrt();
        assert!((near.value - 31.2).abs() < 1e-9 && (near.high - 31.2 - half).abs() < 1e-9, "{near:?}");
    }

    #[test]
    fn causes_that_always_come_together_are_not_told_apart() {
        let points: Vec<_> = [1.0, 2.0, 3.0, 4.0].iter().map(|x| ([1.0, *x, 2.0 * x], *x)).collect();
        assert!(Fit::of(&points, Scatter::Relative).is_none());
        assert!(Fit::of(&points[..3], Scatter::Relative).is_none(), "nothing is left to tell the error");
    }
}
