//! Tests of an owner's work, from offers to an update.

use crate::protocol::limits::{FAILED_OWNER_MS, MAX_OFFERS, MAX_OFFERS_OF_ONE, MAX_RIVALS, SETTLE_MS, UNFETCHABLE_MS};
use crate::protocol::node::tests::*;
use crate::protocol::reputation::score::Fault;
use crate::protocol::wire::message::{Evidence, FraudProof};

fn fetch(blob: BlobRef, from: PeerKey) -> Action {
    Action::Fetch { blob, from: vec![from] }
}

fn fetched(blob: BlobRef, found: bool) -> Event {
    Event::Fetched { blob: blob.hash, found }
}

fn accumulate(blob: BlobRef, weight: u32) -> Action {
    Action::Outer(Outer::Accumulate { module: MODULE, target: Version(1), blob: blob.hash, weight })
}

fn accumulated(blob: BlobRef, valid: bool) -> Event {
    let norm = valid.then_some(NORM);
    Event::Accumulated { module: MODULE, target: Version(1), blob: blob.hash, norm }
}

fn combine(contributions: Vec<Counted>) -> Action {
    let portion = plan().portion(MODULE, &contributions);
    Action::Outer(Outer::Combine {
        module: MODULE,
        target: Version(1),
        from: state(0),
        contributions: contributions.into(),
        portion,
    })
}

/// Handles an offer until its contribution is in the sum.
fn take_in(node: &mut Node, from: PeerKey, offer: Offer) -> Vec<Action> {
    let blob = offer.blob;
    let mut actions = node.handle(Millis(2_001), heard(from, Message::Offer(offer)));
    actions.extend(node.handle(Millis(2_001), fetched(blob, true)));
    actions.extend(node.handle(Millis(2_001), accumulated(blob, true)));
    actions
}

#[test]
fn an_owner_aggregates_offers_into_an_update_and_continues_with_the_next() {
    let mut node = owner();
    let now = Millis(2_001);
    let theirs = gradient(1, 0);
    let offered = node.handle(now, heard(OTHER, Message::Offer(offer(1, genesis()))));
    assert_eq!(offered, vec![fetch(theirs, OTHER)], "an offer is fetched");
    assert_eq!(node.handle(now, fetched(theirs, true)), vec![accumulate(theirs, 60)], "and added to the sum");
    assert_eq!(node.handle(now, accumulated(theirs, true)), vec![], "but path 0 is still expected");

    let mine = trained(0, genesis());
    let heartbeat = Heartbeat {
        addresses: vec![],
        leases: vec![Lease { trainer: Some(mine.trainer), ..lease(0, 0, Stage::Waiting) }],
        ..heartbeat(5, Some(genesis()), Some((1, ME)))
    };
    assert_eq!(
        node.handle(now, Event::Trained(mine.clone())),
        vec![
            Action::Persist(Record::Finished(mine)),
            publish(Message::Heartbeat(heartbeat)),
            publish(Message::Offer(Offer { sequence: 6, ..offer(0, genesis()) })),
            fetch(gradient(0, 0), ME),
        ],
        "this peer's own contribution is treated alike: members doubt an update that counts what they have not heard of"
    );
    assert_eq!(node.handle(now, fetched(gradient(0, 0), true)), vec![accumulate(gradient(0, 0), 100)]);
    let both = vec![counted(0, 0), counted(1, 0)];
    assert_eq!(node.handle(now, accumulated(gradient(0, 0), true)), vec![combine(both)], "all are in");

    let signed = update(genesis(), 1, ME);
    let combined = Event::Combined { module: MODULE, target: Version(1), average: average(1), state: state(1) };
    assert_eq!(node.handle(now, combined), vec![Action::Seal(signed.update.clone())]);
    assert_eq!(
        node.handle(now, Event::Sealed(signed.clone())),
        vec![
            Action::Persist(Record::Sealed(signed.clone())),
            publish(Message::Update(signed.clone())),
            fetch(average(1), ME),
        ],
        "it is persisted before it is published"
    );
    assert_eq!(node.handle(now, fetched(average(1), true)), vec![], "another member applies it first");
    let theirs = Heartbeat {
        leases: vec![lease(1, 1, Stage::Waiting)],
        sequence: 2,
        head: Some(head(&signed)),
        ..heartbeat_of_owner()
    };
    assert_eq!(
        node.handle(now, heard_heartbeat(OTHER, theirs)),
        vec![Action::Outer(Outer::Apply {
            module: MODULE,
            version: Version(1),
            from: state(0),
            average: average(1),
            portion: BOTH
        })],
        "the owner applies its own update like every member"
    );
    let trainer = trained(0, genesis()).trainer;
    let heartbeat = Heartbeat {
        sequence: 7,
        head: Some(head(&signed)),
        leases: vec![Lease { trainer: Some(trainer), ..lease(0, 1, Stage::Training) }],
        addresses: vec![],
        ..heartbeat_of_owner()
    };
    assert_eq!(
        node.handle(now, Event::Applied { module: MODULE, version: Version(1), state: Some(state(1)) }),
        vec![
            Action::Persist(Record::Head(signed.clone())),
            Action::Report(Report::Advanced { module: MODULE, version: Version(1), contributions: 2 }),
            Action::Outer(Outer::OpenSum { module: MODULE, target: Version(2), running: RUNNING }),
            publish(Message::Heartbeat(heartbeat)),
            train(0, head(&signed), Some(trainer)),
        ]
    );
}

fn heartbeat_of_owner() -> Heartbeat {
    heartbeat(1, Some(genesis()), Some((1, ME)))
}

#[test]
fn a_peer_that_offers_an_invalid_contribution_is_quarantined_with_a_fraud_proof_and_others_may_offer() {
    let mut node = owner();
    let blob = gradient(1, 0);
    node.handle(Millis(2_001), heard(OTHER, Message::Offer(offer(1, genesis()))));
    node.handle(Millis(2_001), fetched(blob, true));
    let what = Evidence::Contribution { path: PathId(1), parent: Version(0), blob };
    let fraud_proof = Message::FraudProof(FraudProof { sequence: 5, what });
    let named = Report::Quarantined { peer: OTHER, fault: Fault::Broken };
    assert_eq!(node.handle(Millis(2_001), accumulated(blob, false)), vec![Action::Report(named), publish(fraud_proof)]);
    let again = node.handle(Millis(2_001), heard(OTHER, Message::Offer(offer(1, genesis()))));
    assert_eq!(again, vec![]);
    let other = Offer { blob: BlobRef::of(b"in order"), ..offer(1, genesis()) };
    let actions = node.handle(Millis(2_001), heard(THIRD, Message::Offer(other.clone())));
    assert_eq!(actions, vec![fetch(other.blob, THIRD)]);
}

#[test]
fn known_invalid_bytes_are_not_fetched_again_and_quarantine_again_for_another_version() {
    let mut node = owner();
    let blob = gradient(1, 0);
    let tries = |node: &mut Node, now, offer: &Offer| {
        node.handle(Millis(now), heard_heartbeat(OTHER, heartbeat(now, Some(genesis()), None)));
        let mut actions = node.handle(Millis(now), heard(OTHER, Message::Offer(offer.clone())));
        actions.extend(node.handle(Millis(now), fetched(blob, true)));
        actions.extend(node.handle(Millis(now), accumulated(blob, false)));
        let named = Action::Report(Report::Quarantined { peer: OTHER, fault: Fault::Broken });
        (actions.contains(&fetch(blob, OTHER)), actions.contains(&named))
    };
    let first = offer(1, genesis());
    assert_eq!(tries(&mut node, 2_001, &first), (true, true));
    let later = 2_001 + FAILED_OWNER_MS;
    assert_eq!(tries(&mut node, later, &first), (false, false));
    let beside = Offer { path: PathId(0), ..first };
    assert_eq!(tries(&mut node, later, &beside), (false, true));
}

#[test]
fn a_contribution_offered_for_another_path_or_version_is_not_accepted_again() {
    let mut node = owner();
    let same = BlobRef::of(&b"what a neighbour has learned".repeat(3));
    let of = |path| Offer { blob: same, ..offer(path, genesis()) };
    assert_eq!(node.handle(Millis(2_001), heard(OTHER, Message::Offer(of(1)))), vec![fetch(same, OTHER)]);
    assert_eq!(node.handle(Millis(2_001), heard(THIRD, Message::Offer(of(0)))), vec![]);
    assert_eq!(node.handle(Millis(2_001), fetched(same, true)), vec![accumulate(same, 60)]);
    let later = Offer { parent: Version(1), ..of(1) };
    node.handle(Millis(2_001), heard(OTHER, Message::Offer(later)));
    let faults = |peer| node.status().peer_scores.into_iter().find(|it| it.peer == peer).map(|it| it.faults);
    assert_eq!(faults(THIRD), Some([(Fault::Copied, 1)].into()));
    assert_eq!(faults(OTHER), Some([(Fault::Stale, 1)].into()));
}

#[test]
fn a_peer_whose_offer_for_a_round_was_a_fault_is_not_waited_for() {
    let mut node = owner();
    let same = BlobRef::of(&b"what a neighbour has learned".repeat(3));
    let of = |path| Offer { blob: same, ..offer(path, genesis()) };
    node.handle(Millis(2_001), heard(THIRD, Message::Offer(of(0))));
    node.handle(Millis(2_001), heard(OTHER, Message::Offer(of(1))));
    node.handle(Millis(2_001), fetched(same, true));
    let actions = node.handle(Millis(2_001), accumulated(same, true));
    assert!(actions.iter().any(|action| matches!(action, Action::Outer(Outer::Combine { .. }))), "{actions:?}");
}

#[test]
fn of_two_contributions_of_a_path_from_the_same_update_the_first_to_arrive_is_counted() {
    let mut node = owner();
    let rival = Offer { blob: BlobRef::of(b"by another"), ..offer(1, genesis()) };
    node.handle(Millis(2_001), heard(THIRD, Message::Offer(rival.clone())));
    node.handle(Millis(2_001), heard(OTHER, Message::Offer(offer(1, genesis()))));
    node.handle(Millis(2_001), fetched(gradient(1, 0), true));
    assert_eq!(node.handle(Millis(2_001), fetched(rival.blob, true)), vec![Action::Release(rival.blob.hash)]);
    node.handle(Millis(2_001), accumulated(gradient(1, 0), true));
    assert_eq!(node.handle(Millis(2_001), heard(THIRD, Message::Offer(rival))), vec![], "a repeated offer");
    let actions = take_in(&mut node, THIRD, offer(0, genesis()));
    assert_eq!(actions.last(), Some(&combine(vec![counted(0, 0), counted(1, 0)])));
}

#[test]
fn a_rival_of_a_counted_contribution_is_not_counted_later_unless_it_has_another_base_update() {
    let mut node = member_with_owner(&[]);
    let first = update(genesis(), 1, OTHER);
    node.handle(Millis(20), heard(OTHER, Message::Update(first.clone())));
    node.handle(Millis(30), fetched(first.update.average, true));
    node.handle(Millis(40), Event::Applied { module: MODULE, version: Version(1), state: Some(state(1)) });
    let twin = Offer { blob: BlobRef::of(b"by another, later"), ..offer(1, genesis()) };
    for offer in [twin, of_another_side()] {
        node.handle(Millis(50), heard(THIRD, Message::Offer(offer)));
    }
    let known: Vec<BlobRef> = node.modules[&MODULE].offers.all().map(|(offer, _)| offer.blob).collect();
    assert_eq!(known, [of_another_side().blob]);
}

#[test]
fn contributions_of_a_path_from_both_sides_of_a_partition_are_counted() {
    let mut node = owner();
    take_in(&mut node, OTHER, offer(1, genesis()));
    take_in(&mut node, THIRD, of_another_side());
    let actions = take_in(&mut node, THIRD, offer(0, genesis()));
    assert_eq!(actions.last(), Some(&combine(with_another_side())));
}

fn of_another_side() -> Offer {
    let update = head(&update(genesis(), 7, OTHER)).update;
    Offer { blob: BlobRef::of(b"by another"), parent_update: update, ..offer(1, genesis()) }
}

/// The two sides share the weight of their path.
fn with_another_side() -> Vec<Counted> {
    let one = Counted { uncapped: 30, weight: 30, ..counted(1, 0) };
    let mut all = vec![counted(0, 0), one, Counted { blob: of_another_side().blob, ..one }];
    all.sort_by_key(Counted::key);
    all
}

#[test]
fn one_path_cannot_fill_an_update() {
    let mut node = owner();
    let mut fetches = |author: fn(u8) -> PeerKey, bytes: std::ops::Range<u8>| -> usize {
        let rivals = bytes.map(|byte| (author(byte), Offer { blob: BlobRef::of(&[byte]), ..offer(1, genesis()) }));
        rivals.map(|(author, rival)| node.handle(Millis(2_001), heard(author, Message::Offer(rival))).len()).sum()
    };
    assert_eq!(fetches(|_| OTHER, 0..20), MAX_OFFERS_OF_ONE, "of one peer");
    assert_eq!(fetches(|byte| PeerKey([byte; 32]), 20..40), MAX_RIVALS - 1 - MAX_OFFERS_OF_ONE, "without the path");
}

#[test]
fn offers_for_distant_versions_do_not_keep_out_a_countable_one() {
    let mut node = owner();
    for number in 0..2 * MAX_OFFERS as u64 {
        let blob = BlobRef::of(&number.to_le_bytes());
        let far = Offer { parent: Version(5 + number % 11), path: PathId(0), blob, ..offer(1, genesis()) };
        node.handle(Millis(2_001), heard(THIRD, Message::Offer(far)));
    }
    let near = node.handle(Millis(2_001), heard(OTHER, Message::Offer(offer(1, genesis()))));
    assert_eq!(near, vec![fetch(gradient(1, 0), OTHER)]);
}

#[test]
fn a_false_size_does_not_keep_a_blob_from_being_fetched() {
    let mut node = owner();
    let lie = Offer { blob: BlobRef { bytes: 1, ..gradient(1, 0) }, ..offer(1, genesis()) };
    assert_eq!(node.handle(Millis(2_001), heard(THIRD, Message::Offer(lie.clone()))), vec![fetch(lie.blob, THIRD)]);
    assert_eq!(node.handle(Millis(2_001), heard(OTHER, Message::Offer(offer(1, genesis())))), vec![]);
    assert_eq!(node.handle(Millis(2_002), fetched(lie.blob, false)), vec![]);
    assert!(node.handle(Millis(2_600), Event::Tick).contains(&fetch(gradient(1, 0), OTHER)));
}

#[test]
fn an_average_of_a_dropped_collection_enters_no_update() {
    let mut node = owner();
    take_in(&mut node, OTHER, offer(1, genesis()));
    let closed = take_in(&mut node, THIRD, offer(0, genesis()));
    let both = combine(vec![counted(0, 0), counted(1, 0)]);
    assert_eq!(closed.last(), Some(&both));
    // Ownership changes and returns, and the same contributions are in again, with one more.
    node.handle(Millis(2_100), heard_heartbeat(THIRD, heartbeat(1, Some(genesis()), Some((2, THIRD)))));
    let gone = Heartbeat { leaving: true, ..heartbeat(2, Some(genesis()), Some((2, THIRD))) };
    node.handle(Millis(2_200), heard_heartbeat(THIRD, gone));
    let mut now = 2_250;
    while !node.handle(Millis(now), Event::Tick).contains(&term(3, ME)) {
        now += 250;
        assert!(now < 20_000);
    }
    let settled = Millis(now + SETTLE_MS);
    let rival = of_another_side();
    let mut actions = node.handle(settled, heard(OTHER, Message::Offer(rival.clone())));
    for blob in [gradient(0, 0), gradient(1, 0), rival.blob] {
        actions.extend(node.handle(settled, fetched(blob, true)));
        actions.extend(node.handle(settled, accumulated(blob, true)));
    }
    let combines =
        |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Outer(Outer::Combine { .. })));
    assert!(!combines(&actions), "one average at a time");
    // The first average arrives and is released. Only then is the other begun.
    let combined = Event::Combined { module: MODULE, target: Version(1), average: average(1), state: state(1) };
    let mut gone = vec![average(1).hash, state(1).hash];
    gone.sort();
    let expected = [vec![combine(with_another_side())], gone.into_iter().map(Action::Release).collect()].concat();
    assert_eq!(node.handle(settled, combined), expected);
}

#[test]
fn an_owner_that_knows_of_a_better_head_closes_nothing_until_it_has_it() {
    let mut node = owner();
    let ahead = head(&update(genesis(), 1, OTHER));
    node.handle(Millis(2_001), heard_heartbeat(THIRD, heartbeat(1, Some(ahead), Some((1, ME)))));
    take_in(&mut node, OTHER, offer(1, genesis()));
    let actions = take_in(&mut node, THIRD, offer(0, genesis()));
    assert!(!actions.iter().any(|action| matches!(action, Action::Outer(Outer::Combine { .. }))), "{actions:?}");
}

#[test]
fn phantom_offers_neither_shut_out_the_holder_nor_hold_up_the_round() {
    let mut node = owner();
    let phantom = |number: u64| {
        let blob = BlobRef::of(format!("phantom {number}").as_bytes());
        heard(PeerKey([number as u8 + 10; 32]), Message::Offer(Offer { blob, sequence: number, ..offer(1, genesis()) }))
    };
    (1..10).for_each(|number| drop(node.handle(Millis(2_000), phantom(number))));
    assert_eq!(node.modules[&MODULE].offers.times(PathId(1), Version(0)), MAX_RIVALS - 1);
    let actions = node.handle(Millis(2_000), heard(OTHER, Message::Offer(offer(1, genesis()))));
    assert!(actions.contains(&fetch(gradient(1, 0), OTHER)), "{actions:?}");
    node.handle(Millis(2_100), fetched(gradient(1, 0), true));
    node.handle(Millis(2_200), accumulated(gradient(1, 0), true));
    node.handle(Millis(2_300), Event::Trained(trained(0, genesis())));
    node.handle(Millis(2_400), fetched(gradient(0, 0), true));
    let closes = node.handle(Millis(2_500), accumulated(gradient(0, 0), true));
    assert!(closes.iter().any(|action| matches!(action, Action::Outer(Outer::Combine { .. }))), "{closes:?}");
}

#[test]
fn a_peer_that_cannot_be_fetched_from_is_not_waited_for_for_a_while() {
    let mut node = owner();
    let fails = |node: &mut Node, from_ms: u64| {
        let mut now = from_ms;
        while now < from_ms + 3_000 && node.expected(MODULE).contains_key(&PathId(1)) {
            node.handle(Millis(now), heard(OTHER, Message::Offer(Offer { sequence: now, ..offer(1, genesis()) })));
            node.handle(Millis(now), fetched(gradient(1, 0), false));
            now += 250;
            let heartbeat = Heartbeat {
                leases: vec![lease(1, 0, Stage::Waiting)],
                ..heartbeat(now, Some(genesis()), Some((1, ME)))
            };
            node.handle(Millis(now), heard_heartbeat(OTHER, heartbeat));
            node.handle(Millis(now), Event::Tick);
        }
        now
    };
    let now = fails(&mut node, 2_000);
    assert!(node.expected(MODULE).contains_key(&PathId(1)), "the own connection may be at fault");
    node.reputation.note_fetch(Millis(now));
    let now = fails(&mut node, now + UNFETCHABLE_MS);
    assert!(!node.expected(MODULE).contains_key(&PathId(1)), "others can be fetched from");
    let again = now + 4 * UNFETCHABLE_MS;
    let heartbeat =
        Heartbeat { leases: vec![lease(1, 0, Stage::Waiting)], ..heartbeat(again, Some(genesis()), Some((1, ME))) };
    node.handle(Millis(again), heard_heartbeat(OTHER, heartbeat));
    assert!(node.expected(MODULE).contains_key(&PathId(1)));
}

#[test]
fn an_owner_of_a_deterministic_run_closes_with_all_paths_however_long_that_takes() {
    let closes = |actions: &[Action]| actions.iter().any(|it| matches!(it, Action::Outer(Outer::Combine { .. })));
    for deterministic in [false, true] {
        let mut node = owner();
        node.plan = RunPlan { deterministic, ..plan() }.into();
        take_in(&mut node, THIRD, offer(0, genesis()));
        let mut hour = (2..3_600).map(|second| node.handle(Millis(second * 1_000), Event::Tick));
        assert_eq!(hour.any(|actions| closes(&actions)), !deterministic);
        if deterministic {
            assert!(closes(&take_in(&mut node, OTHER, offer(1, genesis()))), "the last path is here");
        }
    }
}
