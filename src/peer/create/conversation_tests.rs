//! A run on conversations, from made-up dialogues to the score of its test text.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};

use crate::config::run::tests::SMALL;
use crate::config::{MachineConfig, RoutingMethod, RunConfig, TextFormat};
use crate::model::hugging_face::PretrainedFiles;
use crate::model::initial_levels;
use crate::model::samples::small_path;
use crate::peer::create::{CreatedRun, Plan, Stage, StartFrom, TextFrom, create_run};
use crate::peer::trainer::device_scheduler::DeviceScheduler;
use crate::seed::Seed;
use crate::text::{CorpusSource, TokenSet, Tokenizer};
use crate::training::evaluate;

const TEMPLATE: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}\
    {% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// Enough for the number that begins a conversation, and before its first answer.
const PREFIX: usize = 24;

/// Two questions and their answers, by number.
fn dialogue(number: usize) -> Vec<(&'static str, String)> {
    let (a, b) = (number % 17, number * 7 % 23);
    vec![
        ("system", format!("{number} asks.")),
        ("user", format!("What is {a} and {b}?")),
        ("assistant", format!("It is {}.", a + b)),
        ("user", "And one more?".to_owned()),
        ("assistant", format!("Then it is {}, since one more was asked for.", a + b + 1)),
    ]
}

fn record(number: usize) -> Value {
    let message = |(role, content): (&str, String)| json!({ "role": role, "content": content });
    json!({ "messages": dialogue(number).into_iter().map(message).collect::<Vec<_>>() })
}

/// Bytes, a few entries, and the two special tokens of [`TEMPLATE`].
fn tokenizer() -> Tokenizer {
    let texts: Vec<String> = (0..40).map(|number| record(number).to_string()).collect();
    let trained = Tokenizer::train(&texts, 290).unwrap();
    let mut file: Value = serde_json::from_slice(trained.json()).unwrap();
    for (number, name) in ["<|im_start|>", "<|im_end|>"].iter().enumerate() {
        let added = json!({
            "id": trained.vocabulary() + number, "content": name, "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false,
        });
        file["added_tokens"].as_array_mut().unwrap().push(added);
    }
    Tokenizer::from_json(&serde_json::to_vec(&file).unwrap()).unwrap()
}

fn run() -> RunConfig {
    let mut run = RunConfig::from_toml(SMALL).unwrap();
    (run.text.format, run.text.test_share) = (TextFormat::Chat, 0.2);
    (run.routing.method, run.routing.prefix_tokens) = (RoutingMethod::Random, PREFIX);
    run
}

/// Creates the run in a folder from these lines and a pretrained model with [`TEMPLATE`].
fn create(home: &Path, lines: &str, told: &mut dyn FnMut(Stage)) -> anyhow::Result<CreatedRun> {
    let (run, corpus, model) = (run(), home.join("chat.jsonl"), home.join("model"));
    std::fs::write(&corpus, lines)?;
    std::fs::create_dir_all(&model)?;
    std::fs::write(model.join("chat_template.jinja"), TEMPLATE)?;
    let plan = Plan {
        run: &run,
        then: None,
        after: None,
        machine: &MachineConfig { threads: 1, ..MachineConfig::default() },
        folder: &home.join("created"),
        text: TextFrom::Corpus {
            corpus: CorpusSource::Paths(vec![corpus]),
            test: None,
            tokenizer: Some(tokenizer().json().to_vec()),
        },
        share_text: true,
        creator: None,
        start: StartFrom::Ancestor {
            levels: initial_levels(&run.model, &run.levels, Seed::root(1)),
            frozen: Arc::default(),
            pretrained: Some(PretrainedFiles::in_folder(&model)?),
        },
    };
    create_run(plan, &DeviceScheduler::default(), &AtomicBool::new(false), told)
}

/// The learnt text of a document, with special tokens by their names.
fn learnt(tokenizer: &Tokenizer, set: &TokenSet, sequences: std::ops::Range<usize>) -> String {
    let word = |id: u32| tokenizer.special_name(id).map_or_else(|| tokenizer.decode(&[id]), str::to_owned);
    let of = |sequence: usize| {
        let tokens = set.sequence(sequence).iter().enumerate().skip(1);
        tokens.filter(move |(at, _)| set.is_learnt(sequence, *at)).map(|(_, id)| *id)
    };
    sequences.flat_map(of).map(word).collect()
}

#[test]
fn a_run_of_conversations_scores_what_the_assistant_says_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let lines: String = (0..120).map(|number| format!("{}\n", record(number))).collect();
    let created = create(home.path(), &lines, &mut |_| {}).unwrap();
    let chat = created.manifest.config.text.chat.clone().unwrap();
    assert_eq!(chat.template, TEMPLATE, "whoever has the run can read such text");
    let tokenizer = tokenizer();
    let said = |number: usize| {
        let answers = dialogue(number).into_iter().filter(|(role, _)| *role == "assistant");
        answers.map(|(_, content)| format!("{content}<|im_end|>")).collect::<String>()
    };
    let all: Vec<String> = (0..120).map(said).collect();
    let found: Vec<String> = created.test.documents().map(|range| learnt(&tokenizer, &created.test, range)).collect();
    assert!(found.len() > 10 && found.iter().all(|learnt| all.contains(learnt)), "{found:?}");
    let teaches = |at: usize| (1..created.train.sequence(at).len()).any(|place| created.train.is_learnt(at, place));
    assert!((0..created.train.len()).all(teaches), "a window of which nothing is learnt is left out");

    let config = &created.manifest.config;
    let model = small_path(&config.model, &config.levels);
    let score = evaluate(&model, &created.test, PREFIX, &tokenizer.token_bytes_for(&config.model), &mut || {}).unwrap();
    let ends: usize = found.iter().map(|learnt| learnt.matches("<|im_end|>").count()).sum();
    let bytes: usize = found.iter().map(String::len).sum::<usize>() - ends * "<|im_end|>".len();
    assert_eq!(score.bytes as usize, bytes, "answers, and no byte of a question");
    assert!(score.tokens < created.test.tokens() / 2 && score.bits_per_byte().unwrap() > 0.0);
    for shard in created.manifest.shards.listed() {
        let bytes = created.store.blobs.get(shard.test.hash, shard.test.bytes).unwrap().unwrap();
        let (vocabulary, context) = (config.model.vocabulary, config.model.context + 1);
        assert!(TokenSet::decode(&bytes, vocabulary, context).unwrap().is_masked());
    }
}

#[test]
fn records_that_cannot_be_learnt_are_told_when_a_run_is_created() {
    let home = tempfile::tempdir().unwrap();
    let lines: String = (0..60).map(|number| format!("{}\n", record(number))).collect();
    let lines = format!("{{\"messages\": []}}\n{lines}");
    let mut told = Vec::new();
    let mut tell = |stage| {
        if let Stage::Corpus(survey) = stage {
            told.extend(survey.left_out.lines());
        }
    };
    create(home.path(), &lines, &mut tell).unwrap();
    assert!(told.concat().contains("chat.jsonl line 1 (messages = []: must have at least one message)"), "{told:?}");
}
