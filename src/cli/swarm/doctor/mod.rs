//! `pathswarm doctor`: checks this machine and its reachability, with advice on problems.

mod device;
mod finding;
mod outside;
mod resources;
mod torch;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use self::finding::{Finding, Verdict};
use super::listen::{self, parse};
use super::mistake::Mistake;
use super::output::Output;
use crate::cli::swarm::{Globals, access};
use crate::config::Setting;
use crate::network::{Bandwidth, Identity, NetworkConfig, is_loopback_address, start};
use crate::peer::StoredBlobs;
use crate::store::BlobStore;
use crate::training::device::SIZES;

/// Check this machine for a peer: ports, disk, clock, device and speed; with an address also its reachability.
#[derive(Args)]
pub struct Doctor {
    /// A peer of a swarm, or a relay: it reports how it sees this machine, and a blob is fetched from a peer to measure
    /// the link.
    address: Option<String>,
    /// The sponsor in a run by invitation: the folder of a peer of this machine that takes part.
    #[arg(long = "as", value_name = "DIR", requires = "address")]
    sponsor: Option<PathBuf>,
    /// The run for the measurement of speed; by default a path of 3.3 million parameters.
    #[arg(long, value_name = "FILE")]
    run: Option<PathBuf>,
    /// Listening addresses; by default those of the machine's profile.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// Check and measure only this device, `cpu`, `cuda` or `auto`: whether it computes what the CPU computes, and how fast
    /// it trains networks of four sizes.
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["address", "run", "listen"])]
    device: Option<String>,
    /// How many of the sizes are measured, from the smallest; 0 only checks.
    #[arg(long, requires = "device", default_value_t = SIZES.len())]
    sizes: usize,
    /// A Python that can import torch, to measure eager and compiled PyTorch at the same sizes.
    #[arg(long, value_name = "PYTHON", requires = "device")]
    torch: Option<String>,
}

/// Time for the tests of relays and routers.
const OUTSIDE_WITHIN: Duration = Duration::from_secs(12);

impl Doctor {
    /// Runs the command.
    ///
    /// # Errors
    /// If a check has failed.
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        if let Some(device) = &self.device {
            let choice = Setting::parse("--device", &format!("device={device}")).map_err(Mistake::new)?;
            let machine = globals.machine_with(vec![choice])?.value;
            let mut report = Report { output: globals.output(), found: Vec::new() };
            let page = device::Page { machine: &machine, sizes: self.sizes, torch: self.torch.as_deref() };
            page.each(&mut |findings| report.add(findings))?;
            return report.end();
        }
        let machine = globals.machine()?.value;
        let run = self.run.as_deref().map(|file| globals.run(file)).transpose()?.map(|run| run.value);
        let address = self.address.as_deref().map(parse).transpose()?;
        let identity = Identity::generate();
        let sponsor = self.sponsor.as_deref().map(access::sponsor).transpose()?;
        let shown = sponsor.map(|sponsor| sponsor.visitor(identity.key())).transpose().map_err(access::explain)?;
        let mut report = Report { output: globals.output(), found: Vec::new() };
        report.add(resources::disk(&machine))?;
        report.add(resources::clock())?;
        report.add(resources::device(&machine))?;
        report.add(resources::speed(&machine, run))?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let config = NetworkConfig {
                listen: listen::listen(&self.listen, &machine)?,
                announce: listen::announce(&machine)?,
                relays: listen::relays(&[], &machine)?,
                bandwidth: Bandwidth {
                    upload_bytes_per_s: machine.upload_bytes_per_s,
                    download_bytes_per_s: machine.download_bytes_per_s,
                },
                mdns: machine.mdns,
                upnp: machine.upnp,
                ..NetworkConfig::visitor(identity)
            };
            let folder = tempfile::tempdir()?;
            let blobs = BlobStore::open(folder.path())?;
            let access = StoredBlobs::default();
            access.take_in(blobs.clone());
            let (network, mut events) = match start(config, std::sync::Arc::new(access)).await {
                Ok(begun) => begun,
                Err(error) => return report.add(vec![outside::no_ports(&error)]),
            };
            report.add(outside::ports(&network, &machine).await)?;
            let Some(address) = address else {
                return report.add(vec![outside::nobody_asked()]);
            };
            report.add(outside::ask(&network, &mut events, &blobs, &address, shown.as_ref()).await)?;
            let local = is_loopback_address(&address);
            report.add(outside::reachability(&network, if local { Duration::ZERO } else { OUTSIDE_WITHIN }).await)
        })?;
        report.end()
    }
}

/// The findings, printed as they come.
struct Report {
    output: Output,
    found: Vec<Finding>,
}

impl Report {
    fn add(&mut self, findings: Vec<Finding>) -> anyhow::Result<()> {
        for finding in findings {
            self.output.text(&finding.in_words())?;
            self.output.json(&finding.to_json())?;
            self.found.push(finding);
        }
        Ok(())
    }

    fn end(self) -> anyhow::Result<()> {
        let wrong: Vec<&Finding> = self.found.iter().filter(|finding| finding.verdict == Verdict::Wrong).collect();
        self.output.json(&json!({ "event": "result", "findings": self.found.len(), "wrong": wrong.len() }))?;
        match wrong.first() {
            None => Ok(self.output.text("no problem found")?),
            Some(first) => {
                let mistake = Mistake::new(format!("{}: {}", first.about, first.found));
                Err(mistake.hint(first.remedy.clone().unwrap_or_default()).into())
            }
        }
    }
}
