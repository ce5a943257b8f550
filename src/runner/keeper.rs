//! Appends a run's records to the store, in order, at the position where the log is believed to end.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;

use super::error::Error;
use super::hub::Hub;
use super::seal::Sealer;
use crate::clock::Clock;
use crate::id::{Position, ThreadName};
use crate::log::{Durability, Folded, OpenQuestions, Record, RunOutcome, Snapshot, SnapshotMeter, Suspension};
use crate::machine::Machine;
use crate::store::{Append, Appended, Block, Prune, Store, StoreError, ThreadStatus, alarms_of, open_to_people};

pub(crate) struct Keeper {
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Who is to know of new alarms.
    pub(crate) hub: Option<Arc<Hub>>,
    pub(crate) thread: ThreadName,
    pub(crate) durability: Durability,
    /// Takes the secrets out of what is appended, if there are any.
    pub(crate) sealer: Option<Sealer>,
    /// Where the log ends.
    pub(crate) position: Position,
    pub(crate) meter: SnapshotMeter,
    /// The questions that are open there.
    pub(crate) questions: OpenQuestions,
    /// The thread as it was opened, if a snapshot was due then: a run that is stored at its end writes none of its own.
    pub(crate) opened: Option<Box<Snapshot>>,
    /// Whether this is a task of its own on a runtime whose other workers take over when one blocks.
    pub(crate) may_block: bool,
    /// How many checkpoints to keep at least; all of them if nothing is said.
    pub(crate) keep_last: Option<u64>,
    /// The snapshots before which all may go, each with the checkpoints made since: the newest one when the thread was opened, and those written here.
    pub(crate) snapshots: VecDeque<(Position, u64)>,
    /// An append that nobody waits for yet. There is one at most, so that one step may be lost and no more.
    pub(crate) behind: Option<JoinHandle<Result<Appended, StoreError>>>,
}

impl Keeper {
    /// Appends the records. Waits for the disk if `wait`, and always for what was appended before.
    pub(crate) async fn append(&mut self, machine: &Machine, records: Vec<Record>, wait: bool) -> Result<(), Error> {
        let Some(store) = self.store.clone() else { return Ok(()) };
        if self.settle().await? {
            self.forget(&*store).await?;
        }
        if records.is_empty() {
            return Ok(());
        }
        let append = self.unit(machine, records)?;
        let is_ready = append.status == ThreadStatus::Ready;
        let rings = is_ready || append.alarms.as_ref().is_some_and(|alarms| !alarms.is_empty());
        self.count(&append);
        self.position.0 += append.records.len() as u64;
        if wait {
            let appended = now(&*store, append, self.may_block).await?;
            self.meter.appended(appended.record_bytes, appended.snapshot_bytes);
            self.hub.iter().filter(|_| rings).for_each(|hub| hub.wake());
            self.forget(&*store).await
        } else {
            let hub = self.hub.clone().filter(|_| rings);
            self.behind = Some(tokio::spawn(async move {
                let appended = store.append(append).await;
                hub.iter().for_each(|hub| hub.wake());
                appended
            }));
            Ok(())
        }
    }

    /// Takes note of checkpoints and snapshots, where old ones are to go.
    fn count(&mut self, append: &Append) {
        if self.keep_last.is_none() {
            return;
        }
        let is_checkpoint = |record: &&Record| record.checkpoint().is_some_and(|path| path.is_root());
        let checkpoints = append.records.iter().filter(is_checkpoint).count() as u64;
        self.snapshots.iter_mut().for_each(|(_, since)| *since += checkpoints);
        self.snapshots.extend(append.snapshot.as_ref().map(|snapshot| (snapshot.position(), 0)));
    }

    /// Removes what is older than the checkpoints to keep, up to the newest snapshot that allows it.
    async fn forget(&mut self, store: &dyn Store) -> Result<(), Error> {
        let Some(keep) = self.keep_last else { return Ok(()) };
        let Some(newest) = self.snapshots.iter().rposition(|(_, since)| *since >= keep) else { return Ok(()) };
        let (before, _) = self.snapshots[newest];
        self.snapshots.drain(..=newest);
        let (thread, expected) = (self.thread.clone(), self.position);
        store.prune(Prune { thread, before, base: None, expected }).await?;
        Ok(())
    }

    /// Waits for what was appended without waiting. False if there was nothing.
    async fn settle(&mut self) -> Result<bool, Error> {
        let Some(behind) = self.behind.take() else { return Ok(false) };
        let appended = behind.await.map_err(|error| Error::crashed(&error))??;
        self.meter.appended(appended.record_bytes, appended.snapshot_bytes);
        Ok(true)
    }

    fn unit(&mut self, machine: &Machine, records: Vec<Record>) -> Result<Append, Error> {
        let folded = machine.folded();
        // A fork is read from its own snapshot, and so is an upgrade; without one, opening would read what is left behind.
        let forked = records.iter().any(|record| matches!(record, Record::Forked(_) | Record::Upgraded(_)));
        // A run that is stored as one checkpoint is ahead of its log.
        let due = self.durability != Durability::Exit && (forked || self.meter.is_due()) && machine.is_true_to_the_log();
        let next = Position(self.position.0 + records.len() as u64);
        let snapshot = if due { Some(Box::new(Snapshot::of(folded, next)?)) } else { self.opened.take() };
        let (thread, expected) = (self.thread.clone(), self.position);
        let open = self.questions.after(&records);
        let (questions, alarms) = (open.map(open_to_people), open.map(alarms_of));
        let (status, at) = (status(folded), self.clock.now());
        let mut append = Append { thread, expected, records, snapshot, status, questions, alarms, at };
        self.sealer.iter().try_for_each(|sealer| sealer.seal(&mut append, folded))?;
        Ok(append)
    }
}

/// Appends, on this thread if the store can do that: a worker of the runtime may block where others take over its tasks.
async fn now(store: &dyn Store, append: Append, may_block: bool) -> Result<Appended, StoreError> {
    let block: Block<'_> = &|act| tokio::task::block_in_place(act);
    match store.append_here(append, may_block.then_some(block)) {
        Ok(appended) => appended,
        Err(append) => store.append(append).await,
    }
}

/// Whether a task of this runtime may block. Only one that was spawned: others may run where it is forbidden.
pub(crate) fn spawned_may_block() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

/// What a thread is doing, as its records tell.
pub(crate) fn status(folded: &Folded) -> ThreadStatus {
    let Some(run) = &folded.facts.run else { return ThreadStatus::Suspended };
    match &run.ended {
        None => ThreadStatus::Running,
        Some(RunOutcome::Done) => ThreadStatus::Done,
        Some(RunOutcome::Waiting) if folded.facts.is_ready && !folded.is_stuck(&folded.root) => ThreadStatus::Ready,
        Some(RunOutcome::Waiting) if folded.facts.waits_outside() => ThreadStatus::Outside,
        Some(RunOutcome::Waiting) => ThreadStatus::Waiting,
        Some(RunOutcome::Suspended) if run.why == Some(Suspension::ShutDown) => ThreadStatus::Ready,
        Some(RunOutcome::Suspended) => ThreadStatus::Suspended,
        Some(RunOutcome::Failed(_)) => ThreadStatus::Failed,
    }
}
