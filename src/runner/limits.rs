//! Limits of size and number, which a handle sets for what is done through it.

use super::Runner;
use super::thread::Thread;
use crate::state::State;

impl<S> Thread<S> {
    /// How many tasks may be due in one step of a graph, by edges and by sends; 100,000 if not set. A step after which more would be due is not merged,
    /// and the run fails (code `task-limit`): what its tasks did is kept, and the thread can be resumed with a higher limit. An input or an edit that would
    /// lead to more is refused.
    ///
    /// Like every limit it is at least 1: a handle with a limit of 0 is refused what it is used for (code `limit-zero`).
    pub fn step_tasks_max(mut self, tasks: usize) -> Self {
        self.options.bounds.step_tasks = tasks;
        self
    }

    /// How many bytes may be written at once, as JSON and roughly; 16 MiB if not set (code `update-limit`). It holds for each of these alone:
    ///
    /// - an input, an edit, an answer: refused, and nothing is recorded;
    /// - what a node returns, sends included; the input of a graph that it calls; what a question shows, with its text and its schema; a
    ///   [mark](crate::Context::mark): the node fails, as of any mistake that is made again each time;
    /// - the result of an effect: one that is [repeatable](crate::Effect::repeatable) fails, of any other one a person is asked, since it was performed;
    /// - a payload that a conditional edge sends: the step is not merged, and the run fails.
    ///
    /// What was recorded is kept, and the thread can be resumed with a higher limit.
    pub fn update_bytes_max(mut self, bytes: u64) -> Self {
        self.options.bounds.update_bytes = bytes;
        self
    }

    /// How many bytes the state of each graph may take, as JSON and roughly; 256 MiB if not set. A step that would make it larger is not merged, and the run
    /// fails (code `state-limit`): what its tasks did is kept, and the thread can be resumed with a higher limit. An input or an edit that would make it larger
    /// is refused.
    ///
    /// What is written is added up, and the state is measured once in a run, and again where the sum has come to the limit.
    pub fn state_bytes_max(mut self, bytes: u64) -> Self {
        self.options.bounds.state_bytes = bytes;
        self
    }

    /// How many questions of the thread may be open at once, those of its subgraphs included; 10,000 if not set. A task that would ask one more fails (code
    /// `question-limit`), and the others go on; when questions are answered, or with a higher limit, the thread can be resumed. What is asked
    /// about an effect in doubt or about a result that breaks a rule is always asked.
    pub fn questions_max(mut self, questions: usize) -> Self {
        self.options.bounds.questions = questions;
        self
    }
}

impl<S: State> Runner<S> {
    /// Says what handles to threads begin with: limits above all, which each handle can still set otherwise.
    ///
    /// ```
    /// # use ferrata::{END, Graph, Runner, START, State, View, store::MemoryStore};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// # struct Page { text: String }
    /// async fn fill(page: View<Page>) -> ferrata::Result<PageUpdate> {
    ///     Ok(Page::update().text(page.text.repeat(1_000)))
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
    /// # let graph = Graph::<Page>::new("page").node("fill", fill).edge(START, "fill").edge("fill", END).build()?;
    /// let runner = Runner::new(graph, MemoryStore::new()).thread_defaults(|thread| thread.steps_max(50).update_bytes_max(1_000));
    /// let error = runner.thread("t").run(Page::update().text("abc")).await.unwrap_err();
    /// assert_eq!((error.code(), error.is_limit()), ("update-limit", true));
    /// let page = runner.thread("t").update_bytes_max(10_000).resume().await?.done().unwrap();
    /// assert_eq!(page.text.len(), 3_000);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn thread_defaults(mut self, set: impl FnOnce(Thread<S>) -> Thread<S>) -> Self {
        self.options = set(self.thread("defaults")).options;
        self
    }
}
