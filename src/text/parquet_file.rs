//! Reading a corpus from Parquet, as C4 and FineWeb are published: one column of it, page by page.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use parquet::basic::Type as Physical;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescPtr;

use super::corpus::Gathering;
use super::corpus_error::CorpusError;
use super::document::Document;
use super::files::unreadable;

/// Rows that are read at a time.
const ROWS: usize = 256;

/// Each row's text is a document, however long or short. Only this column is read, and `domain` if there is one, of one row
/// group after the other.
pub(super) fn read(path: &Path, column: &str, into: &mut Gathering<'_>) -> Result<(), CorpusError> {
    // The reader gives up on some damaged files by a panic. What was gathered by then goes with the error.
    let outcome = catch_unwind(AssertUnwindSafe(|| read_rows(path, column, into)));
    outcome.unwrap_or_else(|_| Err(unreadable(path, std::io::Error::other("the file is damaged"))))
}

fn read_rows(path: &Path, column: &str, into: &mut Gathering<'_>) -> Result<(), CorpusError> {
    let wrong = |error: ParquetError| unreadable(path, std::io::Error::other(error));
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let reader = SerializedFileReader::new(file).map_err(wrong)?;
    let columns = reader.metadata().file_metadata().schema_descr().columns();
    let place = |name: &str| columns.iter().position(|column| is_text(column) && column.path().parts() == [name]);
    let Some(text) = place(column) else {
        let columns = columns.iter().filter(|column| is_text(column)).map(|text| text.name().to_owned()).collect();
        return Err(CorpusError::NoColumn { path: path.to_owned(), column: column.to_owned(), columns });
    };
    let domain = place("domain").filter(|domain| *domain != text);
    for group in 0..reader.num_row_groups() {
        let packed_bytes = reader.metadata().row_group(group).compressed_size();
        let group = reader.get_row_group(group).map_err(wrong)?;
        let open = |place: usize| Texts::open(group.get_column_reader(place), &columns[place]).map_err(wrong);
        let (mut texts, mut domains) = (open(text)?, domain.map(open).transpose()?);
        loop {
            let rows = texts.next().map_err(wrong)?;
            if rows.is_empty() {
                break;
            }
            let of = domains.as_mut().map(Texts::next).transpose().map_err(wrong)?.unwrap_or_default();
            for (row, value) in rows.iter().enumerate() {
                let domain = of.get(row).and_then(Option::as_ref);
                match value.as_ref().map(|value| std::str::from_utf8(value.data())) {
                    Some(Ok(text)) => {
                        into.add_of("parquet", domain.and_then(|name| name.as_utf8().ok()), Document::Text(text))?;
                    }
                    Some(Err(_)) => into.skipped.invalid_utf8 += 1,
                    None => into.skipped.unparsable += 1,
                }
            }
        }
        into.progress.0 += u64::try_from(packed_bytes).unwrap_or(0);
    }
    Ok(())
}

/// A column of a row group.
struct Texts {
    reader: ColumnReaderImpl<ByteArrayType>,
    /// Whether rows may be without a value.
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
        Ok(Self { reader, optional, levels: Vec::with_capacity(ROWS), values: Vec::with_capacity(ROWS) })
    }

    /// The next rows; none at the end.
    fn next(&mut self) -> Result<Vec<Option<ByteArray>>, ParquetError> {
        self.levels.clear();
        let levels = self.optional.then_some(&mut self.levels);
        let (rows, _, _) = self.reader.read_records(ROWS, levels, None, &mut self.values)?;
        let mut values = self.values.drain(..);
        let is_there = |row: usize| !self.optional || self.levels.get(row).is_some_and(|level| *level > 0);
        Ok((0..rows).map(|row| if is_there(row) { values.next() } else { None }).collect())
    }
}

/// Strings, and bytes that may be some; one for each row, or none.
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
    use crate::text::{Corpus, CorpusSource, Skipped, read_corpus};

    /// Row groups of texts, some of which are missing, beside their numbers.
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
            // Every other row is of a domain.
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
        read_corpus(&CorpusSource::Paths(vec![path.to_owned()]), (&text, Reads::Text))
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
            assert_eq!(corpus.documents, ["first", "second"]);
            assert_eq!(corpus.survey.skipped, Skipped { empty: 1, duplicate: 1, unparsable: 1, invalid_utf8: 1 });
            assert_eq!(corpus.survey.kinds[0].name, "parquet");
            assert_eq!([corpus.domains.of(0), corpus.domains.of(1)], [None, Some(0)]);
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
}
