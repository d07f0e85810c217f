//! The bytes that outer steps send in each direction, and the errors of compression.

use serde::{Deserialize, Serialize};

use crate::compress::{FrameError, decode};

/// Totals of the frames in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Frames {
    /// Values sent.
    pub values: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sum of the squares of the values.
    pub squares: f64,
    /// Sum of the squares of a receiver's errors.
    pub lost: f64,
}

impl Frames {
    /// Counts a frame of these values, and returns the decoded values.
    pub fn count(&mut self, values: &[f32], frame: &[u8]) -> Result<Vec<f32>, FrameError> {
        let decoded = decode(frame, values.len())?;
        self.values += values.len() as u64;
        self.bytes += frame.len() as u64;
        for (value, decoded) in values.iter().zip(&decoded) {
            self.squares += f64::from(*value).powi(2);
            self.lost += (f64::from(*value) - f64::from(*decoded)).powi(2);
        }
        Ok(decoded)
    }

    /// Adds other totals.
    pub fn add(&mut self, other: &Self) {
        self.values += other.values;
        self.bytes += other.bytes;
        self.squares += other.squares;
        self.lost += other.lost;
    }

    /// Bits per value.
    pub fn bits(&self) -> f64 {
        8.0 * self.bytes as f64 / self.values.max(1) as f64
    }

    /// The norm of the error, as a share of the norm of the values.
    pub fn error(&self) -> f64 {
        if self.squares > 0.0 { (self.lost / self.squares).sqrt() } else { 0.0 }
    }
}

/// Frames in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exchanged {
    /// Outer gradients, with the residuals of earlier ones.
    pub up: Frames,
    /// Averages.
    pub down: Frames,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::encode;
    use crate::config::Codec;

    #[test]
    fn bits_and_losses_are_counted() {
        let mut frames = Frames::default();
        assert_eq!((frames.bits(), frames.error()), (0.0, 0.0));
        let values = [3.0, 0.0, 0.0, 4.0];
        let frame = encode(Codec::TopK(1), &values).unwrap();
        assert_eq!(frames.count(&values, &frame).unwrap(), [0.0, 0.0, 0.0, 4.0]);
        assert_eq!((frames.bits(), frames.error()), (2.0 * frame.len() as f64, 0.6));
        let mut both = frames;
        both.add(&frames);
        assert_eq!((both.values, both.bits(), both.error()), (8, frames.bits(), 0.6));
    }
}
