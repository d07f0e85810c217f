//! `pathswarm prepare`: folders of images, or CIFAR-10, as one file to train on.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::swarm::Globals;
use crate::cli::swarm::mistake::{Mistake, OrMistake, with_causes};
use crate::cli::swarm::output::Output;
use crate::images::{PrepareError, Prepared, PreparedError, PreparedReader, SourceError, prepare};
use crate::observe::{Progress, View};

/// Extension of a prepared file.
const ENDING: &str = "images";

/// Rows of the table of classes that people see; programs get all.
const MOST_ROWS: usize = 100;

/// `pathswarm prepare`
#[derive(Args)]
pub struct Prepare {
    /// Folders whose subfolders are the classes, with JPEG and PNG files in them; or CIFAR-10's binary version: the
    /// folder with data_batch_*.bin to train on, or .bin files.
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<PathBuf>,
    /// The file to write; its name ends with .images.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Pixels along each side: the middle square of each image is scaled to this size.
    #[arg(long, value_name = "PIXELS", default_value_t = 32)]
    side: usize,
    /// Number the classes as this prepared file does: for test images, the training file.
    #[arg(long, value_name = "FILE.images")]
    classes_of: Option<PathBuf>,
}

impl Prepare {
    pub fn run(self, globals: &Globals) -> anyhow::Result<()> {
        self.check_out()?;
        let names = self.class_names()?;
        let made = {
            let (progress, _screen) = Progress::start(View::choose(globals.output().is_json()));
            let mut told = |done, total| progress.stage("images", done, total);
            prepare(&self.sources, self.side, names.as_deref(), &self.out, &mut told).map_err(explain)?
        };
        self.show(&made, globals.output())
    }

    /// An existing file is replaced only if it has this extension.
    fn check_out(&self) -> Result<(), Mistake> {
        let out = self.out.display();
        if self.out.extension().is_none_or(|ending| ending != ENDING) {
            let hint = format!("give a name such as {}", self.out.with_extension(ENDING).display());
            return Err(Mistake::new(format!("--out {out} does not end with .{ENDING}")).hint(hint));
        }
        if self.out.is_dir() {
            return Err(Mistake::new(format!("--out {out} is a folder")).hint("name a file"));
        }
        Ok(())
    }

    /// The classes of another file, if one is named.
    fn class_names(&self) -> Result<Option<Vec<String>>, Mistake> {
        let Some(path) = &self.classes_of else { return Ok(None) };
        let reader = PreparedReader::open(path);
        let reader = reader.map_err(|error| format!("--classes-of: {}", with_causes(&error.into())));
        Ok(Some(reader.or_mistake("give a file that pathswarm prepare has written")?.classes().to_vec()))
    }

    fn show(&self, made: &Prepared, output: Output) -> anyhow::Result<()> {
        let (out, side) = (self.out.display(), self.side);
        let title =
            format!("{out} has {} images of {} classes, {side} by {side} pixels", made.images, made.classes.len());
        output.text(&title)?;
        for line in table(&made.classes) {
            output.text(&line)?;
        }
        if made.unreadable > 0 {
            let first = made.first_unreadable.iter().map(|(path, reason)| format!("{} ({reason})", path.display()));
            let (count, first) = (made.unreadable, first.collect::<Vec<_>>());
            let more = if count > first.len() as u64 { ", …" } else { "" };
            output.text(&format!("left out: {count} unreadable files: {}{more}", first.join(", ")))?;
        }
        for (count, what) in [
            (made.cut, "were not square, and were cropped to the centre"),
            (made.enlarged, "were smaller, and were enlarged"),
            (made.other_files, "other files are not .jpg, .jpeg or .png, and were skipped"),
        ] {
            if count > 0 {
                output.text(&format!("{count} {what}"))?;
            }
        }
        let class = |(name, images): &(String, u64)| json!({ "name": name, "images": images });
        let first = made.first_unreadable.iter().map(|(path, reason)| json!({ "file": path, "reason": reason }));
        let first: Vec<Value> = first.collect();
        output.json(&json!({
            "event": "result", "file": self.out, "side": side, "images": made.images,
            "classes": made.classes.iter().map(class).collect::<Vec<_>>(),
            "unreadable": made.unreadable, "first_unreadable": first, "cut": made.cut, "enlarged": made.enlarged,
            "other_files": made.other_files,
        }))?;
        Ok(())
    }
}

/// A line for each class, up to a limit.
fn table(classes: &[(String, u64)]) -> Vec<String> {
    let shown = &classes[..classes.len().min(MOST_ROWS)];
    let name_width = shown.iter().map(|(name, _)| name.chars().count()).chain(["class".len()]).max().unwrap_or(0);
    let count_width = shown.iter().map(|(_, count)| count.to_string().len()).chain(["images".len()]).max().unwrap_or(0);
    let line = |name: &str, count: &str| format!("  {name:name_width$}  {count:>count_width$}");
    let mut lines = vec![line("class", "images")];
    lines.extend(shown.iter().map(|(name, count)| line(name, &count.to_string())));
    if shown.len() < classes.len() {
        lines.push(format!("  and {} more; --format json lists all", classes.len() - shown.len()));
    }
    lines
}

/// A full or read-only disk has its own hint.
fn explain(error: PrepareError) -> anyhow::Error {
    let hint = match &error {
        PrepareError::Prepared(PreparedError::Disk { .. }) => return error.into(),
        PrepareError::Prepared(PreparedError::Header { field: "side of the images", .. }) => "give another --side",
        PrepareError::Prepared(_) => "rename the classes' folders",
        PrepareError::NothingReadable { .. } | PrepareError::NothingOfClass { .. } => {
            "JPEG and PNG can be read, up to 16384 pixels a side; convert other images first"
        }
        PrepareError::Source(SourceError::UnknownClass { .. }) => {
            "leave --classes-of out to number the classes anew, or remove the images of other classes"
        }
        PrepareError::Source(_) => "give folders whose subfolders are the classes, or .bin files of CIFAR-10",
    };
    Mistake::new(with_causes(&error.into())).hint(hint).into()
}
