//! Devices, and the setup of the process for them: CUDA's library, threads, freed memory.
//!
//! The program does not link CUDA, so that one binary serves machines with and without it. The library is loaded when a
//! device is opened.

use std::path::{Path, PathBuf};
use std::sync::Once;

use tch::{Device, Kind};

use crate::config::DeviceChoice;
use crate::model::tensor_memory::keep_within_groups;

/// The version of libtorch that the program is built with (`scripts/libtorch`).
pub const LIBTORCH: &str = "2.11.0";

#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error(
        "device = \"cuda\": cannot load libtorch's CUDA library: {0}; run scripts/libtorch --cuda, or install a torch \
         that has CUDA if this program came as a wheel, or use device = \"cpu\""
    )]
    Library(String),
    #[error("device = \"cuda\": libtorch finds no CUDA device; check the driver (nvidia-smi) or use device = \"cpu\"")]
    NoDevice,
    #[error(
        "device = \"cuda:{index}\": this machine has {}; use one of {}, or device = \"cpu\"",
        match count { 1 => "one card".to_owned(), count => format!("{count} cards") },
        (0..*count).map(|card| format!("\"cuda:{card}\"")).collect::<Vec<_>>().join(", ")
    )]
    NoCard { index: usize, count: usize },
    #[error(
        "device = \"mps\": libtorch finds no device of Metal, which Macs with Apple silicon have; use device = \"cpu\""
    )]
    NoMps,
}

/// One of them is there where a card of NVIDIA is.
const NVIDIA_FILES: [&str; 3] = ["proc/driver/nvidia/version", "dev/nvidia0", "dev/nvidiactl"];

/// Opens the device of a machine's configuration. `auto` takes CUDA if it works, else Metal, else the CPU. From then on
/// tensors of the CPU stay within what this process may take.
pub fn open_device(choice: DeviceChoice) -> Result<Device, DeviceError> {
    keep_freed_memory();
    keep_within_groups();
    match choice {
        DeviceChoice::Cpu => Ok(Device::Cpu),
        DeviceChoice::Cuda(index) => open_cuda(index),
        DeviceChoice::Mps => open_mps(),
        DeviceChoice::Auto => {
            Ok(open_cuda(0).or_else(|reason| open_mps().map_err(|_| reason)).unwrap_or_else(|reason| {
                static SAID: Once = Once::new();
                SAID.call_once(|| match fallback_words(Path::new("/"), &reason) {
                    Some(words) => tracing::warn!("{words}"),
                    None => tracing::debug!(%reason, "using the CPU"),
                });
                Device::Cpu
            }))
        }
    }
}

/// What people should hear where `auto` takes the CPU although the machine has a card of NVIDIA; else `None`.
pub fn unused_card(choice: DeviceChoice) -> Option<String> {
    match (choice, open_cuda(0)) {
        (DeviceChoice::Auto, Err(reason)) => fallback_words(Path::new("/"), &reason),
        _ => None,
    }
}

/// Those words, if below this folder there are files of NVIDIA's driver.
fn fallback_words(root: &Path, reason: &DeviceError) -> Option<String> {
    let is_there = NVIDIA_FILES.iter().any(|file| root.join(file).exists());
    is_there.then(|| {
        format!(
            "WARNING: this machine has an NVIDIA card, but it cannot be used, and the CPU computes instead. {reason}"
        )
    })
}

/// The kind of floating-point numbers in which sums over many tokens are kept on a device: Metal has no f64.
pub fn kind_of_sums(device: Device) -> Kind {
    if device == Device::Mps { Kind::Float } else { Kind::Double }
}

/// The name of a device in a machine's profile.
pub fn device_name(device: Device) -> String {
    match device {
        Device::Cuda(index) => DeviceChoice::Cuda(index).to_string(),
        Device::Mps => DeviceChoice::Mps.to_string(),
        _ => DeviceChoice::Cpu.to_string(),
    }
}

/// Restarts the program in the same process with OpenMP threads that sleep while they wait. Must be the first call in
/// `main`.
///
/// By default these threads spin for milliseconds after each operation. If two programs share the cores, spinning takes
/// the other's time: next to a compiler, training fell from 7000 to 1000 tokens a second. The setting is read before
/// `main`, so it must be in the environment. An existing `GOMP_SPINCOUNT` or `OMP_WAIT_POLICY` is kept.
#[cfg(unix)]
pub fn spin_briefly() {
    use std::os::unix::process::CommandExt;
    if ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY"].iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    let mut arguments = std::env::args_os();
    let (Some(name), Ok(program)) = (arguments.next(), std::env::current_exe()) else {
        return;
    };
    // Returns only on failure; the program then continues unchanged.
    let reason = std::process::Command::new(program).arg0(name).args(arguments).env("GOMP_SPINCOUNT", "1000").exec();
    tracing::debug!(%reason, "cannot start again with brief spinning");
}

/// Only Unix needs the restart.
#[cfg(not(unix))]
pub fn spin_briefly() {}

/// Threads of a tensor operation, for the whole process; 0 for all cores.
pub fn set_threads(threads: usize) {
    let threads = if threads == 0 { available_threads() } else { threads };
    tch::set_num_threads(i32::try_from(threads).unwrap_or(i32::MAX));
}

/// Threads of a tensor operation now.
pub fn threads() -> usize {
    usize::try_from(tch::get_num_threads()).unwrap_or(1).max(1)
}

fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn open_cuda(index: usize) -> Result<Device, DeviceError> {
    load_cuda_library()?;
    card(index, if tch::Cuda::is_available() { usize::try_from(tch::Cuda::device_count()).unwrap_or(0) } else { 0 })
}

fn open_mps() -> Result<Device, DeviceError> {
    if tch::utils::has_mps() { Ok(Device::Mps) } else { Err(DeviceError::NoMps) }
}

/// The card of this index among so many.
fn card(index: usize, count: usize) -> Result<Device, DeviceError> {
    match count {
        0 => Err(DeviceError::NoDevice),
        _ if index < count => Ok(Device::Cuda(index)),
        _ => Err(DeviceError::NoCard { index, count }),
    }
}

#[cfg(target_os = "linux")]
fn load_cuda_library() -> Result<(), DeviceError> {
    use std::os::unix::ffi::OsStringExt;
    let mapped = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let library = cuda_library(&mapped).into_os_string().into_vec();
    let library = std::ffi::CString::new(library).map_err(|error| DeviceError::Library(error.to_string()))?;
    // SAFETY: the name is a C string. The library's initialisers only register kernels with libtorch, and it is never
    // closed. The error text is valid until this thread's next dl call, and copied before.
    unsafe {
        if libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL).is_null() {
            let reason = libc::dlerror();
            let text = if reason.is_null() { c"unknown error" } else { std::ffi::CStr::from_ptr(reason) };
            return Err(DeviceError::Library(text.to_string_lossy().into_owned()));
        }
    }
    Ok(())
}

/// CUDA's library beside the libtorch that is loaded, as `/proc/self/maps` tells: where programs search there may be another
/// libtorch, too. Without that, its name alone.
#[cfg(target_os = "linux")]
fn cuda_library(mapped: &str) -> PathBuf {
    let files = mapped.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let mut loaded = files.filter(|file| file.ends_with("libtorch_cpu.so"));
    let library = Path::new("libtorch_cuda.so");
    loaded.next().map_or_else(|| library.to_owned(), |loaded| loaded.with_file_name(library))
}

#[cfg(not(target_os = "linux"))]
fn load_cuda_library() -> Result<(), DeviceError> {
    Ok(())
}

/// Makes the C library keep freed memory for the next step instead of returning it to the system.
///
/// Each step allocates and frees the same few hundred megabytes. By default glibc returns large blocks at once, and
/// getting them again costs a page fault for every 4 KiB. Measured: half as many faults, 4% less time.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn keep_freed_memory() {
    const ALMOST_ALL: libc::c_int = 1 << 30;
    // SAFETY: mallopt only changes parameters of the allocator. It is thread-safe, and a refusal is harmless.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, ALMOST_ALL);
        libc::mallopt(libc::M_TRIM_THRESHOLD, ALMOST_ALL);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn keep_freed_memory() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_always_there_and_auto_always_finds_a_device() {
        assert_eq!(open_device(DeviceChoice::Cpu).unwrap(), Device::Cpu);
        let found = open_device(DeviceChoice::Auto).unwrap();
        assert!([Device::Cpu, Device::Cuda(0), Device::Mps].contains(&found));
    }

    #[test]
    fn metal_is_opened_where_libtorch_has_it_and_refused_in_words_elsewhere() {
        match open_device(DeviceChoice::Mps) {
            Ok(device) => assert_eq!((device, device_name(device)), (Device::Mps, "mps".to_owned())),
            Err(error) => assert!(error.to_string().ends_with("use device = \"cpu\""), "{error}"),
        }
        assert_eq!([Device::Mps, Device::Cpu].map(kind_of_sums), [Kind::Float, Kind::Double]);
    }

    #[test]
    fn missing_cuda_is_said_in_words() {
        if let Err(error) = open_device(DeviceChoice::Cuda(0)) {
            assert!(error.to_string().contains("use device = \"cpu\""), "{error}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn cuda_is_loaded_from_beside_the_libtorch_that_is_loaded() {
        let mapped = "7f0-7f1 r--p 00000000 fe:00 1  /opt/a b/torch/lib/libc10.so\n\
                      7f1-7f2 rw-p 00000000 00:00 0\n\
                      7f2-7f3 r--p 00000000 fe:00 2  /opt/a b/torch/lib/libtorch_cpu.so\n";
        assert_eq!(cuda_library(mapped), Path::new("/opt/a b/torch/lib/libtorch_cuda.so"));
        assert_eq!(cuda_library("7f1-7f2 rw-p 00000000 00:00 0\n"), Path::new("libtorch_cuda.so"));
        let here = cuda_library(&std::fs::read_to_string("/proc/self/maps").unwrap());
        assert!(here.is_absolute(), "{}", here.display());
    }

    #[test]
    fn a_card_that_is_not_there_is_refused_with_those_that_are() {
        assert_eq!(card(1, 2).unwrap(), Device::Cuda(1));
        assert!(matches!(card(0, 0), Err(DeviceError::NoDevice)));
        let said = |index, count| card(index, count).unwrap_err().to_string();
        let two =
            "device = \"cuda:2\": this machine has 2 cards; use one of \"cuda:0\", \"cuda:1\", or device = \"cpu\"";
        assert_eq!(said(2, 2), two);
        assert!(said(7, 1).contains("has one card; use one of \"cuda:0\""), "{}", said(7, 1));
    }

    #[test]
    fn a_card_that_auto_cannot_use_is_told_of_loudly_and_with_the_reason() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(fallback_words(root.path(), &DeviceError::NoDevice), None, "there is no card");
        std::fs::create_dir(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/nvidia0"), "").unwrap();
        let words = fallback_words(root.path(), &DeviceError::NoDevice).unwrap();
        assert!(words.starts_with("WARNING") && words.contains("finds no CUDA device"), "{words}");
        assert_eq!(unused_card(DeviceChoice::Cpu), None, "the CPU was asked for");
    }
}
