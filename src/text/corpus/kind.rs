//! What a file is, by its first bytes. Its name only decides between kinds of text.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::config::{TextConfig, TextFormat};
use crate::images::PREPARED_MAGIC;
use crate::text::corpus::json_file::{Layout, layout};
use crate::text::corpus::json_object::{has_member, wanted};
use crate::text::corpus::parquet_file;
use crate::text::corpus::records::{members, words};
use crate::text::corpus::unpack::{Packing, Unpacked};

/// First bytes that are looked at.
const HEAD_BYTES: u64 = 1 << 16;

/// How a file is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) packing: Packing,
    pub(super) format: Format,
    /// As it is counted: the ending of the name, without that of the packing.
    pub(super) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Plain,
    Json(Layout),
    Parquet,
    Images,
}

/// What a file that begins so is, and what to do with it. The place of the bytes is that from the beginning.
const OTHERS: [(usize, &[u8], &str, &str); 24] = [
    (257, b"ustar", "a tar archive", "unpack it with tar -xf"),
    (0, b"PK\x03\x04", "a zip archive", "unpack it with unzip"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it with 7z x"),
    (0, b"Rar!\x1a\x07", "a RAR archive", "unpack it"),
    (0, b"\x04\x22\x4d\x18", "packed with LZ4", "unpack it with lz4 -d"),
    (0, b"LZIP", "packed with lzip", "unpack it with lzip -d"),
    (0, b"version https://git-lfs", "a pointer of Git LFS instead of the file", "fetch the file with git lfs pull"),
    (0, b"\xff\xfe\0\0", "UTF-32 text", "convert it with iconv -f UTF-32 -t UTF-8"),
    (0, b"\0\0\xfe\xff", "UTF-32 text", "convert it with iconv -f UTF-32 -t UTF-8"),
    (0, b"\xff\xfe", "UTF-16 text", "convert it with iconv -f UTF-16 -t UTF-8"),
    (0, b"\xfe\xff", "UTF-16 text", "convert it with iconv -f UTF-16 -t UTF-8"),
    (0, b"%PDF-", "a PDF", "extract its text, for instance with pdftotext"),
    (0, b"{\\rtf", "an RTF document", "save it as plain text"),
    (0, b"ARROW1", "an Arrow file", "write it as Parquet or JSON lines"),
    (0, b"ORC", "an ORC file", "write it as Parquet or JSON lines"),
    (0, b"Obj\x01", "an Avro file", "write it as Parquet or JSON lines"),
    (0, b"\x89HDF", "an HDF5 file", "write it as Parquet or JSON lines"),
    (0, b"\x93NUMPY", "a NumPy array", "write its text as JSON lines"),
    (0, b"SQLite format 3\0", "an SQLite database", "write its text as JSON lines"),
    (0, b"GGUF", "a model", "leave it out"),
    (0, b"\x7fELF", "a program", "leave it out"),
    (0, b"\x89PNG", "an image", "see pathswarm prepare for images"),
    (0, b"\xff\xd8\xff", "an image", "see pathswarm prepare for images"),
    (0, b"\xd0\xcf\x11\xe0", "an Office document", "save it as plain text"),
];

/// Endings of files whose download has not ended.
const UNFINISHED: [&str; 7] = ["part", "partial", "crdownload", "download", "incomplete", "aria2", "filepart"];

/// Looks at a file, and at the beginning of what is packed in it.
///
/// # Errors
/// What it is instead of text, and what to do.
pub(super) fn look(path: &Path, text: &TextConfig, stop: &AtomicBool) -> Result<Kind, String> {
    let wrong = |error: io::Error| error.to_string();
    let ending = ending(path);
    if UNFINISHED.contains(&ending.as_str()) {
        return Err("an unfinished download; finish it, or remove it".to_owned());
    }
    let head = head(File::open(path).map_err(wrong)?).map_err(wrong)?;
    let packing = Packing::of(&head);
    let said = Packing::of_ending(&ending);
    if packing == Packing::None && said != Packing::None && !head.is_empty() {
        let name = said.name();
        return Err(format!("its name ends with .{ending}, but it is not {name} data; fetch it again, or rename it"));
    }
    if packing == Packing::Xz {
        ends_as_xz(path).map_err(wrong)?;
    }
    let unpacked = match packing {
        Packing::None => head,
        _ => self::head(Unpacked::open(path, packing, stop).map_err(wrong)?).map_err(wrong)?,
    };
    let name = if said == Packing::None { ending } else { self::ending(&path.with_extension("")) };
    let format = format_of(&unpacked, &name, text)?;
    if text.format != TextFormat::Text && format == Format::Plain {
        let (format, wanted) = (text.format.name(), words(text));
        return Err(format!("plain text, but with text.format = \"{format}\" this run reads {wanted}; write it so"));
    }
    match format {
        Format::Parquet | Format::Images if packing != Packing::None => {
            return Err(format!(
                "packed with {}, which this kind of file must not be; unpack it first",
                packing.name()
            ));
        }
        Format::Parquet => parquet_file::check(path, text)?,
        _ => {}
    }
    let name = match format {
        Format::Parquet => "parquet".to_owned(),
        Format::Images => "images".to_owned(),
        _ if name.is_empty() => "text".to_owned(),
        _ => name,
    };
    Ok(Kind { packing, format, name })
}

fn ending(path: &Path) -> String {
    path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default()
}

fn head(file: impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(head)
}

fn format_of(head: &[u8], ending: &str, text: &TextConfig) -> Result<Format, String> {
    if head.starts_with(b"PAR1") {
        return Ok(Format::Parquet);
    }
    if head.starts_with(&PREPARED_MAGIC) {
        return Ok(Format::Images);
    }
    let begins =
        |(at, bytes, _, _): &&(usize, &[u8], &str, &str)| head.get(*at..).is_some_and(|rest| rest.starts_with(bytes));
    if let Some((_, _, what, remedy)) = OTHERS.iter().find(begins) {
        return Err(format!("{what}; {remedy}"));
    }
    if Packing::of(head) != Packing::None {
        return Err("packed twice; unpack it once".to_owned());
    }
    if is_utf16(head) {
        return Err("UTF-16 text; convert it with iconv -f UTF-16LE -t UTF-8, or UTF-16BE".to_owned());
    }
    if ending == "parquet" && !head.is_empty() {
        return Err("its name ends with .parquet, but it does not begin as Parquet does; fetch it again".to_owned());
    }
    if ending == "images" && !head.is_empty() {
        return Err("its name ends with .images, but pathswarm prepare has not written it".to_owned());
    }
    let begin = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let named_json = matches!(ending, "json" | "jsonl" | "ndjson");
    if named_json || holds_documents(begin, text) {
        return Ok(Format::Json(layout(begin, &members(text))));
    }
    Ok(Format::Plain)
}

/// Whether the first line is a whole object with the wanted field.
fn holds_documents(begin: &[u8], text: &TextConfig) -> bool {
    let line = begin.trim_ascii_start().split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
    match text.format {
        TextFormat::Text => wanted(line, &text.column).is_ok_and(|found| found.text.is_some()),
        TextFormat::Chat | TextFormat::PromptCompletion => has_member(line, &members(text)).unwrap_or(false),
    }
}

/// Whether every second byte of the first ones is zero, as in UTF-16 of Latin text without a byte-order mark.
fn is_utf16(head: &[u8]) -> bool {
    let pairs = head[..head.len().min(512)].as_chunks::<2>().0;
    let zeros = |at: usize| pairs.iter().filter(|pair| pair[at] == 0).count();
    pairs.len() >= 4 && zeros(0).abs_diff(zeros(1)) * 10 > pairs.len() * 7
}

/// A whole xz file ends with `YZ`, and with zeros in fours.
fn ends_as_xz(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    file.seek(SeekFrom::Start(bytes.saturating_sub(1024)))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    let end = end.iter().rposition(|byte| *byte != 0).map_or(&[][..], |last| &end[..=last]);
    if end.ends_with(b"YZ") { Ok(()) } else { Err(io::Error::other("the xz data is cut short; fetch the file again")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, bytes: &[u8]) -> Result<Kind, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        look(&path, &TextConfig::default(), &AtomicBool::new(false))
    }

    #[test]
    fn the_bytes_say_what_a_file_is_and_the_name_which_kind_of_text() {
        let lines = b"{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
        let packed = zstd::encode_all(&lines[..], 1).unwrap();
        for (name, bytes, expected) in [
            ("a.jsonl", &lines[..], "jsonl"),
            ("a.jsonl.zst", &packed, "jsonl"),
            ("a.jsonl", &packed, "jsonl"),
            ("a", lines, "text"),
            ("a.txt", lines, "txt"),
        ] {
            let kind = found(name, bytes).unwrap();
            assert_eq!((kind.format, kind.name.as_str()), (Format::Json(Layout::Lines), expected), "{name}");
        }
        for (name, bytes) in [("a.rs", "{ let a = 1; }"), ("README", "text"), ("empty.jsonl.gz", "")] {
            let format = found(name, bytes.as_bytes()).unwrap().format;
            assert_eq!(format == Format::Plain, !bytes.is_empty(), "{name}");
        }
    }

    #[test]
    fn what_is_no_text_is_named_with_what_to_do() {
        let mut tar = vec![b'a'; 600];
        tar[257..262].copy_from_slice(b"ustar");
        let gz = |bytes: &[u8]| {
            let mut out = Vec::new();
            flate2::read::GzEncoder::new(bytes, flate2::Compression::fast()).read_to_end(&mut out).unwrap();
            out
        };
        let utf16: Vec<u8> = "some text".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (name, bytes, said) in [
            ("a.tar", tar.clone(), "a tar archive; unpack it with tar -xf"),
            ("a.tar.gz", gz(&tar), "a tar archive; unpack it with tar -xf"),
            ("a.txt", b"version https://git-lfs.github.com/spec/v1\noid".to_vec(), "git lfs pull"),
            ("a.txt", [b"\xff\xfe".to_vec(), utf16.clone()].concat(), "UTF-16 text; convert it with iconv"),
            ("a.txt", utf16, "UTF-16 text; convert it with iconv"),
            ("a.jsonl.part", b"{\"text\": \"a\"}".to_vec(), "an unfinished download"),
            ("a.zip", b"PK\x03\x04rest".to_vec(), "a zip archive; unpack it with unzip"),
            ("a.jsonl.gz", b"not packed".to_vec(), "not gzip data"),
            ("a.jsonl.gz.gz", gz(&gz(b"{}")), "packed twice"),
            ("a.parquet", b"not Parquet".to_vec(), "does not begin as Parquet does"),
            ("a.xz", b"\xfd7zXZ\0\0\x04cut".to_vec(), "cut short"),
        ] {
            let error = found(name, &bytes).unwrap_err();
            assert!(error.contains(said), "{name}: {error}");
        }
    }
}
