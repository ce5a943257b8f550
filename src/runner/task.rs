//! One attempt of one task, from its start to its end.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::context::{Attempt, Pause};
use super::handler::TaskFuture;
use crate::error::{Class, ClassOf, Failure, NodeError, Origin};
use crate::graph::NodeReturn;
use crate::log::Target;
use crate::machine::TaskEnd;
use crate::state::{Change, changes_bytes, panic_text, value_bytes};

enum Ended {
    Returned(Result<NodeReturn, NodeError>),
    Paused(Pause),
    Panicked(String),
}

/// How long an attempt may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) limit: Option<Duration>,
    /// Without a sign of life.
    pub(crate) idle: Option<Duration>,
    /// What is left of the time for all attempts.
    pub(crate) left: Option<Duration>,
    /// Without a sign of life, before somebody looks at it.
    pub(crate) patience: Option<Duration>,
}

/// How often somebody looks for signs of life while an attempt is waited for with patience.
const LOOKS: u32 = 4;

/// Why an attempt is cut off.
enum Over {
    TimedOut(String),
    Stalled(String),
}

/// Runs a node's future until it returns, pauses for a person, panics, or its time is up. `class_of` classifies errors that nobody has classified.
pub(crate) async fn run(future: TaskFuture, attempt: &Arc<Attempt>, times: Times, class_of: &[ClassOf]) -> TaskEnd {
    let ended = if times == Times::default() {
        until_end(future, attempt).await
    } else {
        // In a box, so that an attempt without a limit is not larger for it.
        match Box::pin(in_time(until_end(future, attempt), attempt, times)).await {
            Ok(ended) => ended,
            Err(Over::TimedOut(message)) => return timed_out(message),
            Err(Over::Stalled(message)) => return cut_off(message, Origin::Stalled),
        }
    };
    match ended {
        Ended::Returned(Ok(NodeReturn { update, label, goto, to_parent })) => match update.into_changes() {
            Ok(changes) => {
                match attempt.run.check_bytes(|| "what it returns".to_owned(), returned_bytes(&changes, goto.as_deref())) {
                    Ok(()) => TaskEnd::Done { changes, label, goto, to_parent, failures: attempt.take_failures() },
                    Err(error) => failed(&error, Origin::UpdateLimit),
                }
            }
            Err(error) => {
                let error = NodeError::new(format!("its update holds a value that cannot be stored: {error}"));
                failed(&error.deterministic(), Origin::Update)
            }
        },
        Ended::Returned(Err(error)) => match catch_unwind(AssertUnwindSafe(|| error.classified(class_of))) {
            Ok(error) => TaskEnd::Failed { failure: error.failure(), retry_after: error.delay(), timed_out: false, result: None },
            Err(panic) => panicked(&panic_text(&*panic)),
        },
        Ended::Paused(Pause { questions, doubts, .. }) => TaskEnd::Paused { questions, doubts },
        Ended::Panicked(text) => panicked(&text),
    }
}

/// What it writes, and what it sends.
fn returned_bytes(changes: &[Change], goto: Option<&[Target]>) -> u64 {
    let sent = |target: &Target| match target {
        Target::Send { payload, .. } => value_bytes(payload),
        Target::Node(_) | Target::Past(_) => 0,
    };
    changes_bytes(changes) + goto.into_iter().flatten().map(sent).sum::<u64>()
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
    TaskEnd::Failed { failure: Failure { origin, ..error.failure() }, retry_after: error.delay(), timed_out: false, result: None }
}

fn panicked(text: &str) -> TaskEnd {
    failed(&NodeError::new(format!("it panicked: {text}")).deterministic(), Origin::Panic)
}

/// What comes of the attempt, or which of its times is over.
async fn in_time(run: impl Future<Output = Ended>, attempt: &Attempt, times: Times) -> Result<Ended, Over> {
    let first = times.limit.into_iter().chain(times.left).min();
    let mut run = std::pin::pin!(run);
    let mut over = std::pin::pin!(after(first));
    // For how long it has given no sign of life.
    let mut silence = Duration::ZERO;
    loop {
        let (beats, next) = (attempt.beats(), next_look(times, silence));
        tokio::select! {
            biased;
            // Polled anew after each look: that nobody woke it up is no reason to hang.
            ended = run.as_mut() => return Ok(ended),
            limit = over.as_mut() => return Err(Over::TimedOut(match limit {
                limit if times.limit == Some(limit) => format!("it took longer than its {} ms", limit.as_millis()),
                _ => TOO_LATE.to_owned(),
            })),
            _ = after(next.map(|next| next - silence)) => match next.filter(|_| attempt.beats() == beats) {
                None => silence = Duration::ZERO,
                Some(long) => {
                    silence = long;
                    let message = || format!("it gave no sign of life for {} ms", long.as_millis());
                    match Some(long) {
                        long if long == times.idle => return Err(Over::TimedOut(message())),
                        // The tasks of the graph that it called are looked at themselves.
                        _ if attempt.is_calling() => if next_look(times, silence).is_none() {
                            silence = Duration::ZERO;
                        },
                        long if long == times.patience.map(|patience| patience.saturating_mul(2)) => return Err(Over::Stalled(message())),
                        long if long == times.patience => attempt.tell_stalled(&message()).await,
                        _ => {}
                    }
                }
            },
        }
    }
}

/// After how long a silence somebody looks at it next: when it has timed out, and in quarters of its patience, until that has ended twice.
fn next_look(Times { idle, patience, .. }: Times, silence: Duration) -> Option<Duration> {
    let quarters = patience.into_iter().flat_map(|patience| (1..=2 * LOOKS).map(move |n| patience.saturating_mul(n) / LOOKS));
    idle.into_iter().chain(quarters).filter(|long| *long > silence).min()
}

/// Comes back after that time, and never if there is none.
async fn after(time: Option<Duration>) -> Duration {
    let Some(time) = time else { return std::future::pending().await };
    tokio::time::sleep(time).await;
    time
}

const TOO_LATE: &str = "the time for all of its attempts is over";

/// The end of an attempt for which there was no time left.
pub(crate) fn too_late() -> TaskEnd {
    timed_out(TOO_LATE.to_owned())
}

fn timed_out(message: String) -> TaskEnd {
    cut_off(message, Origin::Timeout)
}

fn cut_off(message: String, origin: Origin) -> TaskEnd {
    let failure = Failure { origin, class: Class::Transient, message, causes: Vec::new(), tried: false };
    TaskEnd::Failed { failure, retry_after: None, timed_out: true, result: None }
}

/// Calls a node's function, which may panic before it gives a future.
pub(crate) fn guarded_start(start: impl FnOnce() -> TaskFuture) -> Result<TaskFuture, TaskEnd> {
    catch_unwind(AssertUnwindSafe(start)).map_err(|panic| panicked(&panic_text(&*panic)))
}
