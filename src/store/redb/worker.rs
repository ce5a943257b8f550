//! A thread that does the blocking calls, so that no async thread ever does.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use futures_channel::oneshot;
use redb::Database;

use super::super::{Append, Appended, StoreError};
use super::tables;

/// How many appends share one transaction at most.
const BATCH_MAX: usize = 1_000;

type Reply = oneshot::Sender<Result<Appended, StoreError>>;
type Call = Box<dyn FnOnce(&Database, &Path) + Send>;

enum Job {
    Append(Append, Reply),
    Call(Call),
}

/// The queue has no bound of its own: each caller waits for its answer, so it holds at most one job per task at work.
pub(super) struct Worker {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(super) fn start(name: &str, database: Arc<Database>, path: Arc<PathBuf>) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel();
        let spawned = thread::Builder::new().name(name.to_owned()).spawn({
            let path = Arc::clone(&path);
            move || work(&queue, &database, &path)
        });
        let thread = spawned.map_err(|source| StoreError::NoStore {
            path: (*path).clone(),
            why: "no thread could be started for it".to_owned(),
            source: Some(Box::new(source)),
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    pub(super) fn append(&self, append: Append) -> impl Future<Output = Result<Appended, StoreError>> + Send + 'static {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Append(append, reply));
        async move { answer.await.unwrap_or(Err(StoreError::Closed)) }
    }

    pub(super) fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Database, &Path) -> Result<T, StoreError> + Send + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> + Send + 'static {
        let (reply, answer) = oneshot::channel();
        self.send(Job::Call(Box::new(move |database, path| {
            // The caller may have gone.
            let _ = reply.send(call(database, path));
        })));
        async move { answer.await.unwrap_or(Err(StoreError::Closed)) }
    }

    fn send(&self, job: Job) {
        // If the thread is gone the job is dropped, and with it the reply: the caller learns that the store is closed.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }
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

fn work(queue: &Receiver<Job>, database: &Database, path: &Path) {
    while let Ok(job) = queue.recv() {
        match job {
            Job::Call(call) => call(database, path),
            Job::Append(append, reply) => {
                let mut batch = vec![(append, reply)];
                let mut call = None;
                while batch.len() < BATCH_MAX {
                    match queue.try_recv() {
                        Ok(Job::Append(append, reply)) => batch.push((append, reply)),
                        Ok(Job::Call(next)) => {
                            call = Some(next);
                            break;
                        }
                        Err(_) => break,
                    }
                }
                write(batch, database, path);
                if let Some(call) = call {
                    call(database, path);
                }
            }
        }
    }
}

/// One transaction for the whole batch. An append that is refused does not hinder the others.
fn write(batch: Vec<(Append, Reply)>, database: &Database, path: &Path) {
    let (appends, replies): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    match tables::append_all(database, path, &appends) {
        Ok(results) => {
            for (reply, result) in replies.into_iter().zip(results) {
                let _ = reply.send(result);
            }
        }
        Err(error) => {
            let source: Arc<dyn std::error::Error + Send + Sync> = Arc::new(error);
            for reply in replies {
                let source = Box::new(Shared(Arc::clone(&source)));
                let _ = reply.send(Err(StoreError::Io { path: path.to_owned(), what: "written", source }));
            }
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
