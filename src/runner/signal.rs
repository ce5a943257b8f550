//! Signals from outside, and nodes that wait for them or for a time.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::context::{Context, Use};
use super::desk::{Desk, Handed, elsewhere};
use super::error::Error;
use super::stream::Announcer;
use super::thread::Thread;
use crate::clock::Timestamp;
use crate::error::NodeError;
use crate::graph::Wait;
use crate::machine::{GivenSignal, Taken};
use crate::state::{State, ValueError, to_value};

/// Something that happened outside, for a thread that waits for it now or later.
///
/// ```
/// use ferrata::Signal;
/// let paid = Signal::new("payment", 4_200).id("bank-transfer-81").by("the bank");
/// ```
#[derive(Debug)]
#[must_use = "a signal does nothing until it is sent to a thread"]
pub struct Signal {
    name: String,
    value: Result<Value, ValueError>,
    id: Option<String>,
    by: Option<String>,
}

impl Signal {
    /// A signal of that name, which says this. Its graph [declares](crate::GraphBuilder::signal) the name, and what such a signal says.
    pub fn new<T: Serialize>(name: impl Into<String>, value: T) -> Self {
        Self { name: name.into(), value: to_value(&value), id: None, by: None }
    }

    /// What tells it from every other one: the outside system's own word for the event. A thread takes a second signal of the same id, of its last 1,000, for the same
    /// one, and does nothing. Without it each signal counts.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Who sends it. The engine records this and does not check it.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }
}

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// What waited for it has it, and can go on.
    Delivered,
    /// Nothing waits for it yet. It is kept, in order, for what will.
    Kept,
    /// The thread had it already.
    Known,
}

impl<S: State> Thread<S> {
    /// Sends a signal: it is recorded, and durable when this returns. What waits for it gets it, the one that has waited longest; if nothing does, the next thing that will.
    ///
    /// A run of the thread that goes on takes it in and goes on with it. A thread at rest is not continued by this: its status is
    /// [`Ready`](crate::store::ThreadStatus::Ready) then, and a [supervisor](crate::Runner::supervise) continues it, or whoever resumes it.
    ///
    /// Signals that nothing has taken are dropped when the thread gets new input. At most 1,000 are kept.
    ///
    /// # Errors
    ///
    /// No such thread; a name that the graph does not declare (`signal-unknown`), a value that is none of the declared type (`signal-misfit`), a thread that is finished
    /// (`thread-finished`), too many signals that nothing has taken (`signal-limit`): nothing is recorded.
    pub async fn signal(&self, signal: Signal) -> Result<Delivery, Error> {
        let Signal { name, value, id, by } = signal;
        let given = GivenSignal { id, name, value: value?, by };
        let name = self.name()?;
        loop {
            match self.lease() {
                Ok((_lease, _)) => return self.signal_at_rest(given).await,
                Err(error) if !error.is_busy() => return Err(error),
                Err(_) => {}
            }
            let Some(desk) = self.desk()? else {
                // It has become free meanwhile.
                tokio::task::yield_now().await;
                continue;
            };
            match desk.hand_in(|reply| Handed::Signal(given.clone(), reply)).await {
                Some(taken) => return taken.map(Delivery::from).map_err(|refusal| Error::signal(name, refusal)),
                None => _ = desk.until_free().await,
            }
        }
    }

    /// Where something is handed in to the run that goes on, be it another runner's.
    pub(super) fn desk(&self) -> Result<Option<std::sync::Arc<Desk>>, Error> {
        let name = self.name()?;
        let at_work = self.inner.store.as_ref().and_then(|store| store.at_work());
        Ok(self.inner.live.desk(name).or_else(|| elsewhere(at_work, name)))
    }

    /// The caller holds the thread's lease.
    async fn signal_at_rest(&self, given: GivenSignal) -> Result<Delivery, Error> {
        self.store("keep a signal")?;
        let name = self.name()?;
        // Whatever checkpoint the handle is about: a signal is for the thread as it is.
        let mut here = self.clone();
        here.options.at = None;
        let mut driver = here.driver(Announcer::silent(), false, None).await?;
        if driver.machine.folded().root.facts.head.is_none() {
            return Err(Error::unknown_thread(name));
        }
        let taken = driver.at_rest(|machine, env| machine.signal(given, env)).await?;
        let delivery = match taken {
            Some(taken) => Delivery::from(taken.map_err(|refusal| Error::signal(name, refusal))?),
            None => return Err(Error::busy(name)),
        };
        if delivery == Delivery::Delivered {
            self.inner.hub().iter().for_each(|hub| hub.wake());
        }
        Ok(delivery)
    }
}

impl From<Taken> for Delivery {
    fn from(taken: Taken) -> Self {
        match taken {
            Taken::Delivered => Self::Delivered,
            Taken::Kept => Self::Kept,
            Taken::Known => Self::Known,
        }
    }
}

impl Context {
    /// Waits for a signal of that name, which the graph [declares](crate::GraphBuilder::signal), if need be for days and over restarts: for one that has come and that nothing
    /// has taken, or the next one. The n-th use of a name in one node is the n-th signal.
    ///
    /// The node is dropped here, as by [`ask`](Self::ask), and the thread takes no room in memory meanwhile. When the signal is there the node runs again from its start.
    ///
    /// # Errors
    ///
    /// What the signal says is no `T`. A signal that the graph does not declare fails the node (`signal-unknown`).
    pub async fn signal<T: DeserializeOwned>(&self, name: &str) -> Result<T, NodeError> {
        match self.wait_for(Wait::signal(name), &format!("signal/{name}")).await? {
            Some(value) => read(name, &value),
            None => Err(NodeError::expired(name)),
        }
    }

    /// As [`signal`](Self::signal), for so long at most; `None` if none came by then.
    pub async fn signal_within<T: DeserializeOwned>(&self, name: &str, within: Duration) -> Result<Option<T>, NodeError> {
        let value = self.wait_for(Wait::signal(name).within(within), &format!("signal/{name}")).await?;
        value.map(|value| read(name, &value)).transpose()
    }

    /// Waits so long, if need be for days and over restarts: the time is counted from when the wait was first recorded. As with [`signal`](Self::signal), the thread takes no
    /// room in memory meanwhile. For a pause of a few seconds, which may as well be lost with the process, use the runtime's own timer.
    ///
    /// ```
    /// # use ferrata::{Context, END, Graph, Outcome, Runner, START, State, clock::{ManualClock, Timestamp}, store::MemoryStore};
    /// # use serde::{Deserialize, Serialize};
    /// # use std::time::Duration;
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Tea { drawn: bool }
    ///
    /// async fn draw(ctx: Context) -> ferrata::Result<TeaUpdate> {
    ///     ctx.sleep(Duration::from_secs(180)).await?;
    ///     Ok(Tea::update().drawn(true))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Tea>::new("tea").node("draw", draw).edge(START, "draw").edge("draw", END).build()?;
    /// let clock = ManualClock::at(Timestamp(0));
    /// let thread = Runner::with_clock(graph, MemoryStore::new(), clock.clone()).thread("pot");
    /// assert!(matches!(thread.run(Tea::update()).await?, Outcome::Outside(_)));
    /// clock.advance_ms(180_000);
    /// assert!(thread.resume().await?.done().unwrap().drawn); // a supervisor does that by itself
    /// # Ok(()) }
    /// ```
    pub async fn sleep(&self, time: Duration) -> Result<(), NodeError> {
        self.wait_for(Wait::time(time), "sleep").await.map(|_| ())
    }

    /// As [`sleep`](Self::sleep), until a time by the runner's clock; not at all if it has passed.
    pub async fn sleep_until(&self, time: Timestamp) -> Result<(), NodeError> {
        self.wait_for(Wait::until(time), "sleep").await.map(|_| ())
    }

    /// What came; `None` if it was a time.
    async fn wait_for(&self, wait: Wait, key: &str) -> Result<Option<Value>, NodeError> {
        let key = self.own_key(key);
        let occurrence = self.attempt.next_use(Use::Question, &key);
        if let Some(value) = self.attempt.start.journal.answer(&key, occurrence) {
            return Ok(Some(value.clone()));
        }
        let is_past = wait.at().is_some_and(|time| time <= self.attempt.run.clock.now());
        if is_past || self.attempt.start.journal.is_expired(&key, occurrence) {
            return Ok(None);
        }
        self.ask_spec(wait.spec(key, occurrence)).await
    }
}

fn read<T: DeserializeOwned>(name: &str, value: &Value) -> Result<T, NodeError> {
    T::deserialize(value).map_err(|error| {
        NodeError::new(format!("what the signal \"{name}\" says is not what the node expects: {error}")).deterministic()
    })
}
