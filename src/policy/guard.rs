//! When a graph that goes in circles is stopped, and what happens then: plain data and a decision.

use crate::id::NodeName;

/// How often in a row the same is let through if nobody says otherwise.
const SAME_MAX: u32 = 3;

/// Stops a node, or a [phase](crate::GraphBuilder::phase) of several of them, that goes in circles: it fails the same way again and again, does the same again
/// and again, or has had too many rounds. A round of a node is a step in which it ran, or a run in which it failed for good.
///
/// - [`failures`](Self::failures): the same failure in so many rounds of a node in a row. Two failures are the same if class and origin are, and the text
///   but for its digits, its letters' case and its spaces. What counts is a failure that an error handler dealt with, one that ended the run, and one that the node
///   told with [`Context::note_failure`](crate::Context::note_failure).
/// - [`actions`](Self::actions): the same action in so many rounds of a node in a row. An action is an effect that said its
///   [arguments](crate::Effect::arguments): the same key with the same arguments.
/// - [`rounds`](Self::rounds): how many rounds a node has at all.
///
/// It acts before the next round begins: the first time by another way if there is one ([`reroute`](Self::reroute)), then a person is asked, with what was tried.
/// [`Approval::approve`](crate::Approval::approve) lets it go on as if it had just begun, [`Approval::edit`](crate::Approval::edit) does so with a
/// text for [`Context::feedback`](crate::Context::feedback), [`Approval::reject`](crate::Approval::reject) fails the node, for its error handler or its fallback.
///
/// Rounds are counted in the log, for each graph at work and since its last input: restarts go on counting, and copies and forks know what came before them.
///
/// ```
/// use ferrata::{Context, END, Graph, Guard, IntoNode, NodeError, Outcome, Runner, START, State, store::MemoryStore};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct File { text: Option<String> }
///
/// async fn parse(ctx: Context) -> ferrata::Result<FileUpdate> {
///     // The model tries something, and is told what came of it.
///     ctx.note_failure(&NodeError::new(format!("line {}: no such encoding", ctx.steps_left())).deterministic());
///     Ok(File::update())
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let graph = Graph::<File>::new("file")
///     .node("parse", parse.guard(Guard::new().failures(3)))
///     .edge(START, "parse")
///     .route_to("parse", ["parse", END], |file: &File| if file.text.is_some() { END } else { "parse" })
///     .build()?;
/// let outcome = Runner::new(graph, MemoryStore::new()).thread("t").run(File::update()).await?;
/// let Outcome::Waiting(questions) = outcome else { panic!("it does not go on for ever") };
/// assert_eq!(questions[0].show.as_ref().unwrap()["rounds"], 3);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Guard {
    failures: Option<u32>,
    actions: Option<u32>,
    rounds: Option<u64>,
    reroute: Option<NodeName>,
    fails: bool,
}

impl Default for Guard {
    fn default() -> Self {
        Self { failures: Some(SAME_MAX), actions: Some(SAME_MAX), rounds: None, reroute: None, fails: false }
    }
}

impl Guard {
    /// Three failures or three actions in a row that are the same, as many rounds as it takes, and then a person.
    pub fn new() -> Self {
        Self::default()
    }

    /// No failure is the same so many times in a row and then comes again; at least 1, [`u32::MAX`] for no limit.
    pub fn failures(mut self, in_a_row: u32) -> Self {
        self.failures = Some(in_a_row).filter(|times| *times < u32::MAX);
        self
    }

    /// No action is the same so many times in a row and then comes again; at least 1, [`u32::MAX`] for no limit.
    pub fn actions(mut self, in_a_row: u32) -> Self {
        self.actions = Some(in_a_row).filter(|times| *times < u32::MAX);
        self
    }

    /// A node has so many rounds, and no more; at least 1.
    pub fn rounds(mut self, rounds: u64) -> Self {
        self.rounds = Some(rounds);
        self
    }

    /// The first time, this node runs in place of the one that was due: with another model, or another prompt. What was due is counted from 0 then, and
    /// the next time a person is asked. A task with a payload hands it on. It is for nodes that are due after a step; one that failed a run and is
    /// tried again by [`Thread::resume`](crate::Thread::resume) goes to the person.
    pub fn reroute(mut self, node: impl Into<NodeName>) -> Self {
        self.reroute = Some(node.into());
        self
    }

    /// In place of asking a person the node fails, with a failure of [`Origin::Guard`](crate::Origin::Guard) that is terminal: for its error handler or its
    /// fallback, and else for whoever runs the thread, who also gets it when an error handler has led back to the node. Each [`Thread::resume`](crate::Thread::resume) lets it have one more round then.
    pub fn or_fail(mut self) -> Self {
        self.fails = true;
        self
    }

    /// Where it leads first.
    pub(crate) fn way(&self) -> Option<&NodeName> {
        self.reroute.as_ref()
    }

    pub(crate) fn fails(&self) -> bool {
        self.fails
    }

    /// What is wrong with it.
    pub(crate) fn mistake(&self) -> Option<&'static str> {
        let none = self.failures == Some(0) || self.actions == Some(0) || self.rounds == Some(0);
        none.then_some("is guarded after 0 times, so it could never run")
    }

    /// Whether the next round of a node is stopped that has had so many, and the longest rows of the same failure and of the same action.
    pub(crate) fn trips(&self, rounds: u64, failures: u32, actions: u32) -> Option<Trip> {
        let failed = self.failures.filter(|max| failures >= *max).map(|_| Trip::Failures(failures));
        let acted = self.actions.filter(|max| actions >= *max).map(|_| Trip::Actions(actions));
        failed.or(acted).or_else(|| self.rounds.filter(|max| rounds >= *max).map(|_| Trip::Rounds(rounds)))
    }
}

/// Why a guard stops a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trip {
    /// It failed the same way so many times in a row.
    Failures(u32),
    /// It did the same so many times in a row.
    Actions(u32),
    /// It had so many rounds.
    Rounds(u64),
}

impl std::fmt::Display for Trip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Failures(times) => write!(f, "failed the same way {times} times in a row"),
            Self::Actions(times) => write!(f, "did the same {times} times in a row"),
            Self::Rounds(rounds) => write!(f, "has had {rounds} rounds"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stops_what_has_reached_a_limit_and_nothing_before() {
        let guard = Guard::new().failures(2).actions(3).rounds(5);
        assert_eq!(guard.trips(4, 1, 2), None);
        assert_eq!(guard.trips(4, 2, 3), Some(Trip::Failures(2)));
        assert_eq!(guard.trips(5, 1, 3), Some(Trip::Actions(3)));
        assert_eq!(guard.trips(5, 0, 0), Some(Trip::Rounds(5)));
        let without = Guard::new().failures(u32::MAX).actions(u32::MAX);
        assert_eq!(without.trips(u64::MAX, u32::MAX, u32::MAX), None);
    }
}
