//! The store's thread, which owns the journal and the index. Disks block, so asynchronous tasks must not touch them.
//!
//! The thread has a bounded mailbox, works in order of arrival, answers through a oneshot, and stops when the last
//! handle is dropped, after the commands in the mailbox. Blobs are read and written by the threads that need them, so
//! that a record of the journal never waits behind gigabytes.

use std::io;
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::blobs::BlobStore;
use super::folder::StoreFolder;
use super::index::{Index, IndexError};
use super::journal::{Journal, JournalError};
use crate::failpoints::failpoint;

/// Commands that wait for the journal and the index. A full mailbox slows its senders.
pub const MAX_COMMANDS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error("the store has stopped")]
    Stopped,
}

impl StoreError {
    /// Whether the same may succeed later: see [`super::DiskError::is_transient`]. [`StoreHandle::rewrite`] repairs a
    /// journal after a failed write.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Journal(error) => error.is_transient(),
            Self::Index(_) | Self::Stopped => false,
        }
    }
}

type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// The commands of the thread.
enum Command {
    /// Appends to the journal, and replies after the sync.
    Persist { records: Vec<Vec<u8>>, reply: Reply<u64, JournalError> },
    /// Replaces the journal.
    Rewrite { records: Vec<Vec<u8>>, reply: Reply<u64, JournalError> },
    /// Reads or writes the index.
    Index(Box<dyn FnOnce(&mut Index) + Send>),
}

/// A handle of the store's thread, which stops with the last one.
#[derive(Clone)]
pub struct StoreHandle {
    commands: mpsc::Sender<Command>,
    blobs: BlobStore,
}

/// Waits for the store's thread, so that everything is on the disk and the lock released when a process ends.
pub struct StoreThread(JoinHandle<()>);

impl StoreThread {
    /// Returns when the last handle has been dropped and the work is done.
    pub fn join(self) {
        // A thread that panicked has logged it; its handle answers `Stopped` from then on.
        let _ = self.0.join();
    }
}

/// Starts the thread of a store.
pub fn start(store: StoreFolder) -> io::Result<(StoreHandle, StoreThread)> {
    let StoreFolder { blobs, journal, index, lock, .. } = store;
    let (commands, mailbox) = mpsc::channel(MAX_COMMANDS);
    let thread = std::thread::Builder::new().name("store".to_owned()).spawn(move || {
        keep_records(mailbox, journal, index);
        drop(lock);
    })?;
    Ok((StoreHandle { commands, blobs }, StoreThread(thread)))
}

/// Replies without a receiver are dropped.
fn keep_records(mut mailbox: mpsc::Receiver<Command>, mut journal: Journal, mut index: Index) {
    while let Some(command) = mailbox.blocking_recv() {
        failpoint("store");
        match command {
            Command::Persist { records, reply } => {
                let _ = reply.send(journal.append_all(&records).map(|()| noted(&journal, &mut index)));
            }
            Command::Rewrite { records, reply } => {
                let _ = reply.send(journal.rewrite(&records).map(|()| noted(&journal, &mut index)));
            }
            Command::Index(job) => job(&mut index),
        }
    }
}

/// Notes how much of the journal has reached the disk, and returns it. Without the note, a cut journal is not noticed.
fn noted(journal: &Journal, index: &mut Index) -> u64 {
    if let Err(error) = index.set_synced(journal.synced()) {
        tracing::warn!(%error, "the size of the journal was not noted");
    }
    journal.bytes()
}

impl StoreHandle {
    /// Appends records to the journal, all or none. When this returns, they are synced, and only then may they be acted
    /// on. Returns the size of the journal, which tells when to [`StoreHandle::rewrite`] it.
    pub async fn persist(&self, records: Vec<Vec<u8>>) -> Result<u64, StoreError> {
        self.ask(|reply| Command::Persist { records, reply }).await
    }

    /// Replaces all records of the journal atomically. Returns its size.
    pub async fn rewrite(&self, records: Vec<Vec<u8>>) -> Result<u64, StoreError> {
        self.ask(|reply| Command::Rewrite { records, reply }).await
    }

    async fn ask<T, E>(&self, command: impl FnOnce(Reply<T, E>) -> Command) -> Result<T, StoreError>
    where
        StoreError: From<E>,
    {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| StoreError::Stopped)?;
        Ok(answer.await.map_err(|_| StoreError::Stopped)??)
    }

    /// Reads or writes the index on its thread: `store.index(|index| index.peers()).await`.
    pub async fn index<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Index) -> Result<T, IndexError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let run = |reply: Reply<T, IndexError>| {
            Command::Index(Box::new(move |index| {
                let _ = reply.send(job(index));
            }))
        };
        self.ask(run).await
    }

    /// The blobs, for threads that may block: the trainer's, and blocking tasks.
    pub fn blobs(&self) -> &BlobStore {
        &self.blobs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{PathId, RunId};
    use crate::store::index::tests::sample;

    const RUN: RunId = RunId([7; 32]);

    #[tokio::test]
    async fn what_was_acknowledged_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let (store, thread) = start(StoreFolder::open(folder.path(), RUN).unwrap()).unwrap();
        let small = store.persist(vec![b"term 1".to_vec(), b"head".to_vec()]).await.unwrap();
        assert!(store.persist(vec![b"cursor".to_vec()]).await.unwrap() > small);
        // An acknowledged record is on the disk, also if the process is killed now.
        let (_, records) = Journal::open(&copy_of(&folder.path().join("journal"))).unwrap();
        assert_eq!(records.len(), 3);
        let blob = store.blobs().put(b"parameters").unwrap();
        assert_eq!(store.blobs().get(blob.hash, 100).unwrap().unwrap(), b"parameters");
        store.index(|index| index.set_checkpoint(PathId(1), &sample(2))).await.unwrap();
        store.rewrite(vec![b"term 2".to_vec()]).await.unwrap();
        drop(store);
        thread.join();
        let again = StoreFolder::open(folder.path(), RUN).unwrap();
        assert_eq!(again.records, [b"term 2".to_vec()]);
        assert_eq!(again.index.checkpoints().unwrap(), [(PathId(1), sample(2))]);
    }

    #[tokio::test]
    async fn a_journal_that_was_cut_is_refused_and_one_that_was_moved_away_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let (store, thread) = start(StoreFolder::open(folder.path(), RUN).unwrap()).unwrap();
        store.persist(vec![b"genesis".to_vec()]).await.unwrap();
        store.persist(vec![vec![7; 500]]).await.unwrap();
        drop(store);
        thread.join();
        let whole = std::fs::read(&file).unwrap();
        for length in [0, 10, 40, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&file, &whole[..length]).unwrap();
            let error = StoreFolder::open(folder.path(), RUN).err().unwrap().to_string();
            assert!(error.contains("journal ends at byte") && error.contains("index"), "{length}: {error}");
            assert_eq!(std::fs::read(&file).unwrap().len(), length, "nothing is written over it");
        }
        std::fs::write(&file, &whole).unwrap();
        assert_eq!(StoreFolder::open(folder.path(), RUN).unwrap().records.len(), 2);
        std::fs::remove_file(&file).unwrap();
        assert!(StoreFolder::open(folder.path(), RUN).unwrap().records.is_empty());
        std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
        std::fs::remove_dir_all(folder.path().join("index")).unwrap();
        assert_eq!(StoreFolder::open(folder.path(), RUN).unwrap().records.len(), 1, "as the hint says");
    }

    fn copy_of(path: &std::path::Path) -> std::path::PathBuf {
        let copy = path.with_extension("copy");
        std::fs::copy(path, &copy).unwrap();
        copy
    }

    #[tokio::test]
    async fn dropped_handles_stop_it_after_the_work_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let (store, thread) = start(StoreFolder::open(folder.path(), RUN).unwrap()).unwrap();
        let persisted: Vec<_> = (0..20u8).map(|i| store.persist(vec![vec![i]])).collect();
        futures::future::try_join_all(persisted).await.unwrap();
        let other = store.clone();
        drop(store);
        other.persist(vec![vec![20]]).await.unwrap();
        drop(other);
        thread.join();
        assert_eq!(StoreFolder::open(folder.path(), RUN).unwrap().records.len(), 21);
    }

    #[tokio::test]
    async fn after_a_job_that_panics_the_store_has_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let (store, thread) = start(StoreFolder::open(folder.path(), RUN).unwrap()).unwrap();
        let lost = store.index::<()>(|_| panic!("a made-up defect")).await;
        assert!(matches!(lost, Err(StoreError::Stopped)));
        assert!(matches!(store.persist(vec![b"late".to_vec()]).await, Err(StoreError::Stopped)));
        drop(store);
        thread.join();
    }
}
