//! The handle of a running peer: commands to its driver, and their answers.

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::access::invitation::OneTimeInvitation;
use crate::names::PeerKey;
use crate::network::Multiaddr;
use crate::peer::driver::status::PeerStatus;

/// Commands that may wait for the driver.
pub(crate) const COMMANDS: usize = 16;

/// What a user may want of a running peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Send a peer away.
    SendAway(PeerKey),
    /// Take a one-time invitation back.
    TakeBack(OneTimeInvitation),
}

/// Asked of a running peer.
#[derive(Debug)]
pub(crate) enum Command {
    /// What are you doing?
    Status(oneshot::Sender<PeerStatus>),
    /// The same, with the hashes of parameters.
    StatusWithHashes(oneshot::Sender<PeerStatus>),
    /// Where are the others?
    Contacts(oneshot::Sender<Vec<Multiaddr>>),
    /// Do this for the user.
    Order(Order, oneshot::Sender<Result<String, String>>),
    /// Leave in order.
    Stop(oneshot::Sender<()>),
}

/// Asks a running peer.
#[derive(Clone)]
pub struct PeerHandle {
    pub(crate) commands: mpsc::Sender<Command>,
}

impl PeerHandle {
    /// What the peer is doing, without the hashes of its parameters; nothing if it has stopped.
    pub async fn status(&self) -> Option<PeerStatus> {
        self.ask(Command::Status).await
    }

    /// The same with the hashes: each new state is read once for them.
    pub async fn status_with_hashes(&self) -> Option<PeerStatus> {
        self.ask(Command::StatusWithHashes).await
    }

    /// Where the peers that it knows can be found; nothing if it has stopped.
    pub async fn contacts(&self) -> Option<Vec<Multiaddr>> {
        self.ask(Command::Contacts).await
    }

    /// Carries out an order of the user; nothing if it has stopped.
    pub async fn order(&self, order: Order) -> Option<Result<String, String>> {
        self.ask(|reply| Command::Order(order, reply)).await
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }
}
