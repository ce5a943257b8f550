//! One attempt of one task, from its start to its end.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::context::{Attempt, Pause};
use super::handler::TaskFuture;
use crate::error::{Class, Failure, NodeError, Origin};
use crate::graph::NodeReturn;
use crate::machine::TaskEnd;
use crate::state::panic_text;

enum Ended {
    Returned(Result<NodeReturn, NodeError>),
    Paused(Pause),
    Panicked(String),
}

/// Runs a node's future until it returns, pauses for a person, panics, or its time is up.
pub(crate) async fn run(future: TaskFuture, attempt: &Arc<Attempt>, limit: Option<Duration>) -> TaskEnd {
    let ended = match limit {
        None => until_end(future, attempt).await,
        // In a box, so that an attempt without a limit is not larger for it.
        Some(limit) => match Box::pin(tokio::time::timeout(limit, until_end(future, attempt))).await {
            Ok(ended) => ended,
            Err(_) => return timed_out(limit),
        },
    };
    match ended {
        Ended::Returned(Ok(NodeReturn { update, label, goto, to_parent })) => match update.into_changes() {
            Ok(changes) => TaskEnd::Done { changes, label, goto, to_parent },
            Err(error) => {
                let error = NodeError::new(format!("its update holds a value that cannot be stored: {error}"));
                failed(&error.deterministic(), Origin::Update)
            }
        },
        Ended::Returned(Err(error)) => TaskEnd::Failed { failure: error.failure(), retry_after: error.delay(), timed_out: false },
        Ended::Paused(Pause { questions, doubts, .. }) => TaskEnd::Paused { questions, doubts },
        Ended::Panicked(text) => panicked(&text),
    }
}

async fn until_end(mut future: TaskFuture, attempt: &Arc<Attempt>) -> Ended {
    poll_fn(|context| {
        // A sealed node is polled only so that its effects under way can end.
        if let Some(pause) = attempt.pause(context) {
            return Poll::Ready(stopped(pause));
        }
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Ready(result)) => Poll::Ready(Ended::Returned(result)),
            Ok(Poll::Pending) => match attempt.pause(context) {
                Some(pause) => Poll::Ready(stopped(pause)),
                None => Poll::Pending,
            },
            Err(panic) => Poll::Ready(Ended::Panicked(panic_text(&*panic))),
        }
    })
    .await
}

/// A question goes before what a called graph said in the node's place.
fn stopped(mut pause: Pause) -> Ended {
    match pause.handed.take().filter(|_| pause.questions.is_empty() && pause.doubts.is_empty()) {
        Some(handed) => Ended::Returned(Ok(handed)),
        None => Ended::Paused(pause),
    }
}

fn failed(error: &NodeError, origin: Origin) -> TaskEnd {
    TaskEnd::Failed { failure: Failure { origin, ..error.failure() }, retry_after: error.delay(), timed_out: false }
}

fn panicked(text: &str) -> TaskEnd {
    failed(&NodeError::new(format!("it panicked: {text}")).deterministic(), Origin::Panic)
}

fn timed_out(limit: Duration) -> TaskEnd {
    let message = format!("it took longer than its {} ms", limit.as_millis());
    let failure = Failure { origin: Origin::Timeout, class: Class::Transient, message, causes: Vec::new() };
    TaskEnd::Failed { failure, retry_after: None, timed_out: true }
}

/// Calls a node's function, which may panic before it gives a future.
pub(crate) fn guarded_start(start: impl FnOnce() -> TaskFuture) -> Result<TaskFuture, TaskEnd> {
    catch_unwind(AssertUnwindSafe(start)).map_err(|panic| panicked(&panic_text(&*panic)))
}
