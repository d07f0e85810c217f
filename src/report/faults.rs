//! What went wrong, as `pathswarm.log` says: its warnings and errors, alike ones together.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use crate::report::html::clipped;

/// Kinds that are listed: further ones are only counted.
const MOST_KINDS: usize = 60;
/// Characters of a message, and of what it names.
const MOST_CHARACTERS: usize = 300;

/// Beginnings of what the log says, or parts of it, and what the program does about it.
const WHAT_BECAME: [(&str, &str); 17] = [
    ("the disk rejects writes", "training waited, and nothing was lost; it went on when there was room"),
    ("the trainer", "another trainer went on from the last stored state"),
    ("an owner is replaced", "another member became the module's owner and collected again"),
    ("an audit found a wrong update", "the update was undone, and its owner stays quarantined"),
    ("a chain is rolled back", "contributions of honest peers are offered again"),
    ("quarantined for now", "its offers are not used for a while"),
    ("an update was rejected", "the module stayed as it was before"),
    ("a heavier chain replaced ours", "the module goes on from the state that more work went into"),
    ("a contribution became too old", "it is lost: the module goes on without it"),
    ("came without its trainer state", "the path goes on; its optimizer began anew"),
    ("a peer sent wrong bytes", "they were not used; another peer was asked"),
    ("two machines run with the key of one peer", "each is told; the owner of the key has to stop one"),
    ("the access of a peer was revoked", "others do not connect to it any more"),
    ("does not admit this peer", "this peer could not take part until it was invited"),
    ("a message was not sent", "it is repeated in the next heartbeat"),
    ("released", "disk space was made; what was removed can be fetched again"),
    ("the time to leave is over", "others took over what was left when they noticed"),
];

/// Messages of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) is_error: bool,
    /// What the log says, without what it names.
    pub(super) said: String,
    pub(super) count: u64,
    /// When it was said first and last, as the log has it.
    pub(super) first: String,
    pub(super) last: String,
    /// What the first one names, such as the module.
    pub(super) names: String,
}

impl Fault {
    /// What the program did about it; `None` if that is not known.
    pub(super) fn became(&self) -> Option<&'static str> {
        WHAT_BECAME.iter().find(|(part, _)| self.said.contains(part)).map(|(_, became)| *became)
    }
}

/// All that were found in a log.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// Whether there is a log at all.
    pub(super) has_log: bool,
    /// Errors first, then the commonest.
    pub(super) kinds: Vec<Fault>,
    /// Messages of kinds that are not listed.
    pub(super) unlisted: u64,
}

impl Faults {
    /// Reads both files of a folder's log.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(super) fn read(folder: &Path) -> std::io::Result<Self> {
        let (mut faults, mut kinds) = (Self::default(), BTreeMap::new());
        for name in ["pathswarm.log.1", "pathswarm.log"] {
            let file = match File::open(folder.join(name)) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file?,
            };
            faults.has_log = true;
            for line in BufReader::new(file).split(b'\n') {
                faults.takes(&String::from_utf8_lossy(&line?), &mut kinds);
            }
        }
        faults.kinds = kinds.into_values().collect();
        faults.kinds.sort_by_key(|fault| (!fault.is_error, std::cmp::Reverse(fault.count)));
        Ok(faults)
    }

    fn takes(&mut self, line: &str, kinds: &mut BTreeMap<(bool, String), Fault>) {
        let Some(fault) = read_line(line) else { return };
        let key = (fault.is_error, fault.said.clone());
        if kinds.len() >= MOST_KINDS && !kinds.contains_key(&key) {
            self.unlisted += 1;
            return;
        }
        let known = kinds.entry(key).or_insert_with(|| Fault { count: 0, ..fault.clone() });
        known.count += 1;
        known.last = fault.last;
    }
}

/// A warning or an error; `None` for other lines.
fn read_line(line: &str) -> Option<Fault> {
    let (time, rest) = line.split_once(char::is_whitespace)?;
    let (level, rest) = rest.trim_start().split_once(' ')?;
    let is_error = match level {
        "ERROR" => true,
        "WARN" => false,
        _ => return None,
    };
    let mut said = rest;
    // In front of what is said stand spans and the place in the program.
    while let Some((before, after)) = said.split_once(": ") {
        let is_place = before.contains("::") && !before.contains(' ');
        if !is_place && !before.contains('{') && before.contains(' ') {
            break;
        }
        said = after;
        if is_place {
            break;
        }
    }
    let words: Vec<&str> = said.split(' ').collect();
    let names_from = words.iter().position(|word| is_field(word)).unwrap_or(words.len());
    Some(Fault {
        is_error,
        said: clipped(&words[..names_from].join(" "), MOST_CHARACTERS),
        count: 1,
        first: time.to_owned(),
        last: time.to_owned(),
        names: clipped(&words[names_from..].join(" "), MOST_CHARACTERS),
    })
}

/// Such as `module=0.1`.
fn is_field(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|character| character.is_ascii_lowercase() || character == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
2026-01-01T00:00:01.000000Z  INFO peer{key=15c6}: pathswarm::peer::driver::actions: took a path path=0
2026-01-01T00:00:02.000000Z  WARN peer{key=15c6}: pathswarm::peer::driver::actions: an owner is replaced module=0.1 owner=4c4a reason=\"it is silent\"
2026-01-01T00:00:03.000000Z  WARN peer{key=15c6}: pathswarm::peer::driver::actions: an owner is replaced module=1.1 owner=4c4a
2026-01-01T00:00:04.000000Z ERROR pathswarm::peer::driver::tasks: the trainer has failed and is restarted error=<b>out of memory</b>
2026-01-01T00:00:05.000000Z  WARN libp2p_kad: something else: it is unknown
";

    #[test]
    fn alike_faults_are_one_line_and_errors_come_first() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("pathswarm.log"), LOG).unwrap();
        let faults = Faults::read(folder.path()).unwrap();
        let said: Vec<_> = faults.kinds.iter().map(|fault| (fault.said.as_str(), fault.count)).collect();
        let expected = [
            ("the trainer has failed and is restarted", 1),
            ("an owner is replaced", 2),
            ("something else: it is unknown", 1),
        ];
        assert_eq!(said, expected);
        let replaced = &faults.kinds[1];
        assert_eq!(replaced.names, "module=0.1 owner=4c4a reason=\"it is silent\"");
        assert!(replaced.first.contains("00:00:02") && replaced.last.contains("00:00:03"));
        assert!(replaced.became().unwrap().contains("became the module's owner"));
        assert_eq!((faults.kinds[2].became(), faults.has_log), (None, true));
    }

    #[test]
    fn without_a_log_that_is_said_apart_from_a_log_without_faults() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!Faults::read(folder.path()).unwrap().has_log);
        std::fs::write(folder.path().join("pathswarm.log"), "").unwrap();
        let faults = Faults::read(folder.path()).unwrap();
        assert!(faults.has_log && faults.kinds.is_empty());
    }
}
