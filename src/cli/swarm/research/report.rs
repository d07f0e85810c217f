//! `pathswarm report`: runs and experiments as one file for people.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::cli::swarm::Globals;
use crate::cli::swarm::mistake::{Mistake, OrMistake};
use crate::report::{ReportError, Subjects};

/// Runs and experiments on one page: a file that opens without a network.
#[derive(Args)]
pub struct Report {
    /// Folders of peers, of simulations, of collected runs, or of experiments' results. Curves of several runs are laid
    /// over each other.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The file to write, such as report.html.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Replace a file that is there.
    #[arg(long)]
    force: bool,
    /// Leave out words and examples of the text, and samples.
    #[arg(long)]
    without_text: bool,
}

impl Report {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        let target = Target::begin(&self.out, self.force)?;
        let mut subjects = Subjects::read(&self.runs).map_err(explain)?;
        if self.without_text {
            subjects.leave_out_text();
        }
        let page = subjects.page()?;
        target.finish(page.as_bytes())?;
        let (out, bytes) = (self.out.display().to_string(), page.len());
        globals.output().text(&format!("{out}: {:.0} kB, to open in any browser", bytes as f64 / 1e3))?;
        globals.output().json(&json!({ "event": "result", "file": out, "bytes": bytes }))?;
        Ok(())
    }
}

fn explain(error: ReportError) -> Mistake {
    let hint = match error {
        ReportError::Nothing(_) => {
            "name the folder of a peer, of a simulation, of a collected run, or one with an experiment's results.json"
        }
        ReportError::Unreadable { .. } => "mend the file, or report another folder",
    };
    Mistake::new(error).hint(hint)
}

/// A file that is there once it is whole: it is written beside its place, and then put there.
struct Target<'a> {
    path: &'a Path,
    beside: PathBuf,
    file: File,
    replaces: bool,
}

impl<'a> Target<'a> {
    /// Before any work: whether the file can be written, and whether there is one already.
    fn begin(path: &'a Path, replaces: bool) -> Result<Self, Mistake> {
        let shown = path.display();
        match std::fs::symlink_metadata(path) {
            Ok(about) if about.is_dir() => {
                return Err(Mistake::new(format!("--out {shown} is a folder")).hint("name a file, such as report.html"));
            }
            Ok(_) if !replaces => return Err(exists(path)),
            _ => {}
        }
        let name = path.file_name().ok_or_else(|| {
            Mistake::new(format!("--out {shown} has no file name")).hint("name a file, such as report.html")
        })?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".unfinished-{}", std::process::id()));
        let beside = path.with_file_name(hidden);
        let file = OpenOptions::new().write(true).create_new(true).open(&beside);
        let file = file.map_err(|error| format!("--out {shown} cannot be written: {error}"));
        let file = file.or_mistake("name a file in a folder that is there and that you may write to")?;
        Ok(Self { path, beside, file, replaces })
    }

    fn finish(mut self, contents: &[u8]) -> anyhow::Result<()> {
        self.file.write_all(contents)?;
        self.file.sync_all()?;
        if self.replaces {
            return Ok(std::fs::rename(&self.beside, self.path)?);
        }
        // Unlike a rename, a link replaces nothing that has come meanwhile.
        match std::fs::hard_link(&self.beside, self.path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exists(self.path).into()),
            // Some file systems have no links.
            Err(_) if !self.path.exists() => Ok(std::fs::rename(&self.beside, self.path)?),
            linked => Ok(linked?),
        }
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        // Gone after a rename.
        let _ = std::fs::remove_file(&self.beside);
    }
}

fn exists(path: &Path) -> Mistake {
    let message = format!("--out {}: this file exists", path.display());
    Mistake::new(message).hint("name another file, or replace it with --force")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in a folder.
    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn what_is_there_is_replaced_only_by_force_and_nothing_half_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("report.html");
        drop(Target::begin(&out, false).unwrap());
        assert!(names(folder.path()).is_empty(), "work that fails leaves nothing");
        Target::begin(&out, false).unwrap().finish(b"one").unwrap();
        assert!(Target::begin(&out, false).err().unwrap().to_string().contains("this file exists"));
        Target::begin(&out, true).unwrap().finish(b"two").unwrap();
        assert_eq!(
            (std::fs::read(&out).unwrap(), names(folder.path())),
            (b"two".to_vec(), vec!["report.html".to_owned()])
        );
    }

    #[test]
    fn a_file_that_came_while_the_page_was_made_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("report.html");
        let target = Target::begin(&out, false).unwrap();
        std::fs::write(&out, "of somebody else").unwrap();
        assert!(target.finish(b"mine").is_err());
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "of somebody else");
        assert_eq!(names(folder.path()), ["report.html"]);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_noticed_before_any_work() {
        let folder = tempfile::tempdir().unwrap();
        for out in [folder.path().to_owned(), folder.path().join("nowhere/report.html")] {
            assert!(Target::begin(&out, true).is_err(), "{}", out.display());
        }
    }
}
