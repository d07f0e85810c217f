//! Tests of audits and rollback.

use crate::protocol::Response;
use crate::protocol::limits::FRAUD_PROOF_MS;
use crate::protocol::node::tests::*;
use crate::protocol::reputation::score::Fault;
use crate::protocol::wire::message::{Evidence, FraudProof};

/// Like [`member_with_owner`], but the node audits every update.
fn auditor(updates: &[SignedUpdate]) -> Node {
    let mut node = member_with_owner(updates);
    node.plan = RunPlan { audit_share: 64.0, ..plan() }.into();
    node
}

fn taken(node: &mut Node, signed: &SignedUpdate) -> Vec<Action> {
    let version = signed.update.version;
    let mut actions = node.handle(Millis(100), heard(OTHER, Message::Update(signed.clone())));
    actions.extend(node.handle(Millis(100), Event::Fetched { blob: signed.update.average.hash, found: true }));
    let applied = Event::Applied { module: MODULE, version, state: Some(signed.update.state) };
    actions.extend(node.handle(Millis(100), applied));
    actions
}

/// Every blob that an audit needs arrives.
fn all_here(node: &mut Node, signed: &SignedUpdate) -> Vec<Action> {
    let blobs = signed.update.contributions.iter().map(|counted| counted.blob).chain([signed.update.average]);
    let events = blobs.map(|blob| Event::Fetched { blob: blob.hash, found: true }).collect::<Vec<_>>();
    events.into_iter().flat_map(|event| node.handle(Millis(200), event)).collect()
}

fn audit(signed: &SignedUpdate) -> Action {
    Action::Outer(Outer::Audit {
        module: MODULE,
        id: head(signed).update,
        contributions: signed.update.contributions.clone(),
        average: signed.update.average,
        portion: BOTH,
        from: None,
    })
}

fn decided(node: &mut Node, signed: &SignedUpdate, so: bool) -> Vec<Action> {
    node.handle(Millis(300), Event::Audited { id: head(signed).update, so: Some(so) })
}

fn fraud_proof(signed: &SignedUpdate) -> Message {
    Message::FraudProof(FraudProof { sequence: 1, what: Evidence::Update(signed.clone()) })
}

fn score(node: &Node, peer: PeerKey) -> Option<(bool, Vec<Fault>)> {
    let score = node.status().peer_scores.into_iter().find(|it| it.peer == peer)?;
    Some((score.quarantined, score.faults.into_keys().collect()))
}

#[test]
fn a_wrong_update_is_rolled_back_and_published_and_stays_invalidated_after_a_restart() {
    let mut node = auditor(&[]);
    let signed = update(genesis(), 1, OTHER);
    let actions = taken(&mut node, &signed);
    assert!(actions.contains(&Action::Fetch { blob: gradient(1, 0), from: vec![OTHER] }));
    assert_eq!(all_here(&mut node, &signed), vec![audit(&signed)]);
    let wrong = decided(&mut node, &signed, false);
    let invalidated = Record::Invalidated { module: MODULE, update: head(&signed).update, owner: OTHER };
    assert_eq!(wrong[0], Action::Persist(invalidated.clone()));
    assert_eq!(node.states(), vec![(MODULE, Version(0), state(0))]);
    assert!(wrong.contains(&Action::Report(Report::WentBack { module: MODULE, from: Version(1), to: Version(0) })));
    let says = |actions: &[Action]| {
        let told = |action: &Action| matches!(action, Action::Publish { message: Message::FraudProof(it), .. } if it.what == Evidence::Update(signed.clone()));
        actions.iter().any(told)
    };
    assert!(says(&wrong) && score(&node, OTHER) == Some((true, vec![Fault::WrongUpdate])));
    let refused = node.handle(Millis(310), heard(OTHER, Message::Update(signed.clone())));
    assert!(matches!(&refused[..], [Action::Report(Report::Refused { .. })]), "{refused:?}");
    let later = pass(&mut node, 300, FRAUD_PROOF_MS + 1_000);
    assert!(later.iter().any(|(at, action)| *at > 5_000 && says(std::slice::from_ref(action))), "gossip may lose it");
    assert!(later.iter().any(|(_, action)| *action == term(2, ME)), "another member claims the module");

    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Head(signed.clone()),
        invalidated.clone(),
        Record::Lease { path: PathId(0), held: true, standby: false },
    ];
    let restored = Node::restore(ME, plan(), records);
    assert_eq!(restored.states(), vec![(MODULE, Version(0), state(0))]);
    assert!(restored.records().contains(&invalidated));
    assert_eq!(score(&restored, OTHER), Some((true, vec![Fault::WrongUpdate])));
}

#[test]
fn a_fraud_proof_is_verified_and_a_false_one_is_held_against_its_author() {
    let signed = update(genesis(), 1, OTHER);
    let mut node = member_with_owner(std::slice::from_ref(&signed));
    let asks = node.handle(Millis(50), heard(THIRD, fraud_proof(&signed)));
    assert!(asks.contains(&Action::Fetch { blob: gradient(0, 0), from: vec![THIRD, OTHER] }), "{asks:?}");
    assert_eq!(all_here(&mut node, &signed), vec![audit(&signed)]);
    decided(&mut node, &signed, true);
    assert_eq!(score(&node, THIRD), Some((false, vec![Fault::FalseProof])));
    assert_eq!(node.states(), vec![(MODULE, Version(1), state(1))]);
    assert_eq!(node.handle(Millis(400), heard(THIRD, fraud_proof(&signed))), vec![], "the claim is decided already");
}

#[test]
fn with_centred_clipping_an_audit_starts_from_the_state_before() {
    let signed = update(genesis(), 1, OTHER);
    let mut node = auditor(&[]);
    node.plan = RunPlan { centred_clipping: true, ..(*node.plan).clone() }.into();
    taken(&mut node, &signed);
    let blobs = signed.update.contributions.iter().map(|counted| counted.blob).chain([signed.update.average, state(0)]);
    let fetched = blobs.map(|blob| Event::Fetched { blob: blob.hash, found: true }).collect::<Vec<_>>();
    let actions: Vec<Action> = fetched.into_iter().flat_map(|event| node.handle(Millis(200), event)).collect();
    let from = |action: &Action| match action {
        Action::Outer(Outer::Audit { from, .. }) => *from,
        _ => None,
    };
    assert_eq!(actions.iter().find_map(from), Some(state(0)), "{actions:?}");

    let unheard_of = update(head(&update(genesis(), 1, THIRD)), 2, THIRD);
    assert_eq!(node.handle(Millis(300), heard(OTHER, fraud_proof(&unheard_of))), vec![], "the state before is unknown");
}

#[test]
fn a_blob_that_cannot_be_had_proves_nothing() {
    let signed = update(genesis(), 1, OTHER);
    let mut node = member_with_owner(std::slice::from_ref(&signed));
    node.handle(Millis(50), heard(THIRD, fraud_proof(&signed)));
    let missing = Event::Fetched { blob: gradient(0, 0).hash, found: false };
    for sweep in 1..20 {
        node.handle(Millis(500 * sweep), missing.clone());
        node.handle(Millis(500 * sweep + 250), Event::Tick);
        node.handle(Millis(500 * sweep + 500), Event::Tick);
    }
    assert_eq!(node.states(), vec![(MODULE, Version(1), state(1))]);
    assert_eq!(score(&node, THIRD), None);
}

#[test]
fn a_member_that_cannot_roll_back_takes_a_lighter_chain_without_the_update() {
    let chain = updates(6, OTHER);
    let mut node = member_with_owner(&chain);
    node.handle(Millis(50), heard(THIRD, fraud_proof(&chain[2])));
    all_here(&mut node, &chain[2]);
    decided(&mut node, &chain[2], false);
    assert_eq!(node.states(), vec![(MODULE, Version(6), state(6))], "the state before it is gone");
    let right = &chain[..2];
    let lighter = head(&right[1]);
    node.handle(Millis(400), heard_heartbeat(THIRD, heartbeat(1, Some(lighter), None)));
    let asked = pass(&mut node, 400, 2_000).into_iter().find_map(|(_, action)| match action {
        Action::Ask { id, to: THIRD, .. } => Some(id),
        _ => None,
    });
    let response = Some(Response::Snapshot(right.to_vec()));
    node.handle(Millis(2_010), Event::Answered { id: asked.unwrap(), response });
    installed(&mut node, Millis(2_020), state(2));
    assert_eq!(node.states(), vec![(MODULE, Version(2), state(2))]);
}

#[test]
fn a_wrong_update_of_an_adopted_chain_is_rolled_back_to_the_common_state() {
    let mine = updates(2, OTHER);
    let mut node = member_with_owner(&mine);
    let wrong = update(head(&mine[0]), 2, THIRD);
    let chain = vec![mine[0].clone(), wrong.clone(), update(head(&wrong), 2, THIRD)];
    for peer in [FOURTH, THIRD] {
        node.handle(Millis(400), heard_heartbeat(peer, heartbeat(1, Some(head(&chain[2])), None)));
    }
    let asked = pass(&mut node, 400, 2_000).into_iter().find_map(|(_, action)| match action {
        Action::Ask { id, to: THIRD, .. } => Some(id),
        _ => None,
    });
    let response = Some(Response::Snapshot(chain));
    node.handle(Millis(2_010), Event::Answered { id: asked.unwrap(), response });
    installed(&mut node, Millis(2_020), state(3));
    assert_eq!(node.states(), vec![(MODULE, Version(3), state(3))]);
    node.handle(Millis(2_030), heard(OTHER, fraud_proof(&wrong)));
    let blobs = wrong.update.contributions.iter().map(|counted| counted.blob).chain([wrong.update.average]);
    for blob in blobs {
        node.handle(Millis(2_040), Event::Fetched { blob: blob.hash, found: true });
    }
    node.handle(Millis(2_050), Event::Audited { id: head(&wrong).update, so: Some(false) });
    assert_eq!(node.states(), vec![(MODULE, Version(1), state(1))]);
}
