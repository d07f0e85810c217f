//! Reading a corpus from files and folders. All are looked at before any is read, so that all that is wrong is said at
//! once.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::config::TextConfig;
use crate::images::PreparedReader;
use crate::text::corpus::collector::Collector;
use crate::text::corpus::error::{CorpusError, FileFault};
use crate::text::corpus::kind::{Format, Kind, look};
use crate::text::corpus::left_out::Reason;
use crate::text::corpus::listing::list;
use crate::text::corpus::{json_file, parquet_file, plain_file};
use crate::text::document::Document;

/// Reads all paths, in the order given. Files that cannot be read are an error, unless they are to be left out.
pub(super) fn read(
    paths: &[PathBuf],
    text: &TextConfig,
    leave_out_unreadable: bool,
    into: &mut Collector<'_>,
) -> Result<(), CorpusError> {
    let listing = list(paths);
    let count = listing.files.len() + listing.faults.len();
    let (mut faults, mut files) = (listing.faults, Vec::new());
    for (path, bytes) in listing.files {
        into.go_on()?;
        match look(&path, text, into.stop) {
            Ok(kind) => files.push((path, kind, bytes)),
            Err(reason) => faults.push(FileFault { path, reason }),
        }
    }
    into.go_on()?;
    if !(faults.is_empty() || leave_out_unreadable) {
        return Err(CorpusError::Unfit { faults, files: count });
    }
    for link in &listing.read_before {
        into.enter(link);
        into.leave_out(Reason::ReadBefore);
    }
    let (mut before, all) = (0, files.iter().map(|(_, _, bytes)| bytes).sum());
    for (path, kind, bytes) in files {
        into.progress = (before, all);
        into.enter(&path);
        match read_file(&path, &kind, text, into) {
            // The rest is read, so that no other fault is found only later.
            Err(CorpusError::Unreadable { path, source }) if !into.stop.load(Ordering::Relaxed) => {
                faults.push(FileFault { path, reason: source.to_string() });
            }
            Err(CorpusError::Unreadable { .. }) => return Err(CorpusError::Stopped),
            other => other?,
        }
        before += bytes;
    }
    if !(faults.is_empty() || leave_out_unreadable) {
        return Err(CorpusError::Unfit { faults, files: count });
    }
    for FileFault { path, reason } in faults {
        into.enter(&path);
        into.leave_out_as(Reason::Unreadable, reason);
    }
    Ok(())
}

fn read_file(path: &Path, kind: &Kind, text: &TextConfig, into: &mut Collector<'_>) -> Result<(), CorpusError> {
    match kind.format {
        Format::Parquet => parquet_file::read(path, text, into),
        Format::Images => read_images(path, into),
        Format::Json(layout) => json_file::read((path, kind.packing, layout), &kind.name, text, into),
        Format::Plain => plain_file::read((path, kind.packing), &kind.name, text.document_bytes, into),
    }
}

/// Each image is a document; its class is its domain.
fn read_images(path: &Path, into: &mut Collector<'_>) -> Result<(), CorpusError> {
    let mut prepared = PreparedReader::open(path)?;
    let names = prepared.classes().to_vec();
    into.name_classes(path, &names)?;
    let (before, mut record) = (into.progress.0, Vec::new());
    while prepared.next(&mut record)? {
        into.progress.0 = before + prepared.read_bytes();
        let document = Document::Image(&record);
        let name = document.image().and_then(|(_, class)| names.get(usize::from(class)));
        into.add_of("images", name.map(String::as_str), document)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{self, Read, Write};
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::config::Reads;
    use crate::text::{Corpus, CorpusSource, read_corpus};

    fn read_source(source: &CorpusSource, text: &TextConfig) -> Result<Corpus, CorpusError> {
        read_corpus(source, (text, Reads::Text), &AtomicBool::new(false))
    }

    fn read_path(path: &Path) -> Result<Corpus, CorpusError> {
        let text = TextConfig { document_bytes: 100, ..TextConfig::default() };
        read_source(&CorpusSource::Paths(vec![path.to_owned()]), &text)
    }

    /// What was left out, without the folder.
    fn left(corpus: &Corpus, folder: &Path) -> Vec<String> {
        let folder = format!("{}/", folder.display());
        corpus.survey.left_out.lines().iter().map(|line| line.replace(&folder, "")).collect()
    }

    const LINES: &str = concat!(
        "{\"text\": \"first\", \"domain\": \"a\"}\n",
        "\n",
        "not json\n",
        "{\"domain\": \"no text\"}\n",
        "{\"text\": \"  \"}\n",
        "{\"text\": \"first\"}\n",
        "{\"text\": \"second\"}",
    );

    #[test]
    fn an_object_a_line_is_a_document_and_the_rest_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.jsonl");
        let mut bytes = LINES.as_bytes().to_vec();
        bytes.extend(b"\n{\"text\": \"\xff\"}\n");
        bytes.splice(..0, *b"\xef\xbb\xbf");
        fs::write(&path, bytes).unwrap();
        let corpus = read_path(&path).unwrap();
        assert_eq!(corpus.documents, ["first", "second", "\u{fffd}"]);
        assert_eq!([corpus.domains.of(0), corpus.domains.of(1)], [Some(0), None]);
        assert_eq!(corpus.domains.names().collect::<Vec<_>>(), [("a", 0)]);
        let expected = [
            "left out: 1 not JSON objects: some.jsonl line 3",
            "left out: 1 without the field for the text: some.jsonl line 4 (no string \"text\")",
            "left out: 1 empty or too short: some.jsonl line 5",
            "left out: 1 duplicates: some.jsonl line 6",
            "repaired: 1 with bytes that are not UTF-8, which became U+FFFD: some.jsonl line 8",
        ];
        assert_eq!(left(&corpus, folder.path()), expected);
    }

    #[test]
    fn another_field_can_be_taken_for_the_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.jsonl");
        fs::write(&path, LINES).unwrap();
        let text = TextConfig { column: "domain".to_owned(), ..TextConfig::default() };
        let corpus = read_source(&CorpusSource::Paths(vec![path]), &text).unwrap();
        assert_eq!(corpus.documents, ["a", "no text"]);
    }

    #[test]
    fn packed_files_give_the_same_corpus() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, zst, gz] = ["a.jsonl", "b.jsonl.zst", "c.jsonl.gz"].map(|name| folder.path().join(name));
        fs::write(&plain, LINES).unwrap();
        fs::write(&zst, zstd::encode_all(LINES.as_bytes(), 3).unwrap()).unwrap();
        let mut encoder = flate2::write::GzEncoder::new(File::create(&gz).unwrap(), flate2::Compression::fast());
        encoder.write_all(LINES.as_bytes()).unwrap();
        encoder.finish().unwrap();
        let expected = read_path(&plain).unwrap();
        for packed in [zst, gz] {
            let corpus = read_path(&packed).unwrap();
            assert_eq!((corpus.documents, corpus.domains), (expected.documents.clone(), expected.domains.clone()));
            assert_eq!(corpus.survey.left_out.counts(), expected.survey.left_out.counts());
        }
    }

    #[test]
    fn a_folder_is_read_in_order_of_name_without_hidden_and_binary_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        for (name, text) in [("c.txt", "three"), ("b/x", "two"), ("a.md", "one"), (".hidden", "no")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        fs::write(folder.path().join("d.bin"), b"text\n\xff\xfe").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(folder.path(), folder.path().join("circle")).unwrap();
        let corpus = read_path(folder.path()).unwrap();
        assert_eq!(corpus.documents, ["one", "two", "three"]);
        let expected = ["left out: 1 links to folders that are read already: circle", "left out: 1 not UTF-8: d.bin"];
        assert_eq!(left(&corpus, folder.path()), expected);
        let kinds: Vec<_> = corpus.survey.kinds.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(kinds, ["md", "text", "txt"]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing.txt");
        assert!(read_path(&missing).unwrap_err().to_string().contains("missing.txt"));
        let broken = folder.path().join("broken.jsonl.zst");
        fs::write(&broken, b"not zstd").unwrap();
        assert!(read_path(&broken).unwrap_err().to_string().contains("broken.jsonl.zst"));
    }

    #[test]
    fn a_packed_line_that_would_fill_the_memory_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let bomb = folder.path().join("bomb.jsonl.zst");
        let zeros = io::repeat(b'0').take(65 << 20);
        let text = b"{\"text\": \"one\"}\n".chain(zeros).chain(&b"\n{\"text\": \"two\"}\n"[..]);
        zstd::stream::copy_encode(text, File::create(&bomb).unwrap(), 1).unwrap();
        let corpus = read_path(&bomb).unwrap();
        assert_eq!(corpus.documents, ["one", "two"]);
        let expected = ["left out: 1 above the limit for one document: bomb.jsonl.zst line 2"];
        assert_eq!(left(&corpus, folder.path()), expected);
    }

    #[test]
    fn a_line_of_plain_text_has_no_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one-line.txt");
        let mut file = File::create(&path).unwrap();
        (0..65 * 1024).for_each(|block| file.write_all(format!("{block:09} ").repeat(103).as_bytes()).unwrap());
        drop(file);
        let text = TextConfig { document_bytes: 1 << 20, ..TextConfig::default() };
        let corpus = read_source(&CorpusSource::Paths(vec![path]), &text).unwrap();
        assert_eq!(corpus.survey.bytes, 65 * 1024 * 103 * 10);
        assert!(corpus.documents.iter().all(|document| document.len() <= (1 << 20) * 3 / 2));
    }

    #[test]
    fn objects_are_read_in_arrays_and_in_a_member_that_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let objects = r#"{"text": "one", "list": [{"text": "no"}]}, {"id": 1}, 7, {"text": "two \"]\""}"#;
        let expected = ["one", "two \"]\""];
        for (name, text) in [
            ("array.json", format!("[{objects}]")),
            ("lines.json", format!("[\n{}\n]\n", objects.replace("}, ", "},\n"))),
            (
                "member.json",
                format!("{{\"version\": \"1\", \"data\": [\n{objects}], \"more\": [{{\"text\": \"no\"}}]}}"),
            ),
            ("one-after-the-other.json", "{\n \"text\": \"one\"}\n{\n\"text\":\n\"two \\\"]\\\"\"\n}".to_owned()),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            let corpus = read_path(&path).unwrap();
            assert_eq!(corpus.documents, expected, "{name}");
            let without = corpus.survey.left_out.counts();
            let said = "1 not JSON objects, 1 without the field for the text";
            assert_eq!(without, if name.starts_with("one") { "" } else { said }, "{name}");
        }
    }

    #[test]
    fn all_that_is_wrong_is_said_before_anything_is_read_and_left_out_only_where_that_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a.jsonl"), "{\"text\": \"one\"}\n").unwrap();
        fs::write(at("b.tar"), [&[b'a'; 257][..], b"ustar\0"].concat()).unwrap();
        std::os::unix::fs::symlink(at("gone"), at("c.txt")).unwrap();
        fs::write(at("d.txt"), "two").unwrap();
        let cut = zstd::encode_all("{\"text\": \"three\"}\n".repeat(9).as_bytes(), 1).unwrap();
        fs::write(at("e.jsonl.zst"), &cut[..cut.len() - 3]).unwrap();
        let (mut taken, stop, text) = (0, AtomicBool::new(false), TextConfig::default());
        let source = CorpusSource::Paths(vec![folder.path().to_owned()]);
        let mut count = |_: crate::text::Found<'_>| {
            taken += 1;
            std::ops::ControlFlow::Continue(())
        };
        let error = crate::text::stream_corpus(&source, (&text, Reads::Text), &stop, &mut count).unwrap_err();
        let said = error.to_string();
        for part in [
            "3 of 5 files cannot be read",
            "b.tar: a tar archive",
            "c.txt: a link to",
            "e.jsonl.zst: the Zstandard data is cut short",
        ] {
            assert!(said.contains(part), "{part:?} is not in: {said}");
        }
        assert_eq!(taken, 0);
        let source = CorpusSource::ReadablePaths(vec![folder.path().to_owned()]);
        let corpus = read_source(&source, &text).unwrap();
        assert_eq!(corpus.documents, ["one", "two"]);
        assert!(left(&corpus, folder.path())[0].starts_with("left out: 3 unreadable: c.txt (a link to"));
    }

    #[test]
    fn a_file_that_turns_out_to_be_cut_does_not_hide_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = 1u32;
        let mut line = |i: usize| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            format!("{{\"text\": \"document {i} {random} {}\"}}\n", random.rotate_left(7))
        };
        for name in ["a.jsonl.gz", "b.jsonl.gz", "c.jsonl.gz"] {
            let file = File::create(folder.path().join(name)).unwrap();
            let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
            encoder.write_all((0..9_000).map(&mut line).collect::<String>().as_bytes()).unwrap();
            encoder.finish().unwrap();
        }
        for name in ["a.jsonl.gz", "c.jsonl.gz"] {
            let bytes = fs::read(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name), &bytes[..bytes.len() - 100]).unwrap();
        }
        let said = read_path(folder.path()).unwrap_err().to_string();
        assert!(said.contains("2 of 3 files") && said.contains("a.jsonl.gz: the gzip data is cut short"), "{said}");
        assert!(said.contains("c.jsonl.gz: the gzip data is cut short"), "{said}");
        let source = CorpusSource::ReadablePaths(vec![folder.path().to_owned()]);
        let corpus = read_source(&source, &TextConfig::default()).unwrap();
        assert!(corpus.documents.len() > 26_000, "what stands before the cut is taken");
    }

    #[test]
    fn text_with_a_bad_byte_is_repaired_and_other_bytes_are_no_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.txt");
        fs::write(&path, ["words of a line\n".repeat(9).as_bytes(), b"na\xefve\n"].concat()).unwrap();
        let corpus = read_path(&path).unwrap();
        assert!(corpus.documents.concat().ends_with("na\u{fffd}ve\n"));
        let expected = ["repaired: 1 with bytes that are not UTF-8, which became U+FFFD: some.txt line 10"];
        assert_eq!(left(&corpus, folder.path()), expected);
        fs::write(&path, b"caf\xe9 cr\xe8me br\xfbl\xe9e").unwrap();
        assert!(read_path(&path).unwrap_err().to_string().contains("1 not UTF-8"));
    }

    #[test]
    fn reading_stops_when_it_is_asked_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.jsonl");
        fs::write(&path, "no object\n".repeat(10)).unwrap();
        let stopped = AtomicBool::new(true);
        let source = CorpusSource::Paths(vec![path]);
        let found = read_corpus(&source, (&TextConfig::default(), Reads::Text), &stopped);
        assert!(matches!(found, Err(CorpusError::Stopped)));
    }
}
