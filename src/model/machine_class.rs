//! Which machines come to the very same bytes when they train the same.
//!
//! Floating-point sums depend on their order, which follows from the processor's vector units, from the number of threads, from the
//! precision and from how many sequences are computed at once. On a CPU these decide everything; nobody promises
//! anything of what a CUDA device adds up by atomic operations, nor of a processor that does not say what it is.

use tch::Device;

use crate::config::MachineConfig;

/// What goes into libtorch's choice of a kernel, as Linux tells it of a processor.
const TELLING: [&str; 10] = [
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "flags",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "Features",
];

/// A number for machines that come to the same bytes; 0 where that is not promised. To be called once the process's
/// threads are set. `batch_sequences` are the run's.
pub fn machine_class(device: Device, machine: &MachineConfig, batch_sequences: usize) -> u64 {
    match (device, std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|said| processor(&said))) {
        (Device::Cpu, Some(processor)) => {
            let at_once = match machine.micro_batch_sequences {
                0 => batch_sequences,
                most => most.min(batch_sequences),
            };
            let threads = tch::get_num_threads();
            let (version, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
            named(&format!("{version} {arch} {:?} {threads} {at_once}\n{processor}", machine.precision))
        }
        _ => 0,
    }
}

/// Never 0.
fn named(text: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(bytes).max(1)
}

/// Of the first of a machine's processors; nothing if it does not say what it can do.
fn processor(said: &str) -> Option<String> {
    let of_first = said.lines().take_while(|line| !line.trim().is_empty());
    let telling: Vec<String> = of_first
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.trim(), value.trim()))
        .filter(|(key, _)| TELLING.contains(key))
        .map(|(key, value)| format!("{key}: {value}"))
        .collect();
    let can = |line: &String| line.starts_with("flags:") || line.starts_with("Features:");
    telling.iter().any(can).then(|| telling.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Precision;

    const SAID: &str = "processor\t: 0\nvendor_id\t: Some\nmodel name\t: One\ncpu MHz\t\t: 2000\nflags\t\t: fpu avx2\n\n\
                        processor\t: 1\nmodel name\t: Two\n";

    #[test]
    fn what_a_processor_can_do_tells_it_from_others_and_how_fast_it_runs_does_not() {
        let one = processor(SAID).unwrap();
        assert_eq!(one, "vendor_id: Some\nmodel name: One\nflags: fpu avx2");
        assert_eq!(processor(&SAID.replace("2000", "3000")), Some(one.clone()));
        assert_ne!(processor(&SAID.replace("avx2", "avx512f")), Some(one));
        assert_eq!(processor("model name: a riddle\n"), None);
    }

    #[test]
    fn precision_and_what_is_computed_at_once_make_another_class_and_cuda_makes_none() {
        let f32 = MachineConfig::default();
        let bf16 = MachineConfig { precision: Precision::Bf16, ..f32.clone() };
        let two = MachineConfig { micro_batch_sequences: 2, ..f32.clone() };
        let [usual, narrow, few] = [&f32, &bf16, &two].map(|machine| machine_class(Device::Cpu, machine, 8));
        assert_eq!(usual, machine_class(Device::Cpu, &MachineConfig { micro_batch_sequences: 9, ..f32.clone() }, 8));
        assert!(usual == 0 || (usual != narrow && usual != few && narrow != few));
        assert_eq!(machine_class(Device::Cuda(0), &f32, 8), 0);
    }
}
