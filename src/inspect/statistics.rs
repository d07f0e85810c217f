//! Statistics of samples.

/// Mean of some values; 0 for none.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Mean squared deviation from the mean.
pub fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64
}

/// The quantiles of values at these shares.
pub fn quantiles<const N: usize>(values: &[f64], shares: [f64; N]) -> [f64; N] {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    shares.map(|share| {
        let at = share * sorted.len().saturating_sub(1) as f64;
        let (low, high) = (sorted.get(at.floor() as usize), sorted.get(at.ceil() as usize));
        low.zip(high).map_or(0.0, |(low, high)| low + (high - low) * at.fract())
    })
}

/// The 95% Wilson interval of `hits` out of `count`.
pub fn interval(hits: usize, count: usize) -> [f64; 2] {
    const Z: f64 = 1.959_964;
    let n = count.max(1) as f64;
    let share = hits as f64 / n;
    let middle = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    [(middle - half).max(0.0), (middle + half).min(1.0)]
}

/// The effective number of singular values or eigenvalues: the exponential of the entropy of their shares (Roy and
/// Vetterli, 2007).
pub fn effective_rank(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let shares = values.iter().map(|value| value / sum).filter(|share| *share > 0.0);
    if sum > 0.0 { (-shares.map(|share| share * share.ln()).sum::<f64>()).exp() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_known_answers() {
        assert_eq!((mean(&[1.0, 2.0, 6.0]), variance(&[1.0, 3.0]), mean(&[])), (3.0, 1.0, 0.0));
        assert_eq!(quantiles(&[4.0, 0.0, 1.0, 2.0, 3.0], [0.0, 0.5, 0.625, 1.0]), [0.0, 2.0, 2.5, 4.0]);
        assert!((effective_rank(&[2.0, 2.0, 2.0]) - 3.0).abs() < 1e-12);
        assert!((effective_rank(&[5.0, 0.0]) - 1.0).abs() < 1e-12);
        // Wilson (1927) for 8 of 10, as in statsmodels.
        let [low, high] = interval(8, 10);
        assert!((low - 0.4901625).abs() < 1e-6 && (high - 0.9433178).abs() < 1e-6, "{low} {high}");
        assert!(interval(0, 5)[0] < 1e-12);
    }
}
