//! The flags of commands that show their peers: a page, metrics, and files for TensorBoard.

use std::io::IsTerminal;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use super::access;
use super::mistake::Mistake;
use super::running::Display;
use crate::config::DeviceChoice;
use crate::console::{Console, Shows};
use crate::http::{ListenError, listen};
use crate::network::Multiaddr;
use crate::peer::client::Entrance;
use crate::peer::inference::client::Swarm;
use crate::peer::inference::talk::Talk;
use crate::telemetry::{Sampler, Telemetry, Writing};

/// Where the page is if no address is given.
const WEB_PORT: u16 = 7777;

/// Where Prometheus finds the metrics if no address is given.
const METRICS_PORT: u16 = 9464;

/// The least length of a token that somebody has chosen.
const LEAST_TOKEN: usize = 16;

/// A page, and metrics.
#[derive(Args)]
pub struct PageFlags {
    /// Serve a page that shows what this command does; without an address at 127.0.0.1:7777, which only this machine
    /// reaches. `off` for none.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:7777")]
    web: Option<String>,
    /// Serve metrics for Prometheus under /metrics; without an address at 127.0.0.1:9464. The page has them, too.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:9464")]
    metrics: Option<String>,
    /// The token that viewers must show where other machines reach the page or the metrics, at least 16 characters; by
    /// default a new one at each start.
    #[arg(long, value_name = "TOKEN", env = "PATHSWARM_WEB_TOKEN", hide_env_values = true)]
    web_token: Option<String>,
}

/// The same, and files for TensorBoard, of commands that train.
#[derive(Args)]
pub struct WebFlags {
    #[command(flatten)]
    page: PageFlags,
    /// Write the curves for TensorBoard into this folder: losses, speed, norms of gradients, scores, and how far outer
    /// gradients agree. `tensorboard --logdir DIR` draws them. A folder can be used again.
    #[arg(long, value_name = "DIR")]
    tensorboard: Option<PathBuf>,
}

/// Open pages, and files for TensorBoard. They close when dropped.
#[must_use = "the pages close when this is dropped"]
pub struct Pages {
    _consoles: Vec<Console>,
    _sampler: Sampler,
    _event_files: Option<Writing>,
}

/// Says where a page is, to people and to programs.
pub type Say<'a> = &'a dyn Fn(String, Value);

impl PageFlags {
    /// Whether a page or metrics were asked for.
    pub fn is_asked(&self) -> bool {
        [&self.web, &self.metrics].into_iter().flatten().any(|address| address != "off")
    }

    /// Opens what was asked for, and says where it is. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If nothing can listen there.
    pub fn open(&self, telemetry: &Telemetry, talk: Option<Talk>, say: Say<'_>) -> anyhow::Result<Pages> {
        self.open_or(telemetry, talk, None, say)
    }

    fn open_or(
        &self,
        telemetry: &Telemetry,
        talk: Option<Talk>,
        unasked: Option<TcpListener>,
        say: Say<'_>,
    ) -> anyhow::Result<Pages> {
        let token = self.web_token.as_deref();
        if token
            .is_some_and(|token| token.len() < LEAST_TOKEN || !token.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        {
            let hint = format!("give at least {LEAST_TOKEN} letters and digits, as openssl rand -hex 16 does");
            return Err(Mistake::new("--web-token, or PATHSWARM_WEB_TOKEN: too short, or with other characters")
                .hint(&hint)
                .into());
        }
        let mut consoles = Vec::new();
        let page = match self.web.as_deref() {
            Some("off") => None,
            Some(address) => Some(listen(address, WEB_PORT).map_err(mistake)?),
            None => unasked,
        };
        if let Some(listener) = page {
            let talk = talk.map(Arc::new);
            let console = Console::open(telemetry, listener, token, Shows::Page, talk).context("the page")?;
            let link = console.link();
            say(format!("the swarm as a page: {link}"), json!({ "event": "web", "link": link }));
            consoles.push(console);
        }
        if let Some(address) = self.metrics.as_deref().filter(|address| *address != "off") {
            let listener = listen(address, METRICS_PORT).map_err(mistake)?;
            let console = Console::open(telemetry, listener, token, Shows::Metrics, None).context("the metrics")?;
            let link = console.link();
            say(format!("metrics for Prometheus: {link}"), json!({ "event": "metrics", "link": link }));
            consoles.push(console);
        }
        Ok(Pages { _consoles: consoles, _sampler: telemetry.sample(), _event_files: None })
    }
}

impl WebFlags {
    /// Opens what was asked for, and says where it is. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If nothing can listen there, or the files cannot be made.
    pub fn open(&self, display: &Display, talk: Option<Talk>) -> anyhow::Result<Pages> {
        self.open_or(display, talk, None)
    }

    /// The same, with a page where a terminal shows its link.
    ///
    /// # Errors
    /// If nothing can listen where a page was asked for.
    pub fn open_in_terminal(&self, display: &Display, talk: Option<Talk>) -> anyhow::Result<Pages> {
        let free = || listen("127.0.0.1", WEB_PORT).or_else(|_| listen("127.0.0.1:0", WEB_PORT)).ok();
        self.open_or(display, talk, std::io::stdout().is_terminal().then(free).flatten())
    }

    fn open_or(&self, display: &Display, talk: Option<Talk>, unasked: Option<TcpListener>) -> anyhow::Result<Pages> {
        let event_files = self.tensorboard.as_deref().map(|folder| {
            display.telemetry.event_files_in(folder).map_err(|error| {
                Mistake::new(format!("--tensorboard: {}: {error}", folder.display()))
                    .hint("give a folder in which this user can make files")
            })
        });
        let event_files = event_files.transpose()?;
        let pages = self.page.open_or(&display.telemetry, talk, unasked, &|text, value| display.tell(text, value))?;
        Ok(Pages { _event_files: event_files, ..pages })
    }
}

/// A talk with the swarm that is shown, entered by the addresses of its peers. In a run by invitation, the peer in
/// `sponsor` vouches. A path that no peer can run runs on `device`.
pub fn talk(telemetry: &Telemetry, device: DeviceChoice, sponsor: Option<PathBuf>) -> Talk {
    let telemetry = telemetry.clone();
    Talk::new(Box::new(move || {
        let addresses: Vec<Multiaddr> =
            telemetry.addresses().iter().filter_map(|address| address.parse().ok()).collect();
        anyhow::ensure!(!addresses.is_empty(), "no peer has told its address yet; ask again in a moment");
        let sponsor = sponsor.as_deref().map(access::sponsor_if_needed).transpose()?.flatten();
        let entrance = Entrance { addresses: &addresses, sponsor: sponsor.as_deref() };
        // What the client tells of its progress is for a log.
        let told = |line: &str| tracing::info!("{line}");
        Ok(Box::new(Swarm::visit(entrance, device, Box::new(told))?))
    }))
}

fn mistake(error: ListenError) -> Mistake {
    Mistake::new(error.to_string()).hint("give an address of this machine and a port, such as 127.0.0.1:7778")
}
