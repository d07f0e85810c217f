//! Reading conversations from Parquet, as datasets of Hugging Face hold them: `messages` is a list of structs, `prompt` and
//! `completion` are strings or such lists.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::TreeBuilder;
use parquet::record::{Field, Row};
use parquet::schema::types::{SchemaDescriptor, Type};

use crate::config::TextFormat;
use crate::text::chat::Value;
use crate::text::chat::record::{Record, keys};
use crate::text::corpus::collector::Collector;
use crate::text::corpus::error::{CorpusError, unreadable};
use crate::text::corpus::left_out::At;
use crate::text::corpus::parquet_file::{MAX_ROWS, TARGET_BYTES, Whole, damaged};
use crate::text::corpus::records::{Read, Records, Refused};
use crate::text::document::Document;

/// Whether a file has the columns of a format.
///
/// # Errors
/// Which are missing, and which there are.
pub(super) fn check(schema: &SchemaDescriptor, format: TextFormat) -> Result<(), String> {
    let names: Vec<&str> = schema.root_schema().get_fields().iter().map(|field| field.name()).collect();
    let has = |key: &&str| names.contains(key);
    let (keys, any) = (keys(format), format == TextFormat::Chat);
    if if any { keys.iter().any(has) } else { keys.iter().all(has) } {
        return Ok(());
    }
    let wanted: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
    let (wanted, others) = (wanted.join(if any { " or " } else { " and " }), names.join(", "));
    let format = format.name();
    Err(format!("text.format = \"{format}\" reads the columns {wanted}, but there are only {others}; rename them"))
}

/// Each row is a record.
pub(super) fn read(path: &Path, records: &Records, into: &mut Collector<'_>) -> Result<(), CorpusError> {
    let failed = |said: String| unreadable(path, std::io::Error::other(said));
    let wrong = |error: ParquetError| failed(damaged(&error.to_string()));
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let reader = SerializedFileReader::new(Whole(file)).map_err(wrong)?;
    let schema = wanted(reader.metadata().file_metadata().schema_descr(), records).map_err(wrong)?;
    let schema = Arc::new(schema);
    let mut number = 0;
    for group in 0..reader.num_row_groups() {
        let described = reader.metadata().row_group(group);
        let (packed_bytes, at_once) = (described.compressed_size(), rows_at_once(described, &schema));
        let group = reader.get_row_group(group).map_err(wrong)?;
        let rows = TreeBuilder::new().with_batch_size(at_once).as_iter(Arc::clone(&schema), &*group).map_err(wrong)?;
        for row in rows {
            number += 1;
            into.at(At::Row(number));
            let row = row.map_err(|error| failed(format!("row {number}: {}", damaged(&error.to_string()))))?;
            match document(row, records) {
                Ok(read) => into.add_of("parquet", read.domain.as_deref(), Document::Masked(&read.masked))?,
                Err(Refused { reason, detail: Some(detail) }) => into.leave_out_as(reason, detail),
                Err(Refused { reason, detail: None }) => into.leave_out(reason),
            }
            into.go_on()?;
        }
        into.progress.0 += u64::try_from(packed_bytes).unwrap_or(0);
    }
    Ok(())
}

/// The part of a schema that is read.
fn wanted(schema: &SchemaDescriptor, records: &Records) -> Result<SchemaDescriptor, ParquetError> {
    let root = schema.root_schema();
    let is_wanted = |name: &str| name == "domain" || records.members().any(|member| member == name);
    let fields = root.get_fields().iter().filter(|field| is_wanted(field.name())).cloned().collect();
    let root = Type::group_type_builder(root.name()).with_fields(fields).build()?;
    Ok(SchemaDescriptor::new(Arc::new(root)))
}

/// Rows of a group that fill some megabytes in the mean. A row stays in memory with the pages of all that are read with it.
fn rows_at_once(group: &RowGroupMetaData, wanted: &SchemaDescriptor) -> usize {
    let is_wanted = |name: &str| wanted.root_schema().get_fields().iter().any(|field| field.name() == name);
    let columns = group
        .columns()
        .iter()
        .filter(|column| column.column_path().parts().first().is_some_and(|name| is_wanted(name)));
    let bytes: i64 = columns.map(|column| column.uncompressed_size()).fold(0, i64::saturating_add);
    let mean = bytes / group.num_rows().max(1);
    let target = TARGET_BYTES / usize::try_from(mean).unwrap_or(0).max(1);
    target.clamp(1, MAX_ROWS)
}

fn document(row: Row, records: &Records) -> Result<Read, Refused> {
    let (mut record, mut domain) = (Record::new(), None);
    for (name, field) in row.into_columns() {
        match field {
            Field::Str(text) if name == "domain" => domain = Some(text),
            field => {
                record.insert(name, value(&field));
            }
        }
    }
    Ok(Read { masked: records.text_of(&record)?, domain })
}

/// A value as JSON has it. Every struct of a column has the members of all, so those without a value are left out, as if
/// they had not been written.
fn value(field: &Field) -> Value {
    match field {
        Field::Null => Value::from(()),
        Field::Bool(value) => Value::from(*value),
        Field::Byte(value) => Value::from(i64::from(*value)),
        Field::Short(value) => Value::from(i64::from(*value)),
        Field::Int(value) => Value::from(i64::from(*value)),
        Field::Long(value) => Value::from(*value),
        Field::UByte(value) => Value::from(u64::from(*value)),
        Field::UShort(value) => Value::from(u64::from(*value)),
        Field::UInt(value) => Value::from(u64::from(*value)),
        Field::ULong(value) => Value::from(*value),
        Field::Float(value) => Value::from(f64::from(*value)),
        Field::Double(value) => Value::from(*value),
        Field::Str(text) => Value::from(text.as_str()),
        Field::Bytes(bytes) => Value::from(String::from_utf8_lossy(bytes.data())),
        Field::Group(row) => {
            let there = row.get_column_iter().filter(|(_, field)| !matches!(field, Field::Null));
            Value::from_pairs(there.map(|(name, field)| (name.as_str(), value(field))))
        }
        Field::ListInternal(list) => list.elements().iter().map(value).collect(),
        Field::MapInternal(map) => {
            let key = |field: &Field| match field {
                Field::Str(text) => text.clone(),
                other => other.to_string(),
            };
            Value::from_pairs(map.entries().iter().map(|(name, field)| (key(name), value(field))))
        }
        // A date, a time, a decimal or half a float: as it is shown.
        other => Value::from(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;
    use crate::config::{ChatConfig, Reads, TextConfig};
    use crate::text::chat::tests::CHAT_ML;
    use crate::text::{Corpus, CorpusSource, read_corpus};

    /// As PyArrow writes a list of structs, with members in the order of their names.
    const MESSAGES: &str = "optional group messages (LIST) { repeated group list { optional group element { \
                            optional binary content (UTF8); optional binary role (UTF8); } } }";

    /// Messages of a row; nothing where there is no list.
    type Rows<'a> = [Option<&'a [(&'a str, &'a str)]>];

    /// Texts of a column with their levels of definition and repetition.
    type Levels = (Vec<ByteArray>, Vec<i16>, Vec<i16>);

    fn levels(rows: &Rows<'_>, text: fn(&(&str, &str)) -> String) -> Levels {
        let (mut texts, mut defined, mut repeated) = Levels::default();
        for row in rows {
            let messages = row.unwrap_or_default();
            if messages.is_empty() {
                defined.push(i16::from(row.is_some()));
                repeated.push(0);
            }
            for (place, message) in messages.iter().enumerate() {
                texts.push(text(message).into_bytes().into());
                defined.push(4);
                repeated.push(i16::from(place > 0));
            }
        }
        (texts, defined, repeated)
    }

    /// Writes row groups whose columns have these texts.
    fn write(path: &Path, schema: &str, groups: &[Vec<Levels>]) {
        let schema = Arc::new(parse_message_type(&format!("message rows {{ {schema} }}")).unwrap());
        let properties = Arc::new(WriterProperties::builder().build());
        let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
        for columns in groups {
            let mut group = writer.next_row_group().unwrap();
            for (texts, defined, repeated) in columns {
                let mut column = group.next_column().unwrap().unwrap();
                column.typed::<ByteArrayType>().write_batch(texts, Some(defined), Some(repeated)).unwrap();
                column.close().unwrap();
            }
            group.close().unwrap();
        }
        writer.close().unwrap();
    }

    fn write_messages(path: &Path, groups: &[&Rows<'_>]) {
        let columns = |rows: &&Rows<'_>| {
            vec![levels(rows, |(_, content)| (*content).to_owned()), levels(rows, |(role, _)| (*role).to_owned())]
        };
        write(path, MESSAGES, &groups.iter().map(columns).collect::<Vec<_>>());
    }

    fn plain(texts: &[&str]) -> Levels {
        (texts.iter().map(|text| ByteArray::from(*text)).collect(), vec![1; texts.len()], vec![0; texts.len()])
    }

    fn read_as(format: TextFormat, path: &Path) -> Result<Corpus, CorpusError> {
        let chat = ChatConfig { template: CHAT_ML.to_owned(), ..ChatConfig::default() };
        let text = TextConfig { format, chat: Some(chat), ..TextConfig::default() };
        read_corpus(&CorpusSource::Paths(vec![path.to_owned()]), (&text, Reads::Text), &AtomicBool::new(false))
    }

    const SUM: &[(&str, &str)] = &[("user", "1+1?"), ("assistant", "2"), ("user", "1+2?"), ("assistant", "3")];

    #[test]
    fn each_row_of_messages_is_a_conversation_as_the_same_lines_of_json_are() {
        let folder = tempfile::tempdir().unwrap();
        let [parquet, json] = ["a.parquet", "a.jsonl"].map(|name| folder.path().join(name));
        let other = [("user", "ü?"), ("assistant", "ö")];
        write_messages(&parquet, &[&[Some(SUM), Some(&other)], &[Some(&SUM[..2])]]);
        let line = |messages: &[(&str, &str)]| {
            let messages: Vec<_> = messages
                .iter()
                .map(|(role, content)| serde_json::json!({ "role": role, "content": content }))
                .collect();
            serde_json::json!({ "messages": messages }).to_string()
        };
        std::fs::write(&json, [line(SUM), line(&other), line(&SUM[..2])].join("\n")).unwrap();
        let [found, expected] = [parquet, json].map(|path| read_as(TextFormat::Chat, &path).unwrap());
        assert_eq!(found.masked.len(), 3);
        assert_eq!((found.masked, found.survey.hash), (expected.masked, expected.survey.hash));
        assert_eq!(found.survey.kinds[0].name, "parquet");
    }

    #[test]
    fn a_row_of_which_nothing_can_be_learnt_is_left_out_with_its_number_and_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        write_messages(
            &path,
            &[&[Some(SUM), None, Some(&[])], &[Some(&SUM[..1]), Some(&[("robot", "a")]), Some(SUM), Some(&SUM[2..])]],
        );
        let corpus = read_as(TextFormat::Chat, &path).unwrap();
        assert_eq!(corpus.masked.len(), 2);
        let left: Vec<String> = corpus.survey.left_out.lines();
        let left: Vec<String> =
            left.iter().map(|line| line.replace(&format!("{}/", folder.path().display()), "")).collect();
        let expected = [
            "left out: 4 records of which nothing can be learnt: \
             a.parquet row 2 (messages = null: must be a list of messages, each with role and content), \
             a.parquet row 3 (messages = []: must have at least one message), \
             a.parquet row 4 (no message of the assistant: nothing of it would be learnt), …",
            "left out: 1 duplicates: a.parquet row 6",
        ];
        assert_eq!(left, expected);
    }

    #[test]
    fn prompts_and_completions_are_columns_of_text_and_tools_may_be_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let schema = "optional binary prompt (UTF8); optional binary id (UTF8); optional binary completion (UTF8); \
                      optional binary domain (UTF8); optional binary tools (UTF8);";
        let columns = [&["1+1=", "1+2="], &["x", "y"], &["2", "3"], &["sums", "sums"], &["", "[{\"name\": \"f\"}]"]];
        write(&path, schema, &[columns.iter().map(|texts| plain(*texts)).collect()]);
        let corpus = read_as(TextFormat::PromptCompletion, &path).unwrap();
        let said: Vec<_> = corpus.masked.iter().map(|text| (&*text.text, &text.text[text.learnt[0].clone()])).collect();
        assert_eq!(said, [("1+1=2", "2"), ("1+2=3", "3")]);
        assert_eq!(corpus.domains.names().collect::<Vec<_>>(), [("sums", 0)]);
    }

    #[test]
    fn columns_that_are_not_there_are_said_with_those_that_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let schema = "optional binary prompt (UTF8); optional binary answer (UTF8);";
        write(&path, schema, &[vec![plain(&["a"]), plain(&["b"])]]);
        for (format, said) in [
            (TextFormat::Chat, "\"messages\" or \"conversations\", but there are only prompt, answer"),
            (TextFormat::PromptCompletion, "\"prompt\" and \"completion\", but there are only prompt, answer"),
        ] {
            let error = read_as(format, &path).unwrap_err().to_string();
            assert!(error.contains("a.parquet: ") && error.contains(said), "{error}");
        }
        let error = read_as(TextFormat::Text, &path).unwrap_err().to_string();
        assert!(error.contains("no text column \"text\""), "{error}");
    }

    #[test]
    fn a_file_of_conversations_that_is_cut_short_or_damaged_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        write_messages(&path, &[&[Some(SUM), None], &[Some(&SUM[2..])]]);
        let bytes = std::fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            for damage in [bytes[..at].to_vec(), [&bytes[..at], &[!bytes[at]], &bytes[at + 1..]].concat()] {
                std::fs::write(&path, damage).unwrap();
                if let Err(error) = read_as(TextFormat::Chat, &path) {
                    assert!(error.to_string().contains("a.parquet"), "{error}");
                }
            }
        }
    }

    #[test]
    fn long_rows_are_read_one_at_a_time_and_short_ones_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        let long = "long ".repeat(3 << 20);
        for (answer, at_once) in [("short", MAX_ROWS), (&*long, 1)] {
            let messages = [("user", "?"), ("assistant", answer)];
            write_messages(&path, &[&[Some(&messages), Some(SUM)]]);
            let reader = SerializedFileReader::new(Whole(File::open(&path).unwrap())).unwrap();
            let schema = reader.metadata().file_metadata().schema_descr();
            assert_eq!(rows_at_once(reader.metadata().row_group(0), schema), at_once);
            assert_eq!(read_as(TextFormat::Chat, &path).unwrap().masked.len(), 2);
        }
    }
}
