//! Gossip: one topic for each module of a run, with messages of at most 5 KiB, to all members within a second.

use std::time::Duration;

use libp2p::gossipsub::{
    self, CallbackSubscriptionFilter, ConfigBuilder, IdentTopic, IdentityTransform, MaxCountSubscriptionFilter,
    Message, MessageAuthenticity, MessageId, TopicHash, ValidationMode,
};
use libp2p::identity::Keypair;

use super::limits::{GOSSIP_BYTES, GOSSIP_FRAME_BYTES, GOSSIP_IDS_PER_FRAME, GOSSIP_QUEUE_PER_PEER, TOPICS_PER_PEER};
use crate::names::{ModuleId, RunId};

/// Prefix of all our topics.
const TOPIC_PREFIX: &str = "pathswarm/";

/// The prefix, 64 digits, a slash, and a module of at most 5 + 1 + 10 digits.
const TOPIC_BYTES: usize = TOPIC_PREFIX.len() + 64 + 1 + 16;

type Filter = MaxCountSubscriptionFilter<CallbackSubscriptionFilter<fn(&TopicHash) -> bool>>;

/// Gossipsub with bounds on the topics that peers may subscribe to.
pub(crate) type Gossip = gossipsub::Behaviour<IdentityTransform, Filter>;

/// The outcome of publishing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// Sent to some members.
    Sent,
    /// No connected peer has subscribed to the module (yet), so it was not sent.
    NobodyListens,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    #[error(
        "a message of {bytes} bytes for module {module} is too large: gossip carries at most {GOSSIP_BYTES}, send a \
         blob"
    )]
    TooLarge { module: ModuleId, bytes: usize },
    #[error("no run has been joined, so module {0} has no topic yet")]
    NoRun(ModuleId),
    #[error("the queues to all {peers} members of module {module} are full: try again later")]
    QueuesFull { module: ModuleId, peers: usize },
    #[error("a message for module {module} could not be published: {reason}")]
    NotMade { module: ModuleId, reason: String },
    #[error("the network has stopped")]
    Stopped,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    #[error("no run has been joined, so module {0} has no topic and no key yet")]
    NoRun(ModuleId),
    #[error("cannot join module {0}: a peer may be a member of at most {TOPICS_PER_PEER} modules")]
    TooMany(ModuleId),
    #[error("the network has stopped")]
    Stopped,
}

/// The topic of a module.
pub(crate) fn topic(run: RunId, module: ModuleId) -> IdentTopic {
    IdentTopic::new(format!("{TOPIC_PREFIX}{run}/{module}"))
}

/// Gossipsub for this program.
///
/// Parameters suit swarms of 2 to 20 members a module as well as larger ones:
/// - A peer grafts every member it meets, at once, until it has 8 (low = target = 8): up to nine members that all know
///   each other make a full mesh, without randomness. Above 16 it prunes back to 8.
/// - A publisher sends to its mesh and, if that is smaller than 8, to further subscribers, so that a message right
///   after a subscription needs no mesh. No flood: an update must not cost as many copies as there are members.
/// - A heartbeat of 300 ms (first after 100 ms) tells others which messages they may have missed. Messages of the last
///   1.2 s are offered, those of the last 3.6 s can be requested, which allows a slow round trip.
/// - A peer that leaves a topic may return after 1 s instead of 10, since paths move.
pub(crate) fn gossip(keypair: &Keypair) -> Result<Gossip, String> {
    let config = ConfigBuilder::default()
        .validation_mode(ValidationMode::Strict)
        .validate_messages()
        .message_id_fn(message_id)
        .flood_publish(false)
        .max_transmit_size(GOSSIP_FRAME_BYTES)
        .max_control_messages_sent(GOSSIP_IDS_PER_FRAME)
        .connection_handler_queue_len(GOSSIP_QUEUE_PER_PEER)
        .mesh_n(8)
        .mesh_n_low(8)
        .mesh_n_high(16)
        .mesh_outbound_min(3)
        .heartbeat_initial_delay(Duration::from_millis(100))
        .heartbeat_interval(Duration::from_millis(300))
        .history_gossip(4)
        .history_length(12)
        .unsubscribe_backoff(Duration::from_secs(1))
        .build()
        .map_err(|error| error.to_string())?;
    let filter = MaxCountSubscriptionFilter {
        filter: CallbackSubscriptionFilter(is_ours as fn(&TopicHash) -> bool),
        max_subscribed_topics: TOPICS_PER_PEER,
        max_subscriptions_per_request: 2 * TOPICS_PER_PEER,
    };
    let authenticity = MessageAuthenticity::Signed(keypair.clone());
    Gossip::new_with_subscription_filter(authenticity, config, filter).map_err(str::to_owned)
}

/// Names the author and its number of the message, so that no other author's message is a duplicate of it, however well
/// its contents were predicted; and the contents, so that an author cannot say two things under one number. Each part is
/// preceded by its length, so that no two messages give the same bytes.
fn message_id(message: &Message) -> MessageId {
    let author = message.source.map(|author| author.to_bytes()).unwrap_or_default();
    let number = message.sequence_number.map(u64::to_le_bytes);
    let mut hasher = blake3::Hasher::new();
    for part in [message.topic.as_str().as_bytes(), &author, number.as_ref().map_or(&[], |number| number)] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.update(&message.data);
    MessageId::from(hasher.finalize().as_bytes().to_vec())
}

fn is_ours(topic: &TopicHash) -> bool {
    topic.as_str().len() <= TOPIC_BYTES && topic.as_str().starts_with(TOPIC_PREFIX)
}

#[cfg(test)]
mod tests {
    use libp2p::PeerId;

    use super::*;

    const RUN: RunId = RunId([0xab; 32]);

    #[test]
    fn the_longest_topic_fits() {
        let module = ModuleId { level: u16::MAX, expert: u32::MAX };
        let hash = topic(RUN, module).hash();
        assert_eq!(hash.as_str().len(), TOPIC_BYTES);
        assert!(is_ours(&hash));
        assert!(!is_ours(&TopicHash::from_raw(format!("{hash}x"))));
        assert!(!is_ours(&TopicHash::from_raw("blocks")));
    }

    #[test]
    fn only_the_same_bytes_of_the_same_author_under_the_same_number_on_the_same_module_are_one_message() {
        let [author, other] = [(), ()].map(|()| PeerId::random());
        let of = |source: PeerId, number: u64, expert: u32, data: &[u8]| Message {
            source: Some(source),
            data: data.to_vec(),
            sequence_number: Some(number),
            topic: topic(RUN, ModuleId { level: 0, expert }).hash(),
        };
        let message = |expert: u32, data: &[u8]| of(author, 1, expert, data);
        assert_ne!(message_id(&message(1, b"beat")), message_id(&of(other, 1, 1, b"beat")));
        assert_ne!(message_id(&message(1, b"beat")), message_id(&of(author, 2, 1, b"beat")));
        assert_ne!(message_id(&message(1, b"beat")), message_id(&message(1, b"another beat")));
        assert_ne!(message_id(&message(1, b"beat")), message_id(&message(2, b"beat")));
        assert_ne!(message_id(&message(1, b"1beat")), message_id(&message(11, b"beat")));
        assert_eq!(message_id(&message(1, b"beat")), message_id(&message(1, b"beat")));
    }

    #[test]
    fn our_settings_are_allowed() {
        assert!(gossip(&Keypair::generate_ed25519()).is_ok());
    }
}
