//! Byzantine peers: each runs an honest node whose messages are changed on their way out.

use std::sync::Arc;

use crate::compress::frame;
use crate::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Phase, Term};
use crate::outer::{Share, step};
use crate::protocol::Message;
use crate::protocol::limits::{MAX_ADDRESSES, MAX_LEASES, MAX_WANTED};
use crate::protocol::wire::encoding;
use crate::protocol::wire::message::{Counted, Evidence, FraudProof, Heartbeat, Offer, SignedUpdate, Update, Wanted};
use crate::simulator::scenario::byzantine::Byzantine;
use crate::simulator::world::World;
use crate::simulator::world::actions::{claim, sign};

/// A replaced message.
pub(super) struct Said {
    pub(super) author: PeerKey,
    pub(super) message: Arc<Message>,
    /// Only peers with even, or with odd, numbers receive it.
    pub(super) to_parity: Option<usize>,
}

pub(super) fn to_all(author: PeerKey, message: impl Into<Arc<Message>>) -> Said {
    Said { author, message: message.into(), to_parity: None }
}

impl World {
    /// A peer's Byzantine behaviour by now.
    pub(super) fn behaviour(&self, index: usize) -> Option<Byzantine> {
        let behaviour = self.byzantine.get(&index)?;
        (self.now_ms >= self.byzantine_from_ms).then_some(*behaviour)
    }

    /// What others receive when a Byzantine peer sends this.
    pub(super) fn told(
        &mut self,
        index: usize,
        behaviour: Byzantine,
        module: ModuleId,
        message: &Arc<Message>,
    ) -> Vec<Said> {
        let me = self.peers[index].key;
        let honest = || vec![to_all(me, message.clone())];
        match (behaviour, &**message) {
            (Byzantine::Garbage, _) => self.garbled(message).into_iter().map(|message| to_all(me, message)).collect(),
            (Byzantine::Oversize, Message::Heartbeat(heartbeat)) => {
                vec![to_all(me, Message::Heartbeat(oversize(heartbeat)))]
            }
            (Byzantine::Oversize, Message::Offer(offer)) => {
                let blob = BlobRef { bytes: u64::MAX, ..offer.blob };
                vec![to_all(me, Message::Offer(Offer { blob, ..offer.clone() }))]
            }
            (Byzantine::Replayed, _) => {
                let heard = &self.overheard;
                let old = (!heard.is_empty()).then(|| heard[self.rng.pick(heard.len())].clone());
                let old = old.filter(|(of, ..)| *of == module).map(|(_, author, message)| to_all(author, message));
                honest().into_iter().chain(old).collect()
            }
            (Byzantine::Equivocating, Message::Update(signed)) => {
                let other = self.halved(index, &signed.update);
                let odd = other.map_or_else(|| message.clone(), |other| Arc::new(Message::Update(other)));
                let even = message.clone();
                vec![
                    Said { author: me, message: even, to_parity: Some(0) },
                    Said { author: me, message: odd, to_parity: Some(1) },
                ]
            }
            (Byzantine::FalseOwnership, Message::Heartbeat(heartbeat)) => {
                let term = heartbeat.owner.map_or(Term(1), |(term, _)| Term(term.0 + 1));
                vec![to_all(me, Message::Heartbeat(Heartbeat { owner: Some((term, me)), ..heartbeat.clone() }))]
            }
            (Byzantine::FalseProofs, Message::Heartbeat(heartbeat)) => {
                let reported = self.head_update(index, module).map(Evidence::Update);
                let fraud_proof = reported.map(|what| FraudProof { sequence: heartbeat.sequence, what });
                honest().into_iter().chain(fraud_proof.map(|it| to_all(me, Message::FraudProof(it)))).collect()
            }
            (Byzantine::WrongHashes, Message::Update(signed)) => {
                let state = BlobRef { hash: BlobHash::of(&signed.update.state.hash.0), ..signed.update.state };
                vec![to_all(me, resigned(Update { state, ..signed.update.clone() }))]
            }
            (Byzantine::WrongHashes, Message::Offer(offer)) => {
                let blob = BlobRef { hash: BlobHash::of(&offer.blob.hash.0), ..offer.blob };
                vec![to_all(me, Message::Offer(Offer { blob, ..offer.clone() }))]
            }
            (Byzantine::WrongWeights, Message::Update(signed)) => {
                let mut update = signed.update.clone();
                update.weight *= 2;
                let double = |counted: &Counted| Counted { weight: 2 * counted.weight, ..*counted };
                update.contributions = update.contributions.iter().map(double).collect::<Vec<_>>().into();
                vec![to_all(me, resigned(update))]
            }
            (Byzantine::WrongWeights, Message::Heartbeat(heartbeat)) => {
                let mut heartbeat = heartbeat.clone();
                heartbeat.head.iter_mut().for_each(|head| head.weight += 1_000_000);
                vec![to_all(me, Message::Heartbeat(heartbeat))]
            }
            (attack, Message::Heartbeat(heartbeat)) => self.attack(index, attack, module, heartbeat),
            _ => honest(),
        }
    }

    /// What a member that attacks with each heartbeat sends instead of it, or beside it.
    fn attack(&mut self, index: usize, attack: Byzantine, module: ModuleId, heartbeat: &Heartbeat) -> Vec<Said> {
        let me = self.peers[index].key;
        let honest = vec![to_all(me, Message::Heartbeat(heartbeat.clone()))];
        match attack {
            Byzantine::Hearsay => {
                let nobody = PeerKey(*blake3::hash(&heartbeat.sequence.to_le_bytes()).as_bytes());
                let term = heartbeat.owner.map_or(Term(1), |(term, _)| Term(term.0 + 1));
                let claim = claim(module, (term, nobody));
                vec![to_all(
                    me,
                    Message::Heartbeat(Heartbeat { owner: Some((term, nobody)), claim, ..heartbeat.clone() }),
                )]
            }
            Byzantine::PhantomOffers => {
                let phantoms = self.phantoms(module, heartbeat);
                honest.into_iter().chain(phantoms.into_iter().map(|it| to_all(me, Message::Offer(it)))).collect()
            }
            Byzantine::FalseHelper => {
                let helper = self.peers[self.rng.pick(self.peers.len())].key;
                let modules = self.plan.genesis.keys().copied();
                let wanted = modules.map(|module| Wanted { module, helper }).take(MAX_WANTED).collect();
                vec![to_all(me, Message::Heartbeat(Heartbeat { wanted, ..heartbeat.clone() }))]
            }
            Byzantine::FalseSnapshot | Byzantine::FalseExtension | Byzantine::FalseHead => {
                vec![to_all(me, Message::Heartbeat(self.with_false_head(index, attack, module, heartbeat)))]
            }
            _ => honest,
        }
    }

    /// Offers to the next version of a module, in the name of each of its paths.
    fn phantoms(&mut self, module: ModuleId, heartbeat: &Heartbeat) -> Vec<Offer> {
        let Some(head) = heartbeat.head else { return Vec::new() };
        let paths = self.plan.slots.through(module, Phase(head.version.0));
        let phantom = |path: PathId| {
            let hash = BlobHash::of(&[path.0.to_le_bytes(), (heartbeat.sequence as u32).to_le_bytes()].concat());
            Offer {
                path,
                parent: head.version,
                parent_update: head.update,
                router: self.plan.router_at(head.version),
                steps: self.plan.inner_steps as u32,
                blob: BlobRef { hash, bytes: self.plan.offer_bytes(module) },
                sequence: heartbeat.sequence,
            }
        };
        paths.into_iter().map(phantom).collect()
    }

    fn garbled(&mut self, message: &Message) -> Option<Message> {
        let mut bytes = encoding::encode(message).ok()?;
        for _ in 0..=self.rng.pick(4) {
            let at = self.rng.pick(bytes.len());
            bytes[at] ^= 1 << self.rng.pick(8);
        }
        encoding::decode(&bytes).ok()
    }

    /// Replaces an update by a valid one with half the step.
    fn halved(&mut self, index: usize, update: &Update) -> Option<SignedUpdate> {
        let (values, outer) = (self.scenario.swarm.values, self.outer.clone());
        let disk = &mut self.peers[index].disk;
        let average = frame::decode(disk.get(update.average.hash)?, values).ok()?;
        let half: Vec<f32> = average.iter().map(|value| value / 2.0).collect();
        let frame = frame::encode(outer.average_codec(), &half).ok()?;
        let from = self.peers[index].node.chains().find(|(module, _)| *module == update.module)?.1.head().state;
        let portion = self.plan.portion(update.module, &update.contributions);
        let share = Share::new(portion.weight, portion.full_weight);
        let disk = &mut self.peers[index].disk;
        let state = step::apply(disk.get(from.hash)?, update.module, values, &frame, share, &outer).ok()?;
        let (average, state) = (disk.put(frame), disk.put(state));
        let update = Update { average, state, ..update.clone() };
        Some(SignedUpdate { signature: sign(&update), update })
    }
}

fn resigned(update: Update) -> Message {
    Message::Update(SignedUpdate { signature: sign(&update), update })
}

fn oversize(heartbeat: &Heartbeat) -> Heartbeat {
    Heartbeat {
        leases: heartbeat.leases.iter().cycle().take(2 * MAX_LEASES).cloned().collect(),
        addresses: vec!["far too long ".repeat(10); 2 * MAX_ADDRESSES],
        ..heartbeat.clone()
    }
}
