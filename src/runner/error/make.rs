//! How errors of the runner are made.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::super::secrets::{SecretPlace, SecretsError};
use super::{Error, Kind};
use crate::error::shortened;
use crate::id::{NodeName, Path, Position, QuestionId, ThreadName};
use crate::log::{Answered, CloseReason, Closed, Expired, Fault, FoldError, Lack, Misshapen, OnExpiry, Question, Why};
use crate::machine::{AnswerRefusal, EditRefusal, Refusal, RunFailure, SignalRefusal};
use crate::state::Unfit;
use crate::store::{StoreError, ThreadStatus};

impl Error {
    pub(super) fn of(kind: Kind) -> Self {
        Self { kind: Box::new(kind) }
    }

    pub(crate) fn damaged(thread: &ThreadName, source: FoldError) -> Self {
        Self::of(Kind::Damaged { thread: thread.clone(), source })
    }

    /// `at`: the checkpoint that it is about, if not the thread as it stands.
    pub(crate) fn misshapen(thread: &ThreadName, misshapen: &Misshapen, at: Option<Position>) -> Self {
        let Misshapen { path, stored, known, why } = misshapen;
        let graph = if path.is_root() { String::new() } else { format!(", in the graph at {path},") };
        let place = at.map_or(graph.clone(), |at| format!(", checkpoint {}{graph}", at.0));
        let from = stored.version();
        let (why, hint) = match why {
            Why::Unfit(Unfit::Newer) => (Unfit::Newer.to_string(), "use the newer program".to_owned()),
            Why::Unfit(unfit) if from < known.version() => (
                unfit.to_string(),
                format!(
                    "correct the upgrade from version {from} (`.upgrade({from}, ..)` on the graph), or finish the thread with the old program"
                ),
            ),
            Why::Unfit(unfit) => {
                let next = from.saturating_add(1);
                let hint = format!(
                    "give new fields a serde default; or raise the state to `#[state(version = {next})]` and add `.upgrade({from}, ..)` to the graph; or \
                     finish the thread with the old program"
                );
                (unfit.to_string(), hint)
            }
            Why::Pending { by, field } => {
                let why = format!(
                    "field `{field}` has another shape or value after the upgrade, and {by}, which writes it, is not merged yet"
                );
                (
                    why,
                    "finish that step with the old program, or drop it with new input that supersedes it or with an edit"
                        .to_owned(),
                )
            }
        };
        Self::of(Kind::Shape { thread: thread.clone(), place, stored: stored.shape(), known: known.shape(), why, hint })
    }

    pub(crate) fn other_graph(thread: &ThreadName, found: &str, expected: &str) -> Self {
        Self::of(Kind::OtherGraph { thread: thread.clone(), found: found.to_owned(), expected: expected.to_owned() })
    }

    pub(crate) fn unknown_thread(thread: &ThreadName) -> Self {
        Self::of(Kind::UnknownThread { thread: thread.clone() })
    }

    pub(crate) fn restore(thread: &ThreadName, error: StoreError) -> Self {
        match error {
            StoreError::Moved { .. } => Self::of(Kind::Exists { thread: thread.clone() }),
            error => error.into(),
        }
    }

    pub(crate) fn forked_from_nowhere(thread: &ThreadName) -> Self {
        Self::of(Kind::ForkedFromNowhere { thread: thread.clone() })
    }

    pub(crate) fn other_snapshot(thread: &ThreadName, at: Position) -> Self {
        Self::of(Kind::OtherSnapshot { thread: thread.clone(), at })
    }

    pub(crate) fn other_status(thread: &ThreadName, listed: ThreadStatus, told: ThreadStatus) -> Self {
        Self::of(Kind::OtherStatus { thread: thread.clone(), listed, told })
    }

    pub(crate) fn other_questions(thread: &ThreadName) -> Self {
        Self::of(Kind::OtherQuestions { thread: thread.clone() })
    }

    pub(crate) fn busy(thread: &ThreadName) -> Self {
        Self::of(Kind::Busy { thread: thread.clone() })
    }

    pub(crate) fn refused(thread: &ThreadName, refusal: Refusal) -> Self {
        Self::of(match refusal {
            Refusal::Fresh => Kind::UnknownThread { thread: thread.clone() },
            refusal => Kind::Refused { thread: thread.clone(), refusal },
        })
    }

    pub(crate) fn answer(thread: &ThreadName, refusal: AnswerRefusal) -> Self {
        Self::of(Kind::Answer { thread: thread.clone(), refusal })
    }

    pub(crate) fn answered(thread: &ThreadName, answered: &Answered) -> Self {
        let Answered { question, value, by, at } = answered;
        let (by, value) = (by.as_deref().unwrap_or("somebody").to_owned(), shortened(&value.to_string()));
        Self::of(Kind::Answered { thread: thread.clone(), question: *question, at: at.0, by, value })
    }

    pub(crate) fn ambiguous(thread: &ThreadName, open: &[Arc<Question>]) -> Self {
        let open = open.iter().map(|question| format!("\"{}\" ({})", shortened(&question.text), question.id)).collect::<Vec<_>>();
        Self::of(Kind::Ambiguous { thread: thread.clone(), open: open.join(", ") })
    }

    pub(crate) fn not_waiting(thread: &ThreadName) -> Self {
        Self::of(Kind::NotWaiting { thread: thread.clone() })
    }

    pub(crate) fn failed_elsewhere(thread: &ThreadName, fault: Fault) -> Self {
        Self::of(Kind::FailedElsewhere { thread: thread.clone(), fault })
    }

    pub(crate) fn closed(thread: &ThreadName, question: QuestionId, closed: &Closed) -> Self {
        let why = match closed.why {
            CloseReason::Superseded => "new input or an edit took its place",
            CloseReason::Abandoned => "the node that waited for it went on without it",
            CloseReason::Compensated => "the thread was given up, and what it had done is compensated",
        };
        Self::of(Kind::Closed { thread: thread.clone(), question, at: closed.at.0, why })
    }

    pub(crate) fn expired(thread: &ThreadName, expired: &Expired) -> Self {
        let then = match expired.then {
            OnExpiry::Suspend => "the thread is suspended, and asks anew when it is resumed",
            OnExpiry::Answer(_) => "the answer that the question had for this case was taken",
            OnExpiry::GoOn => "the thread went on without one",
        };
        Self::of(Kind::Expired { thread: thread.clone(), question: expired.question, at: expired.at.0, then })
    }

    pub(crate) fn edit(thread: &ThreadName, refusal: EditRefusal) -> Self {
        Self::of(Kind::Edit { thread: thread.clone(), refusal })
    }

    pub(crate) fn no_checkpoint(thread: &ThreadName, at: Position) -> Self {
        Self::of(Kind::NoCheckpoint { thread: thread.clone(), at })
    }

    pub(crate) fn failed(thread: &ThreadName, failure: RunFailure) -> Self {
        Self::of(Kind::Failed { thread: thread.clone(), failure })
    }

    pub(crate) fn no_subgraph(thread: &ThreadName, place: &impl fmt::Display) -> Self {
        Self::of(Kind::NoSubgraph { thread: thread.clone(), place: place.to_string() })
    }

    pub(crate) fn many_subgraphs<'p>(thread: &ThreadName, paths: impl Iterator<Item = &'p Path>) -> Self {
        let paths = paths.map(Path::to_string).collect::<Vec<_>>().join(", ");
        Self::of(Kind::ManySubgraphs { thread: thread.clone(), paths })
    }

    pub(crate) fn subgraph_type(thread: &ThreadName, path: &Path, found: &'static str, expected: &'static str) -> Self {
        Self::of(Kind::SubgraphType { thread: thread.clone(), path: path.to_string(), found, expected })
    }

    pub(crate) fn no_store(what: &'static str) -> Self {
        Self::of(Kind::NoStore { what })
    }

    pub(crate) fn missing(node: &NodeName, what: &'static str) -> Self {
        Self::of(Kind::Missing { node: node.clone(), what })
    }

    pub(crate) fn resource(thread: &ThreadName, what: String) -> Self {
        Self::of(Kind::Resource { thread: thread.clone(), what })
    }

    pub(crate) fn unknown_pause(node: &NodeName, known: String) -> Self {
        Self::of(Kind::UnknownPause { node: node.clone(), known })
    }

    pub(crate) fn shut_down(thread: &ThreadName) -> Self {
        Self::of(Kind::ShutDown { thread: thread.clone() })
    }

    pub(crate) fn no_secrets(thread: &ThreadName, fields: &[String]) -> Self {
        Self::of(Kind::NoSecrets { thread: thread.clone(), fields: fields.join(", ") })
    }

    pub(crate) fn secret_missing(thread: &ThreadName, lacks: &[Lack]) -> Self {
        let fields = lacks.iter().map(Lack::to_string).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ");
        Self::of(Kind::SecretMissing { thread: thread.clone(), fields })
    }

    pub(crate) fn secret_unknown(thread: &ThreadName, field: &str, known: &BTreeSet<&str>) -> Self {
        let known = if known.is_empty() { "none".to_owned() } else { known.iter().copied().collect::<Vec<_>>().join(", ") };
        Self::of(Kind::SecretUnknown { thread: thread.clone(), field: field.to_owned(), known })
    }

    pub(crate) fn secret(place: SecretPlace<'_>, what: &'static str, source: SecretsError) -> Self {
        let (thread, field) = (place.thread.clone(), format!("{}{}", place.path, place.field));
        Self::of(Kind::Secret { thread, field, what, source })
    }

    pub(crate) fn limit_zero(thread: &ThreadName, what: &'static str) -> Self {
        Self::of(Kind::LimitZero { thread: thread.clone(), what })
    }

    pub(crate) fn crashed(error: &tokio::task::JoinError) -> Self {
        Self::of(Kind::Crashed(error.to_string()))
    }

    pub(crate) fn signal(thread: &ThreadName, refusal: SignalRefusal) -> Self {
        Self::of(Kind::Signal { thread: thread.clone(), refusal })
    }

    pub(crate) fn other_alarms(thread: &ThreadName) -> Self {
        Self::of(Kind::OtherAlarms { thread: thread.clone() })
    }

    pub(crate) fn other_store() -> Self {
        Self::of(Kind::OtherStore)
    }

    pub(crate) fn notifier(name: &str) -> Self {
        Self::of(Kind::Notifier { name: name.to_owned() })
    }

    pub(crate) fn supervised() -> Self {
        Self::of(Kind::Supervised)
    }

    pub(crate) fn schedule(name: &str, what: impl Into<String>) -> Self {
        Self::of(Kind::Schedule { name: name.to_owned(), what: what.into() })
    }
}
