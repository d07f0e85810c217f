//! `pathswarm relay`: a relay on a public machine, for peers that cannot be reached directly.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::json;

use super::address::parse;
use super::globals::Globals;
use super::interrupt::Interrupt;
use super::mistake::Mistake;
use super::output::Output;
use super::process::{private_files, runtime};
#[cfg(feature = "learning")]
use super::swarm::PageFlags;
use crate::names::PeerKey;
use crate::network::limits::{CIRCUIT_BYTES, CIRCUITS, CONNECTIONS_PER_IP, HOURLY_BYTES_PER_IP, RESERVATIONS};
use crate::network::{Identity, IdentityError, RelayBounds, RelayConfig, RelayCounts, StartError};
use crate::observe::logging;
use crate::sizes::in_words;
#[cfg(feature = "learning")]
use crate::telemetry::{Fact, Telemetry};

/// Default listening addresses, with fixed ports for firewall rules.
const LISTEN: [&str; 4] =
    ["/ip4/0.0.0.0/udp/4001/quic-v1", "/ip4/0.0.0.0/tcp/4001", "/ip6/::/udp/4001/quic-v1", "/ip6/::/tcp/4001"];

/// Time between two looks of the page at the relay's counts.
#[cfg(feature = "learning")]
const SHOWN_EVERY: Duration = Duration::from_secs(1);

/// Run a relay on a public machine, for peers that cannot be reached directly.
#[derive(Args)]
pub struct Relay {
    /// Where to listen; by default port 4001, by QUIC and TCP.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// Further addresses at which others reach this machine: a public address in front of it, or a name.
    #[arg(long, value_name = "ADDRESS")]
    announce: Vec<String>,
    /// Folder of the relay's key, which identifies it, and of its log.
    #[arg(long, value_name = "FOLDER", default_value = "relay")]
    dir: PathBuf,
    /// Most peers with a reservation; a sixteenth of them behind one IP address.
    #[arg(long, value_name = "NUMBER", default_value_t = RESERVATIONS)]
    reservations: usize,
    /// Most circuits at once; an eighth of them requested from one IP address.
    #[arg(long, value_name = "NUMBER", default_value_t = CIRCUITS)]
    circuits: usize,
    /// Most connections from one IP address.
    #[arg(long, value_name = "NUMBER", default_value_t = CONNECTIONS_PER_IP)]
    connections_per_ip: usize,
    /// Most bytes an hour through circuits that are requested from one IP address; each circuit counts with all that it
    /// may carry, 64 MiB.
    #[arg(long, value_name = "BYTES", default_value_t = HOURLY_BYTES_PER_IP, value_parser = clap::value_parser!(u64).range(CIRCUIT_BYTES..))]
    hourly_bytes_per_ip: u64,
    /// A file with the keys of the peers that may use this relay, one a line; without it, any peer may.
    #[arg(long, value_name = "FILE")]
    allow: Option<PathBuf>,
    /// Seconds between two reports of its load.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    #[cfg(feature = "learning")]
    #[command(flatten)]
    web: PageFlags,
}

impl Relay {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        private_files();
        if self.dir.join("store").exists() {
            let message = format!("{} is the folder of a peer, whose key a relay must not use", self.dir.display());
            return Err(Mistake::new(message).hint("choose another folder with --dir").into());
        }
        let listen = if self.listen.is_empty() { LISTEN.map(str::to_owned).to_vec() } else { self.listen.clone() };
        let addresses = |texts: &[String]| texts.iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>();
        let mut config = RelayConfig {
            identity: Identity::generate(),
            listen: addresses(&listen)?,
            announce: addresses(&self.announce)?,
            allow: self.allow.as_deref().map(allowed).transpose()?,
            bounds: RelayBounds {
                reservations: self.reservations,
                circuits: self.circuits,
                connections_per_ip: self.connections_per_ip,
                hourly_bytes_per_ip: self.hourly_bytes_per_ip,
                ..RelayBounds::default()
            },
        };
        let key = self.dir.join("key");
        config.identity = Identity::load_or_generate(&key).map_err(explain_key)?;
        let (output, log_filter) = (globals.output(), globals.log_filter()?);
        runtime::run(runtime::NETWORK_THREADS, async {
            let interrupt = Interrupt::listen()?;
            let relay = crate::network::Relay::start(config.clone()).await.map_err(explain)?;
            // Only now is it certain that this relay uses the folder.
            config.identity.keep(&key).map_err(explain_key)?;
            let _log = logging::start(&self.dir, &log_filter)?;
            say_where(output, &relay)?;
            #[cfg(feature = "learning")]
            let telemetry = Telemetry::default();
            #[cfg(feature = "learning")]
            let _pages = self.web.open(&telemetry, None, &|text, value| {
                // The reader may be gone.
                drop(output.text(&text).and_then(|()| output.json(&value)));
            })?;
            #[cfg(feature = "learning")]
            let mut shown = tokio::time::interval(SHOWN_EVERY);
            let mut clock = tokio::time::interval(Duration::from_secs(self.every));
            let mut said = None;
            loop {
                #[cfg(feature = "learning")]
                let show = async {
                    shown.tick().await;
                    telemetry.serves("relay", facts(relay.counts()));
                };
                #[cfg(not(feature = "learning"))]
                let show = std::future::pending::<()>();
                tokio::select! {
                    () = interrupt.wait() => break,
                    () = show => {}
                    _ = clock.tick() => {
                        let counts = relay.counts();
                        if said.replace(counts) != Some(counts) {
                            say(output, "carries", counts)?;
                        }
                    }
                }
            }
            say(output, "stopped", relay.counts())?;
            Ok(())
        })
    }
}

/// What the page and the metrics show.
#[cfg(feature = "learning")]
fn facts(counts: RelayCounts) -> Vec<Fact> {
    let RelayCounts { reservations, circuits, circuits_ever, refused, bytes_in, bytes_out } = counts;
    vec![
        Fact::gauge("relay_reservations", "Peers that hold a reservation", reservations),
        Fact::gauge("relay_circuits", "Open circuits", circuits),
        Fact::counter("relay_circuits_opened", "Circuits since the start", circuits_ever),
        Fact::counter("relay_refusals", "Refused reservations and circuits", refused),
        Fact::bytes("relay_received", "Bytes in, of all connections", bytes_in),
        Fact::bytes("relay_sent", "Bytes out, of all connections", bytes_out),
    ]
}

/// The keys in a file, one a line; empty lines and lines that begin with `#` are left out.
fn allowed(path: &Path) -> anyhow::Result<Vec<PeerKey>> {
    let hint =
        "give one key a line, with all its 64 hexadecimal digits, as `pathswarm status DIR --format json` prints them";
    let text = std::fs::read_to_string(path)
        .map_err(|error| Mistake::new(format_args!("{}: {error}", path.display())).hint(hint))?;
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let key = |(at, line): (usize, &str)| {
        line.parse().map_err(|_| {
            let place = format_args!("{}, line {}: {line:?} is not the key of a peer", path.display(), at + 1);
            Mistake::new(place).hint(hint).into()
        })
    };
    lines.map(key).collect()
}

fn explain(error: StartError) -> anyhow::Error {
    match error {
        StartError::NotBuilt { .. } => error.into(),
        _ => Mistake::new(error).hint("choose other addresses with --listen").into(),
    }
}

fn explain_key(error: IdentityError) -> anyhow::Error {
    Mistake::new(error).hint("choose another folder with --dir").into()
}

fn say_where(output: Output, relay: &crate::network::Relay) -> anyhow::Result<()> {
    let addresses: Vec<String> = relay.addresses().iter().map(ToString::to_string).collect();
    let first = addresses.first().context("this relay has no address to listen on")?;
    output.text(&format!("peers behind a router use this relay with:\n  --relay {first}"))?;
    if addresses.len() > 1 {
        output.text(&format!("or, if that address cannot be reached:\n  {}", addresses[1..].join("\n  ")))?;
    }
    output.text(&format!("or permanently, in the machine's profile:\n  relays = [\"{first}\"]"))?;
    output.json(&json!({ "event": "relay", "address": first, "addresses": addresses }))?;
    Ok(())
}

fn say(output: Output, event: &str, counts: RelayCounts) -> anyhow::Result<()> {
    let RelayCounts { reservations, circuits, circuits_ever, refused, bytes_in, bytes_out } = counts;
    output.text(&format!(
        "{event}: {reservations} reservations, {circuits} circuits ({circuits_ever} since the start), {refused} \
         refused; {} in, {} out",
        in_words(bytes_in),
        in_words(bytes_out)
    ))?;
    output.json(&json!({ "event": event, "counts": counts }))?;
    Ok(())
}
