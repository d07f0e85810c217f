//! A peer's node while others say whatever they like: messages, questions and answers that decode, from several peers, with
//! time between them. What the node wants done is done, or seems to be. Each message is a frame as it travels; behind it are
//! the topic, who says it and how long it takes, a byte each. The first byte of all says what kind of run it is.
#![no_main]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use pathswarm::clock::Millis;
use pathswarm::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Version};
use pathswarm::protocol::journal::record::Finished;
use pathswarm::protocol::wire::contributions::Counted;
use pathswarm::protocol::wire::encoding::{decode, encode};
use pathswarm::protocol::wire::message::{Evidence, Heartbeat};
use pathswarm::protocol::{
    Action, Event, Message, Node, Outer, ReplyToken, Request, RequestId, Response, RunPlan, SignedUpdate,
};
use pathswarm_fuzz::{GENESIS, Kind};

const ME: PeerKey = PeerKey([9; 32]);
/// Every frame begins so.
const BEGINS: &[u8] = b"PSW1";
/// Events that follow from one that comes from outside.
const MOST_EVENTS: usize = 60;

struct Peer {
    node: Node,
    now: Millis,
    waiting: VecDeque<Event>,
    asked: Vec<RequestId>,
    training: Option<Finished>,
    /// The states that updates attest: what an update makes is what it says.
    states: BTreeMap<(ModuleId, Version), BlobRef>,
}

impl Peer {
    fn new(plan: Arc<RunPlan>) -> Self {
        let node = Node::new(ME, plan).started_as(7, |_| vec![0; 64]);
        let (now, waiting, states) = (Millis(1_000_000), VecDeque::new(), BTreeMap::new());
        Self { node, now, waiting, asked: Vec::new(), training: None, states }
    }

    fn happens(&mut self, event: Event) {
        self.waiting.push_back(event);
        for _ in 0..MOST_EVENTS {
            let Some(event) = self.waiting.pop_front() else { return };
            for action in self.node.handle(self.now, event) {
                self.carry_out(action);
            }
        }
        self.waiting.clear();
    }

    fn passes(&mut self, time_ms: u64) {
        self.now = self.now + time_ms;
        if self.node.next_deadline().is_some_and(|deadline| deadline <= self.now) {
            self.happens(Event::Tick);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Persist(record) => assert!(encode(&record).is_ok(), "the journal takes {record:?}"),
            Action::Ask { id, .. } => self.asked.push(id),
            Action::Fetch { blob, .. } => {
                let found = !blob.hash.0[0].is_multiple_of(4);
                self.waiting.push_back(Event::Fetched { blob: blob.hash, found });
            }
            Action::Seal(update) => {
                self.waiting.push_back(Event::Sealed(SignedUpdate { update, signature: vec![0; 64] }));
            }
            Action::Train { path, phase, part, start, .. } => {
                let due = start.iter().filter(|(from, _)| part.due.contains(&from.module));
                let offers = due.map(|(from, _)| (*from, blob(phase.0 as u8))).collect();
                let (trainer, base_states) = (blob(77), Vec::new());
                self.training = Some(Finished { path, phase, steps: 10, offers, trainer, base_states });
            }
            Action::Evaluate { path, phase, .. } => {
                self.waiting.push_back(Event::Evaluated { path, phase, millibits_per_byte: Some(1_000) });
            }
            Action::Outer(work) => self.waiting.extend(self.worked(work)),
            _ => {}
        }
    }

    fn worked(&self, work: Outer) -> Option<Event> {
        Some(match work {
            Outer::OpenSum { .. } => return None,
            Outer::Accumulate { module, target, blob, .. } => {
                Event::Accumulated { module, target, blob, norm: (blob.0[0] != 0).then_some(0x3F80) }
            }
            Outer::Combine { module, target, .. } => {
                Event::Combined { module, target, average: blob(1), state: blob(target.0 as u8) }
            }
            Outer::Audit { id, .. } | Outer::Inspect { id, .. } => {
                Event::Audited { id, so: Some(id.0[0].is_multiple_of(2)) }
            }
            Outer::Decode { module, state } => {
                Event::Decoded { module, state: state.hash, so: !state.hash.0[0].is_multiple_of(4) }
            }
            Outer::ReadList { list, .. } => {
                let parent = Version(u64::from(list.hash.0[1]));
                let counted =
                    |path| Counted { path, parent, steps: 10, uncapped: 10, weight: 1, norm: 0x3F80, blob: list };
                let contributions = (0..65).map(PathId).map(counted).collect();
                let is_list = !list.hash.0[0].is_multiple_of(4);
                Event::ListRead { list: list.hash, contributions: is_list.then_some(contributions) }
            }
            Outer::Apply { module, version, .. } => {
                let state = self.states.get(&(module, version)).copied();
                Event::Applied { module, version, state: Some(state.unwrap_or(GENESIS)) }
            }
        })
    }

    /// What others have signed is believed here; nobody else can sign for this peer.
    fn could_be(&mut self, signed: &SignedUpdate) -> bool {
        let update = &signed.update;
        self.states.insert((update.module, update.version), update.state);
        update.owner != ME
    }

    fn hears(&mut self, frame: &[u8], module: ModuleId, author: PeerKey) {
        if let Ok(message) = decode::<Message>(frame) {
            let could_be = match &message {
                Message::Update(signed) => self.could_be(signed),
                Message::FraudProof(fraud_proof) => match &fraud_proof.what {
                    Evidence::Update(signed) => self.could_be(signed),
                    Evidence::Contribution { .. } => true,
                },
                Message::Heartbeat(Heartbeat { copied, .. }) => copied.iter().all(|copied| copied.peer != ME),
                Message::Offer(_) | Message::Score(_) => true,
            };
            if could_be {
                self.happens(Event::Heard { module, author, message: Arc::new(message) });
            }
        }
        if let Ok(request) = decode::<Request>(frame) {
            self.happens(Event::Asked { from: author, token: ReplyToken(1), request });
        }
        if let Ok(response) = decode::<Response>(frame) {
            let updates = match &response {
                Response::Replay(updates) => &updates[..],
                Response::Snapshot(updates) => updates,
                _ => &[],
            };
            let could_be = updates.iter().all(|signed| self.could_be(signed));
            for id in std::mem::take(&mut self.asked) {
                self.happens(Event::Answered { id, response: could_be.then(|| response.clone()) });
            }
        }
    }
}

/// A blob of a state's size, so that it can be one.
fn blob(number: u8) -> BlobRef {
    BlobRef { hash: BlobHash([number; 32]), ..GENESIS }
}

/// Frames, each with what lies behind it.
fn frames(input: &[u8]) -> Vec<&[u8]> {
    let places: Vec<usize> = (0..input.len()).filter(|at| input[*at..].starts_with(BEGINS)).collect();
    let ends = places.iter().copied().skip(1).chain([input.len()]);
    places.iter().zip(ends).map(|(begins, ends)| &input[*begins..ends]).collect()
}

fuzz_target!(|input: &[u8]| {
    let Some((kind, input)) = input.split_first() else { return };
    let plan = Arc::new(Kind::ALL[usize::from(kind % 4)].plan());
    let modules = plan.slots.grid().modules();
    let mut peer = Peer::new(plan.clone());
    peer.happens(Event::Listening(vec!["/ip4/192.0.2.9/tcp/1".to_owned()]));
    peer.happens(if kind & 4 == 0 { Event::Create } else { Event::Join(Vec::new()) });
    for frame in frames(input) {
        let Some((frame, [module, author, wait])) = frame.split_last_chunk() else { continue };
        let module = modules[usize::from(*module) % modules.len()];
        peer.hears(frame, module, PeerKey([author % 4 + 1; 32]));
        // Up to a minute, and now and then a phase is trained.
        peer.passes(u64::from(*wait) * u64::from(*wait));
        if wait % 3 == 1
            && let Some(finished) = peer.training.take()
        {
            peer.happens(Event::Trained(finished));
        }
    }
    peer.passes(10_000);
    let _ = (peer.node.status(), Node::restore(ME, plan, peer.node.records()));
});
