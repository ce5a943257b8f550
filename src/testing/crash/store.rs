//! The store as one life sees it: what is appended is seen, and may be the last.

use std::future::pending;
use std::sync::Arc;

use super::CrashPoint;
use super::seen::Life;
use crate::id::ThreadName;
use crate::log::Record;
use crate::store::{
    AlarmRow, Append, Appended, InboxQuery, InboxRow, Loaded, Pending, Prune, Pruned, Reach, ResourceKept, Restore, Store,
    StoreError, ThreadInfo, ThreadQuery,
};

#[derive(Debug)]
pub(super) struct LifeStore {
    pub(super) kept: Arc<dyn Store>,
    pub(super) life: Life,
}

impl LifeStore {
    async fn do_append(&self, append: Append) -> Result<Appended, StoreError> {
        self.alive().await;
        let number = {
            let mut inside = self.life.seen.lock();
            inside.appends += 1;
            inside.appends
        };
        let records = append.records.clone();
        if self.life.reaches(CrashPoint::BeforeAppend(number), || told(&records)) {
            return pending().await;
        }
        let appended = self.kept.append(append).await?;
        self.life.seen.lock().stored(&records);
        if self.life.reaches(CrashPoint::AfterAppend(number), || told(&records)) { pending().await } else { Ok(appended) }
    }

    /// Does not come back in a life that is over.
    async fn alive(&self) {
        if self.life.pulse.is_dead() {
            pending().await
        }
    }
}

impl Store for LifeStore {
    fn append(&self, append: Append) -> Pending<'_, Appended> {
        Box::pin(self.do_append(append))
    }

    fn load<'a>(&'a self, thread: &'a ThreadName, reach: Reach) -> Pending<'a, Loaded> {
        self.kept.load(thread, reach)
    }

    fn threads<'a>(&'a self, query: &'a ThreadQuery) -> Pending<'a, Vec<ThreadInfo>> {
        self.kept.threads(query)
    }

    fn questions<'a>(&'a self, query: &'a InboxQuery) -> Pending<'a, Vec<InboxRow>> {
        self.kept.questions(query)
    }

    fn alarms<'a>(&'a self, behind: Option<&'a AlarmRow>, most: usize) -> Pending<'a, Vec<AlarmRow>> {
        self.kept.alarms(behind, most)
    }

    fn note<'a>(&'a self, key: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        self.kept.note(key)
    }

    fn keep_note<'a>(&'a self, key: &'a str, note: Option<&'a [u8]>) -> Pending<'a, ()> {
        Box::pin(async move {
            self.alive().await;
            self.kept.keep_note(key, note).await
        })
    }

    fn notes<'a>(&'a self, prefix: &'a str, behind: Option<&'a str>, most: usize) -> Pending<'a, Vec<String>> {
        self.kept.notes(prefix, behind, most)
    }

    fn delete<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, bool> {
        Box::pin(async move {
            self.alive().await;
            self.kept.delete(thread).await
        })
    }

    fn restore(&self, restore: Restore) -> Pending<'_, ()> {
        Box::pin(async move {
            self.alive().await;
            self.kept.restore(restore).await
        })
    }

    fn prune(&self, prune: Prune) -> Pending<'_, Pruned> {
        Box::pin(async move {
            self.alive().await;
            self.kept.prune(prune).await
        })
    }

    fn resource<'a>(&'a self, name: &'a str) -> Pending<'a, Option<ResourceKept>> {
        self.kept.resource(name)
    }

    fn keep_resource<'a>(&'a self, name: &'a str, kept: &'a ResourceKept) -> Pending<'a, ()> {
        Box::pin(async move {
            self.alive().await;
            self.kept.keep_resource(name, kept).await
        })
    }
}

/// What an append holds, in a few words.
fn told(records: &[Record]) -> String {
    records.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn word(record: &Record) -> String {
    match record {
        Record::Opened(_) => "the thread".to_owned(),
        Record::RunStarted(_) => "a run".to_owned(),
        Record::Input(input) => format!("{}input", input.path),
        Record::TaskDone(done) => format!("result of {}", done.task),
        Record::AttemptFailed(failed) => format!("failed attempt of {}", failed.task),
        Record::TaskFailed(failed) => format!("failure of {}", failed.task),
        Record::Asked(question) => format!("question \"{}\"", question.key),
        Record::Answered(_) => "an answer".to_owned(),
        Record::Closed(_) => "questions closed".to_owned(),
        Record::Expired(_) => "a question expired".to_owned(),
        Record::Reminded(_) => "a reminder".to_owned(),
        Record::Signalled(signalled) => format!("signal \"{}\"", signalled.name),
        Record::Delivered(_) => "a signal delivered".to_owned(),
        Record::EffectStarted(started) => format!("start of \"{}\"", started.effect.key),
        Record::EffectDone(done) => format!("result of \"{}\"", done.effect.key),
        Record::EffectFailed(failed) => format!("failure of \"{}\"", failed.effect.key),
        Record::EffectDoubted(doubted) => format!("doubt about \"{}\"", doubted.effect.key),
        Record::Marked(marked) => format!("mark \"{}\"", marked.key),
        Record::Compensating(_) => "compensation begins".to_owned(),
        Record::Stepped(stepped) => format!("{}step {}", stepped.path, stepped.step.0),
        Record::Forked(_) => "a fork".to_owned(),
        Record::Upgraded(_) => "an upgrade".to_owned(),
        Record::RunEnded(_) => "end of the run".to_owned(),
    }
}
