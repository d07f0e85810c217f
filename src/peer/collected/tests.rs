//! Tests of a collected folder: it is complete and of its run, or the error names what is not.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::*;
use crate::config::{DeviceChoice, Reads};
use crate::peer::collect::{CollectError, collect_from_stores};
use crate::peer::inference::client::Local;
use crate::peer::inference::sample::{Wish, continue_prompt};
use crate::peer::inference::score::{PathScore, ScoringError, score_corpus, score_test_text};
use crate::peer::tests::tiny_run::{Tiny, documents};
use crate::protocol::wire::encoding::WIRE_VERSION;
use crate::text::{CorpusSource, read_corpus};
use crate::training::Score;

const ALL: [(&str, u64); 3] = [("0.0", 1), ("0.1", 2), ("1.0", 2)];

fn collected(share_text: bool) -> (Tiny, PathBuf) {
    let tiny = Tiny::create(share_text);
    let peer = tiny.peer("peer", &ALL);
    let folder = tiny.home.path().join("all");
    collect_from_stores(&tiny.manifest, &[peer], &folder).unwrap();
    (tiny, folder)
}

fn players(folder: &Path) -> Local {
    Local::new(Collected::open(folder).unwrap(), DeviceChoice::Cpu).unwrap()
}

fn refusal(folder: &Path) -> String {
    Collected::open(folder).err().unwrap().to_string()
}

/// Changes a file while `check` runs.
fn with_file(path: &Path, contents: Option<&[u8]>, check: impl FnOnce()) {
    let before = fs::read(path).unwrap();
    match contents {
        Some(contents) => fs::write(path, contents).unwrap(),
        None => fs::remove_file(path).unwrap(),
    }
    check();
    fs::write(path, before).unwrap();
}

#[test]
fn a_collected_run_is_scored_and_sampled_without_a_swarm() {
    let (tiny, folder) = collected(true);
    let collected = Collected::open(&folder).unwrap();
    assert_eq!(collected.run, tiny.run);
    let versions: Vec<u64> = collected.modules.values().map(|module| module.version.0).collect();
    assert_eq!(versions, [1, 2, 2]);
    let levels = collected.levels_of(PathId(1)).unwrap();
    assert_eq!(levels.iter().map(Vec::len).collect::<Vec<_>>(), tiny.decoded.level_counts());

    let scores = score_test_text(&mut players(&folder), None).unwrap();
    assert_eq!(scores.len(), 2);
    let tokens: u64 = scores.iter().map(|score| score.dipaco.tokens).sum();
    assert!(tokens > 100);
    for score in scores.iter().filter(|score| score.documents > 0) {
        assert_eq!((score.ancestor.tokens, score.ancestor.bytes), (score.dipaco.tokens, score.dipaco.bytes));
        assert!(score.ancestor.nats != score.dipaco.nats, "a path has moved away from the ancestor");
    }

    let wish = Wish { tokens: 5, temperature: 0.0, ..Wish::default() };
    let long = continue_prompt(&mut players(&folder), &documents()[0], &wish).unwrap();
    assert!(long.tokens <= 5 && long.paths[0].0.0 < 2);
    let short = continue_prompt(&mut players(&folder), "f", &wish).unwrap();
    assert_eq!(short.prompt_tokens, 1);
    let error = continue_prompt(&mut players(&folder), "", &wish).unwrap_err();
    assert!(error.to_string().contains("the prompt is empty"), "{error}");
}

#[test]
fn text_from_elsewhere_goes_where_the_runs_own_text_went() {
    let (tiny, folder) = collected(true);
    let own = score_test_text(&mut players(&folder), None).unwrap();
    let source = CorpusSource::Paths(vec![tiny.home.path().join("corpus.jsonl")]);
    let text = &tiny.decoded.config.text;
    let mut corpus = read_corpus(&source, (text, Reads::Text), &AtomicBool::new(false)).unwrap();
    corpus.documents.retain(|document| crate::text::is_test(document, text.test_share));
    let again = score_corpus(&mut players(&folder), &corpus, None).unwrap();
    for (own, again) in own.iter().zip(&again) {
        assert_eq!((own.documents, own.dipaco.tokens), (again.documents, again.dipaco.tokens));
        assert!((own.dipaco.nats - again.dipaco.nats).abs() < 1e-3 * own.dipaco.nats.max(1.0));
    }
    corpus.documents = vec!["short".to_owned()];
    let error = score_corpus(&mut players(&folder), &corpus, None).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(ScoringError::TooShort(8))), "{error}");
}

#[test]
fn text_with_domains_is_scored_by_path_and_domain_and_the_sums_stay_what_they_are() {
    let (tiny, folder) = collected(true);
    let lines = |domain: &dyn Fn(usize) -> Option<&'static str>| {
        let file = tiny.home.path().join("domains.jsonl");
        let line = |(number, text)| serde_json::json!({ "text": text, "domain": domain(number) }).to_string();
        let lines: Vec<String> = documents().iter().enumerate().map(line).collect();
        std::fs::write(&file, lines.join("\n")).unwrap();
        let corpus =
            read_corpus(&CorpusSource::Paths(vec![file]), tiny.decoded.config.reading(), &AtomicBool::new(false))
                .unwrap();
        score_corpus(&mut players(&folder), &corpus, None).unwrap()
    };
    let tokens = |scores: &[PathScore], of: &dyn Fn(&&PathScore) -> bool| -> u64 {
        scores.iter().filter(of).map(|score| score.dipaco.tokens).sum()
    };
    let plain = lines(&|_| None);
    assert!(plain.iter().all(|score| score.domain.is_none()));
    let apart = lines(&|number| [Some("even"), Some("odd"), None][number % 3]);
    assert!(apart.len() > plain.len());
    for path in [0, 1].map(PathId) {
        assert_eq!(tokens(&plain, &|score| score.path == path), tokens(&apart, &|score| score.path == path));
    }
    for domain in [Some(0), Some(1), None] {
        let share = tokens(&apart, &|score| score.domain == domain) as f64 / tokens(&plain, &|_| true) as f64;
        assert!((0.2..0.5).contains(&share), "{domain:?}: {share}");
    }
}

#[test]
fn routes_chosen_more_often_count_the_same_text_and_cost_the_ancestor_the_same() {
    let (_tiny, folder) = collected(true);
    let sum = |every| -> (usize, Score, Score) {
        let scores = score_test_text(&mut players(&folder), every).unwrap();
        let documents = scores.iter().map(|score| score.documents).sum();
        let of = |score: &dyn Fn(&PathScore) -> Score| scores.iter().map(score).sum();
        (documents, of(&|score| score.ancestor), of(&|score| score.dipaco))
    };
    let (documents, ancestor, dipaco) = sum(None);
    for every in [3, 16] {
        let (also, ancestor_anew, anew) = sum(Some(every));
        assert_eq!((documents, dipaco.tokens, dipaco.bytes), (also, anew.tokens, anew.bytes));
        assert!((ancestor.nats - ancestor_anew.nats).abs() < 1e-4 * ancestor.nats, "{every}");
        assert!(dipaco.nats != anew.nats, "some windows were read on another path");
    }
}

#[test]
fn a_text_made_by_one_path_after_the_other_is_as_long_and_the_same_again() {
    let (_tiny, folder) = collected(true);
    let made = |every| {
        let wish = Wish { tokens: 12, temperature: 1.0, every, ..Wish::default() };
        continue_prompt(&mut players(&folder), &documents()[1], &wish).unwrap()
    };
    let (whole, pieces) = (made(None), made(Some(5)));
    assert_eq!(pieces, made(Some(5)));
    assert_eq!(whole.paths[0].0, pieces.paths[0].0);
    assert_eq!(pieces.paths.iter().map(|(_, tokens)| tokens).sum::<usize>(), pieces.tokens);
}

#[test]
fn a_run_that_keeps_its_text_to_itself_is_scored_on_other_text_only() {
    let (_tiny, folder) = collected(false);
    assert!(!folder.join(test_file(PathId(0))).exists());
    let error = score_test_text(&mut players(&folder), None).unwrap_err().to_string();
    assert!(error.contains("path 0, path 1: the run does not share its text"), "{error}");
}

#[test]
fn what_is_missing_or_changed_is_named() {
    let (tiny, folder) = collected(true);
    let file = |name: &str| folder.join(name);
    for name in [SHARD_TABLE, TOKENIZER, ROUTER, ANCESTOR, "modules/0.1.safetensors"] {
        with_file(&file(name), None, || {
            assert_eq!(refusal(&folder), format!("{} is missing", file(name).display()));
        });
    }
    for name in [TOKENIZER, ROUTER, ANCESTOR, "shards/test-0.tokens"] {
        let mut bytes = fs::read(file(name)).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        with_file(&file(name), Some(&bytes), || {
            let refusal = refusal(&folder);
            assert!(refusal.contains(name) && refusal.contains("does not match the manifest"), "{refusal}");
        });
        bytes.push(0);
        with_file(&file(name), Some(&bytes), || assert!(refusal(&folder).contains("at most")));
    }
    let json = String::from_utf8(tiny.manifest.clone()).unwrap();
    let version = |version: u16| format!("\"wire_version\": {version}");
    let other_version = json.replace(&version(WIRE_VERSION), &version(WIRE_VERSION + 1));
    for broken in [&json[1..], "{}", "", &other_version] {
        with_file(&file(MANIFEST), Some(broken.as_bytes()), || assert!(refusal(&folder).contains(MANIFEST)));
    }
    with_file(&file(MANIFEST), None, || assert!(refusal(&folder).contains("is not a collected run")));
    // Another manifest is another run, to which these modules do not belong.
    let other = json.replace("\"seed\": 1", "\"seed\": 2");
    with_file(&file(MANIFEST), Some(other.as_bytes()), || assert!(refusal(&folder).contains("not module 0.0 of run")));
}

#[test]
fn a_modules_file_is_believed_only_with_its_own_hash() {
    let (_tiny, folder) = collected(true);
    let path = folder.join("modules/1.0.safetensors");
    let good = fs::read(&path).unwrap();
    let mut bent = good.clone();
    let last = bent.len() - 1;
    bent[last] ^= 1;
    with_file(&path, Some(&bent), || {
        let collected = Collected::open(&folder).unwrap();
        let error = collected.levels_of(PathId(0)).unwrap_err().to_string();
        assert!(error.contains("1.0.safetensors") && error.contains("its metadata says"), "{error}");
    });
    with_file(&path, Some(&good[..good.len() - 4]), || {
        assert!(Collected::open(&folder).unwrap().levels_of(PathId(0)).is_err());
    });
    let swapped = fs::read(folder.join("modules/0.0.safetensors")).unwrap();
    let huge = [&u64::MAX.to_le_bytes()[..], b"{}"].concat();
    for wrong in [&swapped[..], &huge, b"", b"something else entirely"] {
        with_file(&path, Some(wrong), || assert!(refusal(&folder).contains("1.0.safetensors")));
    }
}

#[test]
fn only_an_earlier_collection_of_the_same_run_is_replaced() {
    let (tiny, folder) = collected(false);
    let peer = tiny.peer("newer", &[("0.0", 4), ("0.1", 4), ("1.0", 4)]);
    let collect = |into: &Path| collect_from_stores(&tiny.manifest, std::slice::from_ref(&peer), into);
    assert_eq!(collect(&folder).unwrap().versions(), (4, 4));

    let foreign = tiny.home.path().join("thesis");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("chapter-1"), "long work").unwrap();
    let error = collect(&foreign).unwrap_err().to_string();
    assert!(error.contains("is not a collected run") && error.contains("chapter-1"), "{error}");
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1);

    let text = String::from_utf8(tiny.manifest.clone()).unwrap();
    fs::write(folder.join(MANIFEST), text.replace("\"seed\": 1", "\"seed\": 2")).unwrap();
    let error = collect(&folder).unwrap_err();
    assert!(error.to_string().contains("holds the collected run"), "{error}");
    fs::remove_file(folder.join(MANIFEST)).unwrap();
    assert!(matches!(collect(&folder), Err(CollectError::Write(_))));
}
