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
pub enum Source {
    /// Those of one run below a folder: the first that is found to run.
    Local { folder: PathBuf, run: Option<String> },
    /// Those of a swarm that has been entered.
    Swarm(Box<Observer>),
}

impl Source {
    /// # Errors
    /// If there is no such folder, or peers of several runs are running below it.
    pub async fn open(place: Place) -> anyhow::Result<Self> {
        let folder = match place {
            Place::Address(observer) => return Ok(Self::Swarm(observer)),
            Place::Folder(folder) => folder,
        };
        if !folder.is_dir() {
            return Err(not_running(&folder, ": there is no such folder").into());
        }
        let mut runs: BTreeMap<String, String> = BTreeMap::new();
        for (peer, status) in statuses(&folder).await {
            runs.entry(status.run).or_insert_with(|| format!("{} in {}", status.name, peer.display()));
        }
        if runs.len() > 1 {
            let names: Vec<String> = runs.into_values().collect();
            let message = format!("peers of several runs are running below {}: {}", folder.display(), names.join(", "));
            return Err(Mistake::new(message).hint("name the folder of one of them").into());
        }
        Ok(Self::Local { folder, run: None })
    }

    /// Where the peers are, for people.
    pub fn place(&self) -> String {
        match self {
            Self::Local { folder, .. } => folder.display().to_string(),
            Self::Swarm(observer) => observer.address().to_string(),
        }
    }

    /// Follows the peers into the telemetry, for as long as this is awaited. Waits for a peer that runs.
    ///
    /// # Errors
    /// If the run cannot be, or the network has stopped.
    pub async fn follow(mut self, telemetry: Telemetry) -> anyhow::Result<()> {
        let every = if matches!(self, Self::Local { .. }) { EVERY } else { EVERY_OF_SWARM };
        let mut tick = tokio::time::interval(every);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut follower = None;
        loop {
            tick.tick().await;
            let follower = match &mut follower {
                Some(follower) => follower,
                None => match self.config().await {
                    Some(config) => follower.insert(Follower::new(&telemetry, RunOutline::new(&config)?)),
                    None => continue,
                },
            };
            follower.hear(self.look().await?);
        }
    }

    /// The run's configuration, once a peer runs.
    async fn config(&mut self) -> Option<RunConfig> {
        match self {
            Self::Swarm(observer) => Some(observer.config().clone()),
            Self::Local { folder, run } => {
                let (peer, status) = statuses(folder).await.into_iter().next()?;
                let config = control_socket::config(&peer).await.ok()?;
                *run = Some(status.run);
                Some(config)
            }
        }
    }

    /// The statuses of the peers that answer, under short names.
    async fn look(&mut self) -> anyhow::Result<Vec<(String, PeerStatus)>> {
        match self {
            Self::Local { folder, run } => {
                let all = statuses(folder).await.into_iter();
                let of_run = all.filter(|(_, status)| run.as_ref() == Some(&status.run));
                Ok(of_run.map(|(peer, status)| (name(folder, &peer), status)).collect())
            }
            Self::Swarm(observer) => {
                let answers = observer.look().await?.into_iter();
                Ok(answers.filter_map(|(peer, status)| Some((format!("…{}", peer.short()), status.ok()?))).collect())
            }
        }
    }
}

/// The peers that run below a folder, with their statuses, all asked at once.
async fn statuses(folder: &Path) -> Vec<(PathBuf, PeerStatus)> {
    let asked = local_peers(folder).running.into_iter().map(async |peer| {
        let (status, _) = ask(&peer).await.ok()?;
        Some((peer, status))
    });
    futures::future::join_all(asked).await.into_iter().flatten().collect()
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
