//! Keeps the tensors of the CPU within the memory that this process may take, by refusing the one that would not fit.
//!
//! Linux gives memory until a control group's limit is reached, and then ends the process: no allocation ever fails. Here a
//! tensor of at least 1 MiB asks first. What does not fit fails as it would in libtorch ([`is_out_of_memory`]), and whoever
//! computes makes smaller batches, or waits. The limits are those of the process's [control
//! groups](control_group), and what the machine's profile gives its trainers ([`ProfileLimit`]).
//!
//! Tensors are counted one by one (torch.cpp). Everything else is what the system says that there is besides them, looked at
//! again after each [`interval`] of new tensors: values of the host, small tensors, what libraries keep, and pieces of the
//! heap. What grows in between, such as oneDNN's scratch memory, is what the [margin](margin_of) is for. In a control group it
//! can still be too little, for instance where another program there grows quickly.

pub mod control_group;

use std::error::Error;
use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use tch::TchError;

use crate::model::fused::said;
use crate::model::tensor_memory::control_group::{ControlGroup, limited_groups};

unsafe extern "C" {
    fn pathswarm_bound_tensors(room: extern "C" fn() -> i64, interval: i64) -> *mut c_char;
    fn pathswarm_measure_tensors() -> *mut c_char;
    #[cfg(test)]
    fn pathswarm_bounded_bytes() -> i64;
}

/// What libtorch's allocators say, on the CPU and on CUDA.
const SAID: [&str; 3] = ["can't allocate memory", "not enough memory", "out of memory"];

/// Whether an allocation failed. libtorch has no kind of its own for it.
pub fn is_out_of_memory(error: &TchError) -> bool {
    matches!(error, TchError::Torch(said) if SAID.iter().any(|phrase| said.to_lowercase().contains(phrase)))
}

/// Whether an error is due to an allocation that failed.
pub fn ran_out_of_memory(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref().is_some_and(is_out_of_memory) || error.source().is_some_and(ran_out_of_memory)
}

/// An error of libtorch, for tests elsewhere.
#[cfg(test)]
pub(crate) fn torch_error(said: &str) -> TchError {
    TchError::Torch(said.to_owned())
}

/// What an allocator said, without the places in libtorch at which it was.
pub fn first_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Bytes of a control group's limit that are left to what grows unseen between two looks.
fn margin_of(limit: u64) -> u64 {
    (limit / 16).clamp(64 << 20, 1 << 30)
}

/// Bytes of new tensors after which the system is asked again: half of the least margin, so that a heap that has become as
/// much larger is noticed in time.
const fn interval() -> i64 {
    32 << 20
}

/// The groups when the process began to compute.
static GROUPS: OnceLock<Vec<ControlGroup>> = OnceLock::new();

/// What the profile gives to the trainers of this process.
#[derive(Default)]
struct Profile {
    trainers: usize,
    bytes: u64,
    /// Training has turned out not to fit into it.
    is_lifted: bool,
}

static PROFILE: Mutex<Profile> = Mutex::new(Profile { trainers: 0, bytes: 0, is_lifted: false });

fn profile() -> MutexGuard<'static, Profile> {
    // Numbers are consistent even if a thread panicked.
    PROFILE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that this process may still take, fewer than none if it has too many.
extern "C" fn room() -> i64 {
    let in_group = |group: &ControlGroup| {
        let limit = group.limit()?;
        Some(signed(limit) - signed(margin_of(limit)) - signed(group.taken()?))
    };
    let in_groups = GROUPS.get().into_iter().flatten().filter_map(in_group).min();
    let limit = Some(profile()).filter(|profile| profile.trainers > 0 && !profile.is_lifted);
    let limit = limit.map(|profile| signed(profile.bytes));
    let in_profile = limit.and_then(|limit| Some(limit - signed(resident_bytes()?)));
    // Half of what there is, so that sums stay in range.
    [in_groups, in_profile].into_iter().flatten().min().unwrap_or(i64::MAX / 2)
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX).min(i64::MAX / 4)
}

/// Bytes of memory that this process has; nothing where the system does not say it as Linux does.
pub fn resident_bytes() -> Option<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: it only reads a number of the system.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    Some(pages * page)
}

/// Keeps tensors within the limits of this process's control groups, if they have any. To be called before there are threads
/// that compute.
pub fn keep_within_groups() {
    if !GROUPS.get_or_init(limited_groups).is_empty() {
        bound();
    }
}

/// Whether memory that runs out is noticed on the CPU, with a profile that gives trainers so many bytes, once a device has
/// been opened.
pub fn keeps_limits(profile_bytes: u64) -> bool {
    let in_group = GROUPS.get().is_some_and(|groups| !groups.is_empty());
    cfg!(all(target_os = "linux", target_env = "gnu")) && (profile_bytes > 0 || in_group)
}

fn bound() {
    static BOUND: Once = Once::new();
    BOUND.call_once(|| {
        // SAFETY: the function is there as long as the process, does not unwind, and locks nothing that is held here.
        if let Err(error) = said(unsafe { pathswarm_bound_tensors(room, interval()) }) {
            tracing::warn!(%error, "tensors are not kept within the limits of memory");
        }
    });
}

fn measure() {
    // SAFETY: it takes nothing.
    if let Err(error) = said(unsafe { pathswarm_measure_tensors() }) {
        tracing::warn!(%error, "the limits of memory");
    }
}

/// What a machine's profile gives to one trainer, as long as this lives. Several in a process, as in a simulation, have as
/// much together as they are given each.
#[derive(Debug)]
pub struct ProfileLimit {
    bytes: u64,
}

impl ProfileLimit {
    /// Of so many bytes of this process; 0 for no limit.
    pub fn new(bytes: u64) -> Option<Self> {
        if bytes == 0 {
            return None;
        }
        {
            let mut profile = profile();
            profile.trainers += 1;
            profile.bytes = profile.bytes.saturating_add(bytes);
        }
        bound();
        measure();
        Some(Self { bytes })
    }
}

/// Lets this process have more than its profile says, from now on: where training does not fit into it, to go on is better
/// than to stop. Returns whether that changes anything.
pub fn lift_profile_limit() -> bool {
    let lifted = {
        let mut profile = profile();
        profile.trainers > 0 && !std::mem::replace(&mut profile.is_lifted, true)
    };
    if lifted {
        tracing::warn!("training takes more than memory_limit_bytes even in its smallest steps: it gets more");
        measure();
    }
    lifted
}

impl Drop for ProfileLimit {
    fn drop(&mut self) {
        {
            let mut profile = profile();
            profile.trainers = profile.trainers.saturating_sub(1);
            profile.bytes = profile.bytes.saturating_sub(self.bytes);
        }
        measure();
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::*;
    use crate::model::samples::is_in_a_process_of_its_own;

    fn floats(bytes: i64) -> Result<Tensor, TchError> {
        Tensor::f_zeros([bytes / 4].as_slice(), (Kind::Float, Device::Cpu))
    }

    /// In a process of its own, since the limit would hold for other tests.
    #[test]
    fn a_tensor_that_does_not_fit_is_refused_and_fits_once_another_is_gone() {
        const MIB: i64 = 1 << 20;
        if !is_in_a_process_of_its_own() {
            return;
        }
        drop(floats(MIB).unwrap());
        // Two trainers of 150 MiB each, in a program that has as much as it has.
        let half = (resident_bytes().unwrap() + (300 << 20)) / 2;
        let limits = [(); 2].map(|()| ProfileLimit::new(half).unwrap());
        let first = floats(200 * MIB).unwrap();
        // SAFETY: it takes nothing.
        let counted = || unsafe { pathswarm_bounded_bytes() };
        assert!((200 * MIB..201 * MIB).contains(&counted()), "{}", counted());
        let refused = floats(150 * MIB).unwrap_err();
        assert!(is_out_of_memory(&refused) && ran_out_of_memory(&refused), "{refused}");
        assert!(first_line(&refused).contains("a tensor of 157286400 bytes does not fit"), "{refused}");
        // Nobody has written to them, but could.
        let empty = |bytes: i64| Tensor::f_empty([bytes / 4].as_slice(), (Kind::Float, Device::Cpu));
        let second = empty(60 * MIB).unwrap();
        assert!(empty(60 * MIB).is_err());
        drop((first, second));
        assert!(counted() < MIB, "{}", counted());
        let mut again = floats(250 * MIB).unwrap();
        assert!(again.sum(Kind::Float).double_value(&[]).abs() < 1e-9);
        let grown = again.f_resize_([64 * MIB]);
        assert!(grown.is_err_and(|error| is_out_of_memory(&error)), "256 MiB beside 250");
        let [first, second] = limits;
        drop(first);
        assert!(floats(2 * MIB).is_err(), "half of it was the other trainer's");
        assert!(lift_profile_limit() && !lift_profile_limit());
        assert!(floats(400 * MIB).is_ok());
        drop(second);
    }

    #[test]
    fn an_error_that_has_another_reason_is_not_taken_for_a_failed_allocation() {
        assert!(!ran_out_of_memory(&TchError::Torch("shapes do not fit".to_owned())));
        assert!(!ran_out_of_memory(&std::io::Error::other("out of memory")));
        assert_eq!(first_line(&"one\ntwo"), "one");
    }
}
