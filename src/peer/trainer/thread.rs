//! The trainer's thread: tasks in, reports out, and a new thread when the old one hangs or has died.
//!
//! A thread that hangs in a device's driver cannot be ended from outside. It is abandoned: its late reports are not
//! read, and its lease of the device ends.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::failpoints::failpoint;
use crate::peer::trainer::device_scheduler::{DeviceLease, DeviceScheduler};
use crate::peer::trainer::task::{Task, TrainerReport};

/// Commands and reports that may wait. The driver has one pending command, and takes reports as they arrive.
const MAILBOX: usize = 1;

/// The driver's signal for the present task.
const GO_ON: u8 = 0;
const PAUSE: u8 = 1;
const END: u8 = 2;

/// No lease is held.
const NO_TURN: u64 = u64::MAX;

/// The thread's side: its tasks, its reports, and the device.
pub struct WorkerHandle {
    tasks: mpsc::Receiver<Task>,
    told: mpsc::Sender<TrainerReport>,
    scheduler: Arc<DeviceScheduler>,
    holds: Arc<AtomicU64>,
    signal: Arc<AtomicU8>,
}

impl WorkerHandle {
    /// Waits for the next task; `None` if none will come.
    pub fn next_task(&mut self) -> Option<Task> {
        self.tasks.blocking_recv()
    }

    /// Reports, and waits for space. Returns false if the driver has gone.
    pub fn report(&self, told: TrainerReport) -> bool {
        failpoint("trainer");
        self.told.blocking_send(told).is_ok()
    }

    /// Reports, if the driver is not busy. Returns whether it did.
    pub fn try_report(&self, told: TrainerReport) -> bool {
        self.told.try_send(told).is_ok()
    }

    /// Whether the driver has gone.
    pub fn is_abandoned(&self) -> bool {
        self.told.is_closed()
    }

    /// Whether the present task should pause.
    pub fn is_paused(&self) -> bool {
        self.signal.load(Ordering::SeqCst) == PAUSE
    }

    /// Whether the present phase should end with its result so far.
    pub fn is_to_end(&self) -> bool {
        self.signal.load(Ordering::SeqCst) == END
    }

    /// Whether the driver has gone, or wants the present task to pause or end.
    pub fn is_interrupted(&self) -> bool {
        self.is_abandoned() || self.is_paused() || self.is_to_end()
    }

    /// Waits for the device, and calls `waits` at intervals.
    pub fn acquire_device(&self, every: Duration, waits: &mut dyn FnMut()) -> HeldDevice<'_> {
        let lease = self.scheduler.acquire_and_report(every, waits);
        self.holds.store(lease.ticket(), Ordering::SeqCst);
        HeldDevice { holds: &self.holds, _lease: lease }
    }
}

/// The device belongs to this trainer until this is dropped, or the trainer is abandoned.
pub struct HeldDevice<'a> {
    holds: &'a AtomicU64,
    _lease: DeviceLease<'a>,
}

impl Drop for HeldDevice<'_> {
    fn drop(&mut self) {
        self.holds.store(NO_TURN, Ordering::SeqCst);
    }
}

/// The work of a trainer's thread.
pub type Work = Arc<dyn Fn(WorkerHandle) + Send + Sync>;

struct Running {
    tasks: mpsc::Sender<Task>,
    told: mpsc::Receiver<TrainerReport>,
    holds: Arc<AtomicU64>,
    signal: Arc<AtomicU8>,
    /// Disconnected when the thread ends, for any reason.
    ended: Mutex<blocking::Receiver<()>>,
    thread: JoinHandle<()>,
}

/// The driver's side. The thread ends, after the present inner step, when this is dropped.
pub struct TrainerThread {
    work: Work,
    scheduler: Arc<DeviceScheduler>,
    span: tracing::Span,
    running: Running,
    left: Vec<JoinHandle<()>>,
}

impl TrainerThread {
    pub fn start(work: Work, scheduler: Arc<DeviceScheduler>) -> std::io::Result<Self> {
        let span = tracing::Span::current();
        let running = run(&work, &scheduler, &span)?;
        Ok(Self { work, scheduler, span, running, left: Vec::new() })
    }

    /// Starts another thread, and abandons this one.
    pub fn restart(&mut self) -> std::io::Result<()> {
        let Running { holds, thread, .. } =
            std::mem::replace(&mut self.running, run(&self.work, &self.scheduler, &self.span)?);
        self.scheduler.end(holds.load(Ordering::SeqCst));
        self.left.push(thread);
        self.left.retain(|thread| !thread.is_finished());
        Ok(())
    }

    /// Sends a task. To be called when the one before is answered, so that there is space.
    pub fn begin(&self, task: Task) -> bool {
        self.running.signal.store(GO_ON, Ordering::SeqCst);
        self.running.tasks.try_send(task).is_ok()
    }

    /// Pauses the present task, if it is a phase that is not done by then.
    pub fn pause(&self) {
        self.running.signal.store(PAUSE, Ordering::SeqCst);
    }

    /// Ends the present phase with its result so far, after at least one step.
    pub fn end_phase(&self) {
        self.running.signal.store(END, Ordering::SeqCst);
    }

    /// Leaves the thread behind for good.
    pub fn abandon(self) {
        self.scheduler.end(self.running.holds.load(Ordering::SeqCst));
    }

    /// The next report, if there is one; `None` if the thread has died.
    pub fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<Option<TrainerReport>> {
        self.running.told.poll_recv(context)
    }

    /// The same, once it is there.
    #[cfg(test)]
    pub async fn next_report(&mut self) -> Option<TrainerReport> {
        std::future::poll_fn(|context| self.poll_report(context)).await
    }

    /// Ends the thread, and waits so long for the end of its present inner step. A thread that hangs is left behind: the
    /// process ends without tearing libtorch down. Blocks.
    pub fn end(self, timeout: Duration) {
        let Running { tasks, told, ended, thread, holds, .. } = self.running;
        drop((tasks, told));
        let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Nothing is ever sent.
        let hangs = ended.recv_timeout(timeout) == Err(blocking::RecvTimeoutError::Timeout);
        if hangs {
            self.scheduler.end(holds.load(Ordering::SeqCst));
        } else {
            // A death has been reported.
            drop(thread.join());
        }
    }
}

fn run(work: &Work, scheduler: &Arc<DeviceScheduler>, span: &tracing::Span) -> std::io::Result<Running> {
    let (tasks, mailbox) = mpsc::channel(MAILBOX);
    let (sender, told) = mpsc::channel(MAILBOX);
    let (alive, ended) = blocking::sync_channel(0);
    let holds = Arc::new(AtomicU64::new(NO_TURN));
    let signal = Arc::new(AtomicU8::new(GO_ON));
    let handle = WorkerHandle {
        tasks: mailbox,
        told: sender,
        scheduler: scheduler.clone(),
        holds: holds.clone(),
        signal: signal.clone(),
    };
    let (work, span) = (work.clone(), span.clone());
    let thread = std::thread::Builder::new().name("trainer".to_owned()).spawn(move || {
        let _alive: blocking::SyncSender<()> = alive;
        let _peer = span.enter();
        work(handle);
    })?;
    Ok(Running { tasks, told, holds, signal, ended: Mutex::new(ended), thread })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::names::{PathId, Phase};
    use crate::peer::trainer::task::PhaseTask;
    use crate::protocol::Part;

    fn task() -> Task {
        let (path, drawn, phase) = (PathId(0), PathId(0), Phase(0));
        let (part, start) = (Part::whole(1, vec![]), vec![]);
        Task::Train(PhaseTask { path, drawn, trainer_number: 0, phase, part, start, trainer: None, resume: None })
    }

    fn alive(steps: u64) -> TrainerReport {
        TrainerReport::Alive { path: PathId(0), phase: Phase(0), steps }
    }

    fn steps(told: Option<TrainerReport>) -> Option<u64> {
        match told {
            Some(TrainerReport::Alive { steps, .. }) => Some(steps),
            _ => None,
        }
    }

    /// The first thread hangs in its first task, with the device, until it is released; the others work.
    fn hanging_once(let_go: Arc<Barrier>, ended: blocking::SyncSender<bool>) -> Work {
        let started = AtomicUsize::new(0);
        Arc::new(move |mut handle: WorkerHandle| {
            let attempt = started.fetch_add(1, Ordering::SeqCst);
            while handle.next_task().is_some() {
                let lease = handle.acquire_device(Duration::MAX, &mut || {});
                if attempt == 0 {
                    handle.report(alive(7));
                    let_go.wait();
                    ended.send(handle.report(alive(8))).unwrap();
                    return;
                }
                drop(lease);
                handle.report(alive(attempt as u64));
            }
        })
    }

    #[tokio::test]
    async fn a_trainer_that_hangs_is_left_behind_with_its_turn_taken_and_its_late_reports_unheard() {
        let let_go = Arc::new(Barrier::new(2));
        let (ended, late) = blocking::sync_channel(1);
        let scheduler = Arc::new(DeviceScheduler::default());
        let mut trainer = TrainerThread::start(hanging_once(let_go.clone(), ended), scheduler).unwrap();
        assert!(trainer.begin(task()));
        assert_eq!(steps(trainer.next_report().await), Some(7));
        trainer.restart().unwrap();
        assert!(trainer.begin(task()));
        assert_eq!(steps(trainer.next_report().await), Some(1), "the new one has the machine");
        let_go.wait();
        assert!(!late.recv().unwrap(), "the old one finds that nobody listens");
        assert!(trainer.begin(task()));
        assert_eq!(steps(trainer.next_report().await), Some(1));
        trainer.end(Duration::from_secs(60));
    }

    #[tokio::test]
    async fn a_trainer_that_dies_is_noticed_and_started_again() {
        let work: Work = Arc::new(|mut handle: WorkerHandle| {
            handle.next_task();
            panic!("as a bug would");
        });
        let mut trainer = TrainerThread::start(work, Arc::default()).unwrap();
        for _ in 0..2 {
            assert!(trainer.begin(task()));
            assert!(trainer.next_report().await.is_none());
            trainer.restart().unwrap();
        }
        trainer.end(Duration::from_secs(60));
    }
}
