//! Appends a run's records to the store, in order, at the position where the log is believed to end.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::error::Error;
use super::seal::Sealer;
use crate::clock::Clock;
use crate::id::{Position, ThreadName};
use crate::log::{Durability, Folded, Record, RunOutcome, Snapshot, SnapshotMeter};
use crate::machine::Machine;
use crate::store::{Append, Appended, Store, StoreError, ThreadStatus};

pub(crate) struct Keeper {
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) thread: ThreadName,
    pub(crate) durability: Durability,
    /// Takes the secrets out of what is appended, if there are any.
    pub(crate) sealer: Option<Sealer>,
    /// Where the log ends.
    pub(crate) position: Position,
    pub(crate) meter: SnapshotMeter,
    /// An append that nobody waits for yet. There is one at most, so that one step may be lost and no more.
    pub(crate) behind: Option<JoinHandle<Result<Appended, StoreError>>>,
}

impl Keeper {
    /// Appends the records. Waits for the disk if `wait`, and always for what was appended before.
    pub(crate) async fn append(&mut self, machine: &Machine, records: Vec<Record>, wait: bool) -> Result<(), Error> {
        self.settle().await?;
        let Some(store) = self.store.clone().filter(|_| !records.is_empty()) else { return Ok(()) };
        let append = self.unit(machine, records)?;
        self.position.0 += append.records.len() as u64;
        if wait {
            let appended = store.append(append).await?;
            self.meter.appended(appended.record_bytes, appended.snapshot_bytes);
        } else {
            self.behind = Some(tokio::spawn(async move { store.append(append).await }));
        }
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), Error> {
        if let Some(behind) = self.behind.take() {
            let appended = behind.await.map_err(|error| Error::crashed(&error))??;
            self.meter.appended(appended.record_bytes, appended.snapshot_bytes);
        }
        Ok(())
    }

    fn unit(&self, machine: &Machine, records: Vec<Record>) -> Result<Append, Error> {
        let folded = machine.folded();
        // A fork is read from its own snapshot; without one, opening would read the whole log.
        let forked = records.iter().any(|record| matches!(record, Record::Forked(_)));
        // A run that is stored as one checkpoint is ahead of its log.
        let due = self.durability != Durability::Exit && (forked || self.meter.is_due()) && machine.is_true_to_the_log();
        let next = Position(self.position.0 + records.len() as u64);
        let snapshot = if due { Some(Box::new(Snapshot::of(folded, next)?)) } else { None };
        let (thread, expected) = (self.thread.clone(), self.position);
        let mut append = Append { thread, expected, records, snapshot, status: status(folded), at: self.clock.now() };
        self.sealer.iter().try_for_each(|sealer| sealer.seal(&mut append, folded))?;
        Ok(append)
    }
}

/// What a thread is doing, as its records tell.
pub(crate) fn status(folded: &Folded) -> ThreadStatus {
    let Some(run) = &folded.facts.run else { return ThreadStatus::Suspended };
    match &run.ended {
        None => ThreadStatus::Running,
        Some(RunOutcome::Done) => ThreadStatus::Done,
        Some(RunOutcome::Waiting) => ThreadStatus::Waiting,
        Some(RunOutcome::Suspended) => ThreadStatus::Suspended,
        Some(RunOutcome::Failed(_)) => ThreadStatus::Failed,
    }
}
