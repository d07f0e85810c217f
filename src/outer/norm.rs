//! The norm of an outer gradient in 16 bits, the same on every machine. An update lists it for each contribution.

/// The norm of a vector of this length as a bfloat16's bits: the upper half of its f32, truncated. Larger bits mean a
/// larger norm. Decoded values are finite and at most 65536, so the norm is finite too.
pub fn norm_of_length(length: f64) -> u16 {
    // The sum of nothing is −0.
    let length = length.abs().min(f64::from(f32::MAX)) as f32;
    (length.to_bits() >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::super::exact_sum::length;
    use super::*;

    fn norm(values: &[f32]) -> u16 {
        norm_of_length(length(values))
    }

    #[test]
    fn a_norm_is_exact_to_a_part_in_128() {
        assert_eq!(norm(&[]), 0);
        assert_eq!(norm(&[3.0, -4.0]), (5.0f32.to_bits() >> 16) as u16);
        let long: Vec<f32> = (0..200_000).map(|i| (i as f32).sin()).collect();
        let told = f32::from_bits(u32::from(norm(&long)) << 16);
        let exact = long.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt() as f32;
        assert!(told <= exact && told > exact * (1.0 - 1.0 / 128.0), "{told} of {exact}");
        assert!(norm(&vec![65_536.0; 1_000]) < 0x7F80, "finite");
    }
}
