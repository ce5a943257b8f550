//! The one writer: it gathers what all threads want to append into one transaction and one sync of the disk.

use std::future::Future;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use flume::{Receiver, Sender};
use futures_channel::oneshot;

use super::file::File;
use super::write::{self, Prepared};
use crate::store::{Append, Appended, Block, StoreError};

/// How many appends share one transaction at most.
const BATCH_MAX: usize = 4_096;
/// How many bytes share one transaction at most, the append that goes beyond included.
const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// How many jobs wait at most. Whoever has one more waits with it.
const QUEUE_MAX: usize = 4_096;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;
type Call = Box<dyn FnOnce(&File) + Send>;

enum Job {
    Append(Box<Prepared>, Reply<Appended>),
    Call(Call),
}

/// A thread that does what blocks, so that no async thread ever does.
pub(super) struct Worker {
    file: Arc<File>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(super) fn start(name: &str, file: &Arc<File>) -> Result<Self, StoreError> {
        let (jobs, queue) = flume::bounded(QUEUE_MAX);
        let theirs = Arc::clone(file);
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || work(&queue, &theirs));
        let thread = spawned.map_err(|source| StoreError::NoStore {
            path: file.path.clone(),
            why: "no thread could be started for it".to_owned(),
            source: Some(Box::new(source)),
        })?;
        Ok(Self { file: Arc::clone(file), jobs: Some(jobs), thread: Some(thread) })
    }

    /// Appends, together with whatever else waits.
    pub(super) fn append(&self, append: Append) -> impl Future<Output = Result<Appended, StoreError>> + Send + use<> {
        // Encoded by whoever appends, and not by the one thread that all wait for.
        let prepared = Prepared::new(&append, self.file.shelf());
        let jobs = self.jobs.clone();
        async move {
            let (reply, answer) = oneshot::channel();
            send(jobs, Job::Append(Box::new(prepared?), reply)).await?;
            answer.await.unwrap_or(Err(StoreError::Closed))
        }
    }

    /// Appends on this thread if nobody else writes, and else hands the append back: two threads that wake each other up cost more than
    /// half a sync of the disk.
    #[allow(clippy::result_large_err, reason = "the error is the append itself, handed back")]
    pub(super) fn append_here(&self, append: Append, block: Block<'_>) -> Result<Result<Appended, StoreError>, Append> {
        let is_idle = self.jobs.as_ref().is_some_and(Sender::is_empty);
        let Some(right) = self.file.to_write_now().filter(|_| is_idle) else { return Err(append) };
        let prepared = match Prepared::new(&append, self.file.shelf()) {
            // Files of their own take longer than one is to be held up here.
            Ok(prepared) if prepared.has_artifacts() => return Err(append),
            Ok(prepared) => prepared,
            Err(error) => return Ok(Err(error)),
        };
        let mut written = Err(StoreError::Closed);
        block(&mut || {
            let one = |database: &_| write::append_all(&self.file, database, &mut [&prepared].into_iter());
            written = self.file.write(&right, one).and_then(|mut results| results.pop().unwrap_or(Err(StoreError::Closed)));
        });
        Ok(written)
    }

    /// Does something else that blocks, in its turn.
    pub(super) fn call<T, C>(&self, call: C) -> impl Future<Output = Result<T, StoreError>> + Send + use<T, C>
    where
        T: Send + 'static,
        C: FnOnce(&File) -> Result<T, StoreError> + Send + 'static,
    {
        let jobs = self.jobs.clone();
        let (reply, answer) = oneshot::channel();
        let job = Job::Call(Box::new(move |file| {
            // The caller may have gone.
            let _ = reply.send(call(file));
        }));
        async move {
            send(jobs, job).await?;
            answer.await.unwrap_or(Err(StoreError::Closed))
        }
    }
}

async fn send(jobs: Option<Sender<Job>>, job: Job) -> Result<(), StoreError> {
    let jobs = jobs.ok_or(StoreError::Closed)?;
    jobs.send_async(job).await.map_err(|_| StoreError::Closed)
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // What is queued is done first. A panic there has already reached everyone who waited.
            let _ = thread.join();
        }
    }
}

fn work(queue: &Receiver<Job>, file: &File) {
    while let Ok(job) = queue.recv() {
        match job {
            Job::Call(call) => call(file),
            Job::Append(append, reply) => {
                // Whoever writes now is waited for before the queue is looked at: what comes in the meantime shares the transaction.
                let right = file.to_write();
                let (batch, call) = gather(queue, (append, reply));
                write_all(file, &right, batch);
                drop(right);
                if let Some(call) = call {
                    call(file);
                }
            }
        }
    }
}

type Batch = Vec<(Box<Prepared>, Reply<Appended>)>;

/// The appends that wait, up to the first other job.
fn gather(queue: &Receiver<Job>, first: (Box<Prepared>, Reply<Appended>)) -> (Batch, Option<Call>) {
    let mut bytes = first.0.bytes();
    let mut batch = vec![first];
    while batch.len() < BATCH_MAX && bytes < BATCH_BYTES {
        match queue.try_recv() {
            Ok(Job::Append(append, reply)) => {
                bytes += append.bytes();
                batch.push((append, reply));
            }
            Ok(Job::Call(call)) => return (batch, Some(call)),
            Err(_) => break,
        }
    }
    (batch, None)
}

/// One transaction for the whole batch. An append that is refused does not hinder the others.
fn write_all(file: &File, right: &std::sync::MutexGuard<'_, ()>, batch: Batch) {
    let written = file.write(right, |database| write::append_all(file, database, &mut batch.iter().map(|(append, _)| &**append)));
    let replies = batch.into_iter().map(|(_, reply)| reply);
    match written {
        Ok(results) => replies.zip(results).for_each(|(reply, result)| _ = reply.send(result)),
        Err(error) => {
            let source: Arc<dyn std::error::Error + Send + Sync> = match error {
                StoreError::Io { source, .. } => Arc::from(source),
                other => Arc::new(other),
            };
            replies.for_each(|reply| _ = reply.send(Err(file.error("written", Shared(Arc::clone(&source))))));
        }
    }
}

/// One error for everyone who waited for the transaction.
#[derive(Debug)]
struct Shared(Arc<dyn std::error::Error + Send + Sync>);

impl std::fmt::Display for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Shared {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
