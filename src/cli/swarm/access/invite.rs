//! `pathswarm invite`: makes an invitation, from the folder of a peer that may invite.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde_json::json;

use crate::access::invitation::{Grant, InvitationToken, MEMBER, NO_EXPIRY_S};
use crate::cli::swarm::mistake::Mistake;
use crate::cli::swarm::{Globals, access};
use crate::names::PeerKey;
use crate::peer::access::access_control::days;
use crate::peer::access::invitation_token;
use crate::peer::driver::control_socket;
use crate::peer::folder::{ports_before, present_folder};

/// Addresses in an invitation.
const MOST_ADDRESSES: usize = 4;

/// Invite a peer to a run that is not open.
#[derive(Args)]
pub struct Invite {
    /// The folder of the inviting peer, which may be running or not.
    folder: PathBuf,
    /// The key of the invited peer. Without it, the invitation can be used once, by any peer.
    #[arg(long = "for", value_name = "KEY")]
    to: Option<String>,
    /// Days in which a one-time invitation has to be used.
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "to")]
    use_within: u32,
    /// Days for which the invited peer may take part; without it, until its access is revoked.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    lasts: Option<u32>,
    /// How many times in a row the invitation may be passed on: 1 lets the invited peer invite others.
    #[arg(long, value_name = "TIMES", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=3))]
    may_invite: u8,
    /// Write it to a file that only you can read, instead of printing it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Invite {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let output = globals.output();
        if let Some(file) = self.out.as_ref().filter(|file| file.exists()) {
            let message = format!("--out {}: this file is there already", file.display());
            return Err(Mistake::new(message).hint("name another one, or remove it").into());
        }
        let access_control = access::sponsor(&self.folder)?;
        let (rank, lasts_s) = (MEMBER + self.may_invite, days(self.lasts));
        let granted = match &self.to {
            Some(to) => access_control.invite(access::key(to)?, rank, lasts_s),
            None => {
                access_control.invite_once(invitation_token::secret(), rank, (days(Some(self.use_within)), lasts_s))
            }
        };
        let (run, grant) = granted.map_err(access::explain)?;
        let (to, until_s) = match &grant {
            Grant::Credential(pass) => (pass.0.last().map(|last| last.to), pass.until_s()),
            Grant::OneTime(one) => (None, one.use_until_s),
        };
        let text = invitation_token::to_text(&InvitationToken { run, addresses: addresses(&self.folder)?, grant })?;
        if let Some(file) = &self.out {
            write_privately(file, &text)?;
        }
        let for_whom = match to {
            Some(to) => format!("an invitation for peer {to}"),
            None => "a one-time invitation: any peer that holds it can use it once, while the peer of this folder \
                    runs"
                .to_owned(),
        };
        output.complain(&for_whom)?;
        match &self.out {
            Some(file) => output.text(&format!("written to {}", file.display()))?,
            None => output.text(&text)?,
        }
        output.json(&json!({
            "event": "invitation",
            "invitation": text,
            "run": run,
            "for": to,
            "until_s": Some(until_s).filter(|until_s| *until_s != NO_EXPIRY_S),
        }))?;
        Ok(())
    }
}

/// The peer's addresses: the present ones if it runs, else the last ones.
fn addresses(folder: &Path) -> anyhow::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let said = runtime.block_on(control_socket::status(folder)).unwrap_or_default();
    let status: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
    let told = status["addresses"].as_array().into_iter().flatten().filter_map(|address| address.as_str());
    let mut addresses: Vec<String> = told.map(str::to_owned).collect();
    if addresses.is_empty() {
        let folder = present_folder(folder);
        let me: PeerKey = access::identity_in(&folder)?.key();
        addresses = ports_before(&folder).iter().map(|at| crate::network::with_peer(at, me).to_string()).collect();
    }
    addresses.truncate(MOST_ADDRESSES);
    Ok(addresses)
}

fn write_privately(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(file);
    let mut opened = opened.with_context(|| format!("cannot write {}", file.display()))?;
    std::io::Write::write_all(&mut opened, format!("{text}\n").as_bytes())?;
    Ok(())
}
