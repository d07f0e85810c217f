//! Words: a name is made of the words that the field uses. Strings and comments are free.

use std::collections::BTreeMap;

use crate::source::{Source, is_in_identifier};
use crate::tree::{none, rust};

/// Words that no name has as a part, and what is said instead.
const WORDS: [(&str, &str); 41] = [
    ("abdicate abdicates abdicated depose deposes deposed deposing", "step down"),
    ("accuse accuses accused accuser accusers accusing accusation accusations", "fraud proof"),
    ("acquaintance acquaintances", "connection upgrade"),
    ("agenda agendas", "event queue"),
    ("beat beats beating", "heartbeat, or heavier where chains are compared"),
    ("bequeath bequeaths", "hand-off"),
    ("blame blames blamed blaming", "penalty"),
    ("combiner combiners", "aggregator"),
    ("condemn condemns condemned tainted", "invalidated"),
    ("conduct conducts", "peer score"),
    ("crew crews", "worker pool"),
    ("crowd crowds", "per-IP limiter, or many peers"),
    ("dice", "rng"),
    ("doorkeeper doorkeepers", "access control"),
    ("doorway doorways", "authentication"),
    ("errand errands", "task"),
    ("founder founders founding", "creator, creating"),
    ("gathering gatherings", "aggregation, collection"),
    ("giving", "piece fetch, serve"),
    ("guestbook guestbooks", "access list"),
    ("handover handovers inheritance inheritances succession successions", "hand-off, next stage"),
    ("journey journeys", "run supervisor"),
    ("judge judges", "checker"),
    ("knock knocks", "authentication request"),
    ("laboratory laboratories", "experiment context"),
    ("lesson lessons", "training set"),
    ("letter letters", "invitation token"),
    ("liar liars lies", "Byzantine"),
    ("loyalty", "switch threshold"),
    ("newsroom newsrooms", "event sink"),
    ("orders", "requests"),
    ("orphan orphans", "unheld, without a holder"),
    ("patience rhythm rhythms", "time-out, arrival window"),
    ("performer performers performing understudy understudies", "inference engine, local fallback"),
    ("picture pictures", "image"),
    ("rescue rescues rescued", "re-proposed"),
    ("rota rotas", "fault schedule"),
    ("scout scouts", "stage discovery"),
    ("seat seats", "worker slot"),
    ("suspect suspects suspected", "failure detector"),
    ("trainee trainees", "trained arm"),
];

/// Where transducers are compared, a vote is no word for what they say.
const EXPERIMENT: &str = "src/experiment/";
const WORDS_OF_EXPERIMENT: (&str, &str) = ("vote votes", "count, target");

/// The words of a name: of `snake_case`, `CamelCase` and `CAPITALS`.
fn parts(name: &str) -> Vec<String> {
    let characters: Vec<char> = name.chars().collect();
    let mut parts = vec![String::new()];
    for (at, character) in characters.iter().enumerate() {
        let follows_small = at > 0 && characters[at - 1].is_lowercase();
        let leads_small = characters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if !character.is_alphabetic() || character.is_uppercase() && (follows_small || leads_small) {
            parts.push(String::new());
        }
        if character.is_alphabetic()
            && let Some(part) = parts.last_mut()
        {
            part.extend(character.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// What is said instead of a word of this name, if that is so.
fn instead(name: &str, path: &str) -> Option<(String, &'static str)> {
    let of_experiment = path.starts_with(EXPERIMENT).then_some(&WORDS_OF_EXPERIMENT);
    let find = |part: &String| {
        let mut words = WORDS.iter().chain(of_experiment);
        words.find(|(words, _)| words.split(' ').any(|word| word == part)).map(|(_, instead)| (part.clone(), *instead))
    };
    parts(name).iter().find_map(find)
}

/// The identifiers of a source, each with its first line and how often it is there.
fn identifiers(source: &Source) -> BTreeMap<&str, (usize, usize)> {
    let mut found = BTreeMap::new();
    for (index, line) in source.code.lines().enumerate() {
        let words = line.split(|character: char| !is_in_identifier(character));
        for word in words.filter(|word| word.starts_with(|first: char| first.is_alphabetic() || first == '_')) {
            found.entry(word).or_insert((index + 1, 0)).1 += 1;
        }
    }
    found
}

/// Names in a source, that of the file and its folders included, with a word that the field does not use.
fn unusual_names(source: &Source) -> Vec<String> {
    let path = &source.path;
    let mut found = Vec::new();
    for name in path.trim_end_matches(".rs").split('/') {
        if let Some((word, instead)) = instead(name, path) {
            found.push(format!("{path}:1: the path says {word}: {instead}"));
        }
    }
    for (name, (line, times)) in identifiers(source) {
        if let Some((word, instead)) = instead(name, path) {
            found.push(format!("{path}:{line}: {name} ({times} times) says {word}: {instead}"));
        }
    }
    found
}

#[test]
fn names_are_made_of_the_words_of_the_field() {
    none(rust(&["src", "tests", "benches", "fuzz"]).iter().flat_map(unusual_names).collect());
}

mod made_up {
    //! The rule finds what breaks it, and only that.

    use super::*;

    #[test]
    fn a_name_falls_into_its_words() {
        assert_eq!(parts("heard_beat"), ["heard", "beat"]);
        assert_eq!(parts("MAX_CONDEMNED2"), ["max", "condemned"]);
        assert_eq!(parts("XMLPathHandover"), ["xml", "path", "handover"]);
        assert_eq!(parts("_r2d2Seat"), ["r", "d", "seat"]);
    }

    #[test]
    fn a_word_is_found_in_every_kind_of_name_and_nowhere_else() {
        let found = |path: &str, text: &str| unusual_names(&Source::new(path, text));
        let names = "struct PathHandover { orphans: u8 }\nconst BEAT_MS: u64 = 1;\nfn f(letter: u8) { letter }";
        assert_eq!(
            found("src/a.rs", names),
            [
                "src/a.rs:2: BEAT_MS (1 times) says beat: heartbeat, or heavier where chains are compared",
                "src/a.rs:1: PathHandover (1 times) says handover: hand-off, next stage",
                "src/a.rs:3: letter (2 times) says letter: invitation token",
                "src/a.rs:1: orphans (1 times) says orphans: unheld, without a holder"
            ]
        );
        let paths = ["src/a/letters.rs", "tests/crowd/mod.rs", "fuzz/targets/all/user_letter.rs"];
        assert_eq!(paths.map(|path| found(path, "").len()), [1; 3]);
        let free = "// a beat\nfn heartbeat(unbeaten: u8, seated: u8, 0beat) { let text = \"beat\"; votes }";
        assert_eq!(found("src/a.rs", free), [""; 0]);
        assert_eq!(found("src/experiment/a.rs", "fn f(votes: u8) {}").len(), 1);
    }
}
