//! Text as people have it: whatever is in a folder is read, or is named with what to do about it, before any work begins.
#![cfg(all(feature = "learning", feature = "network"))]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::ByteArrayType;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use serde_json::{Value, json};

use crate::run::{Peer, RUN, World, mistake, pathswarm, program};

/// Text of a document, which is like no other.
fn words(number: usize) -> String {
    format!("document {number} {}", "of words ".repeat(number % 7))
}

fn lines(numbers: std::ops::Range<usize>) -> String {
    numbers.map(|number| json!({ "text": words(number) }).to_string() + "\n").collect()
}

/// Creates a run of too little text, which ends when the text was read: the number of documents, and what was noted.
#[track_caller]
fn read(world: &World, more: &[&str]) -> (u64, Vec<String>) {
    let folder = world.name("refused");
    let create = ["create", &world.config, "--format", "json", "--set", "text.test_share=0", "--dir", &folder];
    let output = pathswarm(&[&create[..], more].concat());
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let events: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let error = events.last().unwrap()["message"].as_str().unwrap();
    let count = error.split(" training documents").next().unwrap().rsplit(' ').next().unwrap();
    let notes = events.iter().filter_map(|event| Some(event["text"].as_str()?.replace(&world.name(""), ""))).collect();
    (count.parse().unwrap_or_else(|_| panic!("{said}")), notes)
}

/// The error and the hint of a run whose text cannot be read.
#[track_caller]
fn refused(world: &World, more: &[&str]) -> String {
    let folder = world.name("refused");
    let said = mistake(&[&["create", &world.config, "--dir", &folder], more].concat());
    assert!(!Path::new(&folder).exists(), "a folder was left behind");
    said.replace(&world.name(""), "")
}

#[track_caller]
fn has(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn only_the_text_of_a_line_matters() {
    let world = World::new();
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let others = ["\"a\": NaN", "\"a\": 1e999", "\"a\": \"\\ud800\"", "\"a\": 1, \"a\": 2", &format!("\"a\": {deep}")];
    let line = |(number, other): (usize, &&str)| format!("{{{other}, \"text\": \"{}\"}}\n", words(number));
    let mut bytes = b"\xef\xbb\xbf".to_vec();
    bytes.extend(lines(10..11).bytes());
    bytes.extend(others.iter().enumerate().flat_map(|of| line(of).into_bytes()));
    bytes.extend(b"{\"a\": \"\xff\", \"text\": \"another\"}\n");
    let corpus = world.write("some.jsonl", bytes);
    assert_eq!(read(&world, &["--corpus", &corpus]).0, 7);
}

#[test]
fn arrays_of_objects_are_read() {
    let world = World::new();
    let objects = lines(0..10).trim_end().replace('\n', ",\n");
    let array = world.write("array.json", format!("[\n{objects}\n]\n"));
    assert_eq!(read(&world, &["--corpus", &array]).0, 10);
    let member = world.write("member.json", format!("{{\"version\": 2, \"data\": [\n{objects}\n]}}\n"));
    assert_eq!(read(&world, &["--corpus", &member]).0, 10);
    let cut = world.write("cut.json", format!("[\n{objects}\n"));
    has(&refused(&world, &["--corpus", &cut]), &["cut.json: the JSON is cut short", "--skip-unreadable"]);
}

#[test]
fn what_is_left_out_is_said_with_its_place_and_reason_of_the_test_corpus_too() {
    let world = World::new();
    let some = format!("{}\nnot json\n{{\"body\": \"b\"}}\n{{\"text\": \" \"}}\n{}", lines(0..3), lines(1..2));
    let corpus = world.write("some.jsonl", &some);
    let tested = world.write("test.jsonl", [some.as_bytes(), b"{\"text\": \"a \xff\"}\n"].concat());
    let (documents, notes) = read(&world, &["--corpus", &corpus, "--test-corpus", &tested]);
    assert_eq!(documents, 3);
    let expected = [
        "left out: 1 not JSON objects: some.jsonl line 5",
        "left out: 1 without the field for the text: some.jsonl line 6 (no string \"text\")",
        "left out: 1 empty or too short: some.jsonl line 7",
        "left out: 1 duplicates: some.jsonl line 8",
    ];
    for line in expected {
        assert!(notes.contains(&line.to_owned()), "{line:?} is not in {notes:#?}");
        let line = format!("test corpus, {}", line.replace("some.jsonl", "test.jsonl"));
        assert!(notes.contains(&line), "{line:?} is not in {notes:#?}");
    }
    let repaired = "test corpus, repaired: 1 with bytes that are not UTF-8, which became U+FFFD: test.jsonl line 9";
    assert!(notes.iter().any(|note| note == repaired), "{notes:#?}");
    let same = "test corpus: 3 of its 4 documents are in the training text, too";
    assert!(notes.iter().any(|note| note.starts_with(same)), "{notes:#?}");
}

#[test]
fn what_is_packed_is_known_by_its_bytes() {
    let world = World::new();
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
    xz.write_all(lines(0..2).as_bytes()).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(lines(2..5).as_bytes()).unwrap();
    world.write("in/a.jsonl.xz", xz.finish().unwrap());
    world.write("in/b.jsonl.bz2", bzip2.finish().unwrap());
    world.write("in/c.jsonl.zstd", zstd::encode_all(lines(5..7).as_bytes(), 1).unwrap());
    world.write("in/d.jsonl", gzip(lines(7..9).as_bytes()));
    world.write("in/e.jsonl.gz", [gzip(lines(9..11).as_bytes()), vec![0; 1000]].concat());
    assert_eq!(read(&world, &["--corpus", &world.name("in")]).0, 11);
}

#[test]
fn what_is_no_text_is_named_all_at_once_before_anything_is_read() {
    let world = World::new();
    let mut tar = b"a.jsonl".to_vec();
    tar.resize(257, 0);
    tar.extend(b"ustar  \0");
    tar.resize(1024, 0);
    tar.extend(lines(0..9).bytes());
    let utf16: Vec<u8> = "\u{feff}some text".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let part = lines(0..3);
    let window = [0x28, 0xb5, 0x2f, 0xfd, 0x00, (28 - 10) << 3, 0x01, 0x00, 0x00];
    let parts: [(&str, &[u8], &str); 9] = [
        ("a.tar.gz", &gzip(&tar), "a.tar.gz: a tar archive; unpack it with tar -xf"),
        ("b.txt", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "b.txt: a pointer of Git LFS"),
        ("c.txt", &utf16, "c.txt: UTF-16 text; convert it with iconv"),
        ("d.jsonl.part", part.as_bytes(), "d.jsonl.part: an unfinished download"),
        ("e.zip", b"PK\x03\x04 and more", "e.zip: a zip archive; unpack it with unzip"),
        ("f.parquet", b"PAR1 and then nothing", "f.parquet: the Parquet file is cut short"),
        ("g.jsonl.zst", &window, "g.jsonl.zst: its Zstandard window needs more than 128 MiB"),
        ("h.xz", b"\xfd7zXZ\0\0\x04 and more", "h.xz: the xz data is cut short"),
        ("i.jsonl.gz", b"no gzip", "i.jsonl.gz: its name ends with .gz, but it is not gzip data"),
    ];
    for (name, bytes, _) in parts {
        world.write(&format!("in/{name}"), bytes);
    }
    let at = |name: &str| world.path("in").join(name);
    symlink(at("gone"), at("j.txt")).unwrap();
    symlink(at("k.txt"), at("k.txt")).unwrap();
    assert!(Command::new("mkfifo").arg(at("l.txt")).status().unwrap().success());
    world.write("in/m.jsonl", lines(0..5));
    let said = refused(&world, &["--corpus", &world.name("in")]);
    has(&said, &parts.map(|(_, _, part)| part));
    has(&said, &["j.txt: a link to", "k.txt: a link that leads nowhere", "l.txt: a pipe", "12 of 13 files"]);
    let (documents, notes) = read(&world, &["--corpus", &world.name("in"), "--skip-unreadable"]);
    assert_eq!(documents, 5);
    assert!(notes.iter().any(|note| note.starts_with("left out: 12 unreadable: in/j.txt (a link to")), "{notes:#?}");
}

#[test]
fn cut_shards_are_all_said_in_one_go() {
    let world = World::new();
    for shard in 0..20 {
        let packed = gzip(lines(shard * 1_000..(shard + 1) * 1_000).as_bytes());
        let whole = if [5, 15, 19].contains(&shard) { packed.len() - 20 } else { packed.len() };
        world.write(&format!("in/{shard:02}.jsonl.gz"), &packed[..whole]);
    }
    let said = refused(&world, &["--corpus", &world.name("in")]);
    has(&said, &["3 of 20 files", "05.jsonl.gz: the gzip data is cut short", "15.jsonl.gz", "19.jsonl.gz"]);
}

/// A Parquet file of one row group, in which each page has one row of so many bytes.
fn write_long_rows(path: &Path, rows: usize, bytes: usize) {
    let schema = parquet::schema::parser::parse_message_type("message rows { required binary text (UTF8); }").unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(1 << 20)
        .set_write_batch_size(1)
        .set_statistics_enabled(EnabledStatistics::None)
        .build();
    let mut writer =
        SerializedFileWriter::new(File::create(path).unwrap(), Arc::new(schema), Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    for row in 0..rows {
        let text = format!("row {row} ").repeat(bytes / 7);
        column.typed::<ByteArrayType>().write_batch(&[text.into_bytes().into()], None, None).unwrap();
    }
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
#[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
fn long_rows_of_a_row_group_are_not_in_memory_at_once() {
    let world = World::new();
    let (path, folder) = (world.path("long.parquet"), world.name("refused"));
    write_long_rows(&path, 31, 32 << 20);
    let create = ["create", &world.config, "--dir", &folder, "--corpus", path.to_str().unwrap()];
    let child = program().args(create).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // SAFETY: all zeros are a value of these, and the child is this test's own.
    let (status, usage) = unsafe {
        let (mut status, mut usage) = (0, std::mem::zeroed::<libc::rusage>());
        assert!(libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage) > 0);
        (status, usage)
    };
    assert_eq!(libc::WEXITSTATUS(status), 2);
    let peak_mib = usage.ru_maxrss / 1024;
    assert!(peak_mib < 700, "{peak_mib} MiB for 992 MiB of text in rows of 32 MiB");
}

#[test]
fn a_stop_is_heard_while_a_file_is_read() {
    let world = World::new();
    let corpus = world.path("endless.jsonl.zst");
    let mut packed = zstd::stream::write::Encoder::new(File::create(&corpus).unwrap(), 1).unwrap();
    packed.write_all(lines(0..1).as_bytes()).unwrap();
    let junk = b"no object at all, line after line\n".repeat(1 << 15);
    (0..2_000).for_each(|_| packed.write_all(&junk).unwrap());
    packed.finish().unwrap();
    let create = ["create", &world.config, "--corpus", corpus.to_str().unwrap()];
    let mut peer = Peer::start(&world.path("a"), &create);
    // The first document, behind which no other comes.
    peer.wait_for("stage");
    peer.signal("INT");
    assert_eq!(peer.ended(), Some(130));
}

#[test]
fn text_that_cannot_be_divided_or_scored_is_said_before_anything_is_trained() {
    let world = World::new();
    let endless = ["--set", "training.ancestor_steps=100000000", "--set", "text.test_share=0"];
    let line = |number: usize| json!({ "text": format!("{} {number}", "the same beginning ".repeat(20)) }).to_string();
    let alike = world.write("alike.jsonl", (0..100).map(|number| line(number) + "\n").collect::<String>());
    let said =
        mistake(&[&["create", &world.config, "--corpus", &alike, "--dir", &world.name("a")], &endless[..]].concat());
    has(&said, &["begin in only 1 ways", "4 paths", "routing.prefix_tokens"]);
    let short = world.write("short.jsonl", "{\"text\": \"a b\"}\n{\"text\": \"c\"}\n");
    let test = ["--corpus", &world.corpus, "--test-corpus", &short, "--dir", &world.name("b")];
    let said = mistake(&[&["create", &world.config], &test[..], &endless].concat());
    has(&said, &["there is nothing to score in the test corpus", "the 8 tokens that choose a path"]);
}

#[test]
fn a_tokenizer_is_tried_before_the_corpus_is_read() {
    let world = World::new();
    let nothing = world.name("nothing.jsonl");
    let tokenizer = pathswarm::text::Tokenizer::train(&["some words to learn".to_owned()], 258).unwrap();
    let text = std::str::from_utf8(tokenizer.json()).unwrap();
    let wrong = world.write("wrong/tokenizer.json", text.replace("<|end|>", "<|fin|>"));
    let said = refused(&world, &["--corpus", &nothing, "--tokenizer", &wrong]);
    has(&said, &["wrong/tokenizer.json", "no token for the end of a document"]);
    world.write("wrong/config.json", "{\"eos_token_id\": 7000}");
    let said = refused(&world, &["--corpus", &nothing, "--tokenizer", &wrong]);
    has(&said, &["wrong/config.json: eos_token_id = 7000"]);
}

#[test]
fn what_is_scored_is_said_and_a_score_of_nothing_is_none() {
    let run = RUN
        .replace("block.0", "layer.0")
        .replace("block.1", "layer.1")
        .replace("tied_head = true", "tied_head = true\ndirectional = { directions = 3 }");
    let world = World::of(&run, 4);
    let hasty = ["training.ancestor_steps=1", "training.phases=1", "training.inner_steps=1", "training.warmup_steps=1"];
    let hasty: Vec<&str> = hasty.iter().flat_map(|value| ["--set", value]).collect();
    let (run, model) = (world.name("run"), world.name("run/model"));
    let simulate = ["simulate", &world.config, "--corpus", &world.corpus, "--dir", &run, "--peers", "1"];
    let output = pathswarm(&[&simulate[..], &hasty].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let evaluate = |more: &[&str]| pathswarm(&[&["evaluate", "--local", &model, "--text"], more].concat());

    let long = fs::read_to_string(Path::new(&world.corpus).join("0.jsonl")).unwrap();
    let long: String = long.lines().take(2).map(|line| format!("{line}\n")).collect();
    let mixed = world.write("mixed.jsonl", format!("{long}no json\n{{\"text\": \"a b\"}}\n{{\"text\": \"c\"}}\n"));
    let output = evaluate(&[&mixed]);
    let said = String::from_utf8(output.stderr).unwrap().replace(&world.name(""), "");
    assert!(output.status.success(), "{said}");
    has(&said, &["left out: 1 not JSON objects: mixed.jsonl line 3", "not scored: 2 of 4 documents", "the 8 tokens"]);
    let output = evaluate(&[&mixed, "--format", "json"]);
    let events: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&events[0]["event"], &events[0]["reason"]), (&"left-out".into(), &"not-an-object".into()));
    let result = events.last().unwrap();
    assert_eq!(result["unscored_documents"], 2);
    assert!(result["dipaco"]["perplexity"].as_f64().unwrap() > 1.0);
    let empty = events.iter().filter(|event| event["event"] == "path" && event["tokens"] == 0);
    assert!(empty.clone().count() > 0 && empty.clone().all(|event| event["dipaco"]["perplexity"].is_null()));

    let short = world.write("short.jsonl", "{\"text\": \"a b\"}\n{\"text\": \"c\"}\n");
    has(&mistake(&["evaluate", "--local", &model, "--text", &short]), &["there is nothing to score"]);
    let out = world.name("x.tr");
    let learn = ["transducer", "--local", &model, "--route-every", "16", "--out", &out, "--text", &short];
    has(&mistake(&learn), &["there is nothing to learn from"]);
    let cut = world.write("cut.jsonl.gz", &gzip(long.as_bytes())[..60]);
    for command in [
        vec!["evaluate", "--local", &model, "--text", &cut],
        vec!["transducer", "--local", &model, "--route-every", "16", "--out", "x.tr", "--text", &cut],
        vec!["inspect", "directional", &model, "--text", &cut],
    ] {
        has(&mistake(&command), &["cut.jsonl.gz: the gzip data is cut short", "--skip-unreadable"]);
    }
}
