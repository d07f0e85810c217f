//! Lines and pieces of an unpacked file, with bounded memory.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use crate::text::corpus::unpack::{Packing, Unpacked};

/// Longest piece of a line of plain text.
const PIECE_BYTES: u64 = 1 << 20;

/// A byte-order mark, which is no part of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The lines of a file.
pub(super) struct Lines<'a> {
    reader: BufReader<Unpacked<'a>>,
    /// Of the last line, from 1.
    number: u64,
    read: Rc<Cell<u64>>,
    /// The beginning of a character whose end is in the next piece.
    carried: Vec<u8>,
}

/// A line that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole,
    /// Passed over.
    TooLong,
    /// The file has ended.
    End,
}

impl<'a> Lines<'a> {
    /// Opens a file. A byte-order mark is passed over.
    pub(super) fn open(path: &Path, packing: Packing, stop: &'a AtomicBool) -> io::Result<Self> {
        let unpacked = Unpacked::open(path, packing, stop)?;
        let read = unpacked.read_bytes();
        let mut reader = BufReader::with_capacity(1 << 16, unpacked);
        if reader.fill_buf()?.starts_with(BYTE_ORDER_MARK) {
            reader.consume(BYTE_ORDER_MARK.len());
        }
        Ok(Self { reader, number: 0, read, carried: Vec::new() })
    }

    /// Reads the next line of at most so many bytes into `line`, with its line end.
    pub(super) fn next(&mut self, line: &mut Vec<u8>, most_bytes: usize) -> io::Result<Line> {
        line.clear();
        self.number += 1;
        let count = (&mut self.reader).take(most_bytes as u64 + 1).read_until(b'\n', line)?;
        if count <= most_bytes {
            return Ok(if count > 0 { Line::Whole } else { Line::End });
        }
        while !line.ends_with(b"\n") {
            line.clear();
            if (&mut self.reader).take(PIECE_BYTES).read_until(b'\n', line)? == 0 {
                break;
            }
        }
        line.clear();
        Ok(Line::TooLong)
    }

    /// Reads the next line into `piece`, or the next piece of a long one, which ends between two characters; false at
    /// the end.
    pub(super) fn piece(&mut self, piece: &mut Vec<u8>) -> io::Result<bool> {
        piece.clear();
        piece.append(&mut self.carried);
        let count = (&mut self.reader).take(PIECE_BYTES).read_until(b'\n', piece)?;
        if count as u64 == PIECE_BYTES && !piece.ends_with(b"\n") {
            self.carried = piece.split_off(piece.len() - begun_character(piece));
        } else {
            self.number += 1;
        }
        Ok(!piece.is_empty())
    }

    /// The number of the last line, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes read of the file on the disk.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read.get()
    }

    /// The same count, which goes on with the reader.
    pub(super) fn counter(&self) -> Rc<Cell<u64>> {
        self.read.clone()
    }

    /// The rest of the file.
    pub(super) fn into_reader(self) -> BufReader<Unpacked<'a>> {
        self.reader
    }
}

/// Bytes at the end that begin a character without its end.
fn begun_character(bytes: &[u8]) -> usize {
    let begin = (1..=3.min(bytes.len())).find(|back| bytes[bytes.len() - back] >= 0xc0);
    let long = |first: u8| if first >= 0xf0 { 4 } else { 3 - usize::from(first < 0xe0) };
    begin.filter(|back| *back < long(bytes[bytes.len() - back])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines<'a>(bytes: &[u8], stop: &'a AtomicBool) -> Lines<'a> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, bytes).unwrap();
        Lines::open(&path, Packing::None, stop).unwrap()
    }

    #[test]
    fn a_line_above_the_limit_is_passed_over_and_the_next_is_read() {
        let text = [b"\xef\xbb\xbfone\n".to_vec(), vec![b'x'; 3 << 20], b"\ntwo".to_vec()].concat();
        let (stop, mut line) = (AtomicBool::new(false), Vec::new());
        let mut lines = lines(&text, &stop);
        let mut found = Vec::new();
        loop {
            let next = lines.next(&mut line, 1 << 20).unwrap();
            found.push((next, lines.number(), line.clone()));
            if next == Line::End {
                break;
            }
        }
        let expected =
            [(Line::Whole, 1, b"one\n".to_vec()), (Line::TooLong, 2, vec![]), (Line::Whole, 3, b"two".to_vec())];
        assert_eq!(found[..3], expected);
    }

    #[test]
    fn pieces_of_an_endless_line_end_between_characters() {
        for lead in 0..4 {
            let text = "x".repeat(lead) + &"漢🦀é".repeat(300_000);
            let (stop, mut piece, mut all) = (AtomicBool::new(false), Vec::new(), String::new());
            let mut lines = lines(text.as_bytes(), &stop);
            while lines.piece(&mut piece).unwrap() {
                assert!(piece.len() <= 4 + PIECE_BYTES as usize);
                all += std::str::from_utf8(&piece).unwrap();
            }
            assert!(all == text);
        }
    }

    #[test]
    fn a_reader_stops_when_it_is_asked_to() {
        let stop = AtomicBool::new(false);
        let mut lines = lines(&b"line\n".repeat(100_000), &stop);
        let mut line = Vec::new();
        assert_eq!(lines.next(&mut line, 100).unwrap(), Line::Whole);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!((0..100_000).any(|_| lines.next(&mut line, 100).is_err()));
    }
}
