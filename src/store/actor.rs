//! The store's threads. Disks block, so nothing that must stay awake touches them itself.
//!
//! One thread has the journal and the index, another does work on blobs: a record never waits behind gigabytes. Both
//! have a bounded mailbox, work in order of arrival, answer through a oneshot, and stop when the last handle is dropped,
//! after what is already in the mailbox.

use std::io;
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use super::blobs::{BlobError, BlobStore};
use super::folder::StoreFolder;
use super::index::{Index, IndexError};
use super::journal::{Journal, JournalError};

/// Commands that wait for the journal and the index. One that finds no room waits for it, and so slows its sender.
pub const MAX_COMMANDS: usize = 64;

/// Jobs that wait for the blobs. Each may hold a module's bytes, hence few.
pub const MAX_BLOB_JOBS: usize = 8;

/// Why the store did not do something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The index.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// A blob.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// Its threads have ended.
    #[error("the store has stopped")]
    Stopped,
}

impl StoreError {
    /// Whether the same may succeed later: see [`super::DiskError::may_pass`]. A journal left in doubt is mended by
    /// [`StoreHandle::rewrite`].
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Journal(error) => error.may_pass(),
            Self::Blob(error) => error.may_pass(),
            Self::Index(_) | Self::Stopped => false,
        }
    }
}

type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// What the first thread does.
enum Command {
    /// Appends to the journal, and replies when it is synced.
    Persist { records: Vec<Vec<u8>>, reply: Reply<u64, JournalError> },
    /// Replaces the journal.
    Rewrite { records: Vec<Vec<u8>>, reply: Reply<u64, JournalError> },
    /// Reads or writes the index.
    Index(Box<dyn FnOnce(&mut Index) + Send>),
}

type BlobJob = Box<dyn FnOnce(&BlobStore) + Send>;

/// Speaks to the store's threads. Dropping the last one stops them.
#[derive(Clone)]
pub struct StoreHandle {
    commands: mpsc::Sender<Command>,
    blob_jobs: mpsc::Sender<BlobJob>,
    blobs: BlobStore,
}

/// Waits for the store's threads, so that a process ends with everything on the disk and the lock released.
pub struct StoreThreads([JoinHandle<()>; 2]);

impl StoreThreads {
    /// Returns when the last handle has been dropped and the work is done.
    pub fn join(self) {
        for thread in self.0 {
            // A thread that panicked has said so on its way; its handle answers `Stopped` from then on.
            let _ = thread.join();
        }
    }
}

/// Starts the threads of a store.
///
/// # Errors
/// If the operating system gives no thread.
pub fn start(store: StoreFolder) -> io::Result<(StoreHandle, StoreThreads)> {
    let StoreFolder { blobs, journal, index, lock, .. } = store;
    let (commands, command_mailbox) = mpsc::channel(MAX_COMMANDS);
    let (blob_jobs, blob_mailbox) = mpsc::channel(MAX_BLOB_JOBS);
    // Both threads hold the lock, so that it outlives the work of each.
    let blob_lock = lock.try_clone()?;
    let records = std::thread::Builder::new().name("store".to_owned()).spawn(move || {
        keep_records(command_mailbox, journal, index);
        drop(lock);
    })?;
    let worker = blobs.clone();
    let blob_work = std::thread::Builder::new().name("blobs".to_owned()).spawn(move || {
        do_blob_jobs(blob_mailbox, &worker);
        drop(blob_lock);
    })?;
    Ok((StoreHandle { commands, blob_jobs, blobs }, StoreThreads([records, blob_work])))
}

/// A reply that nobody waits for any more is dropped.
fn keep_records(mut mailbox: mpsc::Receiver<Command>, mut journal: Journal, mut index: Index) {
    while let Some(command) = mailbox.blocking_recv() {
        match command {
            Command::Persist { records, reply } => {
                let _ = reply.send(journal.append_all(&records).map(|()| journal.bytes()));
            }
            Command::Rewrite { records, reply } => {
                let _ = reply.send(journal.rewrite(&records).map(|()| journal.bytes()));
            }
            Command::Index(job) => job(&mut index),
        }
    }
}

fn do_blob_jobs(mut mailbox: mpsc::Receiver<BlobJob>, blobs: &BlobStore) {
    while let Some(job) = mailbox.blocking_recv() {
        job(blobs);
    }
}

impl StoreHandle {
    /// Appends records to the journal, all of them or none. They are synced when this returns, and not before; only then
    /// may they be acted upon. Gives the size of the journal, which tells when to [`StoreHandle::rewrite`] it.
    ///
    /// # Errors
    /// If the disk is full or fails, or the store has stopped.
    pub async fn persist(&self, records: Vec<Vec<u8>>) -> Result<u64, StoreError> {
        self.ask(|reply| Command::Persist { records, reply }).await
    }

    /// Replaces all records of the journal at once. Gives its size.
    ///
    /// # Errors
    /// If the disk is full or fails, or the store has stopped.
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
    ///
    /// # Errors
    /// Those of the job, or if the store has stopped.
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

    /// Works on blobs on their thread: `store.with_blobs(move |blobs| blobs.put(&bytes)).await`.
    ///
    /// # Errors
    /// Those of the job, or if the store has stopped.
    pub async fn with_blobs<T: Send + 'static>(
        &self,
        job: impl FnOnce(&BlobStore) -> Result<T, BlobError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let run: BlobJob = Box::new(move |blobs| {
            let _ = reply.send(job(blobs));
        });
        self.blob_jobs.send(run).await.map_err(|_| StoreError::Stopped)?;
        Ok(answer.await.map_err(|_| StoreError::Stopped)??)
    }

    /// The blobs themselves, for threads that may block: the trainer's, and transfers on blocking tasks.
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
        let (store, threads) = start(StoreFolder::open(folder.path(), RUN).unwrap()).unwrap();
        let small = store.persist(vec![b"term 1".to_vec(), b"head".to_vec()]).await.unwrap();
        assert!(store.persist(vec![b"cursor".to_vec()]).await.unwrap() > small);
        // Acknowledged means on the disk, also if the process is killed now.
        let (_, records) = Journal::open(&copy_of(&folder.path().join("journal"))).unwrap();
        assert_eq!(records.len(), 3);
        let blob = store.with_blobs(|blobs| blobs.put(b"parameters")).await.unwrap();
        assert_eq!(store.blobs().get(blob.hash, 100).unwrap().unwrap(), b"parameters");
        store.index(|index| index.set_checkpoint(PathId(1), &sample(2))).await.unwrap();
        store.rewrite(vec![b"term 2".to_vec()]).await.unwrap();
        drop(store);
        threads.join();
        let again = StoreFolder::open(folder.path(), RUN).unwrap();
        assert_eq!(again.records, [b"term 2".to_vec()]);
        assert_eq!(again.index.checkpoints().unwrap(), [(PathId(1), sample(2))]);
    }

    fn copy_of(path: &std::path::Path) -> std::path::PathBuf {
        let copy = path.with_extension("copy");
        std::fs::copy(path, &copy).unwrap();
        copy
    }

    #[tokio::test]
    async fn dropped_handles_stop_it_after_the_work_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let (store, threads) = start(StoreFolder::open(folder.path(), RUN).unwrap()).unwrap();
        let persisted: Vec<_> = (0..20u8).map(|i| store.persist(vec![vec![i]])).collect();
        futures::future::try_join_all(persisted).await.unwrap();
        let other = store.clone();
        drop(store);
        other.persist(vec![vec![20]]).await.unwrap();
        drop(other);
        threads.join();
        assert_eq!(StoreFolder::open(folder.path(), RUN).unwrap().records.len(), 21);
    }

    #[tokio::test]
    async fn a_record_does_not_wait_behind_a_blob() {
        let folder = tempfile::tempdir().unwrap();
        let (store, threads) = start(StoreFolder::open(folder.path(), RUN).unwrap()).unwrap();
        let (go_on, held) = std::sync::mpsc::sync_channel::<()>(1);
        let slow = store.with_blobs(move |_| {
            let _ = held.recv();
            Ok(())
        });
        let quick = async {
            store.persist(vec![b"quick".to_vec()]).await.unwrap();
            go_on.send(()).unwrap();
        };
        let (slow, ()) = tokio::join!(slow, quick);
        slow.unwrap();
        drop(store);
        threads.join();
    }

    #[tokio::test]
    async fn a_job_that_panics_is_answered_and_so_is_what_comes_after() {
        let folder = tempfile::tempdir().unwrap();
        let (store, threads) = start(StoreFolder::open(folder.path(), RUN).unwrap()).unwrap();
        let lost = store.with_blobs::<()>(|_| panic!("a made-up defect")).await;
        assert!(matches!(lost, Err(StoreError::Stopped)));
        let after = store.with_blobs(|blobs| blobs.put(b"x")).await;
        assert!(matches!(after, Err(StoreError::Stopped)));
        store.persist(vec![b"the journal goes on".to_vec()]).await.unwrap();
        drop(store);
        threads.join();
    }
}
