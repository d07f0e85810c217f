//! Error feedback: the quantisation error of one outer gradient is added to the next, so nothing is lost for good.

use super::error::EncodeError;
use super::frame::encode_with_residual;
use crate::config::Codec;

/// Compresses `values`, an outer gradient plus the last residual. Returns the frame and the new residual: `values`
/// minus the values decoded from the frame.
pub fn compress_with_feedback(codec: Codec, values: &[f32]) -> Result<(Vec<u8>, Vec<f32>), EncodeError> {
    let mut residual = vec![0.0; values.len()];
    let frame = encode_with_residual(codec, values, &mut residual)?;
    Ok((frame, residual))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::decode;

    #[test]
    fn frame_and_residual_together_are_the_values() {
        let values: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.37).sin() * 1.0e-3).collect();
        for codec in [Codec::Int4, Codec::Int8, Codec::Fp32] {
            let (frame, residual) = compress_with_feedback(codec, &values).unwrap();
            let decoded = decode(&frame, values.len()).unwrap();
            for ((value, decoded), residual) in values.iter().zip(&decoded).zip(&residual) {
                assert_eq!(residual.to_bits(), (value - decoded).to_bits());
            }
            assert!(codec != Codec::Fp32 || residual.iter().all(|value| *value == 0.0));
        }
    }

    #[test]
    fn what_is_too_small_to_be_sent_adds_up_until_it_is() {
        // The large value sets the scale; the small one is below half a level and would never be sent.
        let gradient = [7.0, 0.2];
        let mut residual = vec![0.0; 2];
        let mut received = 0.0;
        for _ in 0..100 {
            let values: Vec<f32> = gradient.iter().zip(&residual).map(|(value, residual)| value + residual).collect();
            let (frame, left) = compress_with_feedback(Codec::Int4, &values).unwrap();
            received += decode(&frame, 2).unwrap()[1];
            residual = left;
        }
        assert!((received - 20.0).abs() < 1.0, "{received}");
    }
}
