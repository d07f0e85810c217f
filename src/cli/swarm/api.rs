//! OpenAI's API before a run: who may ask, the server, and the one of a peer that trains.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::cli::swarm::mistake::{Mistake, OrMistake};
use crate::cli::swarm::running::Display;
use crate::config::DeviceChoice;
use crate::console::metrics_route;
use crate::http;
use crate::model::hugging_face::pretrained::PretrainedFiles;
use crate::network::Multiaddr;
use crate::peer::access::access_control::AccessControl;
use crate::peer::client::Entrance;
use crate::peer::inference::client::{InferenceClient, Swarm};
use crate::serve::engine::Report;
use crate::serve::engine::backend::Backend;
use crate::serve::engine::counts::Counted;
use crate::serve::engine::swarm::SwarmModels;
use crate::serve::limits::{BODY_BYTES, ServeLimits};
use crate::serve::routes::{OPEN_PATHS, refused};
use crate::serve::{App, Engine, ServedRun, Source, router};
use crate::telemetry::{Fact, Telemetry};
use crate::text::Tokenizer;

/// The port if none is given.
pub const PORT: u16 = 8080;

/// Time between two looks of the page and the metrics at what the engine counts.
pub const COUNTED_EVERY: Duration = Duration::from_secs(1);

/// Time after which a peer enters its own swarm again if that failed.
const ENTERS_AGAIN: Duration = Duration::from_secs(5);

/// Who may ask a server.
#[derive(Args, Clone)]
pub struct AskerFlags {
    /// A file with API keys, one a line; clients must show one of them.
    #[arg(long, value_name = "FILE")]
    api_keys: Option<PathBuf>,
    /// A web page's origin, such as https://chat.example, whose scripts may ask; `*` for all. May be repeated.
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,
}

/// The same, read and checked.
pub struct Askers {
    keys: Option<Vec<String>>,
    origins: Vec<String>,
}

impl AskerFlags {
    /// # Errors
    /// If the file has no keys.
    pub fn read(&self) -> Result<Askers, Mistake> {
        let keys = self.api_keys.as_deref().map(api_keys).transpose()?;
        Ok(Askers { keys, origins: self.allow_origin.clone() })
    }
}

/// A server of the API. It stops when dropped.
#[must_use = "the server stops when this is dropped"]
pub struct Api {
    engine: Arc<Engine>,
    telemetry: Telemetry,
    server: http::Server,
    is_open: bool,
}

impl Api {
    /// Serves a run on `listener`, with the counts in `telemetry`. `report` tells the owner what went wrong.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub fn open(
        (listener, askers): (TcpListener, Askers),
        (run, backend): (Arc<ServedRun>, Box<dyn Backend>),
        limits: ServeLimits,
        telemetry: &Telemetry,
        report: Report,
    ) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let app = App::new(Arc::clone(&run), Engine::start(run, limits, backend, report)?, limits);
        let engine = Arc::clone(&app.engine);
        let keys = askers.keys.iter().flatten().map(String::as_str);
        let guard = http::Guard::new(address).with_tokens(keys, OPEN_PATHS).with_origins(askers.origins);
        let routes = router(app).merge(metrics_route(telemetry.clone()));
        let bounds = http::Limits { body_bytes: BODY_BYTES, ..http::Limits::default() };
        let server = http::Server::start(listener, guard.with_answer(refused).before(routes), bounds)?;
        let is_open = askers.keys.is_none() && !address.ip().is_loopback();
        let api = Self { engine, telemetry: telemetry.clone(), server, is_open };
        api.count();
        Ok(api)
    }

    /// What clients are given.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.server.address())
    }

    /// A warning for the owner, if whoever reaches the address may ask.
    pub fn warning(&self) -> Option<&'static str> {
        self.is_open.then_some("whoever reaches this address may ask: give --api-keys FILE, or listen on 127.0.0.1")
    }

    /// Shows what was counted by now.
    pub fn count(&self) {
        self.telemetry.serves("server", facts(&self.engine));
    }
}

/// What the page and the metrics show.
fn facts(engine: &Engine) -> Vec<Fact> {
    let Counted { admitted, refused, failed, tokens, reused } = engine.counts().now();
    vec![
        Fact::gauge("serve_requests_pending", "Requests that are answered or wait", engine.requests() as u64),
        Fact::counter("serve_requests_admitted", "Requests taken", admitted),
        Fact::counter("serve_requests_refused", "Requests refused because all places were taken", refused),
        Fact::counter("serve_texts_failed", "Texts that could not be generated", failed),
        Fact::counter("serve_tokens_generated", "Tokens generated", tokens),
        Fact::counter("serve_prompt_tokens_reused", "Tokens of prompts that were read for an earlier text", reused),
    ]
}

/// A running swarm, and what asks its peers. Paths that no peer runs will run on `device`.
///
/// # Errors
/// If no peer answers, or the run's chat template is none.
pub fn swarm(
    entrance: Entrance<'_>,
    device: DeviceChoice,
    told: Box<dyn FnMut(&str) + Send>,
) -> anyhow::Result<(ServedRun, Box<dyn Backend>)> {
    let swarm = Swarm::visit(entrance, device, told)?;
    let tokenizer = Tokenizer::from_json(swarm.tokenizer().json())?;
    let run = ServedRun::new(swarm.config().clone(), tokenizer, &PretrainedFiles::default(), Source::Swarm)
        .or_mistake("the run's creator gave this chat template; serve another run")?;
    Ok((run, Box::new(SwarmModels::new(swarm))))
}

/// The API of a peer that trains.
#[derive(Args)]
pub struct PeerApiFlags {
    /// Serve OpenAI's API before the run that this peer trains; without an address at 127.0.0.1:8080, which only this
    /// machine reaches. Each text goes to a peer that has its path.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:8080")]
    serve: Option<String>,
    #[command(flatten)]
    askers: AskerFlags,
}

/// The same, with its port bound.
pub struct PeerApi {
    listener: TcpListener,
    askers: Askers,
    device: DeviceChoice,
}

impl PeerApiFlags {
    /// Binds the port, if the API was asked for.
    ///
    /// # Errors
    /// If nothing can listen there, or keys are given for nothing.
    pub fn bind(&self, device: DeviceChoice) -> Result<Option<PeerApi>, Mistake> {
        let askers = self.askers.read()?;
        match &self.serve {
            Some(address) => {
                let listener = http::listen(address, PORT).or_mistake("give --serve=HOST:PORT")?;
                Ok(Some(PeerApi { listener, askers, device }))
            }
            None if askers.keys.is_some() || !askers.origins.is_empty() => {
                Err(Mistake::new("--api-keys and --allow-origin are for the API of this peer").hint("add --serve"))
            }
            None => Ok(None),
        }
    }
}

/// The API of a peer that runs. It closes when dropped.
#[must_use = "the API closes when this is dropped"]
pub struct OpenedApi {
    _until_dropped: SyncSender<()>,
}

impl PeerApi {
    /// Serves on a thread, from when the peer at `addresses` lets it in. In a run by invitation, that peer vouches.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn begin(
        self,
        addresses: Vec<Multiaddr>,
        sponsor: Option<Arc<AccessControl>>,
        display: Display,
    ) -> std::io::Result<OpenedApi> {
        let (until_dropped, dropped) = sync_channel(1);
        std::thread::Builder::new()
            .name("API".to_owned())
            .spawn(move || self.serve(&addresses, sponsor.as_deref(), &display, &dropped))?;
        Ok(OpenedApi { _until_dropped: until_dropped })
    }

    fn serve(
        self,
        addresses: &[Multiaddr],
        sponsor: Option<&AccessControl>,
        display: &Display,
        dropped: &Receiver<()>,
    ) {
        let is_over = |wait: Duration| dropped.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected);
        let mut said = String::new();
        let opened = loop {
            // What the client tells of its progress is for a log.
            let told = |line: &str| tracing::info!("{line}");
            match swarm(Entrance { addresses, sponsor }, self.device, Box::new(told)) {
                Ok(opened) => break opened,
                Err(error) => {
                    let reason = format!("{error:#}");
                    if reason != said {
                        display.progress.note(format!("the API waits for the swarm: {reason}"));
                        said = reason;
                    }
                }
            }
            if is_over(ENTERS_AGAIN) {
                return;
            }
        };
        if opened.0.config.model.reads_images() {
            display.progress.note("this run reads images and generates no text, so --serve does nothing");
            return;
        }
        let (run, backend) = (Arc::new(opened.0), opened.1);
        let report = |line: &str| tracing::warn!("{line}");
        let parts = (Arc::clone(&run), backend);
        match Api::open(
            (self.listener, self.askers),
            parts,
            ServeLimits::default(),
            &display.telemetry,
            Box::new(report),
        ) {
            Ok(api) => {
                let (url, name) = (api.url(), run.name());
                display.tell(
                    format!("OpenAI's API before {name}: {url}"),
                    json!({ "event": "serving", "url": url, "model": name, "paths": run.grid.path_count() }),
                );
                api.warning().into_iter().for_each(|warning| display.progress.note(warning));
                while !is_over(COUNTED_EVERY) {
                    api.count();
                }
            }
            Err(error) => display.progress.note(format!("the API cannot be served: {error}")),
        }
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
