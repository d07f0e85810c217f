//! Reading a corpus from plain text, which is cut into documents at line ends.

use std::io;
use std::path::Path;

use crate::text::corpus::collector::Collector;
use crate::text::corpus::error::{CorpusError, unreadable};
use crate::text::corpus::left_out::{At, Reason};
use crate::text::corpus::lines::Lines;
use crate::text::corpus::unpack::Packing;
use crate::text::documents::Cutter;

/// A file with more damage than one character in so many is probably not UTF-8 text.
const MAX_DAMAGED_SHARE: u64 = 100;

/// Reads a file once to learn whether it is text, and again for its text.
pub(super) fn read(
    (path, packing): (&Path, Packing),
    kind: &str,
    target_bytes: usize,
    into: &mut Collector<'_>,
) -> Result<(), CorpusError> {
    let failed = |error: io::Error| unreadable(path, error);
    let (characters, damaged) = damage(path, packing, into).map_err(failed)?;
    if characters == 0 {
        into.leave_out(Reason::Empty);
        return Ok(());
    }
    if damaged * MAX_DAMAGED_SHARE > characters {
        into.leave_out(Reason::NotText);
        return Ok(());
    }
    let mut lines = Lines::open(path, packing, into.stop).map_err(failed)?;
    let (before, mut piece) = (into.progress.0, Vec::new());
    let mut cutter = Cutter::new(target_bytes);
    while lines.piece(&mut piece).map_err(failed)? {
        into.go_on()?;
        into.at(At::Line(lines.number().max(1)));
        into.progress.0 = before + lines.read_bytes();
        let text = String::from_utf8_lossy(&piece);
        if matches!(text, std::borrow::Cow::Owned(_)) {
            into.leave_out(Reason::Repaired);
        }
        cutter.line(&text);
        cutter.ready().iter().try_for_each(|document| into.add(kind, document))?;
    }
    cutter.finish().iter().try_for_each(|document| into.add(kind, document))
}

/// The number of characters of a file, and how many of them are zeros or not UTF-8.
fn damage(path: &Path, packing: Packing, into: &Collector<'_>) -> io::Result<(u64, u64)> {
    let (mut characters, mut damaged) = (0, 0);
    let (mut lines, mut piece) = (Lines::open(path, packing, into.stop)?, Vec::new());
    while lines.piece(&mut piece)? {
        for chunk in piece.utf8_chunks() {
            let (valid, wrong) = (chunk.valid(), !chunk.invalid().is_empty());
            characters += valid.chars().count() as u64 + u64::from(wrong);
            damaged += valid.bytes().filter(|byte| *byte == 0).count() as u64 + u64::from(wrong);
        }
    }
    Ok((characters, damaged))
}
