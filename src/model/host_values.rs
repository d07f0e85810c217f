//! The values of tensors on the CPU, without a copy.

use tch::{Device, Kind, Tensor};

/// A value as it lies in a tensor of one kind.
pub(crate) trait HostValue: Copy {
    const KIND: Kind;
}

impl HostValue for f32 {
    const KIND: Kind = Kind::Float;
}

/// The bits of a bfloat16: the upper half of an f32's.
impl HostValue for u16 {
    const KIND: Kind = Kind::BFloat16;
}

impl HostValue for u8 {
    const KIND: Kind = Kind::Uint8;
}

impl HostValue for i32 {
    const KIND: Kind = Kind::Int;
}

/// The values of a contiguous tensor on the CPU.
///
/// # Panics
/// If it is not one, or of another kind.
pub(crate) fn host_values<T: HostValue>(tensor: &Tensor) -> &[T] {
    assert_host::<T>(tensor);
    // SAFETY: a contiguous tensor of this kind on the CPU is `numel` such values at `data_ptr`, which live as long as the
    // tensor. No one writes to them in the meantime: operations on tensors that share the storage run only on this thread.
    unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast(), tensor.numel()) }
}

/// As [`host_values`], to write.
///
/// # Panics
/// If it is not a contiguous tensor on the CPU, or of another kind.
pub(crate) fn host_values_mut<T: HostValue>(tensor: &mut Tensor) -> &mut [T] {
    assert_host::<T>(tensor);
    // SAFETY: as above. The callers hold no other slice of the same storage, and no graph that saved these values is
    // used after they change.
    unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast(), tensor.numel()) }
}

fn assert_host<T: HostValue>(tensor: &Tensor) {
    assert!(
        tensor.device() == Device::Cpu && tensor.kind() == T::KIND && tensor.is_contiguous(),
        "only a contiguous {:?} tensor on the CPU has such values on the host",
        T::KIND
    );
}
