//! The open questions of all threads of a store.

use std::collections::HashMap;
use std::sync::Arc;

use super::Runner;
use super::error::Error;
use crate::id::ThreadName;
use crate::log::{Opened, Question, open_questions};
use crate::state::State;
use crate::store::{InboxQuery, Loaded, Reach, Store};

/// An open question, and the thread that asks it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InboxItem {
    /// The thread.
    pub thread: ThreadName,
    /// What it asks.
    pub question: Arc<Question>,
}

/// A page of open questions; see [`Runner::inbox`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Inbox {
    /// The questions, by deadline. There can be fewer than the query allows, or none, with more to come.
    pub items: Vec<InboxItem>,
    /// Asks for the next page; `None` behind the last one.
    pub next: Option<InboxQuery>,
    /// Threads that have questions on this page and cannot be read, each with why.
    pub unreadable: Vec<(ThreadName, Error)>,
}

impl<S: State> Runner<S> {
    /// The open questions of all threads, of all graphs that share the store: those with the earliest deadline first, those without one last. Answers go to
    /// the thread, by a runner of its graph.
    ///
    /// The store finds a page in an index, and only the threads on it are read. What is shown is what is stored: of secret values, what stands instead. A
    /// question that was answered since the page was found is left out, so a page can be shorter than asked for; go on until there is no
    /// [`next`](Inbox::next) one. A question that stays open is seen once; one that is asked meanwhile may be seen or not.
    ///
    /// ```
    /// # use ferrata::{Approval, END, Graph, Runner, START, State, store::{InboxQuery, MemoryStore}};
    /// # use serde::{Deserialize, Serialize};
    /// # use std::time::Duration;
    /// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// # struct Trip { days: u64 }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// let graph = Graph::<Trip>::new("trip")
    ///     .question("approve", |t: &Trip| Approval::ask("Go?").deadline(Duration::from_secs(86_400 * t.days)))
    ///     .edge(START, "approve")
    ///     .approved("approve", END)
    ///     .rejected("approve", END)
    ///     .build()?;
    /// let runner = Runner::new(graph, MemoryStore::new());
    /// for (name, days) in [("next week", 7), ("tomorrow", 1), ("in two days", 2)] {
    ///     runner.thread(name).run(Trip::update().days(days)).await?;
    /// }
    /// let mut asked = Vec::new();
    /// let mut query = Some(InboxQuery::new().limit(2));
    /// while let Some(page) = query {
    ///     let page = runner.inbox(page).await?;
    ///     asked.extend(page.items);
    ///     query = page.next;
    /// }
    /// assert_eq!(asked.iter().map(|item| item.thread.as_str()).collect::<Vec<_>>(), ["tomorrow", "in two days", "next week"]);
    ///
    /// let first = &asked[0];
    /// runner.thread(first.thread.as_str()).answer(first.question.id, Approval::approve().by("dana")).await?;
    /// assert_eq!(runner.inbox(InboxQuery::new()).await?.items, asked[1..]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// A store that cannot be read. A thread that is damaged is no error; it is named in [`unreadable`](Inbox::unreadable).
    pub async fn inbox(&self, query: InboxQuery) -> Result<Inbox, Error> {
        let store = self.store("list open questions")?;
        let rows = store.questions(&query).await?;
        let next = rows.last().filter(|_| rows.len() >= query.most()).map(|last| query.clone().after(last));
        let mut inbox = Inbox { items: Vec::new(), next, unreadable: Vec::new() };
        let mut asked: HashMap<&ThreadName, Vec<Arc<Question>>> = HashMap::new();
        for row in &rows {
            if !asked.contains_key(&row.thread) {
                let open = match self.asked(&**store, &row.thread).await {
                    Err(error) if error.is_damage_of_a_thread() => {
                        inbox.unreadable.push((row.thread.clone(), error));
                        Vec::new()
                    }
                    open => open?,
                };
                asked.insert(&row.thread, open);
            }
            let question = asked[&row.thread].iter().find(|question| question.id == row.question.id);
            let item = |question| InboxItem { thread: row.thread.clone(), question: Arc::clone(question) };
            inbox.items.extend(question.map(item));
        }
        Ok(inbox)
    }

    /// The open questions of a thread, of whatever graph.
    async fn asked(&self, store: &dyn Store, thread: &ThreadName) -> Result<Vec<Arc<Question>>, Error> {
        let is_own = |opened: &Opened| opened.graph == self.inner.graph.name();
        let program = |opened: &Opened| is_own(opened).then(|| Arc::clone(&self.inner.shape().kind));
        for reach in [Reach::Newest, Reach::Whole] {
            let Loaded { snapshot, entries, .. } = store.load(thread, reach).await?;
            let open = open_questions(snapshot, &entries, program).map_err(|error| Error::damaged(thread, error))?;
            if let Some(open) = open {
                return Ok(open);
            }
        }
        Err(Error::forked_from_nowhere(thread))
    }
}
