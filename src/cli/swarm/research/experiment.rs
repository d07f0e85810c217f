//! `pathswarm experiment`: trains arms with several seeds, and writes tables that compare them.

use std::path::PathBuf;

use clap::Args;

use crate::cli::swarm::Globals;
use crate::cli::swarm::create::corpus::CorpusFlags;
use crate::cli::swarm::create::progress;
use crate::cli::swarm::explain::explain;
use crate::cli::swarm::interrupt::{Interrupt, Interrupted};
use crate::cli::swarm::mistake::Mistake;
use crate::cli::swarm::running::Display;
use crate::cli::swarm::web::PageFlags;
use crate::config::PrecisionChoice;
use crate::experiment::context::{ExperimentContext, ExperimentEvent};
use crate::experiment::files::{FileError, read};
use crate::experiment::plan::Experiment as Plan;
use crate::experiment::results::claims::verdicts;
use crate::experiment::results::outcome::{Outcome, Point};
use crate::experiment::{Results, Source, run};
use crate::observe::{Progress, View};
use crate::peer::create::dense_trainer::Stopped;
use crate::report::Subjects;
use crate::store::write_file;

/// The page among the results.
const PAGE: &str = "report.html";

/// Train the arms of an experiment, and write tables and plots of the results.
#[derive(Args)]
pub struct Experiment {
    /// The experiment, such as configs/experiments/table1.toml.
    file: PathBuf,
    #[command(flatten)]
    corpus: CorpusFlags,
    /// The folder of results; by default docs/results/ and the experiment's name.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// The folder of trained arms and checkpoints: no arm is trained twice, whatever experiments contain it. By default
    /// a folder among the machine's runs.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    web: PageFlags,
}

impl Experiment {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let file = self.file.display();
        let plan = read(&self.file).map_err(|error| {
            let hint = match error {
                FileError::Unreadable { .. } => {
                    "give the path of an experiment, such as configs/experiments/table1.toml"
                }
                _ => "correct the file; configs/experiments has examples",
            };
            Mistake::new(error).hint(hint)
        })?;
        let mut machine = globals.machine()?.value;
        if machine.precision == PrecisionChoice::Auto {
            // What an experiment finds must not depend on the machine at hand.
            machine.precision = PrecisionChoice::F32;
        }
        let source = Source {
            corpus: self.corpus.text.source()?,
            test_corpus: self.corpus.text.test_source(),
            tokenizer: self.corpus.tokenizer(false)?,
        };
        let folder = self.dir.clone().unwrap_or_else(|| machine.runs.join("experiments"));
        let out = self.out.clone().unwrap_or_else(|| PathBuf::from("docs/results").join(&plan.name));
        let command = format!("pathswarm experiment {file}{}", self.corpus_words());
        let interrupt = Interrupt::flagged();
        let outcomes = {
            let (progress, _screen) = Progress::start(View::choose(globals.output().is_json()));
            let display = Display::new(progress);
            let progress = &display.progress;
            // Work on this thread waits for nothing.
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            let _within = runtime.enter();
            let _pages = self.web.open(&display.telemetry, None, &|text, value| display.tell(text, value))?;
            let watch = |event: ExperimentEvent<'_>| show(&display, event);
            let mut context = ExperimentContext::new(&machine, folder, source, interrupt, &watch);
            let results = Results { folder: &out, command: &command };
            let outcomes = run(&plan, &mut context, &results).map_err(stopped_or)?;
            progress.result(serde_json::json!({ "event": "result", "arms": outcomes }));
            outcomes
        };
        write_file(&out.join(PAGE), Subjects::read(std::slice::from_ref(&out))?.page()?.as_bytes())?;
        summary(globals, &plan, &outcomes, &out)
    }

    /// The flags for the text, as given.
    fn corpus_words(&self) -> String {
        let text = &self.corpus.text;
        let flags = [("--corpus", &text.corpus), ("--test-corpus", &text.test_corpus)];
        let words = |(flag, paths): (&str, &Vec<PathBuf>)| {
            let paths: String = paths.iter().map(|path| format!(" {}", path.display())).collect();
            if paths.is_empty() { String::new() } else { format!(" {flag}{paths}") }
        };
        let unreadable = if text.unreadable.skip_unreadable { " --skip-unreadable" } else { "" };
        flags.into_iter().map(words).chain([unreadable.to_owned()]).collect()
    }
}

fn show(display: &Display, event: ExperimentEvent<'_>) {
    let progress = &display.progress;
    match event {
        ExperimentEvent::Scored(arm, Point { steps, tokens, loss, .. }) => {
            display.telemetry.arm(arm, steps, tokens, loss);
        }
        ExperimentEvent::Text(stage) => progress::show(progress, stage),
        ExperimentEvent::Ancestor(step, steps) => progress.stage("ancestor", step, steps),
        ExperimentEvent::Phase(arm, done, total) => progress.stage(arm, done, total),
        ExperimentEvent::Done(outcome) => {
            let (last, early) = (outcome.last.perplexity(), outcome.early.perplexity());
            let Outcome { arm, seed, seconds, .. } = outcome;
            let text = format!("{arm} · seed {seed}: perplexity {last:.2}, early stopped {early:.2}, {seconds:.0} s");
            progress.note(text);
        }
    }
}

fn summary(globals: &Globals, plan: &Plan, outcomes: &[Outcome], out: &std::path::Path) -> anyhow::Result<()> {
    let output = globals.output();
    output.text(&format!(
        "{} arms and seeds are trained; tables and plots are in {}, and {PAGE} there shows them in a browser",
        outcomes.len(),
        out.display()
    ))?;
    for (claim, verdict) in plan.claims.iter().zip(verdicts(plan, outcomes)) {
        let every = claim.better_every.map_or_else(String::new, |every| format!(", every {every}"));
        let equal = if claim.or_equal { "as good as or better than" } else { "better than" };
        output.text(&format!("  {}{every} {equal} {}: {}", claim.better, claim.than, verdict.words()))?;
    }
    Ok(())
}

/// An interruption is not an error of the part that noticed it first.
fn stopped_or(error: anyhow::Error) -> anyhow::Error {
    if error.chain().any(|cause| cause.is::<Stopped>()) {
        return Interrupted.into();
    }
    explain(error)
}
