//! Unpacking: gzip, Zstandard, bzip2 and xz, known by their first bytes.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;

/// Bytes that are unpacked at once.
const BUFFER_BYTES: usize = 1 << 16;

/// Limit of memory for unpacking xz; `xz -9` needs 65 MiB.
const MAX_XZ_KIB: u32 = 128 << 10;

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    None,
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

impl Packing {
    /// By the first bytes.
    pub(super) fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame, or a skippable frame.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, ..] => Self::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            _ => Self::None,
        }
    }

    /// By the ending of a file's name.
    pub(super) fn of_ending(ending: &str) -> Self {
        match ending {
            "gz" | "gzip" | "tgz" => Self::Gzip,
            "zst" | "zstd" => Self::Zstd,
            "bz2" => Self::Bzip2,
            "xz" => Self::Xz,
            _ => Self::None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "Zstandard",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
        }
    }
}

/// An open file, unpacked while it is read.
pub(super) struct Unpacked<'a> {
    reader: Box<dyn Read + 'a>,
    packing: Packing,
    read: Rc<Cell<u64>>,
}

impl<'a> Unpacked<'a> {
    /// Reads fail when the user asks to stop.
    pub(super) fn open(path: &Path, packing: Packing, stop: &'a AtomicBool) -> io::Result<Self> {
        let read = Rc::new(Cell::new(0));
        let counted = Counted { file: File::open(path)?, read: read.clone(), stop };
        let file = BufReader::with_capacity(BUFFER_BYTES, counted);
        let reader: Box<dyn Read + 'a> = match packing {
            Packing::None => Box::new(file),
            Packing::Gzip => Box::new(GzipMembers { member: Some(GzDecoder::new(file)) }),
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(file)?),
            Packing::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(file)),
            Packing::Xz => Box::new(XzReader::new_mem_limit(file, true, MAX_XZ_KIB)),
        };
        Ok(Self { reader, packing, read })
    }

    /// Bytes read of the file on the disk, shared with the reader.
    pub(super) fn read_bytes(&self) -> Rc<Cell<u64>> {
        self.read.clone()
    }
}

impl Read for Unpacked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer).map_err(|error| explained(self.packing, error))
    }
}

/// Errors of packed data in words of what to do.
fn explained(packing: Packing, error: io::Error) -> io::Error {
    if packing == Packing::None || error.kind() == ErrorKind::Interrupted || error.raw_os_error().is_some() {
        return error;
    }
    let (name, said) = (packing.name(), error.to_string());
    let memory = said.contains("requires too much memory") || error.kind() == ErrorKind::OutOfMemory;
    io::Error::other(match error.kind() {
        _ if memory => format!(
            "its {name} window needs more than 128 MiB of memory to unpack; unpack it (zstd -d --long=31, or xz -d) and \
             pack it again without --long"
        ),
        ErrorKind::UnexpectedEof => format!("the {name} data is cut short; fetch the file again"),
        _ if said.contains("incomplete frame") => format!("the {name} data is cut short; fetch the file again"),
        _ => format!("the {name} data is damaged: {said}; fetch the file again"),
    })
}

/// A file with a count of the bytes read, until the user asks to stop.
struct Counted<'a> {
    file: File,
    read: Rc<Cell<u64>>,
    stop: &'a AtomicBool,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("stopped"));
        }
        let count = self.file.read(buffer)?;
        self.read.set(self.read.get() + count as u64);
        Ok(count)
    }
}

/// Members of a gzip file, one after the other. Zeros behind the last one, with which tapes and some programs fill the
/// file, are passed over, as gzip does.
struct GzipMembers<R> {
    /// `None` at the end.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some(member) = self.member.take() else { break };
            let mut rest = member.into_inner();
            let zeros = pass_over_zeros(&mut rest)?;
            match rest.fill_buf()? {
                [] => {}
                [0x1f, ..] if !zeros => self.member = Some(GzDecoder::new(rest)),
                _ => return Err(io::Error::other("other data stands behind it")),
            }
        }
        Ok(0)
    }
}

/// Whether there were any.
fn pass_over_zeros(reader: &mut impl BufRead) -> io::Result<bool> {
    let mut any = false;
    loop {
        let buffer = reader.fill_buf()?;
        let zeros = buffer.iter().take_while(|byte| **byte == 0).count();
        if zeros == 0 {
            return Ok(any);
        }
        reader.consume(zeros);
        any = true;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("packed");
        std::fs::write(&path, bytes).unwrap();
        let (stop, mut out) = (AtomicBool::new(false), Vec::new());
        Unpacked::open(&path, Packing::of(bytes), &stop)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn every_packing_gives_back_what_was_packed() {
        let text = b"a line\n".repeat(50_000);
        let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
        xz.write_all(&text).unwrap();
        let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        bzip2.write_all(&text).unwrap();
        let zstd = zstd::encode_all(&text[..], 1).unwrap();
        for packed in [gzip(&text), zstd, xz.finish().unwrap(), bzip2.finish().unwrap(), text.clone()] {
            assert!(unpacked(&packed).unwrap() == text);
            if Packing::of(&packed) != Packing::None {
                let cut = unpacked(&packed[..packed.len() - 3]).unwrap_err().to_string();
                assert!(cut.contains("cut short") || cut.contains("damaged"), "{cut}");
            }
        }
    }

    #[test]
    fn gzip_members_follow_each_other_and_zeros_end_them() {
        let two = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(unpacked(&two).unwrap(), b"one two");
        let filled = [two.clone(), vec![0; 70_000]].concat();
        assert_eq!(unpacked(&filled).unwrap(), b"one two");
        let more = [two, b"more".to_vec()].concat();
        assert!(unpacked(&more).unwrap_err().to_string().contains("other data stands behind it"));
    }

    #[test]
    fn a_window_that_is_too_large_says_what_to_do() {
        // A frame header of a window of 256 MiB, and an empty last block.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, (28 - 10) << 3, 0x01, 0x00, 0x00];
        let error = unpacked(&frame).unwrap_err().to_string();
        assert!(error.contains("more than 128 MiB") && error.contains("--long"), "{error}");
    }
}
