//! How a run ends, and how a thread stands.

use std::fmt;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::id::{BranchId, NodeName, Position, StepNumber};
use crate::log::{Question, Source, Suspension, TaskState};
use crate::state::View;
use crate::store::ThreadStatus;

/// How a run ended, if nothing went wrong.
///
/// ```
/// use ferrata::{Answer, Context, END, Graph, NodeError, Outcome, Runner, START, State, store::MemoryStore};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// # struct Mail { sent: bool }
/// async fn send(ctx: Context) -> ferrata::Result<MailUpdate> {
///     ctx.effect("mail", |_key| async { Err::<(), _>(NodeError::new("the line went dead")) }).await?;
///     Ok(Mail::update().sent(true))
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let graph = Graph::<Mail>::new("mail").node("send", send).edge(START, "send").edge("send", END).build()?;
/// # let runner = Runner::new(graph, MemoryStore::new());
/// let thread = runner.thread("t");
/// match thread.run_once(Mail::update()).await? {
///     Outcome::Done(state) => println!("{}", state.sent),
///     Outcome::Waiting(questions) if questions[0].is_doubt() => {
///         println!("{} {:?}", questions[0].text, questions[0].show); // somebody looks it up, and says:
///         let outcome = thread.answer(questions[0].id, Answer::performed(serde_json::Value::Null).by("dana")).await?;
///         assert!(outcome.done().unwrap().sent);
///     }
///     Outcome::Waiting(questions) => println!("{}", questions[0].text),
///     Outcome::Outside(waits) => println!("{}", waits[0].text),
///     Outcome::Suspended(why) => println!("{why}; resume it"),
/// }
/// # Ok(()) }
/// ```
#[must_use = "a run may have ended with a question"]
pub enum Outcome<S> {
    /// Nothing is left to do. The state as it is.
    Done(View<S>),
    /// A person has to decide. The questions that are open, in the order in which they were asked; the process may end here.
    ///
    /// A question for which [`is_doubt`](Question::is_doubt) holds asks whether an effect was performed. It shows the effect's name, the node and
    /// the idempotency key, by which the outside system can tell; the answer is [`Answer::performed`](crate::Answer::performed) or
    /// [`Answer::not_performed`](crate::Answer::not_performed).
    Waiting(Vec<Arc<Question>>),
    /// The thread waits for a signal or for a time, and for no person. What it waits for, in the order in which it came to that; the process may end here. A
    /// [supervisor](crate::Runner::supervise) goes on with it in time; without one, whoever resumes it then.
    Outside(Vec<Arc<Question>>),
    /// The run was stopped; the thread can be resumed.
    Suspended(Suspension),
}

impl<S> Outcome<S> {
    /// The state, if nothing is left to do.
    pub fn done(self) -> Option<View<S>> {
        match self {
            Self::Done(state) => Some(state),
            _ => None,
        }
    }

    /// What a run ends with that waits for all of these: for people first.
    pub(crate) fn waits(open: Vec<Arc<Question>>) -> Self {
        let (outside, people): (Vec<_>, Vec<_>) = open.into_iter().partition(|question| question.is_outside());
        if people.is_empty() { Self::Outside(outside) } else { Self::Waiting(people) }
    }

    /// The open questions to people; none if the run does not wait for any.
    pub fn questions(&self) -> &[Arc<Question>] {
        match self {
            Self::Waiting(questions) => questions,
            _ => &[],
        }
    }
}

impl<S> fmt::Debug for Outcome<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(_) => f.write_str("Done(..)"),
            Self::Waiting(questions) => f.debug_tuple("Waiting").field(questions).finish(),
            Self::Outside(waits) => f.debug_tuple("Outside").field(waits).finish(),
            Self::Suspended(why) => f.debug_tuple("Suspended").field(why).finish(),
        }
    }
}

/// A thread, or a graph inside it, as it stands: live, with the results that are pending in an open step.
#[derive(Debug)]
#[non_exhaustive]
pub struct ThreadState<S> {
    /// The state.
    pub values: View<S>,
    /// The nodes whose tasks still have to run or to be answered.
    pub next: Vec<NodeName>,
    /// The open questions to people.
    pub questions: Vec<Arc<Question>>,
    /// The signals and times that it waits for.
    pub waits: Vec<Arc<Question>>,
    /// What the thread is doing.
    pub status: ThreadStatus,
    /// Number of the newest checkpoint.
    pub step: StepNumber,
    /// What the newest checkpoint comes from.
    pub source: Option<Source>,
    /// The tasks of the open step, those that have a result among them.
    pub tasks: Vec<TaskState>,
    /// Secret fields whose values are not there any more: in `values` they hold what they hold before anything is written. See
    /// [`Thread::secret`](crate::Thread::secret).
    pub missing: Vec<String>,
}

/// A state that a thread was in, as it was recorded.
#[derive(Debug)]
#[non_exhaustive]
pub struct Checkpoint<S> {
    /// Where it stands in the log.
    pub position: Position,
    /// When it was recorded. Checkpoints are in the order of their positions, whatever the clock said.
    pub at: Timestamp,
    /// The line of history.
    pub branch: BranchId,
    /// Its number.
    pub step: StepNumber,
    /// What it comes from.
    pub source: Source,
    /// The state.
    pub values: View<S>,
    /// Whether another checkpoint comes before it in its line.
    pub parent: bool,
    /// The nodes that were due next.
    pub next: Vec<NodeName>,
    /// The tasks of these nodes, with what became of them.
    pub tasks: Vec<TaskState>,
    /// Secret fields whose values are not there any more, as in [`ThreadState::missing`].
    pub missing: Vec<String>,
}
