//! Checks of disk, clock, device, and training speed.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rand::RngExt;

use super::finding::Finding;
use crate::config::{MachineConfig, RunConfig};
use crate::model::{Device, LIBTORCH, device_name, initial_levels, open_device, unused_card};
use crate::seed::Seed;
use crate::training::device::SIZES;
use crate::training::{BatchOrder, InnerTrainer};

/// What to do where a card is there and the CPU computes.
const USE_THE_CARD: &str = "run scripts/libtorch --cuda and check the driver with nvidia-smi, or say device = \"cpu\"";

/// Bytes written to measure the disk.
const DISK_BYTES: usize = 64 << 20;

/// Less is not enough for any run.
const LEAST_FREE_BYTES: u64 = 1 << 30;

/// With a slower disk, a state of 100 MB takes seconds.
const LEAST_DISK_BYTES_PER_S: f64 = 20e6;

/// Duration of the measurement, after the first step.
const TRAINS: Duration = Duration::from_secs(2);

/// Free space and speed of the folder of runs.
pub fn disk(machine: &MachineConfig) -> Vec<Finding> {
    let folder = existing(&machine.runs);
    let shown = folder.display();
    let choose = "choose another folder with --set runs=FOLDER, or in the machine's profile";
    let (bytes_per_s, sync_ms) = match measure(&folder) {
        Ok(measured) => measured,
        Err(error) => return vec![Finding::wrong("disk", format!("{shown} cannot be written: {error}"), choose)],
    };
    let free_bytes = match free_bytes(&folder) {
        Ok(free_bytes) => free_bytes,
        Err(error) => {
            return vec![Finding::wrong("disk", format!("the free space of {shown} cannot be read: {error}"), choose)];
        }
    };
    let found = format!(
        "{:.1} GB free in {shown}, {:.0} MB/s with sync, {sync_ms:.1} ms for a small sync",
        free_bytes as f64 / 1e9,
        bytes_per_s / 1e6
    );
    let finding = match () {
        () if free_bytes < LEAST_FREE_BYTES => {
            Finding::wrong("disk", found, format!("free some space there, or {choose}"))
        }
        () if machine.disk_bytes > free_bytes => {
            let remedy = format!(
                "the profile sets disk_bytes = {}, which is more than is free: free some space, or set less",
                machine.disk_bytes
            );
            Finding::poor("disk", found, remedy)
        }
        () if bytes_per_s < LEAST_DISK_BYTES_PER_S => {
            Finding::poor("disk", found, format!("this disk is slow, and every update is synced to it: {choose}"))
        }
        () => Finding::good("disk", found),
    };
    let finding = finding.with("free_bytes", free_bytes).with("bytes_per_s", bytes_per_s).with("sync_ms", sync_ms);
    vec![finding.with("folder", folder.display().to_string())]
}

/// The folder, or its nearest existing parent.
fn existing(folder: &Path) -> PathBuf {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    absolute.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// Bytes a second written and synced, and milliseconds of a small sync.
#[expect(clippy::disallowed_methods, reason = "an edge: how long the disk takes")]
fn measure(folder: &Path) -> io::Result<(f64, f64)> {
    let mut file = tempfile::tempfile_in(folder)?;
    let contents: Vec<u8> = (0..DISK_BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let began = Instant::now();
    file.write_all(&contents)?;
    file.sync_all()?;
    let bytes_per_s = DISK_BYTES as f64 / began.elapsed().as_secs_f64();
    let began = Instant::now();
    for _ in 0..5 {
        file.write_all(&[1; 100])?;
        file.sync_all()?;
    }
    Ok((bytes_per_s, began.elapsed().as_secs_f64() * 1e3 / 5.0))
}

fn free_bytes(folder: &Path) -> io::Result<u64> {
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes())?;
    let mut about = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path is a C string, and the structure has the size that the system writes. It is read only after
    // success.
    let about = unsafe {
        if libc::statvfs(path.as_ptr(), about.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        about.assume_init()
    };
    Ok(u64_of(about.f_bavail).saturating_mul(u64_of(about.f_frsize)))
}

/// Systems have these numbers in 32 or in 64 bits.
fn u64_of(number: impl Into<u64>) -> u64 {
    number.into()
}

/// Whether the system's time is plausible. The protocol only measures durations, but logs and invitations use it.
#[expect(clippy::disallowed_methods, reason = "an edge: whether the system's time makes sense")]
pub fn clock() -> Vec<Finding> {
    let set = "set the clock, and let the system keep it: timedatectl set-ntp true";
    let made = std::env::current_exe().and_then(fs::metadata).and_then(|about| about.modified());
    let behind = made.ok().and_then(|made| made.duration_since(SystemTime::now()).ok());
    if let Some(behind) = behind.filter(|behind| *behind > Duration::from_secs(24 * 3600)) {
        let days = behind.as_secs() / (24 * 3600);
        return vec![Finding::wrong("clock", format!("{days} days before this program was built"), set)];
    }
    vec![match is_kept() {
        Some(true) => Finding::good("clock", "synchronised by the system (NTP)").with("kept", true),
        Some(false) => {
            let found = "not synchronised: the system does not know its error";
            Finding::poor(
                "clock",
                found,
                "only logs and expiry dates depend on it; to synchronise it: timedatectl set-ntp true",
            )
            .with("kept", false)
        }
        None => Finding::good("clock", "after this program was built"),
    }]
}

/// Whether the system's time is synchronised, if the system tells.
#[cfg(target_os = "linux")]
fn is_kept() -> Option<bool> {
    // SAFETY: a zeroed structure is a query that changes nothing (`modes = 0`), and the system fills it in.
    let state = unsafe {
        let mut about: libc::timex = std::mem::zeroed();
        libc::adjtimex(&mut about)
    };
    (state >= 0).then_some(state != libc::TIME_ERROR)
}

#[cfg(not(target_os = "linux"))]
fn is_kept() -> Option<bool> {
    None
}

/// Whether the device of the profile is available.
pub fn device(machine: &MachineConfig) -> Vec<Finding> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    vec![
        match open_device(machine.first_device()) {
            Err(error) => {
                Finding::wrong("device", error.to_string(), "or leave the choice to the program: device = \"auto\"")
            }
            Ok(device) => {
                let name = device_name(device);
                let card = match device {
                    Device::Cuda(index) => card(index).map_or_else(String::new, |card| format!(" ({card})")),
                    _ => String::new(),
                };
                let found = format!("{name}{card}, and {cores} cores; libtorch {LIBTORCH}");
                let finding = match unused_card(machine.first_device()) {
                    Some(words) => Finding::poor("device", format!("{found}. {words}"), USE_THE_CARD),
                    None => Finding::good("device", found),
                };
                finding.with("device", name)
            }
        }
        .with("cores", cores),
    ]
}

/// Name, driver and MiB of a card, as NVIDIA's tool tells; none where there is no such tool.
fn card(index: usize) -> Option<String> {
    let query = ["--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"];
    let output =
        Command::new("nvidia-smi").args(query).arg(format!("--id={index}")).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Training speed of one path alone.
pub fn speed(machine: &MachineConfig, run: Option<RunConfig>) -> Vec<Finding> {
    match tokens_per_s(machine, run) {
        Ok((tokens_per_s, parameters)) => {
            let millions = parameters as f64 / 1e6;
            let found = format!("{tokens_per_s:.0} tokens/s on a path of {millions:.1} million parameters");
            vec![Finding::good("speed", found).with("tokens_per_s", tokens_per_s).with("parameters", parameters)]
        }
        Err(error) => {
            let remedy =
                "lower micro_batch_sequences in the machine's profile if its memory ran out, or try device=cpu";
            vec![Finding::wrong("speed", format!("an inner step fails: {error:#}"), remedy)]
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "an edge: how long steps take")]
fn tokens_per_s(machine: &MachineConfig, run: Option<RunConfig>) -> anyhow::Result<(f64, usize)> {
    let run = run.unwrap_or_else(|| SIZES[0].run(SIZES[0].sequences));
    let mut trainer = InnerTrainer::new(&run, machine, open_device(machine.first_device())?)?;
    let levels = initial_levels(&run.model, &run.levels, Seed::root(1));
    trainer.load(&levels.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    let mut rng = Seed::root(2).generator();
    let (vocabulary, context) = (u32::try_from(run.model.vocabulary)?, run.model.context);
    // An image is bytes, followed by a class.
    let below = |place| if run.model.reads_images() && place < context { 256 } else { vocabulary };
    let mut sequence = || (0..=context).map(|place| rng.random_range(0..below(place))).collect();
    let set: Vec<Vec<u32>> = (0..run.training.batch_sequences).map(|_| sequence()).collect();
    let order = BatchOrder { seed: Seed::root(3), sequences: set.len() };
    let parameters = levels.iter().map(Vec::len).sum();
    // The first step allocates everything.
    trainer.step(&set[..], &order, 1)?;
    let (began, mut tokens, mut step) = (Instant::now(), 0, 1);
    while began.elapsed() < TRAINS {
        step += 1;
        tokens += trainer.step(&set[..], &order, step)?.tokens;
    }
    Ok((tokens as f64 / began.elapsed().as_secs_f64(), parameters))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::swarm::doctor::finding::Verdict;

    #[test]
    fn a_disk_is_measured_where_the_nearest_folder_is() {
        let home = tempfile::tempdir().unwrap();
        let machine = MachineConfig { runs: home.path().join("not/yet/there"), ..MachineConfig::default() };
        let found = disk(&machine).remove(0);
        assert!(found.found.contains(&home.path().display().to_string()), "{}", found.found);
        assert!(found.to_json()["values"]["bytes_per_s"].as_f64().unwrap() > 0.0);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "nothing is left");
        let greedy = MachineConfig { disk_bytes: u64::MAX, ..machine };
        let found = disk(&greedy).remove(0);
        assert!(found.verdict != Verdict::Good && found.remedy.is_some());
    }

    #[test]
    fn a_path_trains_and_says_how_fast() {
        let machine =
            MachineConfig { threads: 1, device: crate::config::DeviceChoice::Cpu, ..MachineConfig::default() };
        let (tokens_per_s, parameters) = tokens_per_s(&machine, None).unwrap();
        assert!(tokens_per_s > 0.0 && parameters > 3_000_000);
    }
}
