//! Tests of the asynchronous mode: nobody waits for a slow path, and yet no contribution is very late.

use crate::protocol::limits::{CLOSES_PER_PHASE, HEARTBEAT_MS, MAX_FROM_ONE_VERSION, VERSIONS_KEPT};
use crate::protocol::node::tests::*;

/// The portion of one path's contribution, in a module whose round weighs 160.
fn portion(weight: u64) -> Portion {
    Portion { paths: 2, weight, uncapped: weight, full_weight: 160 }
}

fn async_plan() -> RunPlan {
    RunPlan { mode: OuterMode::Asynchronous, ..plan() }
}

/// `ME` owns the module in term 1 and trains path 0. `OTHER` trains path 1 and has announced its pace. The time is 2 s.
fn owner_of_paths(pace: u32) -> (Node, Vec<Action>) {
    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: ME },
        Record::Lease { path: PathId(0), held: true, standby: false },
    ];
    let mut node = Node::restore(ME, async_plan(), records);
    let mut actions = node.handle(Millis(0), Event::Join(vec![]));
    let leases = vec![lease(1, 0, Stage::Training)];
    let heartbeat = Heartbeat { leases, pace, ..heartbeat(1, Some(genesis()), Some((1, ME))) };
    actions.extend(node.handle(Millis(0), heard_heartbeat(OTHER, heartbeat)));
    actions.extend(node.handle(Millis(2_000), Event::Tick));
    began_in_time(&mut node);
    (node, actions)
}

fn in_hand(node: &mut Node, now: u64, from: PeerKey, offer: Offer, target: u64) -> Vec<Action> {
    let blob = offer.blob.hash;
    let mut actions = node.handle(Millis(now), heard(from, Message::Offer(offer)));
    actions.extend(node.handle(Millis(now), Event::Fetched { blob, found: true }));
    let accumulated = Event::Accumulated { module: MODULE, target: Version(target), blob, norm: Some(NORM) };
    actions.extend(node.handle(Millis(now), accumulated));
    actions
}

fn combine(version: u64, contributions: Vec<Counted>) -> Action {
    let weight = contributions.iter().map(|counted| u64::from(counted.weight)).sum();
    let (target, from) = (Version(version), state(version - 1));
    Action::Outer(Outer::Combine {
        module: MODULE,
        target,
        from,
        contributions: contributions.into(),
        portion: portion(weight),
    })
}

fn signed(before: Head, contributions: Vec<Counted>) -> SignedUpdate {
    let weight: u64 = contributions.iter().map(|counted| u64::from(counted.weight)).sum();
    let mut signed = update(before, 1, ME);
    (signed.update.contributions, signed.update.weight) = (contributions.into(), before.weight + weight);
    signed
}

/// Takes a computed average all the way to a new head.
fn make_head(node: &mut Node, now: u64, signed: &SignedUpdate) -> Vec<Action> {
    let version = signed.update.version;
    let (average, state) = (signed.update.average, signed.update.state);
    let mut actions = Vec::new();
    actions.extend(node.handle(Millis(now), Event::Combined { module: MODULE, target: version, average, state }));
    actions.extend(node.handle(Millis(now), Event::Sealed(signed.clone())));
    actions.extend(node.handle(Millis(now), Event::Fetched { blob: average.hash, found: true }));
    let leases = vec![lease(1, 0, Stage::Training)];
    let theirs = Heartbeat { leases, pace: 1_000, ..heartbeat(100 + 2 * version.0, Some(head(signed)), Some((1, ME))) };
    actions.extend(node.handle(Millis(now), heard_heartbeat(OTHER, theirs)));
    actions.extend(node.handle(Millis(now), Event::Applied { module: MODULE, version, state: Some(state) }));
    actions
}

fn steps(actions: &[Action]) -> Option<u64> {
    actions.iter().find_map(|action| if let Action::Train { part, .. } = action { Some(part.last) } else { None })
}

#[test]
fn an_owner_does_not_wait_for_a_slow_path() {
    let (mut node, _) = owner_of_paths(0);
    let one = vec![counted(1, 0)];
    let actions = in_hand(&mut node, 2_001, OTHER, offer(1, genesis()), 1);
    assert_eq!(actions.last(), Some(&combine(1, one.clone())), "path 0 is still training");
    let made = signed(genesis(), one);
    let actions = make_head(&mut node, 2_001, &made);
    let apply =
        Outer::Apply { module: MODULE, version: Version(1), from: state(0), average: average(1), portion: portion(60) };
    assert!(actions.contains(&Action::Outer(apply)), "{actions:?}");
    assert!(actions.contains(&Action::Persist(Record::Head(made))), "{actions:?}");
}

#[test]
fn an_owner_closes_at_most_eight_times_in_a_phase() {
    let (mut node, _) = owner_of_paths(0);
    in_hand(&mut node, 2_001, OTHER, offer(1, genesis()), 1);
    let first = signed(genesis(), vec![counted(1, 0)]);
    make_head(&mut node, 2_001, &first);
    // 64 steps at 1000 in 1000 s take 64 s; an eighth of that is 8 s.
    let pause_ms = INNER_STEPS * 1_000 / CLOSES_PER_PHASE;
    let next = in_hand(&mut node, 2_002, OTHER, offer(1, head(&first)), 2);
    let combines = |actions: &[Action]| actions.iter().any(|action| *action == combine(2, vec![counted(1, 1)]));
    assert!(!combines(&next), "{next:?}");
    assert!(!combines(&node.handle(Millis(2_000 + pause_ms), Event::Tick)));
    assert!(node.next_deadline().unwrap() <= Millis(2_001 + pause_ms));
    let actions = node.handle(Millis(2_001 + pause_ms), Event::Tick);
    assert!(combines(&actions), "{actions:?}");
}

#[test]
fn a_late_contribution_counts_in_full_until_it_is_refused_and_the_status_shows_its_staleness() {
    let (mut node, _) = owner_of_paths(0);
    let mut heads = vec![genesis()];
    for version in 1..VERSIONS_KEPT {
        let (before, now) = (heads[version as usize - 1], 10_000 * version);
        in_hand(&mut node, now, OTHER, offer(1, before), version);
        let made = signed(before, vec![counted(1, version - 1)]);
        make_head(&mut node, now, &made);
        heads.push(head(&made));
    }
    let shown = |node: &Node| (node.status().modules[0].staleness_mean, node.status().modules[0].staleness_most);
    assert_eq!(shown(&node), (0.0, 0));
    // The slow path's contribution is 15 versions late by now.
    let late = VERSIONS_KEPT - 1;
    let now = 10_000 * VERSIONS_KEPT;
    let actions = in_hand(&mut node, now, THIRD, offer(0, genesis()), late + 1);
    let full = counted(0, 0);
    assert_eq!(actions.last(), Some(&combine(late + 1, vec![full])));
    let made = signed(heads[late as usize], vec![full]);
    make_head(&mut node, now, &made);
    assert_eq!(shown(&node), (late as f64 / VERSIONS_KEPT as f64, late));
    // One version later it is too late.
    let refused = node.handle(
        Millis(now),
        heard(THIRD, Message::Offer(Offer { blob: BlobRef::of(b"later"), ..offer(0, genesis()) })),
    );
    assert_eq!(refused, vec![]);
}

#[test]
fn a_module_is_done_after_its_rounds_in_weight_not_in_versions() {
    let plan = RunPlan { phases: 2, ..async_plan() };
    let at = |version, weight| Head { version: Version(version), weight, ..genesis() };
    assert_eq!(plan.full_weight(MODULE), 160);
    assert_eq!((plan.phase_of(MODULE, at(9, 159)), plan.is_done(MODULE, at(9, 319))), (Phase(0), false));
    assert!(plan.is_done(MODULE, at(1, 320)));
    let mut chain = Chain::genesis(state(0));
    let mut before = genesis();
    for _ in 0..3 {
        let made = signed(before, vec![counted(0, before.version.0), counted(1, before.version.0)]);
        let checked = crate::protocol::module::validate::check_update(&plan, &chain, &made.update);
        assert_eq!(checked.is_ok(), before.version.0 < 2, "{checked:?}");
        before = head(&made);
        chain.push(made);
    }
}

#[test]
fn a_phase_has_as_many_steps_as_the_pace_of_the_peer_allows() {
    // Not measured yet: an eighth.
    let (mut node, actions) = owner_of_paths(1_000);
    assert_eq!(steps(&actions), Some(INNER_STEPS / 8));
    // 8 steps in 16 s are 500 in 1000 s, half of the other's pace.
    let actions = node.handle(Millis(16_000), Event::Trained(trained(0, genesis())));
    let pace = |actions: &[Action]| {
        actions.iter().find_map(|action| match action {
            Action::Publish { message: Message::Heartbeat(heartbeat), .. } => Some(heartbeat.pace),
            _ => None,
        })
    };
    assert_eq!(pace(&actions), Some(500), "and it announces that");
    let leases = vec![lease(1, 0, Stage::Training)];
    let alive = Heartbeat { leases, pace: 1_000, ..heartbeat(2, Some(genesis()), Some((1, ME))) };
    let mut actions = node.handle(Millis(16_000), heard_heartbeat(OTHER, alive));
    actions.extend(node.handle(Millis(18_100), Event::Tick));
    assert_eq!(steps(&actions), Some(INNER_STEPS / 2));
}

#[test]
fn a_byzantine_peer_among_three_halves_a_phase_at_most() {
    let (mut node, _) = owner_of_paths(1_000);
    node.handle(Millis(16_000), Event::Trained(trained(0, genesis())));
    let say = |node: &mut Node, peer, sequence, pace| {
        let leases = vec![lease(1, 0, Stage::Training)];
        let heartbeat = Heartbeat { leases, pace, ..heartbeat(sequence, Some(genesis()), Some((1, ME))) };
        node.handle(Millis(16_000), heard_heartbeat(peer, heartbeat))
    };
    say(&mut node, OTHER, 2, 1_000);
    assert_eq!(node.steps(PathId(0)), INNER_STEPS / 2);
    say(&mut node, THIRD, 1, u32::MAX);
    assert_eq!(node.steps(PathId(0)), INNER_STEPS / 4);
    // Two Byzantine peers can reduce it further, down to the minimum of a phase.
    say(&mut node, OTHER, 3, u32::MAX);
    assert_eq!(node.steps(PathId(0)), INNER_STEPS / 16);
}

#[test]
fn a_path_waits_for_its_own_contribution_and_then_continues_without_it() {
    // A member whose owner makes no update.
    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: OTHER },
        Record::Lease { path: PathId(0), held: true, standby: false },
    ];
    let grid = Grid::with_paths(vec![Sharing::Shared], 1).unwrap();
    let mut node = Node::restore(ME, RunPlan { slots: grid.into(), ..async_plan() }, records);
    let mut now = 0;
    let trains = |actions: &[Action]| steps(actions).is_some();
    assert!(trains(&node.handle(Millis(0), Event::Join(vec![]))));
    let mut wait = |node: &mut Node, number: usize, least_ms: u64| {
        now += 4_000;
        let mut finished = trained(0, genesis());
        finished.offers[0].1 = BlobRef::of(&[number as u8]);
        let mut actions = node.handle(Millis(now), Event::Trained(finished));
        let began = now;
        while !trains(&actions) && now < began + 100_000 {
            assert!(now < began + 100 || node.waits_for(PathId(0)).is_some());
            now += 100;
            actions = node.handle(Millis(now), Event::Tick);
        }
        assert!(now - began >= least_ms, "{} ms", now - began);
        trains(&actions)
    };
    for number in 1..MAX_FROM_ONE_VERSION {
        assert!(wait(&mut node, number, HEARTBEAT_MS), "{number}: it continues from the same version");
    }
    assert!(
        !wait(&mut node, MAX_FROM_ONE_VERSION, 100_000),
        "further contributions from one version could not be counted"
    );
}

#[test]
fn a_path_whose_contribution_is_counted_continues_at_once() {
    let (mut node, _) = owner_of_paths(0);
    let mine = trained(0, genesis());
    let blob = gradient(0, 0).hash;
    let mut actions = node.handle(Millis(3_000), Event::Trained(mine));
    actions.extend(node.handle(Millis(3_000), Event::Fetched { blob, found: true }));
    let accumulated = Event::Accumulated { module: MODULE, target: Version(1), blob, norm: Some(NORM) };
    actions.extend(node.handle(Millis(3_000), accumulated));
    assert_eq!(steps(&actions), None);
    assert_eq!(actions.last(), Some(&combine(1, vec![counted(0, 0)])));
    let actions = make_head(&mut node, 3_001, &signed(genesis(), vec![counted(0, 0)]));
    assert!(steps(&actions).is_some(), "{actions:?}");
}

#[test]
fn a_contribution_trained_from_a_module_that_is_done_is_not_offered() {
    let last = {
        let mut made = signed(genesis(), vec![counted(0, 0), counted(1, 0)]);
        made.update.owner = OTHER;
        made
    };
    let other = ModuleId { level: 1, expert: 0 };
    let plan = RunPlan {
        slots: Grid::with_paths(vec![Sharing::Shared, Sharing::Path], 2).unwrap().into(),
        phases: 1,
        genesis: BTreeMap::from([(MODULE, state(0)), (other, state(0))]),
        offer_bytes: vec![1_000; 2],
        average_bytes: vec![1_000; 2],
        norm_cap: 2.0,
        audit_share: 0.0,
        centred_clipping: false,
        deterministic: false,
        ..async_plan()
    };
    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Genesis { module: other, state: state(0) },
        Record::Lease { path: PathId(0), held: true, standby: false },
        Record::Head(last.clone()),
    ];
    let mut node = Node::restore(ME, plan, records);
    let actions = node.handle(Millis(0), Event::Join(vec![]));
    assert!(steps(&actions).is_some(), "its other module is not done");
    let surplus = gradient(0, 1);
    let mut finished = trained(0, head(&last));
    let own = (BaseVersion { module: other, ..started_from(genesis()) }, gradient(0, 0));
    finished.offers = vec![(started_from(head(&last)), surplus), own];
    let actions = node.handle(Millis(4_000), Event::Trained(finished.clone()));
    finished.offers = vec![own];
    assert_eq!(actions[0], Action::Persist(Record::Finished(finished)));
    assert!(actions.contains(&Action::Release(surplus.hash)), "{actions:?}");
    assert_eq!(node.uncounted().map(|(module, _)| module).collect::<Vec<_>>(), [other]);
}

#[test]
fn an_asynchronous_owner_that_does_not_count_this_nodes_offers_is_replaced() {
    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: OTHER },
        Record::Lease { path: PathId(0), held: true, standby: false },
    ];
    let mut node = Node::restore(ME, async_plan(), records);
    node.handle(Millis(0), Event::Join(vec![]));
    let mut now = 0;
    let mut claims_within = |node: &mut Node, span_ms: u64| {
        let mut claimed = false;
        for _ in 0..span_ms / 500 {
            now += 500;
            let leases = vec![lease(1, 0, Stage::Training)];
            let alive = Heartbeat { leases, ..heartbeat(now, Some(genesis()), Some((1, OTHER))) };
            let mut actions = node.handle(Millis(now), heard_heartbeat(OTHER, alive));
            actions.extend(node.handle(Millis(now), Event::Tick));
            claimed |= actions.contains(&term(2, ME));
        }
        claimed
    };
    node.handle(Millis(0), heard(THIRD, Message::Offer(offer(1, genesis()))));
    assert!(!claims_within(&mut node, 300_000), "a Byzantine peer may offer a blob that cannot be had");
    node.handle(Millis(300_000), Event::Trained(trained(0, genesis())));
    assert!(claims_within(&mut node, 2_000_000));
}
