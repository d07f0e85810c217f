//! `pathswarm simulate`: a whole swarm of real peers on this machine, and a table that compares its result.

pub mod demo;
mod outcome;
mod preparation;
mod swarm;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};

use self::outcome::{Outcome, Sample};
use self::preparation::Preparation;
use self::swarm::{Swarm, SwarmResult};
use super::explain::explain;
use super::interrupt::{Interrupt, Interrupted};
use super::mistake::Mistake;
use crate::cli::process::{private_files, runtime};
use crate::cli::swarm::Globals;
use crate::cli::swarm::create::corpus::CorpusFlags;
use crate::cli::swarm::create::earlier::{Earlier, earlier_run};
use crate::cli::swarm::create::progress;
use crate::cli::swarm::create::run_folder;
use crate::cli::swarm::create::run_folder::Wanted;
use crate::cli::swarm::running::Display;
use crate::cli::swarm::web::{WebFlags, talk};
use crate::config::{Link, MachineConfig, RoutingMethod, RunConfig};
use crate::names::PathId;
use crate::observe::logging::{self, LogFilter, LogGuard};
use crate::observe::{Progress, View};
use crate::peer::create::StartFrom;
use crate::peer::create::dense::Dense;
use crate::peer::create::dense_trainer::{DenseTrainer, Stopped};
use crate::peer::folder::{RESULT, manifest_file};
use crate::peer::inference::client::Local;
use crate::peer::inference::sample::{Wish, continue_prompt};
use crate::peer::inference::score::score_test_text;
use crate::peer::{Collected, DeviceScheduler, collect_from_stores};
use crate::store::write_file;
use crate::training::Score;

/// A further control besides the dense path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Control {
    /// The same DiPaCo on random shards.
    Random,
}

/// Train a run with several peers on this machine, and compare it with a dense path.
#[derive(Args)]
pub struct Simulate {
    /// The run's configuration, such as configs/demo.toml.
    file: PathBuf,
    #[command(flatten)]
    options: Options,
}

/// What a simulation takes besides its configuration.
#[derive(Args)]
struct Options {
    #[command(flatten)]
    corpus: CorpusFlags,
    /// Number of peers; by default one for each path that is trained at a time.
    #[arg(long, value_name = "COUNT")]
    peers: Option<usize>,
    /// Emulate a link for every peer: bits a second (or UP:DOWN), round trip, and packet loss, such as 20mbit/100ms,
    /// 5mbit:20mbit/100ms or 20mbit/100ms/1%.
    #[arg(long, value_name = "LINK", value_parser = link)]
    link: Option<Link>,
    /// Get the same digits each time: as `--set outer.deterministic=true`, each update waits for a whole phase of every path.
    #[arg(long)]
    deterministic: bool,
    /// Train a control as well.
    #[arg(long, value_enum)]
    control: Option<Control>,
    /// The folder of the run; by default one with the run's name among the machine's runs.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    // Boxed: commands are variants of one enum.
    web: Box<WebFlags>,
}

/// Tokens of the sample at the end of the result.
const SAMPLE_TOKENS: usize = 60;

/// Most peers on one machine.
const MAX_PEERS: usize = 64;

fn link(text: &str) -> Result<Link, String> {
    let hint = "give it as 20mbit/100ms, 5mbit:20mbit/100ms (up and down) or 20mbit/100ms/1% (with loss): kbit, mbit or gbit, \
                at most 5000ms and 50%";
    text.parse().map_err(|error| format!("{error}; {hint}"))
}

impl Simulate {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        private_files();
        let Self { file, options } = self;
        let mut run = globals.run(&file)?.value;
        if options.deterministic {
            run.outer.deterministic = true;
            let hint = "leave --deterministic out, or change that in the run's file";
            run.check().map_err(|error| Mistake::new(error.to_string()).hint(hint))?;
        }
        let machine = globals.machine()?.value;
        let log = globals.log_filter()?;
        if let Some(too_old) = run.is_too_new() {
            return Err(Mistake::new(too_old).hint("leave [requires] out to simulate the run").into());
        }
        let folder = options.dir.clone().unwrap_or_else(|| machine.runs.join(&run.name));
        let (before, run) = (run.shared_stage()?, run.path_stage());
        let paths = run.slots()?.paths_at_a_time() as usize;
        let peers = options.peers.unwrap_or(paths.min(MAX_PEERS));
        if peers == 0 || peers > MAX_PEERS {
            return Err(Mistake::new(format!("--peers {peers}")).hint(format!("give 1 to {MAX_PEERS}")).into());
        }
        let wanted = Wanted { text: &options.corpus.text, share_text: None };
        if manifest_file(&folder).exists() {
            let message = format!("{} is the folder of one peer, not of a simulation", folder.display());
            return Err(Mistake::new(message).hint("choose another folder with --dir").into());
        }
        run_folder::check(&preparation::creator_folder(&folder), &run, &wanted)?;
        let outcome = {
            let (progress, _screen) = Progress::start(View::choose(globals.output().is_json()));
            let scheduler = Arc::new(DeviceScheduler::default());
            let (link, display) = (options.link, Display::new(progress));
            let trial = Trial { before, run, machine, folder, peers, link, display, scheduler, log };
            let threads = runtime::PEER_THREADS + peers.saturating_sub(1) * runtime::FURTHER_PEER_THREADS;
            let outcome = runtime::run(threads, async {
                let talk = talk(&trial.display.telemetry, trial.machine.first_device(), None);
                let _pages = options.web.open_in_terminal(&trial.display, Some(talk))?;
                trial.run(&options).await
            })?;
            let result = outcome.to_json();
            write_file(&outcome.folder.join(RESULT), format!("{result:#}").as_bytes())?;
            trial.display.progress.result(result);
            outcome
        };
        for line in outcome.table() {
            globals.output().text(&line)?;
        }
        Ok(())
    }
}

/// One call of the command.
struct Trial {
    /// The stage of shared levels, if there is one.
    before: Option<RunConfig>,
    run: RunConfig,
    machine: MachineConfig,
    folder: PathBuf,
    peers: usize,
    link: Option<Link>,
    display: Display,
    scheduler: Arc<DeviceScheduler>,
    log: LogFilter,
}

impl Trial {
    async fn run(&self, options: &Options) -> anyhow::Result<Outcome> {
        let interrupt = Interrupt::listen()?;
        let mut log = None;
        let grown = match &self.before {
            Some(before) => Some(self.grow(options, before, &mut log, &interrupt).await?),
            None => None,
        };
        let prepared = self.prepare(options, &self.run, &self.folder, grown, &interrupt).await?;
        self.begin_log(&mut log)?;
        let dipaco = self.train(&prepared, &self.folder, &interrupt).await?;
        let (ancestor, dense) = self.dense(&prepared, &interrupt).await?;
        let random = match options.control {
            Some(Control::Random) => {
                let folder = self.folder.join("random");
                let mut run = self.run.clone();
                run.name = format!("{}-random", run.name);
                run.routing.method = RoutingMethod::Random;
                run.routing.reshard.clear();
                let from = Earlier {
                    tokenizer: prepared.tokenizer.clone(),
                    levels: prepared.ancestor.levels.clone(),
                    frozen: prepared.ancestor.frozen.clone(),
                    pretrained: None,
                };
                let control = self.prepare(options, &run, &folder, Some(from), &interrupt).await?;
                self.display.progress.note("control: the same run on random shards");
                Some(self.train(&control, &folder, &interrupt).await?)
            }
            None => None,
        };
        let sample = self.sample(&prepared, &interrupt).await?;
        Ok(Outcome {
            sample,
            run: self.run.clone(),
            folder: self.folder.clone(),
            ancestor,
            dense,
            dipaco,
            random,
            parameters: prepared.manifest.level_counts().iter().map(|count| *count as u64).sum(),
        })
    }

    /// The tokenizer and the parameters of a fully shared network that the same peers train first.
    async fn grow(
        &self,
        options: &Options,
        before: &RunConfig,
        log: &mut Option<LogGuard>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Earlier> {
        let folder = self.folder.join("shared");
        let model = model_folder(&folder);
        if !model.exists() {
            let prepared = self.prepare(options, before, &folder, None, interrupt).await?;
            self.begin_log(log)?;
            self.display.progress.note("stage 1: all levels are shared, and the swarm trains its own ancestor");
            self.train(&prepared, &folder, interrupt).await?;
            self.display.progress.note("the stage of shared levels is done; the stage of paths is next");
        }
        Ok(earlier_run(&model, &self.run)?)
    }

    /// Begins when the folder has a run, so that a mistake leaves no log behind.
    fn begin_log(&self, log: &mut Option<LogGuard>) -> anyhow::Result<()> {
        if log.is_none() {
            self.display.record_in(&self.folder);
            *log = Some(logging::start(&self.folder, &self.log).map_err(|error| explain(error.into()))?);
        }
        Ok(())
    }

    /// Creates the run, or reads an existing one.
    async fn prepare(
        &self,
        options: &Options,
        run: &RunConfig,
        folder: &Path,
        from: Option<Earlier>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Arc<Preparation>> {
        let (tokenizer, start) = match from {
            Some(Earlier { tokenizer, levels, frozen, pretrained }) => {
                (Some(tokenizer), StartFrom::Ancestor { levels, frozen, pretrained })
            }
            None => (options.corpus.tokenizer(run.model.reads_images())?, StartFrom::Nothing),
        };
        let request = preparation::Request {
            run: run.clone(),
            machine: self.machine.clone(),
            folder: folder.to_owned(),
            corpus: options.corpus.text.source()?,
            test_corpus: options.corpus.text.test_source(),
            tokenizer,
            start,
            scheduler: self.scheduler.clone(),
        };
        let (progress, stop) = (self.display.progress.clone(), interrupt.clone());
        let work = tokio::task::spawn_blocking(move || {
            request.carry_out(stop.flag(), &mut |stage| progress::show(&progress, stage))
        });
        let prepared = interrupt.unless_left(work).await?;
        prepared.map(Arc::new).map_err(stopped_or)
    }

    /// Trains, and collects all modules in one folder.
    async fn train(&self, prepared: &Preparation, folder: &Path, interrupt: &Interrupt) -> anyhow::Result<SwarmResult> {
        let swarm = Swarm {
            folder: folder.to_owned(),
            manifest: prepared.manifest.clone(),
            machine: self.machine.clone(),
            peers: self.peers,
            link: self.link,
            scheduler: self.scheduler.clone(),
            display: self.display.clone(),
        };
        let trained = swarm.train(interrupt).await.map_err(explain)?;
        let mut result = trained.ok_or_else(|| anyhow::Error::from(Interrupted))?;
        let (manifest, folders) = (preparation::manifest_bytes(folder)?, result.folders.clone());
        let (target, device, samples) = (model_folder(folder), self.machine.first_device(), self.run.sample.is_some());
        let test = tokio::task::spawn_blocking(move || -> anyhow::Result<Option<Score>> {
            collect_from_stores(&manifest, &folders, &target)?;
            // The peers have scored the paths that were drawn last.
            let scores = samples
                .then(|| score_test_text(&mut Local::new(Collected::open(&target)?, device)?, None))
                .transpose()?;
            Ok(scores.map(|scores| scores.into_iter().map(|score| score.dipaco).sum()))
        });
        result.test = interrupt.unless_left(test).await??.unwrap_or(result.test);
        Ok(result)
    }

    /// A continuation of a text by the collected modules; `None` for images.
    async fn sample(&self, prepared: &Arc<Preparation>, interrupt: &Interrupt) -> anyhow::Result<Option<Sample>> {
        if self.run.model.reads_images() {
            return Ok(None);
        }
        let target = model_folder(&self.folder);
        let (prompt, device) = (prepared.a_beginning()?, self.machine.first_device());
        let made = tokio::task::spawn_blocking(move || -> anyhow::Result<Option<Sample>> {
            let wish = Wish { tokens: SAMPLE_TOKENS, ..Wish::default() };
            let mut players = Local::new(Collected::open(&target)?, device)?;
            let made = continue_prompt(&mut players, &prompt, &wish)?;
            let path = made.paths.first().map_or(PathId(0), |(path, _)| *path);
            Ok(Some(Sample { path, prompt, text: made.text }))
        });
        interrupt.unless_left(made).await?
    }

    /// The ancestor's score, and that of a dense path trained for as many inner steps as each path.
    async fn dense(&self, prepared: &Arc<Preparation>, interrupt: &Interrupt) -> anyhow::Result<(Score, Score)> {
        let (run, machine, scheduler) = (self.run.clone(), self.machine.clone(), self.scheduler.clone());
        let Display { progress, telemetry } = self.display.clone();
        let (stop, prepared) = (interrupt.clone(), prepared.clone());
        let work = tokio::task::spawn_blocking(move || -> anyhow::Result<(Score, Score)> {
            let mut trainer = DenseTrainer::new(&run, &machine, &scheduler, stop.flag())?;
            let ancestor: &Dense = &prepared.ancestor;
            let before = trainer.score(ancestor, &prepared.test, &prepared.token_bytes)?;
            if let Some(score) = prepared.dense_score()? {
                return Ok((before, score));
            }
            let (first, last) = (run.training.ancestor_steps, run.training.total_steps());
            let mut told = |step, loss| {
                progress.stage("dense control", step, last - first);
                telemetry.dense(step, loss);
            };
            let kept = prepared.unfinished_dense();
            let dense = trainer.train(ancestor.clone(), &prepared.train, first..last, &kept, &mut told)?;
            let score = trainer.score(&dense, &prepared.test, &prepared.token_bytes)?;
            prepared.keep_dense_score(score)?;
            Ok((before, score))
        });
        interrupt.unless_left(work).await?.map_err(stopped_or)
    }
}

/// The folder of the collected run.
fn model_folder(folder: &Path) -> PathBuf {
    folder.join("model")
}

/// An interruption is not an error of the part that noticed it first.
fn stopped_or(error: anyhow::Error) -> anyhow::Error {
    if error.is::<Stopped>() { Interrupted.into() } else { explain(error) }
}
