//! `pathswarm serve`: OpenAI's API before a collected run, a model, or a running swarm.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::cli::swarm::api::{Api, AskerFlags, COUNTED_EVERY, PORT, swarm};
use crate::cli::swarm::explain::explain as explain_visit;
use crate::cli::swarm::interrupt::Interrupt;
use crate::cli::swarm::mistake::{Mistake, OrMistake};
use crate::cli::swarm::model::collected_run;
use crate::cli::swarm::model::foreign_folder::ForeignModel;
use crate::cli::swarm::model::import::PATTERN;
use crate::cli::swarm::web::PageFlags;
use crate::cli::swarm::{Globals, access, listen};
use crate::config::{MachineConfig, Precision, RunConfig};
use crate::http;
use crate::model::{PathModel, open_device, set_threads};
use crate::peer::client::Entrance;
use crate::serve::engine::backend::Backend;
use crate::serve::engine::local::{LocalModels, SingleModel};
use crate::serve::limits::ServeLimits;
use crate::serve::{ServedRun, Source};
use crate::telemetry::Telemetry;
use crate::text::Tokenizer;

/// `pathswarm serve`
#[derive(Args)]
pub struct Serve {
    /// A collected run, a model's folder as `export` and `transformers` write it, or the address of a running peer of a
    /// swarm.
    #[arg(value_name = "DIR | ADDRESS")]
    whom: PathBuf,
    /// The most tokens of a text that the model sees, if not as many as it was made for; of a model's folder.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// Where to listen. Only this machine can reach 127.0.0.1.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    listen: String,
    #[command(flatten)]
    askers: AskerFlags,
    /// Most tokens that one answer may have.
    #[arg(long, value_name = "TOKENS", default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_tokens: u32,
    /// Most tokens that all prompts of one request may have.
    #[arg(long, value_name = "TOKENS", default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    max_prompt_tokens: u32,
    /// Most answers that are generated at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    at_once: u32,
    /// Most requests that are answered or wait; further ones are told to come back.
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_024))]
    requests: u32,
    /// Seconds after which an answer ends with what it has.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    max_seconds: u32,
    /// Memory for the keys and values of texts that have ended, in MiB: a prompt that begins like one of them, as the next
    /// message of a chat does, is read from there on. 0 for none.
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    prefix_mib: u32,
    /// The sponsor in a run by invitation: the folder of a peer of this machine that takes part.
    #[arg(long = "as", value_name = "DIR")]
    sponsor: Option<PathBuf>,
    #[command(flatten)]
    web: PageFlags,
}

impl Serve {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let machine = globals.machine_only()?;
        set_threads(machine.threads);
        let askers = self.askers.read()?;
        let hint = format!("give --listen HOST:PORT, such as --listen 127.0.0.1:{PORT}");
        let listener = http::listen(&self.listen, PORT).or_mistake(hint)?;
        let (run, backend) = self.open(globals, &machine)?;
        if run.config.model.reads_images() {
            let hint = "use evaluate for its accuracy, or inspect dna for its routes";
            return Err(Mistake::new("this run reads images and generates no text").hint(hint).into());
        }
        let limits = ServeLimits {
            tokens: self.max_tokens as usize,
            prompt_tokens: self.max_prompt_tokens as usize,
            at_once: self.at_once as usize,
            requests: self.requests as usize,
            time: Duration::from_secs(self.max_seconds.into()),
            prefix_bytes: (self.prefix_mib as usize) << 20,
        };
        let output = globals.output();
        // The reader may be gone.
        let report = move |line: &str| drop(output.complain(line));
        let (telemetry, run) = (Telemetry::default(), Arc::new(run));
        let parts = (Arc::clone(&run), backend);
        let api = Api::open((listener, askers), parts, limits, &telemetry, Box::new(report))?;
        self.stay(globals, &telemetry, &run, api)
    }

    /// Serves until the user asks to stop.
    fn stay(&self, globals: &Globals, telemetry: &Telemetry, run: &ServedRun, api: Api) -> anyhow::Result<()> {
        let output = globals.output();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            // Before anybody is told to stop it.
            let interrupt = Interrupt::listen()?;
            let (name, paths, url) = (run.name(), run.grid.path_count(), api.url());
            output.text(&format!("{name}, with {paths} paths, at {url}\nstop with Ctrl-C"))?;
            output.json(&json!({ "event": "serving", "url": url, "model": name, "paths": paths }))?;
            api.warning().map_or(Ok(()), |warning| output.complain(warning))?;
            let _pages = self.web.open(telemetry, None, &|text, value| {
                // The reader may be gone.
                drop(output.text(&text).and_then(|()| output.json(&value)));
            })?;
            let mut counted = tokio::time::interval(COUNTED_EVERY);
            loop {
                tokio::select! {
                    () = interrupt.wait() => return anyhow::Ok(()),
                    _ = counted.tick() => api.count(),
                }
            }
        })?;
        drop(api);
        output.text("stopped")?;
        output.json(&json!({ "event": "stopped" }))?;
        Ok(())
    }

    /// One model, and its name, which is the folder's.
    fn open_model(&self, folder: &Path, machine: &MachineConfig) -> anyhow::Result<(ServedRun, Box<dyn Backend>)> {
        let context = self.context.map(|context| context as usize);
        let foreign = ForeignModel::open(folder, context)?;
        let mut config = RunConfig::from_toml(PATTERN)?;
        config.model = foreign.with_context(context)?;
        let whole = std::path::absolute(folder)?;
        config.name = whole.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned());
        let run = ServedRun::of_model(config, Tokenizer::from_json(foreign.tokenizer.json())?, &foreign.pretrained)
            .or_mistake("this is the model's own chat template; correct it, or remove it from the folder")?;
        let config = &run.config;
        let device = open_device(machine.first_device())?;
        let mut model = PathModel::new(&config.model, &config.levels, device, Precision::F32)?;
        let (levels, _) = foreign.levels(&config.model, &config.levels)?;
        for (level, values) in levels.iter().enumerate() {
            model.set_level(level, values)?;
        }
        Ok((run, Box::new(SingleModel(model))))
    }

    /// The run, and what generates.
    fn open(&self, globals: &Globals, machine: &MachineConfig) -> anyhow::Result<(ServedRun, Box<dyn Backend>)> {
        let template = "the run's creator gave this chat template; serve another run";
        let whom = self.whom.as_path();
        if is_model(whom) {
            return self.open_model(whom, machine);
        }
        if self.context.is_some() {
            let message = "--context: the run says how long its texts are";
            return Err(Mistake::new(message).hint("leave it out; it is for a model's folder").into());
        }
        if whom.exists() {
            let collected = collected_run::open(whom).map_err(|error| about(whom, error))?;
            let config = collected.manifest.config.clone();
            let tokenizer = Tokenizer::from_json(collected.tokenizer.json())?;
            let run =
                ServedRun::new(config, tokenizer, &collected.pretrained, Source::Collected).or_mistake(template)?;
            return Ok((run, Box::new(LocalModels::new(collected, machine.first_device()))));
        }
        let address = listen::parse(&whom.to_string_lossy()).map_err(|_| {
            Mistake::new(format!("{}: neither a folder that exists nor the address of a peer", whom.display())).hint(
                "give the folder of a collected run or of a model, or the address of a running peer (/ip4/…/p2p/…)",
            )
        })?;
        let output = globals.output();
        // The reader may be gone.
        let told = move |line: &str| drop(output.complain(line));
        let sponsor = self.sponsor.as_deref().map(access::sponsor).transpose()?;
        let entrance = Entrance { addresses: &[address], sponsor: sponsor.as_deref() };
        swarm(entrance, machine.first_device(), Box::new(told)).map_err(explain_visit)
    }
}

/// Whether a folder is a model of `transformers`: a collected run has a manifest, and no `config.json`.
fn is_model(folder: &Path) -> bool {
    folder.join("config.json").is_file() && !folder.join("manifest.json").exists()
}

/// What a folder is that cannot be served, if its files tell.
fn about(folder: &Path, error: Mistake) -> Mistake {
    let imported = folder.join("run.toml").is_file() && folder.join("ancestor.safetensors").is_file();
    match imported && !folder.join("manifest.json").exists() {
        true => Mistake::new(format!("{} is what import made of a model, to create a run from", folder.display()))
            .hint("serve the model's own folder, or a collected run"),
        false => error,
    }
}
