//! The handle of a running peer: commands to its driver, and their answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::access::invitation::OneTimeInvitation;
use crate::config::RunConfig;
use crate::config::admission::Requires;
use crate::names::PeerKey;
use crate::network::Multiaddr;
use crate::peer::status::PeerStatus;

/// Commands that may wait for the driver.
pub(crate) const COMMANDS: usize = 16;

/// An order of the user to a running peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Revoke the access of a peer.
    SendAway(PeerKey),
    /// Revoke a one-time invitation.
    TakeBack(OneTimeInvitation),
    /// Amend the run, of which this peer is the creator.
    Amend {
        /// All phases; those of before if nothing is said.
        phases: Option<u64>,
        /// The version that is required; that of before if nothing is said.
        requires: Option<Requires>,
    },
}

/// Commands to the driver.
#[derive(Debug)]
pub(crate) enum Command {
    /// Return the status.
    Status(oneshot::Sender<PeerStatus>),
    /// Return the status with the hashes of parameters.
    StatusWithHashes(oneshot::Sender<PeerStatus>),
    /// Return the run's configuration.
    Config(oneshot::Sender<RunConfig>),
    /// Return the addresses of other peers.
    Contacts(oneshot::Sender<Vec<Multiaddr>>),
    /// Carry out an order.
    Order(Order, oneshot::Sender<Result<String, String>>),
    /// Leave the swarm and stop, without handing over what has not been handed over after this time.
    Stop(oneshot::Sender<()>, Duration),
}

/// The handle of a running peer.
#[derive(Clone)]
pub struct PeerHandle {
    pub(crate) commands: mpsc::Sender<Command>,
}

impl PeerHandle {
    /// The peer's status without the hashes of its parameters; `None` if it has stopped.
    pub async fn status(&self) -> Option<PeerStatus> {
        self.ask(Command::Status).await
    }

    /// The same with the hashes, for which each new state is read once.
    pub async fn status_with_hashes(&self) -> Option<PeerStatus> {
        self.ask(Command::StatusWithHashes).await
    }

    /// The configuration of its run; `None` if it has stopped.
    pub async fn config(&self) -> Option<RunConfig> {
        self.ask(Command::Config).await
    }

    /// Addresses of the known peers; `None` if it has stopped.
    pub async fn contacts(&self) -> Option<Vec<Multiaddr>> {
        self.ask(Command::Contacts).await
    }

    /// Carries out an order of the user; `None` if the peer has stopped.
    pub async fn order(&self, order: Order) -> Option<Result<String, String>> {
        self.ask(|reply| Command::Order(order, reply)).await
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }
}
