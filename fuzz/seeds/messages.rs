//! Everything that peers say to each other, and what their journals say.

use pathswarm::access::amendment::{Amendment, SignedAmendment};
use pathswarm::access::authentication::{
    AccessList, AccessNotice, AuthenticationRequest, AuthenticationResponse, RedeemedInvitation,
};
use pathswarm::access::invitation::{
    Credential, Grant, Invitation, InvitationToken, MEMBER, NO_EXPIRY_S, OneTimeInvitation, Revocation,
};
use pathswarm::names::{BlobHash, BlobRef, ModuleId, PathId, PeerKey, Phase, RunId, Term, Version};
use pathswarm::protocol::journal::record::Finished;
use pathswarm::protocol::limits::MAX_INLINE;
use pathswarm::protocol::module::chain::Chain;
use pathswarm::protocol::wire::contribution_list::ContributionList;
use pathswarm::protocol::wire::encoding::{Framed, encode};
use pathswarm::protocol::wire::inner_checkpoint::{BaseVersion, InnerCheckpoint};
use pathswarm::protocol::wire::message::{
    Copied, Counted, DirectoryEntry, Evidence, FraudProof, GENESIS, Head, Heartbeat, Lease, Offer, PathHandOff, Score,
    Stage, Start, Wanted,
};
use pathswarm::protocol::{Message, Record, Request, Response, SignedUpdate, Update};
use pathswarm::query::{Prompt, QueriedModel, Query, QueryResult, TokenSpan};

use super::Seeds;

const BLOB: BlobRef = BlobRef { hash: BlobHash([3; 32]), bytes: 100 };
const PEER: PeerKey = PeerKey([2; 32]);
const MODULE: ModuleId = ModuleId { level: 0, expert: 0 };
const UPDATE: BlobHash = BlobHash([4; 32]);

fn framed(value: &impl Framed) -> Vec<u8> {
    encode(value).expect("seeds are short")
}

fn start() -> Start {
    Start { incarnation: 1, nonce: 2, signature: vec![3; 64] }
}

/// The next update of a chain, which counts both paths of its module.
fn next(chain: &Chain) -> SignedUpdate {
    let (head, weight) = (chain.head(), 1 << 14);
    let counted = |path| Counted {
        path: PathId(path),
        parent: head.version,
        steps: 1,
        uncapped: weight,
        weight,
        norm: 0,
        blob: BLOB,
    };
    let update = Update {
        module: MODULE,
        term: Term(1),
        owner: PEER,
        version: head.version.next(),
        parent: head.update,
        contributions: vec![counted(0), counted(1)].into(),
        norm: 0,
        average: BLOB,
        state: BLOB,
        weight: head.weight + 2 * u64::from(weight),
    };
    SignedUpdate { update, signature: vec![7; 64] }
}

fn chain_of(length: u32) -> Chain {
    let mut chain = Chain::genesis(BLOB);
    (0..length).for_each(|_| drop(chain.push(next(&chain))));
    chain
}

fn heartbeat() -> Heartbeat {
    let stages =
        [Stage::Joining, Stage::Waiting, Stage::Training, Stage::Done, Stage::Standby, Stage::Leaving, Stage::Skipping];
    let lease = |stage| Lease { path: PathId(1), phase: Phase(2), stage, trainer: Some(BLOB) };
    Heartbeat {
        start: start(),
        sequence: 1,
        head: Some(Head { version: Version(1), update: UPDATE, state: BLOB, weight: 1 }),
        owner: Some((Term(1), PEER)),
        claim: vec![6; 64],
        leases: stages.map(lease).to_vec(),
        addresses: vec!["/ip4/192.0.2.1/udp/4001/quic-v1".to_owned()],
        replicas: 1,
        wanted: vec![Wanted { module: MODULE, helper: PEER }],
        copied: vec![Copied { peer: PEER, start: start() }],
        leaving: false,
        pace: 5,
    }
}

/// Of the creator, `[1; 32]`, to a peer, and of that one to the next.
fn credential() -> Credential {
    let invitation = |to, rank| Invitation { to, rank, issued_s: 1, until_s: NO_EXPIRY_S, signature: vec![5; 64] };
    Credential(vec![invitation(PEER, MEMBER + 1), invitation(PeerKey([6; 32]), MEMBER)])
}

fn revocation() -> Revocation {
    Revocation {
        credential: Credential(credential().0[..1].to_vec()),
        of: PeerKey([6; 32]),
        at_s: 9,
        signature: vec![5; 64],
    }
}

fn one_time() -> OneTimeInvitation {
    OneTimeInvitation { by: PEER, secret: [8; 16], rank: MEMBER, use_until_s: 9, lasts_s: 9, signature: vec![5; 64] }
}

/// Both kinds of invitation.
pub fn tokens() -> [InvitationToken; 2] {
    [Grant::Credential(credential()), Grant::OneTime(one_time())].map(|grant| InvitationToken {
        run: RunId([0; 32]),
        addresses: vec!["/ip4/192.0.2.1/tcp/4001".to_owned()],
        grant,
    })
}

fn amendment() -> SignedAmendment {
    let amendment = Amendment { run: RunId([0; 32]), number: 2, phases: 9, requires: None };
    SignedAmendment { amendment, signature: vec![5; 64] }
}

/// As many contributions as an update names in a list.
fn list() -> ContributionList {
    let parent = Version(1);
    let counted = |path| Counted { path: PathId(path), parent, steps: 1, uncapped: 1, weight: 1, norm: 0, blob: BLOB };
    ContributionList { contributions: (0..=MAX_INLINE as u32).map(counted).collect() }
}

fn offer() -> Offer {
    Offer { path: PathId(1), parent: Version(2), parent_update: UPDATE, router: 0, steps: 200, blob: BLOB, sequence: 3 }
}

fn messages() -> Vec<Message> {
    let fraud_proof = |what| Message::FraudProof(FraudProof { sequence: 1, what });
    let update = next(&chain_of(1));
    vec![
        Message::Heartbeat(heartbeat()),
        Message::Heartbeat(Heartbeat {
            head: None,
            owner: None,
            claim: vec![],
            leases: vec![],
            copied: vec![],
            ..heartbeat()
        }),
        Message::Offer(offer()),
        Message::Update(update.clone()),
        Message::Score(Score { path: PathId(1), phase: Phase(2), millibits_per_byte: 1_234 }),
        fraud_proof(Evidence::Update(update)),
        fraud_proof(Evidence::Contribution { path: PathId(1), parent: Version(2), blob: BLOB }),
    ]
}

fn requests() -> Vec<Request> {
    let opening = Prompt {
        path: PathId(3),
        tokens: vec![7, 258],
        before: 9,
        count: 32,
        temperature: 0.5.into(),
        top_k: 40,
        seed: 5,
        stop: 1,
    };
    let piece = TokenSpan { tokens: vec![7, 8], from: 1 };
    vec![
        Request::Manifest,
        Request::Directory { start: Some(start()) },
        Request::CatchUp { module: MODULE, from: Some((Version(1), UPDATE)) },
        Request::Path(PathId(1)),
        Request::Query(Query::Route(vec![vec![1, 2], vec![3]])),
        Request::Query(Query::Score(QueriedModel::Path(PathId(1)), vec![piece.clone()])),
        Request::Query(Query::Score(QueriedModel::Ancestor, vec![piece])),
        Request::Query(Query::Continue(opening)),
        Request::Status,
    ]
}

fn responses() -> Vec<Response> {
    let entry = DirectoryEntry { peer: PEER, addresses: heartbeat().addresses, leases: heartbeat().leases };
    let hand_off = PathHandOff { later: false, trainer: Some(BLOB), checkpoint: Some(checkpoint()) };
    vec![
        Response::Manifest(b"{}".to_vec()),
        Response::Directory(vec![entry]),
        Response::Replay(chain_of(2).updates()),
        Response::Snapshot(chain_of(3).updates()),
        Response::Snapshot(chain_of(20).updates()),
        Response::Refused("no".to_owned()),
        Response::Path(Some(hand_off)),
        Response::QueryResult(QueryResult::Routes(vec![PathId(1), PathId(2)])),
        Response::QueryResult(QueryResult::Nats(vec![1.5.into(), 0.0.into()])),
        Response::QueryResult(QueryResult::Tokens(vec![1, 2], true)),
        Response::QueryResult(QueryResult::ScoredTokens(vec![(1, (-0.5).into())], true)),
        Response::Status(vec![40, 181, 47, 253]),
    ]
}

fn started_from() -> (BaseVersion, BlobRef) {
    (BaseVersion { module: MODULE, version: Version(1), update: UPDATE }, BLOB)
}

fn checkpoint() -> InnerCheckpoint {
    InnerCheckpoint { path: PathId(1), phase: Phase(2), start: vec![started_from()], steps: 3, blob: BLOB }
}

fn records() -> Vec<Record> {
    let (path, module, update) = (PathId(1), MODULE, UPDATE);
    let counted = Counted { path, parent: Version(1), steps: 1, uncapped: 1, weight: 1, norm: 0, blob: BLOB };
    let finished = Finished {
        path,
        phase: Phase(1),
        steps: 200,
        offers: vec![started_from()],
        trainer: BLOB,
        base_states: vec![started_from()],
    };
    vec![
        Record::Started(1),
        Record::Term { module, term: Term(1), owner: PEER },
        Record::Sealed(next(&chain_of(1))),
        Record::Genesis { module, state: BLOB },
        Record::Head(next(&chain_of(2))),
        Record::Left(module),
        Record::Lease { path, held: true, standby: false },
        Record::Finished(finished),
        Record::Installed { updates: chain_of(20).updates(), replays_from: Version(3) },
        Record::Trainer { path, trainer: BLOB },
        Record::Reproposed { module, parent_update: update, counted },
        Record::Replica(module),
        Record::Checkpoint(checkpoint()),
        Record::Abandoned(path),
        Record::Invalidated { module, update, owner: PEER },
    ]
}

/// A run as others tell of it: what they say one after the other, and what they answer.
fn conversations() -> Vec<Vec<u8>> {
    let said: Vec<Vec<u8>> = messages().iter().map(framed).collect();
    let answered = responses().into_iter().map(|response| framed(&response));
    let asked = requests().into_iter().map(|request| framed(&request));
    let updates = |count| (1..=count).map(|length| framed(&Message::Update(next(&chain_of(length - 1)))));
    let offers = (0..4).map(|path| {
        let offer = Offer { path: PathId(path), parent: Version(0), parent_update: GENESIS, ..offer() };
        framed(&Message::Offer(offer))
    });
    let all: [Vec<Vec<u8>>; 4] = [
        said.clone(),
        said[..1].iter().cloned().chain(asked).chain(answered).collect(),
        said[..1].iter().cloned().chain(updates(6)).collect(),
        said[..1].iter().cloned().chain(offers).chain(updates(2)).collect(),
    ];
    let with_times =
        |frames: &Vec<Vec<u8>>| frames.iter().flat_map(|frame| [frame, &[0, 1, 37][..]].concat()).collect();
    all.iter().map(with_times).collect()
}

pub fn add(seeds: &mut Seeds) {
    for conversation in conversations() {
        (0..8).for_each(|kind| seeds.add("node", [&[kind][..], &conversation].concat()));
    }
    messages().iter().for_each(|message| seeds.add("message", framed(message)));
    seeds.add("message", framed(&next(&chain_of(1)).update));
    seeds.add("message", framed(&amendment()));
    seeds.add("message", framed(&list()));
    seeds.add("message", framed(&AccessNotice::Present { credential: credential(), sequence: 1 }));
    seeds.add("message", framed(&AccessNotice::Revoked(revocation())));
    requests().iter().for_each(|request| seeds.add("request", framed(request)));
    seeds.add("request", framed(&AuthenticationRequest::Present(credential())));
    seeds.add("request", framed(&AuthenticationRequest::Redeem(one_time())));
    responses().iter().for_each(|response| seeds.add("response", framed(response)));
    seeds.add(
        "response",
        framed(&AuthenticationResponse::Accepted { credential: Some(credential()), revocations: vec![revocation()] }),
    );
    seeds.add("response", framed(&AuthenticationResponse::NotInvited("no".to_owned())));
    records().iter().for_each(|record| seeds.add("record", framed(record)));
    let used = RedeemedInvitation { secret: [8; 16], by: Some(PEER), at_s: 1, use_until_s: 9 };
    seeds.add("record", framed(&AccessList { redeemed: vec![used], revocations: vec![revocation()] }));
    tokens().iter().for_each(|token| seeds.add("record", framed(token)));
}
