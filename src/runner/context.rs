//! What a node can do besides computing: ask, perform effects, tell progress.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as Poll, Waker};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::dependency::Dependencies;
use super::effect::Effect;
use super::hub::Hub;
use super::observer::Observer;
use super::stream::{Announcer, Told};
use super::subgraph::Runnables;
use super::turn::Resources;
use crate::clock::Clock;
use crate::error::{Failure, NodeError, TooLarge};
use crate::graph::{Asking, NodeReturn};
use crate::id::{EffectId, TaskId, ThreadName};
use crate::log::{Cost, QuestionSpec};
use crate::machine::{Call, CallOutcome, Note, Place, Start, check_expiry};
use crate::state::to_value;

tokio::task_local! {
    /// Set inside an effect.
    static IN_EFFECT: ();
}

/// What a task wants done while it runs.
pub(crate) enum Request {
    /// Something is to be recorded. The task goes on when the record is durable.
    Note {
        place: Place,
        note: Note,
        /// False: the attempt is over, and may do nothing more.
        reply: oneshot::Sender<bool>,
    },
    /// A graph is to be run. The task goes on when it has come to an end.
    Call { call: Call, caller: Arc<Attempt>, reply: oneshot::Sender<CallOutcome> },
}

/// What all attempts of a run have in common.
pub(crate) struct Common {
    pub(crate) thread: ThreadName,
    pub(crate) requests: mpsc::Sender<Request>,
    pub(crate) announcer: Announcer,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dependencies: Dependencies,
    /// The nodes of the outermost graph.
    pub(crate) root: Arc<Runnables>,
    pub(crate) resources: Arc<Resources>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// The supervisor of the store, if it has one.
    pub(crate) hub: Option<Arc<Hub>>,
    /// How much may be written or recorded at once.
    pub(crate) update_bytes_max: u64,
}

impl Common {
    /// Refuses what is too large to be recorded at once.
    pub(crate) fn check_bytes(&self, what: impl FnOnce() -> String, bytes: u64) -> Result<(), NodeError> {
        TooLarge::check(what, bytes, self.update_bytes_max).map_err(NodeError::too_large)
    }
}

/// One attempt of a task, as it is known to the node (through [`Context`]) and to the runner.
pub(crate) struct Attempt {
    pub(crate) run: Arc<Common>,
    pub(crate) start: Box<Start>,
    /// Who called the graph that it is in.
    outer: Option<Arc<Self>>,
    // A plain mutex: held for a few instructions, never across an await.
    control: Mutex<Control>,
}

/// What a key is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    Effect,
    Question,
    Call,
}

#[derive(Default)]
pub(super) struct Control {
    /// The node waits for a person: nothing new may begin.
    sealed: bool,
    /// Effects that are under way.
    in_flight: usize,
    /// Graphs that it called and waits for.
    calls: usize,
    questions: Vec<QuestionSpec>,
    doubts: Vec<(EffectId, Failure)>,
    /// What a graph that it called said in its place.
    handed: Option<NodeReturn>,
    uses: HashMap<(Use, Arc<str>), u32>,
    /// How far the node has come in this attempt.
    pub(super) marks: Vec<(Arc<str>, Value)>,
    /// What the node says that failed, and that it goes on without.
    pub(super) failures: Vec<Failure>,
    cost: Cost,
    /// Counts the node's signs of life.
    beats: u64,
    waker: Option<Waker>,
}

impl Control {
    /// Nothing new may begin. Whoever polls the node has to hear of it, also if it was sealed from a task that the node spawned.
    fn seal(&mut self) {
        self.sealed = true;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// What made a node pause.
pub(crate) struct Pause {
    pub(crate) questions: Vec<QuestionSpec>,
    pub(crate) doubts: Vec<(EffectId, Failure)>,
    pub(crate) handed: Option<NodeReturn>,
}

impl Attempt {
    pub(crate) fn new(run: Arc<Common>, start: Box<Start>, outer: Option<Arc<Self>>) -> Self {
        Self { run, start, outer, control: Mutex::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pause, once nothing is under way any more.
    pub(crate) fn pause(&self, context: &Poll<'_>) -> Option<Pause> {
        let mut control = self.lock();
        if control.sealed && control.in_flight == 0 {
            return Some(Pause {
                questions: std::mem::take(&mut control.questions),
                doubts: std::mem::take(&mut control.doubts),
                handed: control.handed.take(),
            });
        }
        if !control.waker.as_ref().is_some_and(|w| w.will_wake(context.waker())) {
            control.waker = Some(context.waker().clone());
        }
        None
    }

    pub(crate) fn cost(&self) -> Cost {
        self.lock().cost
    }

    /// The node gives a sign of life, and with it whoever called the graph that it is in.
    pub(crate) fn beat(&self) {
        if self.run.hub.is_some() || self.run.root.has_idle_limits() {
            self.lock().beats += 1;
            self.outer.iter().for_each(|outer| outer.beat());
        }
    }

    /// Whether it waits for a graph that it called, whose tasks are looked at themselves.
    pub(crate) fn is_calling(&self) -> bool {
        self.lock().calls > 0
    }

    pub(crate) fn beats(&self) -> u64 {
        self.lock().beats
    }

    /// Counts a use of a key.
    pub(crate) fn next_use(&self, of: Use, key: &Arc<str>) -> u32 {
        let mut control = self.lock();
        let count = control.uses.entry((of, Arc::clone(key))).or_default();
        *count += 1;
        *count - 1
    }

    fn seal_with(&self, question: QuestionSpec) {
        let mut control = self.lock();
        control.questions.push(question);
        control.seal();
    }

    /// A graph that was called said what becomes of the task, or cannot go on in this run: the node stops here.
    pub(crate) fn seal_for_call(&self, handed: Option<NodeReturn>) {
        let mut control = self.lock();
        control.handed = handed;
        control.seal();
    }

    /// An effect failed and it is not known whether it happened: the node stops here.
    pub(crate) fn seal_in_doubt(&self, effect: EffectId, failure: Failure) {
        let mut control = self.lock();
        control.doubts.push((effect, failure));
        control.seal();
    }

    /// Holds the pause back until the guard is dropped. `None`: the attempt is sealed, and nothing may begin.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<InFlight> {
        let mut control = self.lock();
        if control.sealed {
            return None;
        }
        control.in_flight += 1;
        Some(InFlight(Arc::clone(self)))
    }

    /// Has something recorded, and waits until it is durable.
    pub(crate) async fn note(&self, note: Note) -> bool {
        self.beat();
        let (reply, answer) = oneshot::channel();
        let request = Request::Note { place: self.start.place.clone(), note, reply };
        self.run.requests.send(request).await.is_ok() && answer.await.unwrap_or(false)
    }

    /// Has a graph run, and waits for what comes of it; `None` if the attempt is over.
    pub(crate) async fn call(self: &Arc<Self>, call: Call) -> Option<CallOutcome> {
        let (reply, answer) = oneshot::channel();
        self.run.requests.send(Request::Call { call, caller: Arc::clone(self), reply }).await.ok()?;
        let _calling = Calling::begin(self);
        answer.await.ok()
    }
}

/// Marks that a graph is waited for.
struct Calling(Arc<Attempt>);

impl Calling {
    fn begin(attempt: &Arc<Attempt>) -> Self {
        attempt.lock().calls += 1;
        Self(Arc::clone(attempt))
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.0.lock().calls -= 1;
        // What was done in there is a sign of life.
        self.0.beat();
    }
}

/// Marks an effect that is under way.
pub(crate) struct InFlight(Arc<Attempt>);

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut control = self.0.lock();
        control.in_flight -= 1;
        if control.in_flight == 0
            && let Some(waker) = control.waker.take()
        {
            waker.wake();
        }
    }
}

/// What a node can do besides computing. Cloning it copies a pointer.
#[derive(Clone)]
pub struct Context {
    pub(crate) attempt: Arc<Attempt>,
}

impl Context {
    /// The thread.
    pub fn thread(&self) -> &ThreadName {
        &self.attempt.run.thread
    }

    /// The node that runs.
    pub fn node(&self) -> &str {
        self.attempt.start.name.as_str()
    }

    /// The task: the same over attempts and restarts.
    pub fn task(&self) -> &TaskId {
        &self.attempt.start.task
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt.start.attempt
    }

    /// How many steps the run may make in this graph after the current one; see [`Thread::steps_max`](crate::Thread::steps_max).
    pub fn steps_left(&self) -> u64 {
        self.attempt.start.steps_left
    }

    /// How many bytes the node's update may take; see [`Thread::update_bytes_max`](crate::Thread::update_bytes_max).
    pub fn update_bytes_max(&self) -> u64 {
        self.attempt.run.update_bytes_max
    }

    /// What went wrong, in an error handler; `None` in a node.
    pub fn failure(&self) -> Option<&Failure> {
        self.attempt.start.handling.as_ref()
    }

    /// What was wrong with the node's last result, if it broke the node's rule or a person said so; `None` in the first round. See
    /// [`Node::verify`](crate::Node::verify).
    pub fn feedback(&self) -> Option<&Failure> {
        self.attempt.start.feedback.as_ref()
    }

    /// Performs something that must not happen twice: a mail, a payment, a model call.
    ///
    /// `perform` gets an idempotency key for the outside system; it is the same over retries and restarts. When the node runs again, a recorded
    /// result comes back without anything being performed. The same `key` may be used several times in one node: the n-th use is the n-th
    /// effect, so the order of uses must not depend on anything but the state and earlier results.
    ///
    /// # Guarantees
    ///
    /// - The start is durable before `perform` is called, and the result before this returns.
    /// - An effect that was started and has no certain outcome is never repeated in silence: the thread waits for a person who says
    ///   whether it was performed. That is so when the process dies, the attempt runs out of time, the node drops this future,
    ///   or `perform` fails with an error that does not say [`not_performed`](NodeError::not_performed).
    ///
    /// # The key
    ///
    /// The key is a UUID made from the thread's own random id, the task, `key` and the count of uses. It differs between threads, also of the same
    /// name in another store or after a delete, and between the lines of a fork.
    ///
    /// # Not guaranteed
    ///
    /// - Nothing outside knows of the engine: if the process dies between the act and its record, only a person, or the outside
    ///   system by its idempotency key, can tell what happened.
    /// - An effect declared [`repeatable`](Effect::repeatable) may happen more than once.
    ///
    /// ```
    /// # use ferrata::{Context, END, Graph, Runner, START, State, View, store::MemoryStore};
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Order { id: String, receipt: Option<String> }
    ///
    /// async fn bank(order: &str, key: &str) -> std::io::Result<String> {
    ///     Ok(format!("{order} paid with key {key}"))
    /// }
    ///
    /// async fn pay(state: View<Order>, ctx: Context) -> ferrata::Result<OrderUpdate> {
    ///     let pay = |key: String| async {
    ///         bank(&state.id, &{ key }).await.map_err(|error| match error.kind() {
    ///             // Nothing was sent: it may be tried again. Any other failure leaves it in doubt.
    ///             std::io::ErrorKind::ConnectionRefused => ferrata::NodeError::from(error).not_performed(),
    ///             _ => error.into(),
    ///         })
    ///     };
    ///     Ok(Order::update().receipt(ctx.effect("pay", pay).await?))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Order>::new("order").node("pay", pay).edge(START, "pay").edge("pay", END).build()?;
    /// # let runner = Runner::new(graph, MemoryStore::new());
    /// # let state = runner.thread("o").run(Order::update().id("7")).await?.done().unwrap();
    /// # assert!(state.receipt.as_ref().unwrap().starts_with("7 paid with key "));
    /// # Ok(()) }
    /// ```
    pub fn effect<'f, T, F, Fut>(&self, key: &str, perform: F) -> Effect<'f, T>
    where
        F: FnOnce(String) -> Fut + Send + 'f,
        Fut: Future<Output = Result<T, NodeError>> + Send + 'f,
    {
        Effect::new(Arc::clone(&self.attempt), self.own_key(key), perform)
    }

    /// Asks a person, and waits until they have answered, if need be for days and over restarts.
    ///
    /// A question that expired with [`OnExpiry::GoOn`](crate::OnExpiry::GoOn) gives an error for which [`NodeError::is_expired`] holds.
    ///
    /// The node is dropped here once its effects under way have ended. When the answer is there the node runs again from its start, with effects and
    /// earlier answers taken from the log. The n-th use of a key in one node is the n-th question.
    ///
    /// ```
    /// # use ferrata::{Ask, Answer, Context, END, Graph, Outcome, Runner, START, State, store::MemoryStore};
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Table { seats: Option<u32> }
    ///
    /// async fn book(ctx: Context) -> ferrata::Result<TableUpdate> {
    ///     let seats = ctx.ask("seats", Ask::<u32>::new("For how many?")).await?;
    ///     Ok(Table::update().seats(seats))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Table>::new("table").node("book", book).edge(START, "book").edge("book", END).build()?;
    /// let runner = Runner::new(graph, MemoryStore::new());
    /// let Outcome::Waiting(questions) = runner.thread("t").run(Table::update()).await? else { panic!("it asks") };
    /// let outcome = runner.thread("t").answer(questions[0].id, Answer::new(6).by("dana")).await?;
    /// assert_eq!(outcome.done().unwrap().seats, Some(6));
    /// # Ok(()) }
    /// ```
    pub async fn ask<Q: Asking>(&self, key: &str, question: Q) -> Result<Q::Answer, NodeError> {
        let key = self.own_key(key);
        let occurrence = self.attempt.next_use(Use::Question, &key);
        if let Some(answer) = self.attempt.start.journal.answer(&key, occurrence) {
            return serde_json::from_value(answer.clone()).map_err(|error| {
                NodeError::new(format!("the recorded answer to \"{key}\" does not fit what the node expects now: {error}"))
                    .deterministic()
            });
        }
        if self.attempt.start.journal.is_expired(&key, occurrence) {
            return Err(NodeError::expired(&key));
        }
        self.ask_spec(question.into_parts().spec(key, occurrence)).await
    }

    /// What an effect does must come to an end by itself: a question would wait for its own end.
    pub(crate) async fn without_questions<F: Future>(run: F) -> F::Output {
        IN_EFFECT.scope((), run).await
    }

    /// An error handler has keys of its own: it belongs to the same task, and must not find the node's results.
    pub(super) fn own_key(&self, key: &str) -> Arc<str> {
        if self.attempt.start.handling.is_some() { format!("on_error/{key}").into() } else { key.into() }
    }

    pub(crate) async fn ask_spec<T>(&self, spec: QuestionSpec) -> Result<T, NodeError> {
        if IN_EFFECT.try_with(|()| ()).is_ok() {
            let text = format!(
                "\"{}\" cannot be asked inside an effect or its check, which has to come to an end by itself; ask before it",
                spec.key
            );
            return Err(NodeError::new(text).deterministic());
        }
        check_expiry(&spec).map_err(|what| NodeError::new(what).deterministic())?;
        self.attempt.run.check_bytes(|| format!("the question \"{}\" with what it shows", spec.key), spec.bytes())?;
        self.attempt.seal_with(spec);
        pending().await
    }

    /// Gives a sign of life: a node with an [`idle_timeout`](crate::Node::idle_timeout) that does this goes on. Nothing is recorded.
    pub fn heartbeat(&self) {
        self.attempt.beat();
    }

    /// Tells whoever watches the run. Not recorded, and lost if nobody watches.
    pub fn emit<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), NodeError> {
        self.attempt.beat();
        if self.attempt.run.announcer.is_watched() {
            let value = to_value(value)?;
            self.attempt.run.announcer.tell(|| Told::Custom { task: self.attempt.start.task.clone(), value });
        }
        Ok(())
    }

    /// Adds tokens to what this attempt costs. For what an effect costs use [`Effect::tokens`].
    pub fn spend_tokens(&self, input: u64, output: u64) {
        let mut control = self.attempt.lock();
        control.cost.input_tokens = control.cost.input_tokens.saturating_add(input);
        control.cost.output_tokens = control.cost.output_tokens.saturating_add(output);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("task", &self.attempt.start.task)
            .field("attempt", &self.attempt.start.attempt)
            .finish_non_exhaustive()
    }
}
