//! Invariant: a path resumes with its residual, so that the next outer gradient contains what compression dropped.

use crate::names::{BlobRef, PathId};
use crate::protocol::journal::record::Record;

/// The last trainer state of a path, from the journal of its holder.
fn left(journal: &[Record], path: PathId) -> Option<BlobRef> {
    let (mut holds, mut left) = (false, None);
    for record in journal {
        match record {
            Record::Lease { path: of, held, .. } if *of == path => {
                holds = *held;
                left = left.filter(|_| holds);
            }
            Record::Finished(finished) if finished.path == path && holds => left = Some(finished.trainer),
            Record::Trainer { path: of, trainer } if *of == path => left = Some(*trainer),
            _ => {}
        }
    }
    left
}

/// # Errors
/// If the phase starts from other state.
pub fn look(journal: &[Record], path: PathId, trainer: Option<BlobRef>) -> Result<(), String> {
    let left = left(journal, path);
    if trainer == left {
        return Ok(());
    }
    let name = |blob: Option<BlobRef>| blob.map_or_else(|| "nothing".to_owned(), |blob| blob.hash.short().to_string());
    Err(format!("path {path} goes on with {}, but {} was left", name(trainer), name(left)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Phase;
    use crate::protocol::journal::record::Finished;

    #[test]
    fn a_phase_that_begins_without_its_trainer_state_is_found() {
        let path = PathId(3);
        let [first, second] = [&b"first"[..], b"second"].map(BlobRef::of);
        let lease = |held| Record::Lease { path, held, standby: false };
        let finished = Record::Finished(Finished {
            path,
            phase: Phase(0),
            steps: 1,
            offers: vec![],
            trainer: second,
            base_states: vec![],
        });
        let mut journal = vec![lease(true)];
        assert_eq!(look(&journal, path, None), Ok(()));
        journal.push(Record::Trainer { path, trainer: first });
        journal.push(finished.clone());
        assert_eq!(look(&journal, path, Some(second)), Ok(()));
        for wrong in [None, Some(first)] {
            assert!(look(&journal, path, wrong).is_err_and(|wrong| wrong.starts_with("path 3 goes on with")));
        }
        // The residual moves with the path.
        journal.extend([lease(false), finished, lease(true)]);
        assert_eq!(look(&journal, path, None), Ok(()));
    }
}
