//! The log: `tracing` to a file in the run's folder. Its size is bounded, and it never overwrites the progress display.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// A log file of this size is renamed, and one older file is kept, so a run's log takes at most twice this.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Lines that may wait for the disk. Further lines are dropped, so that logging never stalls the work.
const WAITING_LINES: usize = 8192;

#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    #[error("cannot write the log {}: {reason}", path.display())]
    File { path: PathBuf, reason: io::Error },
    #[error("{text:?} is not a log level: write error, warn, info, debug or trace, or filters such as pathswarm=debug")]
    Level { text: String },
    #[error("logging has already been started")]
    Twice,
}

/// Writes the waiting lines when dropped.
#[derive(Debug)]
#[must_use = "the log ends when this is dropped"]
pub struct LogGuard {
    _worker: WorkerGuard,
}

/// A level, or filters in the form of `tracing`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter(String);

impl LogFilter {
    /// From `RUST_LOG`; `None` if it is empty or not set.
    pub fn from_environment() -> Result<Option<Self>, LoggingError> {
        let text = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
        text.map(|text| text.parse()).transpose()
    }
}

impl Default for LogFilter {
    fn default() -> Self {
        Self::of_level(LevelFilter::INFO)
    }
}

impl LogFilter {
    /// A bare level applies to this crate; libraries only log warnings.
    fn of_level(level: LevelFilter) -> Self {
        Self(if level == LevelFilter::OFF { "off".to_owned() } else { format!("warn,pathswarm={level}") })
    }
}

impl FromStr for LogFilter {
    type Err = LoggingError;

    fn from_str(text: &str) -> Result<Self, LoggingError> {
        if let Ok(level) = text.parse() {
            return Ok(Self::of_level(level));
        }
        // A single word would be taken for the name of a module, and nothing would be logged.
        match text.contains(['=', ',']) && EnvFilter::try_new(text).is_ok() {
            true => Ok(Self(text.to_owned())),
            false => Err(LoggingError::Level { text: text.to_owned() }),
        }
    }
}

/// Logs to `pathswarm.log` in an existing folder.
pub fn start(folder: &Path, filter: &LogFilter) -> Result<LogGuard, LoggingError> {
    let path = folder.join("pathswarm.log");
    let file = BoundedFile::open(path.clone(), MAX_FILE_BYTES).map_err(|reason| LoggingError::File { path, reason })?;
    let (writer, worker) = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING_LINES).finish(file);
    let filter = EnvFilter::new(&filter.0);
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(false).finish();
    tracing::subscriber::set_global_default(lines).map_err(|_| LoggingError::Twice)?;
    Ok(LogGuard { _worker: worker })
}

/// A file that is renamed to `NAME.1` before it exceeds a bound.
pub struct BoundedFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    most: u64,
}

impl BoundedFile {
    /// Appends to a file of at most so many bytes. With the older one it takes at most twice this.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: PathBuf, most: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path, file, bytes, most })
    }

    fn put_aside(&mut self) -> io::Result<()> {
        let mut older = self.path.clone().into_os_string();
        older.push(".1");
        std::fs::rename(&self.path, older)?;
        *self = Self::open(std::mem::take(&mut self.path), self.most)?;
        Ok(())
    }
}

impl Write for BoundedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes > 0 && self.bytes + bytes.len() as u64 > self.most {
            self.put_aside()?;
        }
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_never_takes_more_than_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pathswarm.log");
        let mut log = BoundedFile::open(path.clone(), 100).unwrap();
        for line in 0..50 {
            writeln!(log, "line {line:>4}").unwrap();
        }
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let older = read(&folder.path().join("pathswarm.log.1"));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        assert!(older.len() <= 100 && read(&path).len() <= 100);
        assert!(read(&path).ends_with("line   49\n") && older.ends_with('\n'));
    }

    #[test]
    fn a_log_goes_on_where_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pathswarm.log");
        for _ in 0..2 {
            writeln!(BoundedFile::open(path.clone(), 100).unwrap(), "hello").unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "hello\nhello\n");
    }

    #[test]
    fn a_level_is_ours_and_nonsense_is_refused() {
        let filter = |text: &str| text.parse::<LogFilter>();
        assert_eq!(filter("DEBUG").unwrap(), LogFilter("warn,pathswarm=debug".to_owned()));
        assert_eq!(filter("info").unwrap(), LogFilter::default());
        assert!(filter("libp2p=trace,info").is_ok());
        for nonsense in ["loud", "pathswarm=loud"] {
            let error = filter(nonsense).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{nonsense:?} is not a log level")), "{error}");
        }
    }
}
