//! Tests of updates whose contributions are a list in a blob.

use crate::protocol::journal::record::read_lists;
use crate::protocol::limits::{MAX_LIST_BYTES, OWN_LINK_MS};
use crate::protocol::node::tests::*;
use crate::protocol::wire::contribution_list::{list_bytes, read_list};
use crate::protocol::wire::contributions::Contributions;

const PATHS: u32 = 100;

fn many_paths() -> RunPlan {
    let slots = Grid::with_paths(vec![Sharing::Shared], PATHS).unwrap().into();
    RunPlan { slots, weights: vec![100; PATHS as usize], ..plan() }
}

fn contributions() -> Contributions {
    let counted = |path| Counted { uncapped: 100, weight: 100, path: PathId(path), ..counted(0, 0) };
    (0..PATHS).map(|path| Counted { blob: gradient(path, 0), ..counted(path) }).collect::<Vec<_>>().into()
}

/// The first update, which counts all paths, as it is read and as it is received.
fn first_update() -> (SignedUpdate, SignedUpdate) {
    let mut signed = update(genesis(), 1, OTHER);
    signed.update.contributions = contributions();
    signed.update.weight = 100 * u64::from(PATHS);
    let mut received = signed.clone();
    received.update.contributions.forget();
    (signed, received)
}

/// A member of a module of many paths. `OTHER` owns it.
fn member_of_many() -> Node {
    let records = vec![
        Record::Genesis { module: MODULE, state: state(0) },
        Record::Term { module: MODULE, term: Term(1), owner: OTHER },
        Record::Lease { path: PathId(0), held: true, standby: false },
    ];
    let mut node = Node::restore(ME, many_paths(), records);
    node.handle(Millis(0), Event::Join(vec![]));
    node.handle(Millis(0), heard_heartbeat(OTHER, heartbeat(1, Some(genesis()), Some((1, OTHER)))));
    node
}

fn fetched(blob: BlobRef, found: bool) -> Event {
    Event::Fetched { blob: blob.hash, found }
}

fn read(list: BlobRef, contributions: Option<Vec<Counted>>) -> Event {
    Event::ListRead { list: list.hash, contributions }
}

#[test]
fn an_update_of_many_contributions_is_applied_once_its_list_is_read() {
    let mut node = member_of_many();
    let (signed, received) = first_update();
    let list = signed.update.contributions.list().unwrap();
    assert_eq!(
        node.handle(Millis(100), heard(OTHER, Message::Update(received.clone()))),
        [Action::Fetch { blob: list, from: vec![OTHER] }]
    );
    assert_eq!(node.handle(Millis(101), heard(OTHER, Message::Update(received))), [], "the list is on its way");
    assert_eq!(
        node.handle(Millis(110), fetched(list, true)),
        [Action::Outer(Outer::ReadList { module: MODULE, list })]
    );
    assert!(node.referenced_blobs().contains(&list.hash));
    assert_eq!(
        node.handle(Millis(120), read(list, Some(signed.update.contributions.to_vec()))),
        [Action::Fetch { blob: average(1), from: vec![OTHER] }]
    );
    node.handle(Millis(130), fetched(average(1), true));
    let applied = Event::Applied { module: MODULE, version: Version(1), state: Some(state(1)) };
    let actions = node.handle(Millis(140), applied);
    assert_eq!(actions[0], Action::Persist(Record::Head(signed)));
    assert!(node.referenced_blobs().contains(&list.hash), "others fetch it here, and the journal names it");
}

#[test]
fn a_restart_reads_the_lists_that_its_journal_names() {
    let (signed, received) = first_update();
    let journal = || {
        let genesis = Record::Genesis { module: MODULE, state: state(0) };
        vec![genesis, Record::Head(received.clone())]
    };
    let mut records = journal();
    read_lists(&mut records, |list| list_bytes(&signed.update.contributions).filter(|it| BlobRef::of(it) == list));
    let node = Node::restore(ME, many_paths(), records);
    assert_eq!(node.modules_without_lists(), []);
    assert!(node.chains().all(|(_, chain)| chain.has_counted(contributions()[7].key())));
    let lost = Node::restore(ME, many_paths(), journal());
    assert_eq!(lost.modules_without_lists(), [MODULE]);
}

#[test]
fn an_owner_whose_list_is_none_or_cannot_be_had_steps_down() {
    let (_, received) = first_update();
    let list = received.update.contributions.list().unwrap();
    let steps_down = |actions: &[Action]| {
        actions.iter().any(|action| matches!(action, Action::Report(Report::SteppedDown { owner: OTHER, .. })))
    };
    let heard_it = || {
        let mut node = member_of_many();
        node.reputation.note_fetch(Millis(90));
        node.handle(Millis(100), heard(OTHER, Message::Update(received.clone())));
        node
    };
    let mut node = heard_it();
    node.handle(Millis(110), fetched(list, true));
    assert!(steps_down(&node.handle(Millis(120), read(list, None))));
    assert!(!node.referenced_blobs().contains(&list.hash));
    let mut node = heard_it();
    let mut said = node.handle(Millis(110), fetched(list, false));
    for attempt in 1..=3 {
        said.extend(pass(&mut node, 1_000 * attempt, 1_000 * attempt + 750).into_iter().map(|(_, action)| action));
        said.extend(node.handle(Millis(1_000 * attempt + 800), fetched(list, false)));
    }
    assert!(steps_down(&said));
    let mut node = member_of_many();
    node.handle(Millis(100), heard(OTHER, Message::Update(received)));
    let mut late = pass(&mut node, 100, OWN_LINK_MS / 20).into_iter().map(|(_, action)| action).collect::<Vec<_>>();
    late.extend(node.handle(Millis(OWN_LINK_MS / 20), fetched(list, true)));
    assert!(!steps_down(&late), "it is only slow");
}

#[test]
fn an_update_that_cannot_be_next_and_a_list_that_is_too_long_are_not_fetched() {
    let (signed, _) = first_update();
    let mut elsewhere = signed.clone();
    elsewhere.update.version = Version(7);
    elsewhere.update.contributions.forget();
    let mut node = member_of_many();
    assert_eq!(node.handle(Millis(100), heard(OTHER, Message::Update(elsewhere))), []);
    let bytes = crate::protocol::wire::encoding::encode(&signed.update).unwrap();
    let size = signed.update.contributions.list().unwrap().bytes.to_le_bytes();
    let at = bytes.windows(8).position(|eight| eight == size).unwrap();
    let mut longer = bytes;
    longer[at..at + 8].copy_from_slice(&(MAX_LIST_BYTES as u64 + 1).to_le_bytes());
    let update = crate::protocol::wire::encoding::decode::<Update>(&longer).unwrap();
    let received = SignedUpdate { update, signature: vec![7; 64] };
    let said = node.handle(Millis(100), heard(OTHER, Message::Update(received)));
    assert!(!said.iter().any(|action| matches!(action, Action::Fetch { .. })));
}

#[test]
fn an_answer_is_looked_at_once_all_of_its_lists_are_read() {
    let mut node = member_of_many();
    let (signed, received) = first_update();
    let list = signed.update.contributions.list().unwrap();
    let ahead = heartbeat(2, Some(head(&signed)), Some((1, OTHER)));
    node.handle(Millis(100), heard_heartbeat(OTHER, ahead));
    let asked = requests(&pass(&mut node, 100, 1_000));
    let id = asked.first().expect("it asks for what it lacks").0;
    let answered = Event::Answered { id, response: Some(crate::protocol::Response::Replay(vec![received])) };
    assert!(node.handle(Millis(1_010), answered).contains(&Action::Fetch { blob: list, from: vec![OTHER] }));
    assert_eq!(requests(&pass(&mut node, 1_010, 4_000)), [], "it asks nobody else meanwhile");
    node.handle(Millis(4_010), fetched(list, true));
    let contributions = read_list(&list_bytes(&signed.update.contributions).unwrap());
    let said = node.handle(Millis(4_020), read(list, contributions));
    assert!(said.contains(&Action::Fetch { blob: average(1), from: vec![OTHER] }), "{said:?}");
}
