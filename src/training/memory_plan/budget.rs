//! How much memory a machine has for a step.

use tch::Device;

use crate::config::{MachineConfig, RunConfig, level_parameters};
use crate::model::fused::cuda_memory;
use crate::model::tensor_memory::control_group::lowest_limit;
use crate::training::memory_plan::host_bytes;

/// What the program itself takes on the CPU besides training: about 190 MiB with libtorch's code (docs/results/sturdy.md), and a
/// third more.
const PROGRAM_BYTES: u64 = 256 << 20;

/// Bytes that a step of a run's path may take on a device: what the device has, or `memory_limit_bytes` if that is less. On
/// the CPU without what the rest of a peer holds, and shared with other trainers on it. `None` where the system does not tell.
pub fn budget(run: &RunConfig, machine: &MachineConfig, device: Device) -> Option<u64> {
    let limit = Some(machine.memory_limit_bytes).filter(|bytes| *bytes > 0);
    let there = match device {
        Device::Cuda(index) => cuda_memory(index).ok().map(|memory| memory.total),
        _ => host_memory(),
    };
    let most = [limit, there].into_iter().flatten().min()?;
    let parameters = run.levels.iter().map(|level| level_parameters(&run.model, level) as u64).sum();
    let (program, besides) = if device.is_cuda() { (0, 0) } else { (PROGRAM_BYTES, host_bytes(run, parameters)) };
    Some((most.saturating_sub(program) / machine.sharers.max(1) as u64).saturating_sub(besides))
}

/// Bytes of memory that this process may take: the machine's, or those of its control groups if one of them has fewer.
fn host_memory() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(total_of);
    [machine, lowest_limit()].into_iter().flatten().min()
}

/// Bytes in all, from what the system says of its memory.
fn total_of(said: &str) -> Option<u64> {
    let line = said.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(1024 * line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::samples::small_run;

    #[test]
    fn a_limit_of_the_profile_is_kept_where_the_machine_has_more() {
        let run = small_run();
        let limit = |memory_limit_bytes| MachineConfig { memory_limit_bytes, ..MachineConfig::default() };
        let small = 2 * PROGRAM_BYTES;
        let given = budget(&run, &limit(small), Device::Cpu).unwrap();
        assert!(given < small - PROGRAM_BYTES && given > small - PROGRAM_BYTES - (1 << 20), "{given}");
        assert_eq!(budget(&run, &limit(1), Device::Cpu), Some(0));
        assert!(budget(&run, &limit(u64::MAX), Device::Cpu) < Some(u64::MAX / 2) || !cfg!(target_os = "linux"));
    }

    #[test]
    fn trainers_that_share_the_memory_have_a_part_each() {
        let run = small_run();
        let of = |sharers| {
            let machine = MachineConfig { memory_limit_bytes: 5 * PROGRAM_BYTES, sharers, ..MachineConfig::default() };
            budget(&run, &machine, Device::Cpu).unwrap()
        };
        assert!((2 * of(2)).abs_diff(of(1)) < 1 << 20, "{} and {}", of(1), of(2));
    }

    #[test]
    fn what_the_system_says_is_read() {
        assert_eq!(total_of("MemTotal:       24594532 kB\nMemFree: 1 kB\n"), Some(24_594_532 * 1024));
        assert_eq!(total_of("nothing"), None);
    }
}
