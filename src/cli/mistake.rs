//! What went wrong, in one clear line, and what to do about it in another.

use std::fmt;
use std::io::ErrorKind;

use super::output::Output;
use crate::config::ResolveError;

/// The exit status where the user can mend what is wrong.
const THEIRS: u8 = 2;
/// The exit status of every other failure.
const OURS: u8 = 1;
/// The exit status of a program that was interrupted.
pub const INTERRUPTED: u8 = 130;

/// The command was interrupted, and has stopped in order.
#[derive(Debug, thiserror::Error)]
#[error("stopped; run the same command again to resume")]
pub struct Interrupted;

/// Something that the user can mend. Anywhere in a chain of errors, it makes the exit status 2.
#[derive(Debug)]
pub struct Mistake {
    message: String,
    hint: Option<String>,
}

impl Mistake {
    /// Names the file, key or address, and what is wrong with it.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), hint: None }
    }

    /// Says what to do.
    pub fn hint(self, hint: impl fmt::Display) -> Self {
        Self { hint: Some(hint.to_string()), ..self }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Mistake {}

impl From<ResolveError> for Mistake {
    fn from(error: ResolveError) -> Self {
        Self::new(&error).hint(error.hint())
    }
}

/// Turns a failure into a [`Mistake`], where the command knows that the user can mend it.
pub trait OrMistake<T> {
    fn or_mistake(self, hint: impl fmt::Display) -> Result<T, Mistake>;
}

impl<T, E: fmt::Display> OrMistake<T> for Result<T, E> {
    fn or_mistake(self, hint: impl fmt::Display) -> Result<T, Mistake> {
        self.map_err(|error| Mistake::new(error).hint(hint))
    }
}

/// Says on standard error what went wrong (to programs also as a last line of output) and gives the exit status.
pub(super) fn report(error: &anyhow::Error, output: Output) -> u8 {
    let mistake = error.chain().find_map(|cause| cause.downcast_ref::<Mistake>());
    let message = one_line(&format!("{error:#}"));
    let hint = mistake.and_then(|mistake| mistake.hint.as_deref()).or_else(|| of_the_disk(error));
    // Nobody is left to tell if these fail.
    let _ = output.complain(&format!("error: {message}"));
    if let Some(hint) = hint {
        let _ = output.complain(&format!("hint: {hint}"));
    }
    let _ = output.json(&serde_json::json!({ "event": "error", "message": message, "hint": hint }));
    status(error, mistake.is_some() || of_the_disk(error).is_some())
}

/// What to do if the disk does not take what is written; only the user can make room there.
fn of_the_disk(error: &anyhow::Error) -> Option<&'static str> {
    let kinds = error.chain().filter_map(|cause| Some(cause.downcast_ref::<std::io::Error>()?.kind()));
    let hint = |kind| match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Some("free some disk space and start again; no stored data is lost")
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Some("make it readable and writable for this user, or choose another folder with --dir")
        }
        _ => None,
    };
    kinds.filter_map(hint).next()
}

fn status(error: &anyhow::Error, theirs: bool) -> u8 {
    match error.is::<Interrupted>() {
        true => INTERRUPTED,
        false if theirs => THEIRS,
        false => OURS,
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_mistake_is_found_below_its_context() {
        let failed: Result<(), &str> = Err("port 4001 is taken");
        let error = failed.or_mistake("choose another").context("peer a").unwrap_err();
        assert_eq!(format!("{error:#}"), "peer a: port 4001 is taken");
        assert!(error.chain().any(|cause| cause.is::<Mistake>()));
        assert_eq!(one_line("two\n  lines"), "two lines");
    }

    #[test]
    fn a_full_disk_is_the_users_to_mend_wherever_it_was_noticed() {
        #[derive(Debug, thiserror::Error)]
        #[error("the blob was not stored")]
        struct Deep(#[source] std::io::Error);
        let full = Deep(ErrorKind::StorageFull.into());
        assert!(of_the_disk(&anyhow::Error::new(full).context("peer a")).unwrap().starts_with("free some disk space"));
        let other = Deep(ErrorKind::TimedOut.into());
        assert_eq!(of_the_disk(&anyhow::Error::new(other)), None);
    }
}
