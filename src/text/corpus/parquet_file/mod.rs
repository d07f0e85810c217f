//! Reading a corpus from Parquet, the format of C4 and FineWeb: one column, page by page. [`records`] reads conversations,
//! which are several columns.
//!
//! A page holds its rows for as long as one of them is held, and pages of long rows are large. So as few rows are read at
//! a time as fill some megabytes.

mod records;

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use bytes::Bytes;
use parquet::basic::Type as Physical;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor};

use crate::config::{TextConfig, TextFormat};
use crate::text::corpus::collector::Collector;
use crate::text::corpus::error::{CorpusError, unreadable};
use crate::text::corpus::left_out::{At, Reason};
use crate::text::document::Document;

/// Most rows read at a time.
const MAX_ROWS: usize = 256;

/// Text read at a time, about.
const TARGET_BYTES: usize = 8 << 20;

/// The four bytes at the end of a whole file.
const END: &[u8; 4] = b"PAR1";

/// Looks at the end of a file, which describes the rest, and at the names of its columns.
///
/// # Errors
/// What is wrong, and what to do.
pub(super) fn check(path: &Path, text: &TextConfig) -> Result<(), String> {
    let mut file = File::open(path).map_err(|error| error.to_string())?;
    let mut end = [0; END.len()];
    let read = file.seek(SeekFrom::End(-(END.len() as i64))).and_then(|_| file.read_exact(&mut end));
    if read.is_err() || end != *END {
        return Err("the Parquet file is cut short: its end is missing; fetch it again".to_owned());
    }
    let looked = catch_unwind(AssertUnwindSafe(|| {
        let reader = SerializedFileReader::new(Whole(file)).map_err(|error| damaged(&error.to_string()))?;
        let schema = reader.metadata().file_metadata().schema_descr();
        has_documents(schema, text)
    }));
    looked.unwrap_or_else(|_| Err(damaged("its end makes no sense")))
}

fn has_documents(schema: &SchemaDescriptor, text: &TextConfig) -> Result<(), String> {
    if text.format != TextFormat::Text {
        return records::check(schema, text.format);
    }
    let (columns, column) = (schema.columns(), &text.column);
    place(columns, column).map(drop).ok_or_else(|| no_column(columns, column))
}

fn damaged(reason: &str) -> String {
    format!("the Parquet file is damaged: {reason}; fetch it again")
}

/// Where the text column of this name is.
fn place(columns: &[ColumnDescPtr], name: &str) -> Option<usize> {
    columns.iter().position(|column| is_text(column) && column.path().parts() == [name])
}

fn no_column(columns: &[ColumnDescPtr], column: &str) -> String {
    let names: Vec<&str> = columns.iter().filter(|column| is_text(column)).map(|text| text.name()).collect();
    let others = if names.is_empty() { "columns of other kinds".to_owned() } else { names.join(", ") };
    format!("there is no text column \"{column}\", only {others}; name one as text.column in the run's file")
}

/// Each row is a document of any length. Only the wanted columns and `domain`, if present, are read, one row group after
/// the other.
pub(super) fn read(path: &Path, text: &TextConfig, into: &mut Collector<'_>) -> Result<(), CorpusError> {
    // The reader panics on some damaged files.
    let outcome = catch_unwind(AssertUnwindSafe(|| match into.records.clone() {
        Some(records) => records::read(path, &records, into),
        None => read_rows(path, &text.column, into),
    }));
    outcome.unwrap_or_else(|_| Err(unreadable(path, std::io::Error::other(damaged("its pages make no sense")))))
}

fn read_rows(path: &Path, column: &str, into: &mut Collector<'_>) -> Result<(), CorpusError> {
    let wrong = |error: ParquetError| unreadable(path, std::io::Error::other(damaged(&error.to_string())));
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let reader = SerializedFileReader::new(Whole(file)).map_err(wrong)?;
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    let Some(text) = place(columns, column) else {
        return Err(unreadable(path, std::io::Error::other(no_column(columns, column))));
    };
    let domain = place(columns, "domain").filter(|domain| *domain != text);
    let mut number = 0;
    for group in 0..reader.num_row_groups() {
        let packed_bytes = reader.metadata().row_group(group).compressed_size();
        let group = reader.get_row_group(group).map_err(wrong)?;
        let open = |place: usize| Texts::open(group.get_column_reader(place), &columns[place]).map_err(wrong);
        let (mut texts, mut domains) = (open(text)?, domain.map(open).transpose()?);
        let mut count = 1;
        loop {
            let rows = texts.next(count).map_err(wrong)?;
            if rows.is_empty() {
                break;
            }
            let of = domains.as_mut().map(|domains| domains.next(count)).transpose().map_err(wrong)?;
            for (row, value) in rows.iter().enumerate() {
                number += 1;
                into.at(At::Row(number));
                let domain = of.as_ref().and_then(|of| of.get(row)?.as_ref());
                take(value.as_ref(), domain.and_then(|name| name.as_utf8().ok()), into)?;
            }
            let bytes: usize = rows.iter().flatten().map(ByteArray::len).sum();
            count = (count * 2).min(TARGET_BYTES / (bytes / rows.len()).max(1)).clamp(1, MAX_ROWS);
        }
        into.progress.0 += u64::try_from(packed_bytes).unwrap_or(0);
    }
    Ok(())
}

fn take(value: Option<&ByteArray>, domain: Option<&str>, into: &mut Collector<'_>) -> Result<(), CorpusError> {
    let Some(value) = value else {
        into.leave_out(Reason::NoValue);
        return into.go_on();
    };
    let text = String::from_utf8_lossy(value.data());
    if matches!(text, std::borrow::Cow::Owned(_)) {
        into.leave_out(Reason::Repaired);
    }
    into.add_of("parquet", domain, Document::Text(&text))
}

/// A file whose reads fail at its end. Otherwise the reader would skip forever beyond the end of a damaged file.
struct Whole(File);

impl Length for Whole {
    fn len(&self) -> u64 {
        Length::len(&self.0)
    }
}

impl ChunkReader for Whole {
    type T = UpToTheEnd<BufReader<File>>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.0.get_read(start).map(UpToTheEnd)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        if start.checked_add(length as u64).is_none_or(|end| end > Length::len(self)) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are more than the file has")));
        }
        self.0.get_bytes(start, length)
    }
}

/// A reader that fails at the end instead of returning 0.
struct UpToTheEnd<R>(R);

impl<R: Read> Read for UpToTheEnd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buffer)? {
            0 if !buffer.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        }
    }
}

/// A text column of a row group.
struct Texts {
    reader: ColumnReaderImpl<ByteArrayType>,
    /// Whether values may be missing.
    optional: bool,
    levels: Vec<i16>,
    values: Vec<ByteArray>,
}

impl Texts {
    fn open(reader: Result<ColumnReader, ParquetError>, column: &ColumnDescPtr) -> Result<Self, ParquetError> {
        let ColumnReader::ByteArrayColumnReader(reader) = reader? else {
            return Err(ParquetError::General("the column's pages hold no text".to_owned()));
        };
        let optional = column.max_def_level() > 0;
        Ok(Self { reader, optional, levels: Vec::with_capacity(MAX_ROWS), values: Vec::with_capacity(MAX_ROWS) })
    }

    /// So many of the next rows, or fewer; empty at the end.
    fn next(&mut self, count: usize) -> Result<Vec<Option<ByteArray>>, ParquetError> {
        self.levels.clear();
        let levels = self.optional.then_some(&mut self.levels);
        let (rows, _, _) = self.reader.read_records(count, levels, None, &mut self.values)?;
        let mut values = self.values.drain(..);
        let is_there = |row: usize| !self.optional || self.levels.get(row).is_some_and(|level| *level > 0);
        Ok((0..rows).map(|row| if is_there(row) { values.next() } else { None }).collect())
    }
}

/// Strings, and byte arrays that may be strings; one or no value for each row.
fn is_text(column: &ColumnDescPtr) -> bool {
    column.physical_type() == Physical::BYTE_ARRAY && column.max_rep_level() == 0 && column.path().parts().len() == 1
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::basic::{Compression, ZstdLevel};
    use parquet::data_type::Int64Type;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;
    use crate::config::{Reads, TextConfig};
    use crate::text::{Corpus, CorpusSource, read_corpus};

    /// Writes row groups of texts, some missing, next to their numbers.
    fn write(path: &Path, groups: &[&[Option<&[u8]>]], compression: Compression) {
        let schema =
            "message rows { optional binary content (UTF8); required int64 id; optional binary domain (UTF8); }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
        let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
        for rows in groups {
            let mut group = writer.next_row_group().unwrap();
            let there: Vec<i16> = rows.iter().map(|row| i16::from(row.is_some())).collect();
            let texts: Vec<ByteArray> = rows.iter().flatten().map(|row| row.to_vec().into()).collect();
            let mut content = group.next_column().unwrap().unwrap();
            content.typed::<ByteArrayType>().write_batch(&texts, Some(&there), None).unwrap();
            content.close().unwrap();
            let mut id = group.next_column().unwrap().unwrap();
            id.typed::<Int64Type>().write_batch(&vec![7; rows.len()], None, None).unwrap();
            id.close().unwrap();
            // Every other row has a domain.
            let named: Vec<i16> = (0..rows.len()).map(|row| (row % 2) as i16).collect();
            let names = vec![ByteArray::from("news"); rows.len() / 2];
            let mut domain = group.next_column().unwrap().unwrap();
            domain.typed::<ByteArrayType>().write_batch(&names, Some(&named), None).unwrap();
            domain.close().unwrap();
            group.close().unwrap();
        }
        writer.close().unwrap();
    }

    fn read_column(path: &Path, column: &str) -> Result<Corpus, CorpusError> {
        let text = TextConfig { column: column.to_owned(), ..TextConfig::default() };
        let stop = std::sync::atomic::AtomicBool::new(false);
        read_corpus(&CorpusSource::Paths(vec![path.to_owned()]), (&text, Reads::Text), &stop)
    }

    #[test]
    fn each_row_of_each_row_group_is_a_document_whatever_packs_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.parquet");
        let groups: [&[Option<&[u8]>]; 2] =
            [&[Some(b"first"), None, Some(b" ")], &[Some(b"\xff"), Some(b"second"), Some(b"first")]];
        let zstd = Compression::ZSTD(ZstdLevel::default());
        for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, zstd, Compression::LZ4_RAW] {
            write(&path, &groups, compression);
            let corpus = read_column(&path, "content").unwrap();
            assert_eq!(corpus.documents, ["first", "\u{fffd}", "second"]);
            let left = corpus.survey.left_out.lines();
            let said =
                ["1 rows without a value: some.parquet row 2", "1 empty", "1 duplicates: some.parquet row 6", "row 4"];
            for (line, said) in left.iter().zip(said) {
                assert!(line.replace(&format!("{}/", folder.path().display()), "").contains(said), "{line}");
            }
            assert_eq!(corpus.survey.kinds[0].name, "parquet");
            assert_eq!([0, 1, 2].map(|document| corpus.domains.of(document)), [None, None, Some(0)]);
            assert_eq!(corpus.domains.names().collect::<Vec<_>>(), [("news", 0)]);
        }
    }

    #[test]
    fn a_column_that_is_not_there_is_said_with_those_that_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.parquet");
        write(&path, &[&[Some(b"first")]], Compression::UNCOMPRESSED);
        for missing in ["text", "id"] {
            let error = read_column(&path, missing).unwrap_err().to_string();
            assert!(
                error.contains(&format!("no text column \"{missing}\"")) && error.contains("content, domain"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_file_that_is_cut_short_or_damaged_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.parquet");
        write(&path, &[&[Some(b"first"), Some(b"second")]], Compression::SNAPPY);
        let bytes = std::fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let error = read_column(&path, "content").unwrap_err().to_string();
            assert!(error.contains("some.parquet"), "{error}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            std::fs::write(&path, &damaged).unwrap();
            if let Err(error) = read_column(&path, "content") {
                assert!(error.to_string().contains("some.parquet"), "{error}");
            }
        }
    }

    /// Found by fuzzing: the header of a page has a list of 2^31 numbers in an unknown field.
    const ENDLESS: &str = "\
        500909090909090909093609090909090909090909090909094152311504152a252a4c1504749f9f9f9f9f9f9f9f9f9f\
        9f9f9f9f9f207215021916000019dbe9b1ea287200000016000019161a001502192c4804726f7773150200150c250018\
        04746578742500001604191c191c26001c150c19350006101918047465787415001604166a166e264e26081c36002807\
        616e6f746865721806612074657874111100192c15041500150200150015101502003c1611000016ae01151a16761538\
        00166e16042608166e1400002819707261752d7472657173207e657273696f6e2036302e312e30191c1c0000009f0000\
        0050415231";

    #[test]
    fn a_page_that_announces_more_than_there_is_ends_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("some.parquet");
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        std::fs::write(&path, ENDLESS.as_bytes().chunks(2).map(byte).collect::<Vec<_>>()).unwrap();
        let error = read_column(&path, "text").unwrap_err().to_string();
        assert!(error.contains("some.parquet"), "{error}");
    }
}
