//! The trainers of a peer: one thread for each device of the machine's profile.
//!
//! A path goes to the device that trained it last, if that one is free: its optimiser's state may still be at hand. Scores
//! and evaluations go to any device without work. A device that fails again and again is retired, if others are left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::config::MachineConfig;
use crate::model::fused::cuda_tensor_bytes;
use crate::names::{PathId, Phase};
use crate::peer::manifest::Manifest;
use crate::peer::trainer::device_scheduler::DeviceScheduler;
use crate::peer::trainer::task::{Task, TrainerReport};
use crate::peer::trainer::thread::TrainerThread;
use crate::peer::trainer::{self, Phases};
use crate::store::BlobStore;

/// The number of a device among those of the peer, from 0.
pub type Number = usize;

/// A device with its trainer.
pub struct Device {
    name: String,
    /// None once it is retired.
    thread: Option<TrainerThread>,
    /// The task that the trainer has next.
    pub task: Option<Task>,
    /// The path of the present task.
    at_work: Option<PathId>,
    /// The checkpoint being scored.
    scoring: Option<(PathId, Phase)>,
    /// The thread has died, and waits to be restarted.
    dead: bool,
    /// Failures since its last step.
    pub failures: u32,
}

/// All devices of a peer.
pub struct Devices {
    all: Vec<Device>,
    /// Phases of the run.
    phases: Phases,
    /// The device that trained each path last.
    last: BTreeMap<PathId, Number>,
    /// Where to look first for the next report, so that none is forgotten.
    turn: Number,
}

impl Device {
    fn new(name: String, thread: TrainerThread) -> Self {
        Self { name, thread: Some(thread), task: None, at_work: None, scoring: None, dead: false, failures: 0 }
    }

    /// As in a machine's profile.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of its present task.
    pub fn path(&self) -> Option<PathId> {
        self.at_work
    }

    /// The path of its present task or, without one, of its next.
    pub fn concerns(&self) -> Option<PathId> {
        self.at_work.or(self.task.as_ref().map(Task::path))
    }

    /// Bytes of this process's tensors there, of a CUDA device on which something was computed.
    pub fn memory_bytes(&self) -> Option<u64> {
        // `auto` takes the first card, if it works.
        let card = if matches!(self.name.as_str(), "auto" | "cuda") { "0" } else { self.name.strip_prefix("cuda:")? };
        cuda_tensor_bytes(card.parse().ok()?).ok()
    }

    pub fn is_retired(&self) -> bool {
        self.thread.is_none()
    }

    fn is_idle(&self) -> bool {
        self.thread.is_some() && self.at_work.is_none() && !self.dead
    }

    /// The present task has ended.
    pub fn ended(&mut self) {
        (self.at_work, self.scoring) = (None, None);
    }

    /// Gives up its tasks. Returns the checkpoints that it does not score, then.
    fn drop_tasks(&mut self) -> Vec<(PathId, Phase)> {
        let next = self.task.take().and_then(|task| task.scores());
        let now = self.scoring.take();
        self.at_work = None;
        next.into_iter().chain(now).collect()
    }
}

impl Devices {
    /// Starts the trainer of each device. Peers of one process take turns on each.
    pub fn start(
        manifest: &Arc<Manifest>,
        machine: &MachineConfig,
        blobs: &BlobStore,
        scheduler: &Arc<DeviceScheduler>,
    ) -> std::io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let machines = machine.of_trainers(cores);
        let several = machines.len() > 1;
        let phases = Phases::of(manifest);
        let start = |(number, machine): (Number, MachineConfig)| {
            let name = machine.device.to_string();
            let span =
                if several { tracing::info_span!("trainer", number, device = name) } else { tracing::Span::none() };
            let work = trainer::work(manifest.clone(), phases.clone(), machine, blobs.clone());
            let thread = span.in_scope(|| TrainerThread::start(work, scheduler.of_device(number)))?;
            Ok(Device::new(name, thread))
        };
        let all = machines.into_iter().enumerate().map(start).collect::<std::io::Result<_>>()?;
        Ok(Self { all, phases, last: BTreeMap::new(), turn: 0 })
    }

    /// The run has so many phases, for tasks that begin from now on.
    pub fn amend(&self, phases: u64) {
        self.phases.set(phases);
    }

    pub fn all(&self) -> &[Device] {
        &self.all
    }

    /// Bytes of this process's tensors on all CUDA devices of the peer.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.all.iter().filter_map(Device::memory_bytes).reduce(|sum, bytes| sum + bytes)
    }

    pub fn get_mut(&mut self, number: Number) -> &mut Device {
        &mut self.all[number]
    }

    /// How many are in service.
    pub fn count(&self) -> usize {
        self.all.iter().filter(|device| !device.is_retired()).count()
    }

    /// Whether any has work.
    pub fn are_at_work(&self) -> bool {
        self.all.iter().any(|device| device.at_work.is_some())
    }

    /// Whether a task for this path is being done.
    pub fn work_on(&self, path: PathId) -> bool {
        self.all.iter().any(|device| device.concerns() == Some(path))
    }

    /// The devices that can begin a task.
    pub fn idle(&self) -> Vec<Number> {
        (0..self.all.len()).filter(|number| self.all[*number].is_idle()).collect()
    }

    /// Gives a phase to a device. Returns the checkpoint that is not scored there, then.
    pub fn queue(&mut self, task: Task) -> Option<(PathId, Phase)> {
        let path = task.path();
        let number = self.device_for(path);
        self.last.insert(path, number);
        self.all[number].task.replace(task).and_then(|task| task.scores())
    }

    /// Phases go before all else, so only a device with one, present or next, is not free.
    fn device_for(&self, path: PathId) -> Number {
        let home = self.last.get(&path).copied();
        let is_home = |number: &Number| self.last.values().any(|last| last == number);
        // Of those left the first: idle before busy with a score, its own before one that no path has had.
        let order = |number: &Number| {
            let device = &self.all[*number];
            let next = matches!(device.task, Some(Task::Train(_)));
            (next, !device.is_idle(), home != Some(*number), device.task.is_some(), is_home(number), *number)
        };
        let in_service = (0..self.all.len()).filter(|number| !self.all[*number].is_retired());
        in_service.min_by_key(order).unwrap_or(0)
    }

    /// The device that works on a path, or is about to; without one, one whose thread has died, and a single one in any
    /// case.
    pub fn of(&self, path: Option<PathId>) -> Option<Number> {
        let works = path.and_then(|path| self.all.iter().position(|device| device.concerns() == Some(path)));
        let dead = || self.all.iter().position(|device| device.dead && !device.is_retired());
        works.or_else(dead).or_else(|| (self.all.len() == 1).then_some(0))
    }

    /// Begins a task. If the thread has died, its death is reported.
    pub fn begin(&mut self, number: Number, task: Task) {
        let device = &mut self.all[number];
        (device.at_work, device.scoring) = (Some(task.path()), task.scores());
        if let Some(thread) = &device.thread {
            thread.begin(task);
        }
    }

    /// Pauses the present phase of a path.
    pub fn pause(&self, path: PathId) {
        self.thread_of(path).into_iter().for_each(TrainerThread::pause);
    }

    /// Ends the present phase of a path with its result so far.
    pub fn end_phase(&self, path: PathId) {
        self.thread_of(path).into_iter().for_each(TrainerThread::end_phase);
    }

    fn thread_of(&self, path: PathId) -> Option<&TrainerThread> {
        self.all.iter().find(|device| device.at_work == Some(path)).and_then(|device| device.thread.as_ref())
    }

    /// Abandons a thread and starts another. Returns the checkpoints that are not scored, then.
    pub fn restart(&mut self, number: Number) -> std::io::Result<Vec<(PathId, Phase)>> {
        let device = &mut self.all[number];
        if let Some(thread) = &mut device.thread {
            thread.restart()?;
        }
        device.dead = false;
        Ok(device.drop_tasks())
    }

    /// Takes a device out of service. Returns the checkpoints that are not scored, then.
    pub fn retire(&mut self, number: Number) -> Vec<(PathId, Phase)> {
        let device = &mut self.all[number];
        if let Some(thread) = device.thread.take() {
            thread.abandon();
        }
        self.last.retain(|_, last| *last != number);
        device.drop_tasks()
    }

    /// The next report of any trainer; none if its thread has died, which is told once.
    pub async fn next_report(&mut self) -> (Number, Option<TrainerReport>) {
        std::future::poll_fn(|context| self.poll_report(context)).await
    }

    fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<(Number, Option<TrainerReport>)> {
        let count = self.all.len();
        for number in (self.turn..self.turn + count).map(|number| number % count) {
            let device = &mut self.all[number];
            let Some(thread) = device.thread.as_mut().filter(|_| !device.dead) else { continue };
            if let Poll::Ready(report) = thread.poll_report(context) {
                device.dead = report.is_none();
                self.turn = number + 1;
                return Poll::Ready((number, report));
            }
        }
        Poll::Pending
    }

    /// Ends all threads, and waits so long for the ends of their present steps. Blocks.
    pub fn end(self, timeout: Duration) {
        std::thread::scope(|scope| {
            for thread in self.all.into_iter().filter_map(|device| device.thread) {
                scope.spawn(move || thread.end(timeout));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::trainer::task::PhaseTask;
    use crate::peer::trainer::thread::{Work, WorkerHandle};
    use crate::protocol::Part;

    fn phase(path: u32) -> Task {
        let (path, drawn, part) = (PathId(path), PathId(path), Part::whole(1, vec![]));
        let (start, phase) = (vec![], Phase(0));
        Task::Train(PhaseTask { path, drawn, trainer_number: 0, phase, part, start, trainer: None, resume: None })
    }

    fn score(path: u32) -> Task {
        Task::Score { path: PathId(path), drawn: PathId(path), phase: Phase(1), states: vec![] }
    }

    /// Devices whose trainers report that they are alive, or die of the path with this number.
    fn devices(count: usize, fatal: u32) -> Devices {
        let work: Work = Arc::new(move |mut handle: WorkerHandle| {
            while let Some(task) = handle.next_task() {
                assert!(task.path() != PathId(fatal), "as a bug would");
                handle.report(TrainerReport::Alive { path: task.path(), phase: Phase(0), steps: 0 });
            }
        });
        let scheduler = Arc::new(DeviceScheduler::default());
        let start = |number| TrainerThread::start(work.clone(), scheduler.of_device(number)).unwrap();
        let all = (0..count).map(|number| Device::new("cpu".to_owned(), start(number))).collect();
        Devices { all, phases: Phases::default(), last: BTreeMap::new(), turn: 0 }
    }

    /// Begins what is queued. Returns the device of each path at work.
    fn begins(devices: &mut Devices) -> Vec<Option<PathId>> {
        for number in devices.idle() {
            if let Some(task) = devices.get_mut(number).task.take() {
                devices.begin(number, task);
            }
        }
        devices.all().iter().map(Device::path).collect()
    }

    #[tokio::test]
    async fn a_path_stays_on_its_device_and_a_score_gives_way() {
        let mut devices = devices(2, 99);
        let [one, two, three] = [1, 2, 3].map(|path| Some(PathId(path)));
        devices.queue(phase(1));
        devices.queue(phase(2));
        assert_eq!(begins(&mut devices), [one, two]);
        for _ in 0..2 {
            assert!(matches!(devices.next_report().await, (_, Some(TrainerReport::Alive { .. }))));
        }
        (0..2).for_each(|number| devices.get_mut(number).ended());
        devices.queue(phase(2));
        devices.queue(phase(3));
        assert_eq!(begins(&mut devices), [three, two], "path 2 stays, although it comes first");
        devices.get_mut(1).ended();
        devices.get_mut(1).task = Some(score(5));
        assert_eq!(devices.queue(phase(1)), Some((PathId(5), Phase(1))), "the only idle one");
        assert_eq!(begins(&mut devices), [three, one]);
        assert!(devices.work_on(PathId(1)) && !devices.work_on(PathId(2)));
        devices.end(Duration::from_secs(60));
    }

    #[tokio::test]
    async fn a_trainer_that_dies_is_told_of_once_and_takes_no_other_with_it() {
        let mut devices = devices(2, 2);
        devices.queue(phase(1));
        devices.queue(phase(2));
        begins(&mut devices);
        let mut told = vec![];
        for _ in 0..2 {
            let (number, report) = devices.next_report().await;
            told.push((number, report.is_some()));
        }
        told.sort_unstable();
        assert_eq!(told, [(0, true), (1, false)]);
        let more = std::future::poll_fn(|context| Poll::Ready(devices.poll_report(context).is_ready())).await;
        assert!(!more && devices.of(Some(PathId(2))) == Some(1));
        assert_eq!(devices.restart(1).unwrap(), []);
        devices.queue(phase(4));
        assert_eq!(begins(&mut devices), [Some(PathId(1)), Some(PathId(4))]);
        assert!(matches!(devices.next_report().await, (1, Some(TrainerReport::Alive { .. }))));
        devices.retire(1);
        assert_eq!((devices.count(), devices.idle()), (1, vec![]));
        devices.get_mut(0).ended();
        devices.queue(phase(4));
        assert_eq!(begins(&mut devices), [Some(PathId(4)), None]);
        devices.end(Duration::from_secs(60));
    }
}
