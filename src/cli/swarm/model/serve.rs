//! `pathswarm serve`: OpenAI's API before a collected run, a model, or a running swarm.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;

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
use crate::model::hugging_face::pretrained::PretrainedFiles;
use crate::model::{PathModel, open_device, set_threads};
use crate::peer::client::Entrance;
use crate::peer::inference::client::{InferenceClient, Swarm};
use crate::serve::engine::backend::Backend;
use crate::serve::engine::counts::Counted;
use crate::serve::engine::local::{LocalModels, SingleModel};
use crate::serve::engine::swarm::SwarmModels;
use crate::serve::limits::{BODY_BYTES, ServeLimits};
use crate::serve::routes::{OPEN_PATHS, refused};
use crate::serve::{App, Engine, ServedRun, Source, router};
use crate::telemetry::{Fact, Telemetry};
use crate::text::Tokenizer;

/// Time between two looks of the page at the server's counts.
const SHOWN_EVERY: Duration = Duration::from_secs(1);

/// The port if none is given.
const PORT: u16 = 8080;

/// `pathswarm serve`
#[derive(Args)]
pub struct Serve {
    /// A collected run, a model's folder as `export` and `transformers` write it, or the address of a running peer of a
    /// swarm.
    #[arg(value_name = "DIR | ADDRESS")]
    whom: String,
    /// The most tokens of a text that the model sees, if not as many as it was made for; of a model's folder.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..))]
    context: Option<u32>,
    /// Where to listen. Only this machine can reach 127.0.0.1.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    listen: String,
    /// A file with API keys, one a line; clients must show one of them.
    #[arg(long, value_name = "FILE")]
    api_keys: Option<PathBuf>,
    /// A web page's origin, such as https://chat.example, whose scripts may ask; `*` for all. May be repeated.
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
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
        let keys = self.api_keys.as_deref().map(api_keys).transpose()?;
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
        };
        let run = Arc::new(run);
        let output = globals.output();
        // The reader may be gone.
        let report = move |line: &str| drop(output.complain(line));
        let engine = Engine::start(Arc::clone(&run), limits, backend, Box::new(report))?;
        let app = App::new(Arc::clone(&run), engine, limits);
        self.serve(globals, (listener, keys), &run, app)
    }

    /// Serves until the user asks to stop.
    fn serve(
        &self,
        globals: &Globals,
        (listener, keys): (TcpListener, Option<Vec<String>>),
        run: &ServedRun,
        app: App,
    ) -> anyhow::Result<()> {
        let (address, output, engine) = (listener.local_addr()?, globals.output(), Arc::clone(&app.engine));
        let tokens = keys.iter().flatten().map(String::as_str);
        let guard = http::Guard::new(address).with_tokens(tokens, OPEN_PATHS).with_origins(self.allow_origin.clone());
        let bounds = http::Limits { body_bytes: BODY_BYTES, ..http::Limits::default() };
        let server = http::Server::start(listener, guard.with_answer(refused).before(router(app)), bounds)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            // Before anybody is told to stop it.
            let interrupt = Interrupt::listen()?;
            let (name, paths, url) = (run.name(), run.grid.path_count(), format!("http://{address}/v1"));
            output.text(&format!("{name}, with {paths} paths, at {url}\nstop with Ctrl-C"))?;
            output.json(&json!({ "event": "serving", "url": url, "model": name, "paths": paths }))?;
            if keys.is_none() && !address.ip().is_loopback() {
                output
                    .complain("whoever reaches this address may ask: give --api-keys FILE, or listen on 127.0.0.1")?;
            }
            let telemetry = Telemetry::default();
            let _pages = self.web.open(&telemetry, None, &|text, value| {
                // The reader may be gone.
                drop(output.text(&text).and_then(|()| output.json(&value)));
            })?;
            let mut shown = tokio::time::interval(SHOWN_EVERY);
            loop {
                tokio::select! {
                    () = interrupt.wait() => return anyhow::Ok(()),
                    _ = shown.tick() => telemetry.serves("server", facts(&engine)),
                }
            }
        })?;
        drop(server);
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
        let whom = Path::new(&self.whom);
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
        let address = listen::parse(&self.whom).map_err(|error| {
            Mistake::new(error).hint(
                "give the folder of a collected run or of a model, or the address of a running peer (/ip4/…/p2p/…)",
            )
        })?;
        let output = globals.output();
        // The reader may be gone.
        let told = move |line: &str| drop(output.complain(line));
        let sponsor = self.sponsor.as_deref().map(access::sponsor).transpose()?;
        let entrance = Entrance { addresses: &[address], sponsor: sponsor.as_deref() };
        let swarm = Swarm::visit(entrance, machine.first_device(), Box::new(told)).map_err(explain_visit)?;
        let tokenizer = Tokenizer::from_json(swarm.tokenizer().json())?;
        let pretrained = PretrainedFiles::default();
        let run = ServedRun::new(swarm.config().clone(), tokenizer, &pretrained, Source::Swarm).or_mistake(template)?;
        Ok((run, Box::new(SwarmModels(swarm))))
    }
}

/// What the page and the metrics show.
fn facts(engine: &Engine) -> Vec<Fact> {
    let Counted { admitted, refused, failed, tokens } = engine.counts().now();
    vec![
        Fact::gauge("serve_requests_pending", "Requests that are answered or wait", engine.requests() as u64),
        Fact::counter("serve_requests_admitted", "Requests taken", admitted),
        Fact::counter("serve_requests_refused", "Requests refused because all places were taken", refused),
        Fact::counter("serve_texts_failed", "Texts that could not be generated", failed),
        Fact::counter("serve_tokens_generated", "Tokens generated", tokens),
    ]
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

/// The keys in a file, one a line; empty lines and lines that begin with `#` are left out.
fn api_keys(path: &Path) -> Result<Vec<String>, Mistake> {
    let hint = "give a file with one key a line, such as 40 letters and digits by chance";
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display())).or_mistake(hint)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let keys: Vec<String> = lines.map(str::to_owned).collect();
    if keys.is_empty() {
        return Err(Mistake::new(format!("{} has no key", path.display())).hint(hint));
    }
    match keys.iter().find(|key| !key.chars().all(|character| character.is_ascii_graphic())) {
        Some(_) => {
            let message = format!("{}: a key has characters that no client can send", path.display());
            Err(Mistake::new(message).hint("use letters, digits and signs of ASCII alone, without spaces"))
        }
        None => Ok(keys),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_one_a_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let keys = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            api_keys(file.path())
        };
        assert_eq!(keys("# of friends\n sk-one \n\nsk-two\n").unwrap(), ["sk-one", "sk-two"]);
        assert!(keys("# none\n").is_err() && keys("sk one\n").is_err() && keys("schlüssel\n").is_err());
        assert!(api_keys(Path::new("/nowhere")).is_err());
    }
}
