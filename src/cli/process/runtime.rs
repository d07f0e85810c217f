//! The asynchronous runtime of a command, and the threads that it needs.

use std::sync::mpsc;
use std::time::Duration;

use crate::cli::mistake::Mistake;

/// Threads of a peer besides those that compute: two of the runtime, some that read and write files, the trainer, the
/// aggregator, the store, the inference server, the log, the display. Up to 29 were seen in
/// two hours (docs/results/sturdy.md).
pub const PEER_THREADS: usize = 32;
/// The same of each further peer in one process: they share the runtime.
pub const FURTHER_PEER_THREADS: usize = 8;
/// The same of a relay, and of who only asks peers.
pub const NETWORK_THREADS: usize = 8;

/// How long a command that has ended waits for its threads.
const ENDS_WITHIN: Duration = Duration::from_secs(1);

/// Runs the asynchronous work of a command to its end, if the system allows so many threads. Those that
/// are still busy then are left behind.
///
/// # Errors
/// If the system allows too few threads, or the work fails.
pub fn run<T>(threads: usize, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    check_threads(threads)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_timeout(ENDS_WITHIN);
    outcome
}

/// Whether the system allows so many further threads: libraries end the process if one of theirs cannot be started.
fn check_threads(count: usize) -> Result<(), Mistake> {
    let (release, waits) = mpsc::sync_channel::<()>(0);
    let waits = std::sync::Arc::new(std::sync::Mutex::new(waits));
    let mut started = Vec::with_capacity(count);
    let mut refused = None;
    for _ in 0..count {
        let waits = waits.clone();
        // Each ends when the sender is dropped.
        match std::thread::Builder::new().stack_size(64 << 10).spawn(move || drop(waits.lock().map(|it| it.recv()))) {
            Ok(thread) => started.push(thread),
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    drop(release);
    let allowed = started.len();
    for thread in started {
        // It does nothing that panics.
        drop(thread.join());
    }
    match refused {
        None => Ok(()),
        Some(error) => Err(Mistake::new(format!(
            "the system allows this process {allowed} more threads, and it needs about {count}: {error}"
        ))
        .hint("allow more processes: ulimit -u, or the limit on processes of the container")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_threads_are_always_allowed() {
        assert!(check_threads(4).is_ok());
    }
}
