//! The minimum of a smooth convex function of many variables: L-BFGS (Liu and Nocedal, 1989).
//!
//! The crate argmin 0.11 can fail near the minimum (its issue 400), and asks for value and gradient separately, which
//! here come from one pass over all documents. This implementation uses only sums in a fixed order and square roots, so
//! that the same function gives the same bits on any machine.

use std::collections::VecDeque;

/// Steps that the estimate of the curvature uses.
const MEMORY: usize = 10;

/// Evaluations along one line. Each halves the bracket or doubles the step.
const MOST_TRIES: usize = 50;

/// Share of the expected decrease that a step must reach (first Wolfe condition).
const DECREASE: f64 = 1e-4;

/// Share of the slope that may remain after a step (second Wolfe condition).
const SLOPE: f64 = 0.9;

/// Near the minimum, rounding hides a decrease of the value. Within this relative distance, only the slope decides.
const ROUNDING: f64 = 1e-14;

/// A point, and the value and gradient of the function there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) at: Vec<f64>,
    pub(super) value: f64,
    pub(super) gradient: Vec<f64>,
}

impl Point {
    /// The largest absolute derivative; 0 at the minimum.
    pub(super) fn steepest(&self) -> f64 {
        self.gradient.iter().fold(0.0, |most, derivative| f64::max(most, derivative.abs()))
    }

    fn is_finite(&self) -> bool {
        self.value.is_finite() && self.gradient.iter().all(|derivative| derivative.is_finite())
    }
}

/// A past step, and the change of the gradient along it.
struct Step {
    moved: Vec<f64>,
    bent: Vec<f64>,
    /// One over the product of the two.
    inverse: f64,
}

/// Descends from `start` until no derivative is above `tolerance`, for at most `rounds` steps, or until rounding
/// prevents a further decrease. `evaluate` returns the value and the gradient. `None` if the function is not finite at
/// the start.
pub(super) fn minimise(
    start: Vec<f64>,
    tolerance: f64,
    rounds: usize,
    evaluate: impl Fn(&[f64]) -> (f64, Vec<f64>),
) -> Option<Point> {
    let point = |at: Vec<f64>| {
        let (value, gradient) = evaluate(&at);
        Point { at, value, gradient }
    };
    let mut here = point(start);
    if !here.is_finite() {
        return None;
    }
    let mut memory: VecDeque<Step> = VecDeque::new();
    for _ in 0..rounds {
        if here.steepest() <= tolerance {
            break;
        }
        let direction = direction(&here.gradient, &memory);
        // Without memory, the norm of the gradient does not tell a good length of the step.
        let first = if memory.is_empty() { 1.0 / norm(&here.gradient).max(1.0) } else { 1.0 };
        let Some(next) = search(&here, &direction, first, &point) else {
            if memory.is_empty() {
                break;
            }
            memory.clear();
            continue;
        };
        let moved = difference(&next.at, &here.at);
        let bent = difference(&next.gradient, &here.gradient);
        let product = dot(&moved, &bent);
        if product > f64::EPSILON * dot(&bent, &bent) {
            memory.truncate(MEMORY - 1);
            memory.push_front(Step { moved, bent, inverse: 1.0 / product });
        }
        here = next;
    }
    Some(here)
}

/// Minus the gradient times the inverse curvature, estimated from the remembered steps, newest first.
fn direction(gradient: &[f64], memory: &VecDeque<Step>) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|derivative| -derivative).collect();
    let mut shares = Vec::with_capacity(memory.len());
    for step in memory {
        let share = step.inverse * dot(&step.moved, &direction);
        add(&mut direction, -share, &step.bent);
        shares.push(share);
    }
    if let Some(newest) = memory.front() {
        let stretch = 1.0 / (newest.inverse * dot(&newest.bent, &newest.bent));
        direction.iter_mut().for_each(|value| *value *= stretch);
    }
    for (step, share) in memory.iter().zip(&shares).rev() {
        let other = step.inverse * dot(&step.bent, &direction);
        add(&mut direction, share - other, &step.moved);
    }
    direction
}

/// A step along a line that meets the strong Wolfe conditions. Doubling and halving find one if the function is convex.
/// `None` if there is none.
fn search(here: &Point, direction: &[f64], first: f64, point: &dyn Fn(Vec<f64>) -> Point) -> Option<Point> {
    let slope = dot(&here.gradient, direction);
    // Also true for NaN.
    if !(slope < 0.0 && slope.is_finite()) {
        return None;
    }
    let (mut short, mut long, mut step) = (0.0, f64::INFINITY, first);
    for _ in 0..MOST_TRIES {
        let mut at = here.at.clone();
        add(&mut at, step, direction);
        let next = point(at);
        let enough = here.value + DECREASE * step * slope + ROUNDING * here.value.abs();
        let next_slope = dot(&next.gradient, direction);
        // A value that is not finite means that the step is too long.
        if !next.is_finite() || next.value > enough || next_slope > -SLOPE * slope {
            long = step;
        } else if next_slope < SLOPE * slope {
            short = step;
        } else {
            return Some(next);
        }
        step = if long.is_finite() { 0.5 * (short + long) } else { 2.0 * step };
    }
    None
}

/// In eight sums, for SIMD, added in a fixed order.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a_eights, b_eights) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a_eights.remainder().iter().zip(b_eights.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a_eights.zip(b_eights) {
        for lane in 0..8 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// Adds `factor` times `values`.
pub(super) fn add(sum: &mut [f64], factor: f64, values: &[f64]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += factor * value);
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

fn norm(values: &[f64]) -> f64 {
    dot(values, values).sqrt()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Σ cᵢ(xᵢ − i)²/2, with curvatures from 1 to a million.
    fn valley(at: &[f64]) -> (f64, Vec<f64>) {
        let curvature = |i: usize| [1.0, 1e2, 1e4, 1e6][i % 4];
        let gradient: Vec<f64> = at.iter().enumerate().map(|(i, x)| curvature(i) * (x - i as f64)).collect();
        let value = at.iter().zip(&gradient).enumerate().map(|(i, (x, slope))| 0.5 * slope * (x - i as f64)).sum();
        (value, gradient)
    }

    #[test]
    fn the_minimum_of_a_narrow_valley_is_found() {
        let calls = Cell::new(0);
        let counted = |at: &[f64]| {
            calls.set(calls.get() + 1);
            valley(at)
        };
        let found = minimise(vec![50.0; 21], 1e-7, 500, counted).unwrap();
        assert!(found.steepest() <= 1e-7, "{}", found.steepest());
        assert!(found.at.iter().enumerate().all(|(i, x)| (x - i as f64).abs() < 1e-6), "{:?}", found.at);
        assert!(calls.get() < 300, "{} evaluations", calls.get());
    }

    #[test]
    fn a_minimum_whose_value_is_large_is_found_though_decreases_drown_in_rounding() {
        let high = |at: &[f64]| {
            let (value, gradient) = valley(at);
            (value + 1e9, gradient)
        };
        let found = minimise(vec![1.0; 8], 1e-6, 500, high).unwrap();
        assert!(found.steepest() <= 1e-6, "{}", found.steepest());
    }

    #[test]
    fn it_ends_where_there_is_no_minimum_and_begins_nowhere_without_a_value() {
        let downhill = |at: &[f64]| (-at[0], vec![-1.0]);
        let found = minimise(vec![0.0], 1e-9, 20, downhill).unwrap();
        assert!(found.value <= 0.0);
        assert_eq!(minimise(vec![0.0], 1e-9, 20, |_| (f64::NAN, vec![0.0])), None);
        assert_eq!(minimise(vec![0.0], 1e-9, 20, |_| (0.0, vec![f64::INFINITY])), None);
    }

    #[test]
    fn a_start_at_the_minimum_stays_there() {
        let found = minimise((0..5).map(f64::from).collect(), 1e-9, 20, valley).unwrap();
        assert_eq!(found.at, [0.0, 1.0, 2.0, 3.0, 4.0]);
    }
}
