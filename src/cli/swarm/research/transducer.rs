//! `pathswarm transducer`: trains the router that chooses paths every so many tokens.

use std::path::PathBuf;

use clap::Args;

use crate::cli::swarm::Globals;
use crate::cli::swarm::interrupt::{Interrupt, Interrupted};
use crate::cli::swarm::mistake::{Mistake, OrMistake};
use crate::cli::swarm::model::source;
use crate::cli::swarm::model::source::Whom;
use crate::cli::swarm::reading::{self, UnreadableFlag};
use crate::peer::create::dense_trainer::Stopped;
use crate::peer::transducer::{self, TransducerError};
use crate::store::write_file;

/// `pathswarm transducer`
#[derive(Args)]
pub struct Transducer {
    #[command(flatten)]
    whom: Whom,
    /// Text to learn from, similar to the training text, but not the text to be scored: files, folders, JSON lines,
    /// Parquet. The path of every document is learnt; at most 1,024, evenly sampled, are read by every path.
    #[arg(long, num_args = 1.., value_name = "FILE", required = true)]
    text: Vec<PathBuf>,
    #[command(flatten)]
    unreadable: UnreadableFlag,
    /// Where to write it.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl Transducer {
    pub fn run(mut self, globals: &Globals) -> anyhow::Result<()> {
        self.whom.take_address_from(&mut self.text);
        let every =
            self.whom.route_every().ok_or("--route-every is missing").or_mistake(
                "give the number of tokens after which the path is chosen again, such as --route-every 64",
            )?;
        let mut client = self.whom.open(globals)?;
        let machine = globals.machine_only()?;
        let interrupt = Interrupt::flagged();
        let source = self.unreadable.source(self.text);
        let corpus = reading::read(&source, client.config(), interrupt, globals.output())?;
        let documents = corpus.tokenized(client.tokenizer())?;
        let made = transducer::make(&mut *client, &documents, every, &machine, interrupt);
        let made = made.map_err(explain)?;
        write_file(&self.out, &made)?;
        let output = globals.output();
        output.text(&format!(
            "{} routes every {every} tokens; use it with --route-every {every} --transducer",
            self.out.display()
        ))?;
        output
            .json(&serde_json::json!({ "event": "result", "file": self.out.display().to_string(), "every": every, "bytes": made.len() }))?;
        Ok(())
    }
}

fn explain(error: anyhow::Error) -> anyhow::Error {
    if error.is::<Stopped>() {
        return Interrupted.into();
    }
    match error.downcast::<TransducerError>() {
        Ok(error @ TransducerError::TooShort(_)) => Mistake::new(error).hint("give longer text with --text").into(),
        Ok(error @ TransducerError::Adapter) => Mistake::new(error).into(),
        Ok(other) => other.into(),
        Err(other) => source::explain(other),
    }
}
