//! Errors of the command line: one line with the problem, and one with a hint.

use std::fmt;
use std::io::ErrorKind;

use super::output::Output;
use crate::config::ResolveError;
use crate::observe::progress;

/// Exit status of an error that the user can correct.
const THEIRS: u8 = 2;
/// Exit status of every other error.
const OURS: u8 = 1;
/// The exit status after a panic, as Rust has it.
#[cfg(feature = "network")]
pub const DEFECT: u8 = 101;
/// The exit status of a program that was interrupted.
pub const INTERRUPTED: u8 = 130;

/// The command was interrupted, and has stopped cleanly.
#[derive(Debug, thiserror::Error)]
#[error("stopped; run the same command again to resume")]
pub struct Interrupted;

/// An error that the user can correct. Anywhere in a chain of errors, it sets the exit status 2.
#[derive(Debug)]
pub struct Mistake {
    message: String,
    hint: Option<String>,
}

impl Mistake {
    /// The message names the file, key or address, and the problem.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), hint: None }
    }

    /// Adds what to do.
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

/// Turns an error into a [`Mistake`], if the command knows that the user can correct it.
pub trait OrMistake<T> {
    fn or_mistake(self, hint: impl fmt::Display) -> Result<T, Mistake>;
}

impl<T, E: fmt::Display> OrMistake<T> for Result<T, E> {
    fn or_mistake(self, hint: impl fmt::Display) -> Result<T, Mistake> {
        self.map_err(|error| Mistake::new(error).hint(hint))
    }
}

/// Prints an error on standard error (for programs also as a last line of output) and returns the exit status.
pub(super) fn report(error: &anyhow::Error, output: Output) -> u8 {
    let mistake = error.chain().find_map(|cause| cause.downcast_ref::<Mistake>());
    let message = one_line(&with_causes(error));
    if progress::is_stuck() {
        return status(error, mistake.is_some());
    }
    if error.is::<Interrupted>() {
        // The user wanted it: no error. The reader may be gone.
        let _ = output.complain(&message);
        let _ = output.json(&serde_json::json!({ "event": "interrupted", "message": message }));
        return INTERRUPTED;
    }
    let hint = mistake.and_then(|mistake| mistake.hint.as_deref()).or_else(|| of_the_disk(error));
    // The reader may be gone.
    let _ = output.complain(&format!("error: {message}"));
    if let Some(hint) = hint {
        let _ = output.complain(&format!("hint: {hint}"));
    }
    let _ = output.json(&serde_json::json!({ "event": "error", "message": message, "hint": hint }));
    status(error, mistake.is_some() || of_the_disk(error).is_some())
}

/// An error and its causes. One that is told already, by an error that wraps it, is not told again.
pub fn with_causes(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if cause.starts_with(&told) {
            told = cause;
        } else if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

/// The hint if the disk rejects writes, which only the user can correct.
fn of_the_disk(error: &anyhow::Error) -> Option<&'static str> {
    let kinds = error.chain().filter_map(|cause| Some(cause.downcast_ref::<std::io::Error>()?.kind()));
    let hint = |kind| match kind {
        ErrorKind::StorageFull => Some("free some disk space and start again; no stored data is lost"),
        ErrorKind::QuotaExceeded => {
            Some("raise disk_bytes, or this user's quota on the disk, and start again; no stored data is lost")
        }
        ErrorKind::FileTooLarge => {
            Some("allow larger files (ulimit -f), or use another disk, and start again; no stored data is lost")
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Some("make it readable and writable for this user, or name another folder")
        }
        ErrorKind::NotADirectory => Some("a file is where a folder should be: name another folder"),
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
    fn each_cause_is_told_once() {
        let told = |causes: &[&str]| {
            let [first, others @ ..] = causes else { panic!("no cause") };
            let error =
                others.iter().fold(anyhow::anyhow!(first.to_string()), |error, cause| error.context(cause.to_string()));
            with_causes(&error)
        };
        assert_eq!(
            told(&["denied (os error 1)", "cannot write a: denied (os error 1); look at it"]),
            "cannot write a: denied (os error 1); look at it"
        );
        assert_eq!(
            told(&["cannot make the folder a: denied", "cannot make the folder"]),
            "cannot make the folder a: denied"
        );
        assert_eq!(told(&["port 4001 is taken", "peer a"]), "peer a: port 4001 is taken");
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
