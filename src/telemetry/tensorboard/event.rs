//! The records of an event file, as TensorBoard reads them: TFRecord frames around protobuf messages.
//!
//! A frame is the length as u64, a masked CRC-32C of the length, the message, and a masked CRC-32C of the message, all
//! little-endian. The messages are those of TensorFlow's `event.proto` and `summary.proto`, as far as they are written here.

use prost::Message;

/// What the first event of a file says.
const FILE_VERSION: &str = "brain.Event:2";

/// Added to a CRC after it is rotated, so that CRCs of data that has CRCs in it stay useful.
const MASK: u32 = 0xa282_ead8;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub(super) wall_time: f64,
    #[prost(int64, tag = "2")]
    pub(super) step: i64,
    #[prost(string, optional, tag = "3")]
    pub(super) file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub(super) summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub(super) value: Vec<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(string, tag = "1")]
    pub(super) tag: String,
    // Present even if it is 0, as in the `oneof` that it is.
    #[prost(float, optional, tag = "2")]
    pub(super) simple_value: Option<f32>,
}

/// The first event of a file.
pub(super) fn first(wall_time: f64) -> Event {
    Event { wall_time, file_version: Some(FILE_VERSION.to_owned()), ..Event::default() }
}

/// Numbers at one step, by their tags.
pub(super) fn scalars(wall_time: f64, step: u64, values: &[(&str, f64)]) -> Event {
    let value = |(tag, value): &(&str, f64)| Value { tag: (*tag).to_owned(), simple_value: Some(*value as f32) };
    let summary = Summary { value: values.iter().map(value).collect() };
    let step = i64::try_from(step).unwrap_or(i64::MAX);
    Event { wall_time, step, file_version: None, summary: Some(summary) }
}

fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(MASK)
}

/// Adds the frame of an event.
pub(super) fn frame(event: &Event, file: &mut Vec<u8>) {
    let message = event.encode_to_vec();
    let length = (message.len() as u64).to_le_bytes();
    file.extend(length);
    file.extend(masked_crc(&length).to_le_bytes());
    file.extend(&message);
    file.extend(masked_crc(&message).to_le_bytes());
}

/// The events of a file, all of whose CRCs are checked.
#[cfg(test)]
pub(super) fn read(mut file: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    while !file.is_empty() {
        let (length, rest) = file.split_first_chunk::<8>().unwrap();
        let (crc, rest) = rest.split_first_chunk::<4>().unwrap();
        assert_eq!(u32::from_le_bytes(*crc), masked_crc(length));
        let (message, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let (crc, rest) = rest.split_first_chunk::<4>().unwrap();
        assert_eq!(u32::from_le_bytes(*crc), masked_crc(message));
        events.push(Event::decode(message).unwrap());
        file = rest;
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crcs_are_those_of_rfc_3720_masked_as_in_tensorflow() {
        // RFC 3720, B.4: 32 bytes of zeros, and 32 of ones.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c::crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(masked_crc(&[0; 32]), 0x8a91_36aau32.rotate_right(15).wrapping_add(0xa282_ead8));
    }

    /// A file of TensorBoard's own `RecordWriter` with these events.
    const THEIRS: &[u8] = b"\x18\0\0\0\0\0\0\0\xa3\x7fK\x22\x09\0\0\0@\xfcT\xd9A\x1a\x0dbrain.Event:2\xec\xed\x8f\
            \x9d7\0\0\0\0\0\0\0\xe7\xe8\xcaY\x09\0\0`@\xfcT\xd9A\x10\xac\x02*)\x0a\x0b\x0a\x04loss\
            \x15\0\0\0\0\x0a\x1a\x0a\x13outer_gradient/norm\x15\0\0\x80> \x12\xfc\xb9";

    #[test]
    fn the_bytes_are_those_that_tensorboards_own_writer_makes() {
        let mut file = Vec::new();
        frame(&first(1_700_000_000.0), &mut file);
        let values = [("loss", 0.0), ("outer_gradient/norm", 0.25)];
        frame(&scalars(1_700_000_001.5, 300, &values), &mut file);
        assert_eq!(file, THEIRS);
    }

    #[test]
    fn what_is_written_is_read_again_and_a_zero_is_a_value() {
        let events = [first(0.5), scalars(1.5, 7, &[("loss", 0.0), ("outer_gradient/norm", 0.25)])];
        let mut file = Vec::new();
        events.iter().for_each(|event| frame(event, &mut file));
        assert_eq!(read(&file), events);
        let zero = Value { tag: "loss".to_owned(), simple_value: Some(0.0) };
        assert_eq!(zero.encode_to_vec(), b"\x0a\x04loss\x15\0\0\0\0");
    }
}
