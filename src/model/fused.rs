//! What libtorch does to many tensors in few kernels, and what its CUDA allocator counts: tch offers neither (torch.cpp).

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null;

use tch::{Device, Kind, TchError, Tensor};

type RawTensor = *const c_void;

unsafe extern "C" {
    fn pathswarm_fused_adamw(
        tensors: *const RawTensor,
        count: usize,
        step: RawTensor,
        scale: RawTensor,
        learning_rate: f64,
        betas: *const f64,
        weight_decay: f64,
        epsilon: f64,
    ) -> *mut c_char;
    fn pathswarm_norm(tensors: *const RawTensor, count: usize, norm: *mut *mut c_void) -> *mut c_char;
    fn pathswarm_cuda_empty_cache() -> *mut c_char;
    fn pathswarm_cuda_memory(device: i32, free: *mut i64, total: *mut i64) -> *mut c_char;
    fn pathswarm_cuda_tensor_bytes(device: i32, allocated: *mut i64) -> *mut c_char;
    fn pathswarm_cuda_peak_bytes(device: i32, reset: bool, allocated: *mut i64, reserved: *mut i64) -> *mut c_char;
}

/// The values of a step of AdamW that are the same for all of its tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FusedAdamW {
    /// Counts from 1.
    pub number: u64,
    /// Gradients are multiplied by this.
    pub clip: f64,
    pub learning_rate: f64,
    pub betas: [f64; 2],
    pub weight_decay: f64,
    pub epsilon: f64,
}

/// Bytes of a CUDA device at most, since they were counted anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeakBytes {
    /// In tensors.
    pub allocated: u64,
    /// Taken from the device, with what is kept for later tensors.
    pub reserved: u64,
}

fn raw(tensor: &Tensor) -> RawTensor {
    tensor.as_ptr().cast()
}

impl FusedAdamW {
    /// Updates parameters and both moments, lists of as many tensors of the same shapes and one device. Gradients are
    /// clipped in place.
    ///
    /// # Errors
    /// If libtorch refuses the tensors.
    pub fn update(&self, parameters: &[Tensor], gradients: &[Tensor], moments: [&[Tensor]; 2]) -> Result<(), TchError> {
        let [first, second] = moments;
        let lists = [parameters, gradients, first, second];
        // libtorch's kernels rely on it: they read and write where the first value of each tensor is.
        let sizes = lists.map(|list| list.iter().map(Tensor::numel).collect::<Vec<_>>());
        if sizes.iter().any(|list| *list != sizes[0]) {
            return Err(TchError::Shape(format!(
                "AdamW of lists of {:?} tensors of different sizes",
                lists.map(<[Tensor]>::len)
            )));
        }
        let fits = |tensor: &Tensor| tensor.is_contiguous() && tensor.kind() == Kind::Float;
        if !lists.iter().all(|list| list.iter().all(fits)) {
            return Err(TchError::Shape("AdamW of tensors that are not contiguous, or not f32".to_owned()));
        }
        let Some(some) = parameters.first() else { return Ok(()) };
        if some.device() == Device::Mps {
            // There libtorch's kernel passes over the scale.
            return self.by_operations(parameters, gradients, moments);
        }
        let scalar = |value: f64| Tensor::f_full([0i64; 0].as_slice(), value, (Kind::Float, some.device()));
        let step = scalar(self.number as f64)?;
        let scale = if self.clip < 1.0 { Some(scalar(1.0 / self.clip)?) } else { None };
        let tensors: Vec<RawTensor> = lists.into_iter().flatten().map(raw).collect();
        // SAFETY: all pointers are to tensors that live until the call returns; there are four lists of `count`.
        said(unsafe {
            pathswarm_fused_adamw(
                tensors.as_ptr(),
                parameters.len(),
                raw(&step),
                scale.as_ref().map_or(null(), raw),
                self.learning_rate,
                self.betas.as_ptr(),
                self.weight_decay,
                self.epsilon,
            )
        })
    }

    /// The same on any device, operation by operation. Gradients stay as they are.
    pub fn by_operations(
        &self,
        parameters: &[Tensor],
        gradients: &[Tensor],
        [first, second]: [&[Tensor]; 2],
    ) -> Result<(), TchError> {
        let Self { learning_rate, betas: [beta1, beta2], weight_decay, epsilon, .. } = *self;
        let [of_first, of_second] = [beta1, beta2].map(|beta| 1.0 - beta.powf(self.number as f64));
        for (((parameters, gradient), first), second) in parameters.iter().zip(gradients).zip(first).zip(second) {
            let [mut parameters, mut first, mut second] = [parameters, first, second].map(Tensor::shallow_clone);
            let gradient = gradient.f_mul_scalar(self.clip)?;
            let _ = first.f_lerp_(&gradient, 1.0 - beta1)?;
            let _ = second.f_mul_scalar_(beta2)?.f_add_(&gradient.f_square()?.f_mul_scalar(1.0 - beta2)?)?;
            let root = second.f_sqrt()?.f_div_scalar(of_second.sqrt())?.f_add_scalar(epsilon)?;
            let change = first.f_div(&root)?.f_mul_scalar(learning_rate / of_first)?;
            let _ = parameters.f_mul_scalar_(1.0 - learning_rate * weight_decay)?.f_sub_(&change)?;
        }
        Ok(())
    }
}

/// The norm of all tensors together, at least one, a scalar on their device.
pub fn norm(tensors: &[Tensor]) -> Result<Tensor, TchError> {
    let raw: Vec<RawTensor> = tensors.iter().map(raw).collect();
    let mut found = std::ptr::null_mut();
    // SAFETY: the pointers are to tensors that live until the call returns. After success `found` is a new tensor, which
    // is owned here.
    unsafe {
        said(pathswarm_norm(raw.as_ptr(), raw.len(), &raw mut found))?;
        Ok(Tensor::from_ptr(found.cast()))
    }
}

/// The peak of a CUDA device's memory since it was last counted anew; with `reset`, counting begins anew.
pub fn cuda_peak_bytes(device: usize, reset: bool) -> Result<PeakBytes, TchError> {
    let (mut allocated, mut reserved) = (0, 0);
    let device = i32::try_from(device).unwrap_or(i32::MAX);
    // SAFETY: both numbers live until the call returns.
    said(unsafe { pathswarm_cuda_peak_bytes(device, reset, &raw mut allocated, &raw mut reserved) })?;
    let bytes = |count: i64| u64::try_from(count).unwrap_or(0);
    Ok(PeakBytes { allocated: bytes(allocated), reserved: bytes(reserved) })
}

/// The bytes of this process's tensors on a CUDA device now.
///
/// # Errors
/// If nothing was computed there yet, or CUDA is not loaded.
pub fn cuda_tensor_bytes(device: usize) -> Result<u64, TchError> {
    let mut allocated = 0;
    // SAFETY: the number lives until the call returns.
    said(unsafe { pathswarm_cuda_tensor_bytes(i32::try_from(device).unwrap_or(i32::MAX), &raw mut allocated) })?;
    Ok(u64::try_from(allocated).unwrap_or(0))
}

/// A CUDA device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes that no program has taken.
    pub free: u64,
    /// All bytes.
    pub total: u64,
}

/// The memory of a CUDA device.
///
/// # Errors
/// If there is no such device, or CUDA is not loaded.
pub fn cuda_memory(device: usize) -> Result<DeviceMemory, TchError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both numbers live until the call returns.
    said(unsafe { pathswarm_cuda_memory(i32::try_from(device).unwrap_or(i32::MAX), &raw mut free, &raw mut total) })?;
    let bytes = |count: i64| u64::try_from(count).unwrap_or(0);
    Ok(DeviceMemory { free: bytes(free), total: bytes(total) })
}

/// Gives back to a CUDA device what libtorch keeps for later tensors.
pub fn empty_cache(device: Device) -> Result<(), TchError> {
    if !device.is_cuda() {
        return Ok(());
    }
    // SAFETY: it takes nothing.
    said(unsafe { pathswarm_cuda_empty_cache() })
}

/// An error from its message, which is freed.
pub(super) fn said(message: *mut c_char) -> Result<(), TchError> {
    if message.is_null() {
        return Ok(());
    }
    // SAFETY: the message is a C string from malloc, and nobody else has it.
    unsafe {
        let text = CStr::from_ptr(message).to_string_lossy().into_owned();
        libc::free(message.cast());
        Err(TchError::Torch(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_norm_is_that_of_all_tensors_together() {
        let tensors = [Tensor::from_slice(&[3f32; 16]), Tensor::from_slice(&[4f32; 16]).view([4, 4])];
        assert!((norm(&tensors).unwrap().double_value(&[]) - 20.0).abs() < 1e-5);
        let broken = [Tensor::from_slice(&[1.0, f32::NAN])];
        assert!(norm(&broken).unwrap().double_value(&[]).is_nan());
    }

    #[test]
    fn what_libtorch_refuses_is_an_error_in_its_words() {
        assert!(norm(&[]).is_err());
        let rule = FusedAdamW {
            number: 1,
            clip: 1.0,
            learning_rate: 0.1,
            betas: [0.9, 0.95],
            weight_decay: 0.0,
            epsilon: 1e-8,
        };
        let list = |count: i64| [Tensor::ones([count], (Kind::Float, Device::Cpu))];
        assert!(rule.update(&list(2), &list(3), [&list(2), &list(2)]).is_err());
        assert!(rule.update(&list(2), &list(2), [&list(2), &[]]).is_err());
        let spread = [Tensor::ones([1], (Kind::Float, Device::Cpu)).expand([2], false)];
        assert!(rule.update(&spread, &list(2), [&list(2), &list(2)]).is_err());
        assert!(rule.update(&[], &[], [&[], &[]]).is_ok());
        assert!(empty_cache(Device::Cpu).is_ok());
        if !tch::Cuda::is_available() {
            assert!(cuda_peak_bytes(0, false).is_err());
            assert!(cuda_memory(0).is_err());
        }
    }
}
