//! What the task can be told to do.

use libp2p::Multiaddr;
use tokio::sync::oneshot;

use crate::names::{BlobRef, ModuleId, PeerKey, RunId};
use crate::network::connectivity::dial_error::DialError;
use crate::network::connectivity::observed_address::Outside;
use crate::network::connectivity::providers::ProvideError;
use crate::network::gossip::{PublishError, Published, SubscribeError};
use crate::network::protection::score::{Ban, Offence};
use crate::network::rpc::RequestToken;
use crate::network::swarm::events::Slot;

/// One line each to the task's mailbox. What carries a `slot` is answered by an event, what carries a `reply` at once
/// (a dial: when it is known).
pub(in crate::network) enum Command {
    JoinRun { run: RunId, done: oneshot::Sender<()> },
    Subscribe { module: ModuleId, reply: oneshot::Sender<Result<(), SubscribeError>> },
    Unsubscribe { module: ModuleId, done: oneshot::Sender<()> },
    Publish { module: ModuleId, bytes: Vec<u8>, reply: oneshot::Sender<Result<Published, PublishError>> },
    Request { id: u64, to: PeerKey, addresses: Vec<Multiaddr>, bytes: Vec<u8>, slot: Slot },
    Respond { token: RequestToken, bytes: Vec<u8> },
    Fetch { id: u64, blob: BlobRef, from: Vec<(PeerKey, Vec<Multiaddr>)>, slot: Slot },
    Dial { address: Multiaddr, reply: oneshot::Sender<Result<PeerKey, DialError>> },
    DialPeer { peer: PeerKey, addresses: Vec<Multiaddr> },
    Disconnect { peer: PeerKey },
    Blame { peer: PeerKey, offence: Offence },
    RestoreBans { bans: Vec<Ban> },
    Provide { module: ModuleId, reply: oneshot::Sender<Result<(), ProvideError>> },
    StopProviding { module: ModuleId },
    FindProviders { id: u64, module: ModuleId, slot: Slot },
    Listeners { reply: oneshot::Sender<Vec<Multiaddr>> },
    Outside { reply: oneshot::Sender<Outside> },
    Outlook { reply: oneshot::Sender<Vec<String>> },
    Connections { reply: oneshot::Sender<Vec<PeerKey>> },
}
