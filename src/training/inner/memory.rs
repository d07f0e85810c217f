//! Memory that runs out during an inner step.

use tch::TchError;

/// What libtorch's allocators say, on the CPU and on CUDA.
const SAID: [&str; 3] = ["can't allocate memory", "not enough memory", "out of memory"];

/// Whether an allocation failed. libtorch has no kind of its own for it.
pub fn is_out_of_memory(error: &TchError) -> bool {
    matches!(error, TchError::Torch(said) if SAID.iter().any(|phrase| said.to_lowercase().contains(phrase)))
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::*;

    #[test]
    fn a_failed_allocation_is_told_from_other_errors() {
        let float = (Kind::Float, Device::Cpu);
        let too_large = Tensor::f_zeros([1i64 << 50].as_slice(), float).unwrap_err();
        assert!(is_out_of_memory(&too_large), "{too_large}");
        let wrong = Tensor::f_zeros([2i64].as_slice(), float).unwrap().f_reshape([3i64].as_slice()).unwrap_err();
        assert!(!is_out_of_memory(&wrong), "{wrong}");
    }
}
