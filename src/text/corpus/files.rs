//! Reading a corpus from files and folders, compressed or not, line by line. `parquet_file` reads Parquet.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::{Map, Value};

use crate::config::TextConfig;
use crate::images::PreparedReader;
use crate::text::corpus::Collector;
use crate::text::corpus::error::{CorpusError, MAX_LINE_BYTES, unreadable};
use crate::text::corpus::parquet_file;
use crate::text::document::Document;
use crate::text::documents::Cutter;

/// Reads all paths, in the order given.
pub(super) fn read(paths: &[PathBuf], text: &TextConfig, into: &mut Collector<'_>) -> Result<(), CorpusError> {
    let files = paths.iter().map(|path| files_under(path)).collect::<Result<Vec<_>, _>>()?.concat();
    let sizes = files.iter().map(|file| Ok(metadata(file)?.len())).collect::<Result<Vec<u64>, CorpusError>>()?;
    let (mut before, all) = (0, sizes.iter().sum());
    for (file, bytes) in files.iter().zip(sizes) {
        into.progress = (before, all);
        read_file(file, text, into)?;
        before += bytes;
    }
    Ok(())
}

/// A file itself, or the files of a folder and its subfolders, in order of name. Hidden files are left out, and so are
/// links to folders, which can form cycles.
pub(super) fn files_under(path: &Path) -> Result<Vec<PathBuf>, CorpusError> {
    if !metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| unreadable(path, error))? {
        let entry = entry.map_err(|error| unreadable(path, error))?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            names.push(entry.path());
        }
    }
    names.sort();
    let mut files = Vec::new();
    for name in names {
        let link = fs::symlink_metadata(&name).map_err(|error| unreadable(&name, error))?.is_symlink();
        let found = metadata(&name)?;
        if found.is_dir() && !link {
            files.extend(files_under(&name)?);
        } else if found.is_file() {
            files.push(name);
        }
    }
    Ok(files)
}

fn metadata(path: &Path) -> Result<fs::Metadata, CorpusError> {
    fs::metadata(path).map_err(|error| unreadable(path, error))
}

fn ending(path: &Path) -> String {
    path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default()
}

fn read_file(path: &Path, text: &TextConfig, into: &mut Collector<'_>) -> Result<(), CorpusError> {
    let packing = ending(path);
    if packing == "parquet" {
        return parquet_file::read(path, &text.column, into);
    }
    let packed = matches!(packing.as_str(), "zst" | "gz");
    let kind = if packed { ending(&path.with_extension("")) } else { packing };
    match kind.as_str() {
        "jsonl" | "ndjson" | "json" => read_json_lines(path, &kind, &text.column, into),
        "images" if packed => Err(CorpusError::Packed { path: path.to_owned() }),
        "images" => read_images(path, into),
        "" => read_plain(path, "text", text.document_bytes, into),
        _ => read_plain(path, &kind, text.document_bytes, into),
    }
}

/// Each object is a document of any length.
fn read_json_lines(path: &Path, kind: &str, column: &str, into: &mut Collector<'_>) -> Result<(), CorpusError> {
    let mut lines = Lines::open(path)?;
    let (before, mut line) = (into.progress.0, Vec::new());
    while lines.next(&mut line)? {
        into.progress.0 = before + lines.read_bytes();
        let Ok(text) = std::str::from_utf8(&line) else {
            into.skipped.invalid_utf8 += 1;
            continue;
        };
        if text.trim().is_empty() {
            continue;
        }
        let object = serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
        match object.get(column) {
            Some(Value::String(text)) => {
                into.add_of(kind, object.get("domain").and_then(Value::as_str), Document::Text(text))?
            }
            _ => into.skipped.unparsable += 1,
        }
    }
    Ok(())
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

/// A file that is not UTF-8 somewhere is probably not text, so none of it is taken. It is read once to check, and again
/// for its text.
fn read_plain(path: &Path, kind: &str, target: usize, into: &mut Collector<'_>) -> Result<(), CorpusError> {
    let mut line = Vec::new();
    let mut lines = Lines::open(path)?;
    while lines.next(&mut line)? {
        if std::str::from_utf8(&line).is_err() {
            into.skipped.invalid_utf8 += 1;
            return Ok(());
        }
    }
    let mut lines = Lines::open(path)?;
    let before = into.progress.0;
    let mut cutter = Cutter::new(target);
    while lines.next(&mut line)? {
        into.progress.0 = before + lines.read_bytes();
        // Another program may have changed the file since the check.
        cutter.line(&String::from_utf8_lossy(&line));
        cutter.ready().iter().try_for_each(|document| into.add(kind, document))?;
    }
    cutter.finish().iter().try_for_each(|document| into.add(kind, document))
}

/// Lines of bounded length, each with its line end.
struct Lines<'a> {
    path: &'a Path,
    reader: BufReader<Box<dyn Read>>,
    number: u64,
    read: Rc<Cell<u64>>,
}

impl<'a> Lines<'a> {
    /// Opens a file and decompresses it, if its name says so.
    fn open(path: &'a Path) -> Result<Self, CorpusError> {
        let read = Rc::new(Cell::new(0));
        let file = Counted { file: File::open(path).map_err(|error| unreadable(path, error))?, read: read.clone() };
        let unpacked: Box<dyn Read> = match ending(path).as_str() {
            "zst" => Box::new(zstd::stream::read::Decoder::new(file).map_err(|error| unreadable(path, error))?),
            "gz" => Box::new(flate2::read::MultiGzDecoder::new(file)),
            _ => Box::new(file),
        };
        Ok(Self { path, reader: BufReader::with_capacity(1 << 16, unpacked), number: 0, read })
    }

    /// Reads the next line into `line`; false at the end.
    fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, CorpusError> {
        line.clear();
        self.number += 1;
        let mut bounded = (&mut self.reader).take(MAX_LINE_BYTES + 1);
        let count = bounded.read_until(b'\n', line).map_err(|error| unreadable(self.path, error))?;
        if count as u64 > MAX_LINE_BYTES {
            return Err(CorpusError::LineTooLong { path: self.path.to_owned(), line: self.number });
        }
        Ok(count > 0)
    }

    /// Bytes read of the file on the disk.
    fn read_bytes(&self) -> u64 {
        self.read.get()
    }
}

/// A file with a count of the bytes read.
struct Counted {
    file: File,
    read: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read.set(self.read.get() + count as u64);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::config::{Reads, TextConfig};
    use crate::text::{Corpus, CorpusSource, Skipped, read_corpus};

    fn read_path(path: &Path) -> Result<Corpus, CorpusError> {
        let text = TextConfig { document_bytes: 100, ..TextConfig::default() };
        read_corpus(&CorpusSource::Paths(vec![path.to_owned()]), (&text, Reads::Text))
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
        fs::write(&path, bytes).unwrap();
        let corpus = read_path(&path).unwrap();
        assert_eq!(corpus.documents, ["first", "second"]);
        assert_eq!([corpus.domains.of(0), corpus.domains.of(1)], [Some(0), None]);
        assert_eq!(corpus.domains.names().collect::<Vec<_>>(), [("a", 0)]);
        assert_eq!(corpus.survey.skipped, Skipped { invalid_utf8: 1, empty: 1, duplicate: 1, unparsable: 2 });
    }

    #[test]
    fn another_field_can_be_taken_for_the_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.jsonl");
        fs::write(&path, LINES).unwrap();
        let text = TextConfig { column: "domain".to_owned(), ..TextConfig::default() };
        let corpus = read_corpus(&CorpusSource::Paths(vec![path]), (&text, Reads::Text)).unwrap();
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
        assert_eq!(read_path(&zst).unwrap(), expected);
        assert_eq!(read_path(&gz).unwrap(), expected);
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
        assert_eq!(corpus.survey.skipped.invalid_utf8, 1);
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
    fn a_packed_line_that_would_fill_the_memory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let bomb = folder.path().join("bomb.jsonl.zst");
        let zeros = io::repeat(b'0').take(MAX_LINE_BYTES + 10);
        zstd::stream::copy_encode(b"{}\n".chain(zeros), File::create(&bomb).unwrap(), 1).unwrap();
        let error = read_path(&bomb).unwrap_err();
        assert!(matches!(error, CorpusError::LineTooLong { line: 2, .. }), "{error}");
    }
}
