//! The suite for stores: what comes with ferrata passes it, and a store that breaks one promise is told which.
//!
//! How it could break: a check that no store can fail. So there is a store for each promise that breaks just that one, in the way stores do: it
//! loses a record, it does not look where the log ends, it deletes what begins alike, it leaves threads out between two pages.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ferrata::ThreadName;
use ferrata::log::Record;
use ferrata::store::{
    AlarmRow, Append, Appended, Block, InboxQuery, InboxRow, Loaded, MemoryStore, Order, Pending, Prune, Pruned, Reach,
    RedbStore, ResourceKept, Restore, Store, StoreError, ThreadInfo, ThreadQuery,
};
use ferrata::testing::{Broken, Check, StoreSuite};
use serde_json::Value;
use tempfile::TempDir;

#[tokio::test]
async fn the_store_in_memory_keeps_every_promise_but_to_survive() {
    let kept = StoreSuite::new(|| async { Ok(MemoryStore::new()) }).run().await.expect("it keeps its promises");
    assert_eq!((kept.passed.len(), kept.left_out), (16, vec![Check::Crash]));
}

#[tokio::test]
async fn a_store_behind_an_arc_keeps_them_too() {
    StoreSuite::new(|| async { Ok(Arc::new(MemoryStore::new())) }).run().await.expect("it keeps its promises");
}

/// A folder, with a new path each time.
fn paths() -> (TempDir, impl Fn() -> PathBuf + Clone + Send + Sync + 'static) {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, count) = (dir.path().to_owned(), Arc::new(Mutex::new(0)));
    let next = move || {
        let mut count = count.lock().expect("no panic");
        *count += 1;
        path.join(format!("{count}.redb"))
    };
    (dir, next)
}

/// The file and its artifacts as they lie there while the store is open: what a killed process leaves.
fn image(store: &RedbStore, to: PathBuf) -> Result<RedbStore, StoreError> {
    std::fs::copy(store.path(), &to).expect("a copy of the file");
    let (from, into) = (store.artifacts().expect("a folder of artifacts"), to.with_extension("redb.artifacts"));
    for folder in std::fs::read_dir(from).into_iter().flatten() {
        let folder = folder.expect("an entry").path();
        let inner = into.join(folder.file_name().expect("a name"));
        std::fs::create_dir_all(&inner).expect("a folder");
        for file in std::fs::read_dir(&folder).expect("a folder") {
            let file = file.expect("an entry").path();
            std::fs::copy(&file, inner.join(file.file_name().expect("a name"))).expect("a copy");
        }
    }
    RedbStore::open(to)
}

#[tokio::test]
async fn the_store_in_a_file_keeps_every_promise() {
    let (_dir, next) = paths();
    let fresh = next.clone();
    let suite = StoreSuite::new(move || std::future::ready(RedbStore::open(fresh())));
    let kept = suite.reopen(move |store| std::future::ready(image(&store, next()))).run().await.expect("it keeps its promises");
    assert_eq!((kept.passed.len(), kept.left_out.len()), (17, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn also_shared_and_on_a_runtime_of_many_threads() {
    let (_dir, next) = paths();
    let fresh = next.clone();
    let suite = StoreSuite::new(move || std::future::ready(RedbStore::open(fresh()).map(Arc::new)));
    suite
        .reopen(move |store| std::future::ready(image(&store, next()).map(Arc::new)))
        .run()
        .await
        .expect("it keeps its promises");
}

#[tokio::test]
async fn a_check_that_cannot_be_made_says_what_it_needs() {
    let error = StoreSuite::new(|| async { Ok(MemoryStore::new()) }).check(Check::Crash).await.expect_err("it cannot be made");
    assert!(error.to_string().contains("say how to reopen the store"), "{error}");
    let closed = StoreSuite::<MemoryStore>::new(|| async { Err(StoreError::Closed) }).run().await.expect_err("there is no store");
    assert_eq!(closed.faults().count(), 16);
    assert!(closed.to_string().contains("order: the store cannot be opened: the store is closed"), "{closed}");
}

// ---- stores that break a promise ----

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    /// Writes the first record of an append, and then the others.
    Tears,
    /// Keeps the records of an append that it refused.
    KeepsRefused,
    /// Reads in the order of times.
    SortsByTime,
    /// Loses a record of each large append.
    Drops,
    /// Turns a null into a text.
    Converts,
    /// Does not look where the log ends.
    IgnoresExpected,
    /// Says of a refused append that the log ends where it was expected to.
    TellsWrongNumbers,
    /// Keeps in mind which thread it writes, instead of in the call.
    Mixes,
    /// Reads no more than so many records.
    CutsLongLogs,
    /// Gives the newest snapshot, whatever is asked for.
    AlwaysNewest,
    /// Says that a status began with the last append.
    RenewsSince,
    /// Goes on behind all threads with the time of the last line.
    SkipsEqualTimes,
    /// Begins a page with the last line of the one before.
    RepeatsLines,
    /// Takes names that differ in letter case for one.
    LowersCase,
    /// Takes `_` in a prefix for any letter.
    HasWildcards,
    /// Deletes every thread whose name begins like that.
    DeletesPrefixes,
    /// Puts a thread in place of one that is there.
    Overwrites,
    /// Prunes although the log has gone on.
    PrunesBlindly,
    /// Keeps what it says it has pruned.
    KeepsPruned,
    /// Never takes the last question of a thread for answered.
    KeepsLastQuestion,
    /// Goes on behind all questions with the deadline of the last line.
    SkipsEqualDeadlines,
    /// Keeps the first word on a resource.
    KeepsFirstWord,
    /// Acknowledges the last append of each thread before it is durable.
    ActsEarly,
    KeepsLastAlarm,
    SkipsEqualAlarms,
    KeepsNotes,
    IgnoresPrefixes,
}

/// Which check sees it, and a word of what it says.
const FLAWS: [(Flaw, Check, &str); 27] = [
    (Flaw::Tears, Check::Atomicity, "an append of "),
    (Flaw::KeepsRefused, Check::Atomicity, "there should be no thread"),
    (Flaw::SortsByTime, Check::Order, "is not what was appended"),
    (Flaw::Drops, Check::Order, "were acknowledged"),
    (Flaw::Converts, Check::Order, "is not what was appended"),
    (Flaw::IgnoresExpected, Check::Fencing, "50 were accepted"),
    (Flaw::TellsWrongNumbers, Check::Fencing, "speaks of thread"),
    (Flaw::Mixes, Check::Concurrency, ""),
    (Flaw::CutsLongLogs, Check::Size, "were acknowledged"),
    (Flaw::AlwaysNewest, Check::Reach, "gives the one at Some(24)"),
    (Flaw::RenewsSince, Check::Listing, "is listed as"),
    (Flaw::SkipsEqualTimes, Check::Paging, "the pages of"),
    (Flaw::RepeatsLines, Check::Paging, "list more"),
    (Flaw::LowersCase, Check::Names, "an append to \"T1\""),
    (Flaw::HasWildcards, Check::Names, "thread \"t_\" is listed as None"),
    (Flaw::DeletesPrefixes, Check::Deletion, "delete says that there is no such thread"),
    (Flaw::Overwrites, Check::Restore, "is accepted"),
    (Flaw::PrunesBlindly, Check::Prune, "although the log ends elsewhere"),
    (Flaw::KeepsPruned, Check::Prune, "was loaded whole, and begins with"),
    (Flaw::KeepsLastQuestion, Check::Questions, "the index of open questions has"),
    (Flaw::SkipsEqualDeadlines, Check::Questions, "are left"),
    (Flaw::KeepsLastAlarm, Check::Alarms, "the index of alarms has"),
    (Flaw::SkipsEqualAlarms, Check::Alarms, "in pages of"),
    (Flaw::KeepsNotes, Check::Notes, "was removed, and is there"),
    (Flaw::IgnoresPrefixes, Check::Notes, "that begin with"),
    (Flaw::KeepsFirstWord, Check::Resources, "and not Some(ResourceKept { breaker: HalfOpen"),
    (Flaw::ActsEarly, Check::Crash, "after the first crash"),
];

#[derive(Debug)]
struct Flawed {
    flaw: Flaw,
    store: MemoryStore,
    writing: Mutex<Option<ThreadName>>,
}

impl Flawed {
    fn new(flaw: Flaw) -> Self {
        Self { flaw, store: MemoryStore::new(), writing: Mutex::default() }
    }

    fn name(&self, name: &ThreadName) -> ThreadName {
        if self.flaw == Flaw::LowersCase {
            return ThreadName::new(&name.as_str().to_lowercase()).unwrap_or_else(|_| name.clone());
        }
        name.clone()
    }

    async fn write(&self, mut append: Append) -> Result<Appended, StoreError> {
        append.thread = self.name(&append.thread);
        match self.flaw {
            Flaw::Tears if append.records.len() > 1 => {
                let others = append.records.split_off(1);
                let (thread, expected) = (append.thread.clone(), append.expected.0 + 1);
                let (snapshot, status, at) = (append.snapshot.take(), append.status, append.at);
                let (questions, alarms) = (append.questions.take(), append.alarms.take());
                self.store.append(append).await?;
                tokio::task::yield_now().await;
                self.store
                    .append(Append {
                        thread,
                        expected: ferrata::Position(expected),
                        records: others,
                        snapshot,
                        status,
                        questions,
                        alarms,
                        at,
                    })
                    .await
            }
            Flaw::Drops if append.records.len() > 10 => {
                append.records.pop();
                self.store.append(append).await
            }
            Flaw::KeepsLastQuestion => {
                append.questions = append.questions.filter(|questions| !questions.is_empty());
                self.store.append(append).await
            }
            Flaw::KeepsLastAlarm => {
                append.alarms = append.alarms.filter(|alarms| !alarms.is_empty());
                self.store.append(append).await
            }
            Flaw::Converts => {
                append.records.iter_mut().for_each(convert);
                self.store.append(append).await
            }
            Flaw::Mixes => {
                *self.writing.lock().expect("no panic") = Some(append.thread);
                std::thread::yield_now();
                append.thread = self.writing.lock().expect("no panic").clone().expect("it was set");
                self.store.append(append).await
            }
            Flaw::KeepsRefused | Flaw::IgnoresExpected | Flaw::TellsWrongNumbers => self.push(append).await,
            _ => self.store.append(append).await,
        }
    }

    /// Appends where the log ends, whatever was expected.
    async fn push(&self, append: Append) -> Result<Appended, StoreError> {
        let (thread, wanted) = (append.thread.clone(), append.expected);
        let Append { records, status, questions, alarms, at, .. } = &append;
        let again = (records.clone(), *status, questions.clone(), alarms.clone(), *at);
        let mut result = self.store.append(append).await;
        if self.flaw == Flaw::TellsWrongNumbers {
            if let Err(StoreError::Moved { found, expected, .. }) = &mut result {
                *found = *expected;
            }
            return result;
        }
        let mut next = result;
        while let Err(StoreError::Moved { found, .. }) = next {
            let (records, status, questions, alarms, at) = again.clone();
            next = self
                .store
                .append(Append {
                    thread: thread.clone(),
                    expected: found,
                    records,
                    snapshot: None,
                    status,
                    questions,
                    alarms,
                    at,
                })
                .await;
            if next.is_ok() && self.flaw == Flaw::KeepsRefused {
                return Err(StoreError::Moved { thread, expected: wanted, found });
            }
        }
        next
    }

    async fn read(&self, thread: &ThreadName, reach: Reach) -> Result<Loaded, StoreError> {
        let reach = match reach {
            Reach::Before(_) if self.flaw == Flaw::AlwaysNewest => Reach::Newest,
            reach => reach,
        };
        let mut loaded = self.store.load(&self.name(thread), reach).await?;
        match self.flaw {
            Flaw::SortsByTime => loaded.entries.sort_by_key(|entry| entry.at),
            Flaw::CutsLongLogs => loaded.entries.truncate(4_096),
            _ => {}
        }
        Ok(loaded)
    }

    async fn list(&self, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, StoreError> {
        let mut found = self.store.threads(query).await?;
        let all = self.store.threads(&ThreadQuery::new().limit(1_000)).await?;
        match self.flaw {
            Flaw::RenewsSince => found.iter_mut().for_each(|thread| thread.since = thread.updated_at),
            Flaw::SkipsEqualTimes if query.in_order() != Order::Name => {
                let last = query.place().map(|(since, _)| since);
                found.retain(|thread| Some(thread.since) != last);
            }
            Flaw::RepeatsLines => {
                let last = query.place().map(|(_, name)| name);
                found.splice(0..0, all.into_iter().filter(|thread| Some(&thread.name) == last));
                found.truncate(query.most());
            }
            Flaw::HasWildcards if query.place().is_none() => {
                let letters: Vec<char> = query.name_prefix().chars().collect();
                let like = |thread: &ThreadInfo| {
                    let name: Vec<char> = thread.name.as_str().chars().collect();
                    letters
                        .iter()
                        .enumerate()
                        .all(|(place, letter)| name.get(place).is_some_and(|c| c == letter || *letter == '_'))
                };
                found = query.clone().prefix("").limit(1_000).page(all);
                found.retain(like);
                found.truncate(query.most());
            }
            _ => {}
        }
        Ok(found)
    }

    async fn asked(&self, query: &InboxQuery) -> Result<Vec<InboxRow>, StoreError> {
        let mut found = self.store.questions(query).await?;
        if self.flaw == Flaw::SkipsEqualDeadlines {
            let last = query.place().map(|(deadline, ..)| deadline);
            found.retain(|row| last.is_none() || row.question.deadline != last);
        }
        Ok(found)
    }

    async fn rings(&self, behind: Option<&AlarmRow>, most: usize) -> Result<Vec<AlarmRow>, StoreError> {
        let mut found = self.store.alarms(behind, most).await?;
        if self.flaw == Flaw::SkipsEqualAlarms {
            found.retain(|row| behind.is_none_or(|behind| row.alarm.at != behind.alarm.at));
        }
        Ok(found)
    }

    async fn remove(&self, thread: &ThreadName) -> Result<bool, StoreError> {
        if self.flaw == Flaw::DeletesPrefixes {
            for other in self.store.threads(&ThreadQuery::new().prefix(thread.as_str()).limit(1_000)).await? {
                if other.name != *thread {
                    self.store.delete(&other.name).await?;
                }
            }
        }
        self.store.delete(&self.name(thread)).await
    }

    async fn put(&self, restore: Restore) -> Result<(), StoreError> {
        if self.flaw == Flaw::Overwrites {
            self.store.delete(&restore.thread).await?;
        }
        self.store.restore(restore).await
    }

    async fn forget(&self, mut prune: Prune) -> Result<Pruned, StoreError> {
        match self.flaw {
            Flaw::PrunesBlindly => {
                let query = ThreadQuery::new().prefix(prune.thread.as_str());
                prune.expected.0 = self.store.threads(&query).await?.first().map_or(0, |thread| thread.records);
            }
            Flaw::KeepsPruned if prune.before.0 == 10 && prune.base.is_some() && prune.expected.0 == 21 => {
                let mut pruned = Pruned::default();
                (pruned.records, pruned.snapshots) = (10, 1);
                return Ok(pruned);
            }
            _ => {}
        }
        self.store.prune(prune).await
    }

    /// What is left of it after a crash.
    async fn crash(self) -> Result<Self, StoreError> {
        let left = Self::new(self.flaw);
        for thread in self.store.threads(&ThreadQuery::new().limit(1_000)).await? {
            let Loaded { snapshot, mut entries, .. } = self.store.load(&thread.name, Reach::Whole).await?;
            entries.pop();
            let query = InboxQuery::new().prefix(thread.name.as_str()).limit(1_000);
            let rows = self.store.questions(&query).await?;
            let questions = rows.iter().filter(|row| row.thread == thread.name).map(|row| row.question).collect();
            let (base, status) = (snapshot.map(Box::new), thread.status);
            let restore = Restore { thread: thread.name, base, entries, status, questions, alarms: Vec::new() };
            left.store.restore(restore).await?;
        }
        Ok(left)
    }
}

fn convert(record: &mut Record) {
    if let Record::Answered(answered) = record
        && answered.value.is_null()
    {
        answered.value = Value::from("null");
    }
}

impl Store for Flawed {
    ferrata::hand_on_store!(store; resource, note);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        Box::pin(self.write(append))
    }

    fn append_here(&self, append: Append, _: Option<Block<'_>>) -> Result<Result<Appended, StoreError>, Append> {
        Err(append)
    }

    fn load<'a>(&'a self, thread: &'a ThreadName, reach: Reach) -> Pending<'a, Loaded> {
        Box::pin(self.read(thread, reach))
    }

    fn threads<'a>(&'a self, query: &'a ThreadQuery) -> Pending<'a, Vec<ThreadInfo>> {
        Box::pin(self.list(query))
    }

    fn questions<'a>(&'a self, query: &'a InboxQuery) -> Pending<'a, Vec<InboxRow>> {
        Box::pin(self.asked(query))
    }

    fn alarms<'a>(&'a self, behind: Option<&'a AlarmRow>, most: usize) -> Pending<'a, Vec<AlarmRow>> {
        Box::pin(self.rings(behind, most))
    }

    fn keep_note<'a>(&'a self, key: &'a str, note: Option<&'a [u8]>) -> Pending<'a, ()> {
        // A note that is removed.
        let is_left = self.flaw == Flaw::KeepsNotes && note.is_none();
        if is_left { Box::pin(std::future::ready(Ok(()))) } else { self.store.keep_note(key, note) }
    }

    fn notes<'a>(&'a self, prefix: &'a str, behind: Option<&'a str>, most: usize) -> Pending<'a, Vec<String>> {
        // Of the notes with another prefix, the next ones are taken along.
        let prefix = if self.flaw == Flaw::IgnoresPrefixes { "" } else { prefix };
        self.store.notes(prefix, behind, most)
    }

    fn delete<'a>(&'a self, thread: &'a ThreadName) -> Pending<'a, bool> {
        Box::pin(self.remove(thread))
    }

    fn restore(&self, restore: Restore) -> Pending<'_, ()> {
        Box::pin(self.put(restore))
    }

    fn prune(&self, prune: Prune) -> Pending<'_, Pruned> {
        Box::pin(self.forget(prune))
    }

    fn keep_resource<'a>(&'a self, name: &'a str, kept: &'a ResourceKept) -> Pending<'a, ()> {
        Box::pin(async move {
            if self.flaw == Flaw::KeepsFirstWord && self.store.resource(name).await?.is_some() {
                return Ok(());
            }
            self.store.keep_resource(name, kept).await
        })
    }
}

#[tokio::test]
async fn a_store_that_breaks_a_promise_is_told_which() {
    for (flaw, check, word) in FLAWS {
        let suite = StoreSuite::new(move || async move { Ok(Flawed::new(flaw)) }).reopen(Flawed::crash);
        let broken: Broken = suite.check(check).await.expect_err("the check sees it");
        let faults: Vec<(Check, &str)> = broken.faults().collect();
        assert!(matches!(faults[..], [(seen, what)] if seen == check && what.contains(word)), "{flaw:?}: {broken}");
    }
}

#[tokio::test]
async fn every_check_has_a_store_that_fails_it() {
    for check in Check::ALL {
        assert!(FLAWS.iter().any(|(_, seen, _)| *seen == check), "no store fails the check of {check}");
    }
    // All that is broken is told at once, and what is not broken is not told.
    let broken = StoreSuite::new(|| async { Ok(Flawed::new(Flaw::Overwrites)) }).run().await.expect_err("it overwrites");
    assert_eq!(broken.faults().map(|(check, _)| check).collect::<Vec<_>>(), [Check::Restore], "{broken}");
    let broken = StoreSuite::new(|| async { Ok(Flawed::new(Flaw::SkipsEqualTimes)) }).run().await.expect_err("it skips");
    assert_eq!(broken.faults().map(|(check, _)| check).collect::<Vec<_>>(), [Check::Paging], "{broken}");
    assert_eq!(format!("{broken:?}"), broken.to_string());
}
