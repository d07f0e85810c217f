//! What `watch` follows: one look after the other at the peers of one run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::swarm::mistake::Mistake;
use crate::cli::swarm::status::not_running;
use crate::cli::swarm::whom::{Place, ask, local_peers};
use crate::config::RunConfig;
use crate::peer::PeerStatus;
use crate::peer::client::observer::Observer;
use crate::peer::driver::control_socket;
use crate::telemetry::{Follower, RunOutline, Telemetry};

/// Time between two looks at peers of this machine.
const EVERY: Duration = Duration::from_secs(1);

/// Time between two looks at a swarm.
const EVERY_OF_SWARM: Duration = Duration::from_secs(2);

/// The peers that are followed.
pub struct Source {
    peers: Peers,
    config: RunConfig,
    every: Duration,
}

enum Peers {
    /// Those of one run below a folder.
    Local {
        folder: PathBuf,
        run: String,
    },
    Swarm(Box<Observer>),
}

impl Source {
    /// # Errors
    /// If no peer runs in the folder, or peers of several runs do.
    pub async fn open(place: Place) -> anyhow::Result<Self> {
        let folder = match place {
            Place::Address(observer) => {
                let config = observer.config().clone();
                return Ok(Self { peers: Peers::Swarm(observer), config, every: EVERY_OF_SWARM });
            }
            Place::Folder(folder) => folder,
        };
        let mut runs: BTreeMap<String, (String, PathBuf)> = BTreeMap::new();
        let mut reason = String::new();
        for peer in local_peers(&folder).running {
            match ask(&peer).await {
                Ok((status, _)) => drop(runs.entry(status.run).or_insert((status.name, peer))),
                Err(why) => reason = format!(" ({}: {why})", peer.display()),
            }
        }
        if runs.len() > 1 {
            let names: Vec<String> =
                runs.values().map(|(name, peer)| format!("{name} in {}", peer.display())).collect();
            let message = format!("peers of several runs are running below {}: {}", folder.display(), names.join(", "));
            return Err(Mistake::new(message).hint("name the folder of one of them").into());
        }
        let Some((run, (_, first))) = runs.pop_first() else { return Err(not_running(&folder, &reason).into()) };
        let config = control_socket::config(&first).await?;
        Ok(Self { peers: Peers::Local { folder, run }, config, every: EVERY })
    }

    /// Where the peers are, for people.
    pub fn place(&self) -> String {
        match &self.peers {
            Peers::Local { folder, .. } => folder.display().to_string(),
            Peers::Swarm(observer) => observer.address().to_string(),
        }
    }

    /// Follows the peers into the telemetry, for as long as this is awaited.
    ///
    /// # Errors
    /// If the run cannot be, or the network has stopped.
    pub async fn follow(mut self, telemetry: Telemetry) -> anyhow::Result<()> {
        let mut follower = Follower::new(&telemetry, RunOutline::new(&self.config)?);
        let mut tick = tokio::time::interval(self.every);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let answers = self.look().await?;
            follower.hear(answers);
        }
    }

    /// The statuses of the peers that answer, under short names.
    async fn look(&mut self) -> anyhow::Result<Vec<(String, PeerStatus)>> {
        match &mut self.peers {
            Peers::Local { folder, run } => {
                let asked = local_peers(folder).running.into_iter().map(async |peer| {
                    let (status, _) = ask(&peer).await.ok()?;
                    Some((name(folder, &peer), status))
                });
                let answers = futures::future::join_all(asked).await;
                Ok(answers.into_iter().flatten().filter(|(_, status)| status.run == *run).collect())
            }
            Peers::Swarm(observer) => {
                let answers = observer.look().await?.into_iter();
                Ok(answers.filter_map(|(peer, status)| Some((format!("…{}", peer.short()), status.ok()?))).collect())
            }
        }
    }
}

/// A peer's folder, without what all have in common.
fn name(folder: &Path, peer: &Path) -> String {
    let below = peer.strip_prefix(folder).ok().filter(|below| !below.as_os_str().is_empty());
    let shown = below.or_else(|| peer.file_name().map(Path::new)).unwrap_or(peer);
    shown.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_the_name_of_its_folder() {
        let name = |folder: &str, peer: &str| name(Path::new(folder), Path::new(peer));
        assert_eq!(name("runs/demo", "runs/demo/peer-1"), "peer-1");
        assert_eq!(name("runs", "runs/demo/peer-1"), "demo/peer-1");
        assert_eq!(name("runs/friends", "runs/friends"), "friends");
    }
}
