//! HUP, INT and TERM, from the first moment of the process, whatever its threads do.
//!
//! A command that stops in order says so with [`heed`]. The first signal then sets a flag and starts a clock: after the
//! grace time the process ends as it is. A second signal ends it at once. Every other command ends with the first
//! signal, also as the first process of a container, for which the system's own default is to ignore it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use libc::{SIGALRM, SIGHUP, SIGINT, SIGTERM, c_int};

use crate::cli::mistake::INTERRUPTED;
use crate::observe::progress;

/// Closing a terminal sends HUP more than once, and systemd sends it after TERM: within this time it is one request.
const ONE_REQUEST_MS: u64 = 1_000;

/// Most bytes that are written at once: so many fit into a pipe that is said to be writable.
const PIPE_BYTES: usize = 4096;

/// Whether the command stops in order.
static HEEDED: AtomicBool = AtomicBool::new(false);
/// Whether the user asked to stop.
static ASKED: AtomicBool = AtomicBool::new(false);
/// When, in milliseconds of the system's monotonic clock; 0 for never.
static ASKED_AT_MS: AtomicU64 = AtomicU64::new(0);
/// Seconds that stopping in order may take.
static GRACE_S: AtomicU32 = AtomicU32::new(10);
/// A signal that this process ignores since its start, as `nohup` wants; 0 for none.
static IGNORED: AtomicI32 = AtomicI32::new(0);

/// Handles signals from now on.
///
/// # Errors
/// If the system refuses a handler.
pub fn install() -> io::Result<()> {
    if is_ignored(SIGHUP) {
        IGNORED.store(SIGHUP, Ordering::SeqCst);
    }
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        if signal != IGNORED.load(Ordering::SeqCst) {
            // SAFETY: `heard` only uses atomics and functions that are safe in a signal handler.
            unsafe { signal_hook_registry::register(signal, move || heard(signal)) }?;
        }
    }
    // SAFETY: the same holds for `is_late`.
    unsafe { signal_hook_registry::register(SIGALRM, is_late) }?;
    Ok(())
}

/// Whether HUP asks this process to stop.
pub fn hears_hang_up() -> bool {
    IGNORED.load(Ordering::SeqCst) != SIGHUP
}

/// From now on, the first signal asks the command to stop in order.
pub fn heed() {
    HEEDED.store(true, Ordering::SeqCst);
}

/// Whether the user asked to stop.
pub fn asked() -> &'static AtomicBool {
    &ASKED
}

/// Sets how long stopping in order may take.
pub fn set_grace(grace_s: u32) {
    GRACE_S.store(grace_s, Ordering::SeqCst);
}

/// How long stopping in order may take.
pub fn grace() -> Duration {
    Duration::from_secs(GRACE_S.load(Ordering::SeqCst).into())
}

/// Ends the process without destructors: those of libtorch free what other threads use.
pub fn end(status: u8) -> ! {
    // SAFETY: _exit has no conditions.
    unsafe { libc::_exit(status.into()) }
}

/// Writes a text on standard error, unless that would wait for a reader. Takes no lock.
pub fn tell(text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(PIPE_BYTES)];
    let mut ready = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: `ready` is one entry, and `bytes` is that long.
    unsafe {
        if libc::poll(&raw mut ready, 1, 0) == 1 && ready.revents & libc::POLLOUT != 0 {
            libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len());
        }
    }
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: a zeroed action is valid to be written to, and no action is set.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut present) == 0 && present.sa_sigaction == libc::SIG_IGN
    }
}

/// Runs in a signal handler.
fn heard(signal: c_int) {
    if !HEEDED.load(Ordering::SeqCst) {
        end_by(signal);
    }
    let now_ms = now_ms();
    match ASKED_AT_MS.compare_exchange(0, now_ms, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => {
            ASKED.store(true, Ordering::SeqCst);
            progress::hurry();
            match GRACE_S.load(Ordering::SeqCst) {
                0 => end(INTERRUPTED),
                // SAFETY: alarm has no conditions.
                grace_s => unsafe { libc::alarm(grace_s) },
            };
        }
        Err(since_ms) if signal == SIGHUP && now_ms.saturating_sub(since_ms) < ONE_REQUEST_MS => {}
        Err(_) => end(INTERRUPTED),
    }
}

/// The grace time is over.
fn is_late() {
    tell("stopped in the middle of its work, as the grace time is over; what was stored is kept\n");
    end(INTERRUPTED);
}

/// Ends the process as the signal does by default. The first process of a container has no such default.
fn end_by(signal: c_int) -> ! {
    // SAFETY: these are safe in a signal handler, and the set is initialized before it is used.
    unsafe {
        if libc::getpid() != 1 {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, signal);
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        }
    }
    end(u8::try_from(128 + signal).unwrap_or(INTERRUPTED))
}

/// Never 0.
fn now_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid to be written to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000).max(1)
}
