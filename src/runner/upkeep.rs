//! What is done with threads as a whole: forgetting, copying, moving between stores, expiring, checking.

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, Write};

use super::Runner;
use super::error::Error;
use super::keeper::status;
use super::thread::Thread;
use crate::clock::Timestamp;
use crate::id::{Position, ThreadName};
use crate::log::{Exported, Snapshot, cut};
use crate::state::State;
use crate::store::{
    Alarm, AlarmRow, InboxQuery, Loaded, OpenQuestion, Prune, Pruned, Reach, Restore, Store, ThreadInfo, ThreadQuery,
    ThreadStatus, alarms_of, open_to_people,
};

/// How many threads are listed at once by what looks at all of them.
const PAGE: usize = 100;

/// What of a thread's history is kept when it is pruned. Open questions, what is due and the newest checkpoint always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// The last so many checkpoints, at least one.
    Last(usize),
    /// The checkpoints that were recorded at this time or later.
    Since(Timestamp),
}

/// What [`Runner::verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checked {
    /// Threads whose records were folded.
    pub threads: u64,
    /// Records of these.
    pub records: u64,
    /// Threads of other graphs, which this program cannot fold.
    pub others: u64,
    /// What is wrong, thread by thread; nothing if all is well.
    pub faults: Vec<(ThreadName, String)>,
}

impl<S: State> Thread<S> {
    /// Forgets history: the checkpoints that `keep` does not name go, with the records before them. What stays can be read, forked and gone back to as before;
    /// a checkpoint that a kept line was forked from is kept. [`log`](Self::log) and [`report`](Self::report) begin with what is kept, and who
    /// answered a question that was asked before is no longer known.
    ///
    /// The room is used again by the store; [`RedbStore::compact`](crate::store::RedbStore::compact) gives it back to the file system.
    ///
    /// ```
    /// # use ferrata::{END, Graph, Keep, Runner, START, State, View, store::MemoryStore};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// # struct Count { n: u64 }
    /// # async fn add(s: View<Count>) -> ferrata::Result<CountUpdate> { Ok(Count::update().n(s.n + 1)) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Count>::new("count").node("add", add).edge(START, "add").route_to("add", ["add", END], |s| if s.n < 9 { "add" } else { END }).build()?;
    /// # let runner = Runner::new(graph, MemoryStore::new());
    /// let thread = runner.thread("t");
    /// thread.run(Count::update()).await?;
    /// assert!(thread.prune(Keep::Last(2)).await?.records > 0);
    /// assert_eq!(thread.history().await?.len(), 2);
    /// assert_eq!(thread.state().await?.values.n, 9);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// No such thread; a run that is going on. The thread is as it was.
    pub async fn prune(&self, keep: Keep) -> Result<Pruned, Error> {
        let name = self.name()?;
        let _lease = self.lease()?;
        let store = self.store("prune a thread")?;
        let (base, entries) = self.recorded(self.whole().await?)?;
        let first = base.facts.next;
        if entries.is_empty() && first == Position(0) {
            return Err(Error::unknown_thread(name));
        }
        let keeps = |age: usize, at: Timestamp| match keep {
            Keep::Last(checkpoints) => age < checkpoints,
            Keep::Since(time) => at >= time,
        };
        let Some(before) = cut(&entries, |age, entry| keeps(age, entry.at)) else { return Ok(Pruned::default()) };
        let kept_from = usize::try_from(before.0 - first.0).unwrap_or(usize::MAX);
        let folded = self.at_end(base, &entries[..kept_from])?;
        let base = Box::new(Snapshot::of(&folded, before)?);
        let base = Some(match self.sealer()? {
            Some(sealer) => sealer.seal_snapshot(base, &folded)?,
            None => base,
        });
        let expected = Position(first.0 + entries.len() as u64);
        Ok(store.prune(Prune { thread: name.clone(), before, base, expected }).await?)
    }

    /// Makes a copy of the thread under another name, with all its history. The copy is another thread: what is done in it is not done in this one, and
    /// its effects have keys of their own. What was finished stays finished in both.
    ///
    /// # Errors
    ///
    /// No such thread; a thread of the other name, with the code `thread-exists`.
    pub async fn copy_to(&self, name: &str) -> Result<(), Error> {
        let mut exported = self.exported().await?;
        let mut to = self.clone();
        to.name = ThreadName::new(name);
        exported.rename(to.name()?, self.inner.clock.new_id());
        to.restore(exported).await
    }

    /// Writes the whole thread as lines of JSON: a heading, a snapshot if earlier records were pruned, and each record with its position and time. Large
    /// values are in it.
    ///
    /// ```
    /// # use ferrata::{END, Graph, Runner, START, State, View, store::MemoryStore};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// # struct Count { n: u64 }
    /// # async fn add(s: View<Count>) -> ferrata::Result<CountUpdate> { Ok(Count::update().n(s.n + 1)) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Count>::new("count").node("add", add).edge(START, "add").edge("add", END).build()?;
    /// # let (here, there) = (Runner::new(graph.clone(), MemoryStore::new()), Runner::new(graph, MemoryStore::new()));
    /// here.thread("t").run(Count::update().n(41)).await?;
    /// let mut lines = Vec::new();
    /// here.thread("t").export(&mut lines).await?;
    /// there.thread("t").import(&mut &*lines).await?;
    /// assert_eq!(there.thread("t").state().await?.values.n, 42);
    /// assert_eq!(there.thread("t").import(&mut &*lines).await.unwrap_err().code(), "thread-exists");
    /// # Ok(()) }
    /// ```
    pub async fn export(&self, into: &mut (dyn Write + Send)) -> Result<(), Error> {
        Ok(self.exported().await?.write(into)?)
    }

    /// Puts a thread that was exported into this runner's store, all or nothing. Under the name it had it is the same thread, whose effects keep their
    /// keys; under another one it is a copy, as by [`copy_to`](Self::copy_to). Holds all of it in memory.
    ///
    /// # Errors
    ///
    /// A thread of this name (code `thread-exists`); lines that are no export, or that this program's graph cannot go on with.
    pub async fn import(&self, from: &mut (dyn BufRead + Send)) -> Result<(), Error> {
        let mut exported = Exported::read(from)?;
        let name = self.name()?;
        if exported.thread != *name {
            exported.rename(name, self.inner.clock.new_id());
        }
        self.restore(exported).await
    }

    async fn exported(&self) -> Result<Exported, Error> {
        let (name, store) = (self.name()?, self.store("export a thread")?);
        let Loaded { snapshot, entries, .. } = store.load(name, Reach::Whole).await?;
        if snapshot.is_none() && entries.is_empty() {
            return Err(Error::unknown_thread(name));
        }
        Ok(Exported { thread: name.clone(), base: snapshot, entries })
    }

    async fn restore(&self, exported: Exported) -> Result<(), Error> {
        let (name, store) = (self.name()?, self.store("import a thread")?);
        let Exported { base, entries, .. } = exported;
        // Only what can be read again goes in.
        let loaded = Loaded { snapshot: base.clone(), entries: entries.clone(), ..Loaded::default() };
        let (before, records) = self.recorded(self.plain(loaded)?)?;
        let folded = self.at_end(before, &records)?;
        let (thread, base, open) = (name.clone(), base.map(Box::new), &folded.facts.questions);
        let (questions, alarms) = (open_to_people(open), alarms_of(open));
        let restore = Restore { thread, base, entries, status: status(&folded), questions, alarms };
        store.restore(restore).await.map_err(|error| Error::restore(name, error))
    }
}

impl<S: State> Runner<S> {
    /// Deletes threads that have not changed for long, and gives their names: those that the query selects and that are done; those in another status only
    /// if the query names it. One that is at work here is left alone.
    ///
    /// ```
    /// # use ferrata::{END, Graph, Runner, START, State, View, clock::Timestamp, store::{MemoryStore, ThreadQuery}};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// # struct Count { n: u64 }
    /// # async fn add(s: View<Count>) -> ferrata::Result<CountUpdate> { Ok(Count::update().n(s.n + 1)) }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Count>::new("count").node("add", add).edge(START, "add").edge("add", END).build()?;
    /// # let runner = Runner::new(graph, MemoryStore::new());
    /// runner.thread("t").run(Count::update()).await?;
    /// assert!(runner.expire(ThreadQuery::new().unchanged_since(Timestamp(0))).await?.is_empty());
    /// assert_eq!(runner.expire(ThreadQuery::new().unchanged_since(Timestamp(u64::MAX))).await?[0].as_str(), "t");
    /// # Ok(()) }
    /// ```
    pub async fn expire(&self, query: ThreadQuery) -> Result<Vec<ThreadName>, Error> {
        let store = self.store("expire threads")?;
        let query = if query.names_statuses() { query } else { query.status(ThreadStatus::Done) };
        let (mut expired, mut page) = (Vec::new(), query.clone());
        loop {
            let found = store.threads(&page).await?;
            let Some(last) = found.last() else { return Ok(expired) };
            page = query.clone().after(last);
            for thread in &found {
                let handle = self.thread(thread.name.as_str());
                let Ok(_lease) = handle.lease() else { continue };
                // It may have gone on since it was listed.
                if is_still(&**store, thread).await? && store.delete(&thread.name).await? {
                    expired.push(thread.name.clone());
                }
            }
        }
    }

    /// Folds the records of every thread of this graph from the first one on, and compares the outcome with the newest snapshot and the indexes. Tells
    /// what is wrong and changes nothing. Takes as long as reading the whole store.
    ///
    /// [`RedbStore::verify`](crate::store::RedbStore::verify) looks at the bytes.
    pub async fn verify(&self) -> Result<Checked, Error> {
        let store = self.store("verify threads")?;
        let (mut checked, mut page) = (Checked::default(), ThreadQuery::new().limit(PAGE));
        let (mut questions, mut alarms) =
            (indexed_questions(&**store, InboxQuery::new()).await?, indexed_alarms(&**store).await?);
        loop {
            let found = store.threads(&page).await?;
            let Some(last) = found.last() else { return Ok(checked) };
            page = page.after(last);
            for thread in found {
                let indexed =
                    (questions.remove(&thread.name).unwrap_or_default(), alarms.remove(&thread.name).unwrap_or_default());
                match self.thread(thread.name.as_str()).check(&thread, indexed).await {
                    Ok(records) => (checked.threads, checked.records) = (checked.threads + 1, checked.records + records),
                    Err(error) if error.code() == "other-graph" => checked.others += 1,
                    Err(error) => checked.faults.push((thread.name, error.to_string())),
                }
            }
        }
    }
}

/// What the index says of open questions, by thread.
async fn indexed_questions(store: &dyn Store, mut page: InboxQuery) -> Result<HashMap<ThreadName, HashSet<OpenQuestion>>, Error> {
    let mut found: HashMap<ThreadName, HashSet<OpenQuestion>> = HashMap::new();
    loop {
        let rows = store.questions(&page).await?;
        let Some(last) = rows.last() else { return Ok(found) };
        page = page.after(last);
        for row in rows {
            found.entry(row.thread).or_default().insert(row.question);
        }
    }
}

/// What the index says of alarms, by thread.
async fn indexed_alarms(store: &dyn Store) -> Result<HashMap<ThreadName, HashSet<Alarm>>, Error> {
    let mut found: HashMap<ThreadName, HashSet<Alarm>> = HashMap::new();
    let mut behind: Option<AlarmRow> = None;
    loop {
        let rows = store.alarms(behind.as_ref(), PAGE).await?;
        let Some(last) = rows.last().cloned() else { return Ok(found) };
        behind = Some(last);
        for row in rows {
            found.entry(row.thread).or_default().insert(row.alarm);
        }
    }
}

/// Whether a thread is as it was listed.
async fn is_still(store: &dyn Store, thread: &ThreadInfo) -> Result<bool, Error> {
    let query = ThreadQuery::new().prefix(thread.name.as_str()).limit(1);
    Ok(store.threads(&query).await?.first() == Some(thread))
}

impl<S: State> Thread<S> {
    /// Folds the thread's records, and compares the indexes. Gives how many records there are.
    async fn check(
        &self,
        listed: &ThreadInfo,
        (questions, alarms): (HashSet<OpenQuestion>, HashSet<Alarm>),
    ) -> Result<u64, Error> {
        let (name, store) = (self.name()?, self.store("verify a thread")?);
        // What stands in place of secrets is not compared.
        let newest = store.load(name, Reach::Newest).await?.snapshot.filter(|_| self.kind().secret_names().is_empty());
        let (base, entries) = self.recorded(self.whole().await?)?;
        // What stood before it may have been forgotten since it was read.
        if let Some(newest) = newest.filter(|newest| base.facts.next <= newest.position()) {
            let before = entries.iter().take_while(|entry| entry.position < newest.position()).count();
            let folded = self.at_end(base.clone(), &entries[..before])?;
            if Snapshot::of(&folded, newest.position())?.told_to(&newest) != newest {
                return Err(Error::other_snapshot(name, newest.position()));
            }
        }
        let records = entries.len() as u64;
        let folded = self.at_end(base, &entries)?;
        let told = status(&folded);
        // A run may have gone on since the thread was listed.
        if told != listed.status && is_still(&**store, listed).await? {
            return Err(Error::other_status(name, listed.status, told));
        }
        let open: HashSet<OpenQuestion> = open_to_people(&folded.facts.questions).into_iter().collect();
        let now = async || indexed_questions(&**store, InboxQuery::new().prefix(name.as_str())).await;
        if open != questions && open != now().await?.remove(name).unwrap_or_default() && is_still(&**store, listed).await? {
            return Err(Error::other_questions(name));
        }
        let rings: HashSet<Alarm> = alarms_of(&folded.facts.questions).into_iter().collect();
        if rings != alarms
            && is_still(&**store, listed).await?
            && rings != indexed_alarms(&**store).await?.remove(name).unwrap_or_default()
        {
            return Err(Error::other_alarms(name));
        }
        Ok(records)
    }
}
