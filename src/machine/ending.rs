//! How runs end, and what they fail of.

use std::sync::Arc;

use crate::error::{Class, Failure, Origin, TooLarge};
use crate::id::{NodeName, StepNumber};
use crate::log::{Fault, Question, Target};
use crate::state::{Change, StateError};

/// How a run ends.
#[derive(Debug)]
pub(crate) enum Ending {
    Done,
    Waiting(Vec<Arc<Question>>),
    Suspended,
    /// At a breakpoint.
    Paused,
    /// A question was not answered in time.
    Expired,
    /// A node of a subgraph spoke to the graph outside.
    Handed {
        changes: Vec<Change>,
        goto: Vec<Target>,
    },
    Failed(RunFailure),
}

/// What a run can fail of.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunFailure {
    #[error("node \"{node}\" failed in attempt {attempt}: {failure}")]
    Node { node: NodeName, attempt: u32, failure: Failure },
    #[error(
        "the limit of {limit} steps for {of} is used up; what is done is kept: resume the thread, with a higher limit if need be"
    )]
    StepLimit { limit: u64, of: &'static str },
    #[error(
        "{tasks} tasks would be due after step {step}, and {limit} may be; nothing of the step is merged: go on with a higher limit, set with \
         `step_tasks_max`, or with fewer tasks", step = .step.0
    )]
    TaskLimit { step: StepNumber, tasks: usize, limit: usize },
    #[error("{0}")]
    UpdateLimit(TooLarge),
    #[error(
        "the state would take about {bytes} bytes after step {step}, and {limit} are allowed; nothing of the step is merged: go on with a higher \
         limit, set with `state_bytes_max`", step = .step.0
    )]
    StateLimit { step: StepNumber, bytes: u64, limit: u64 },
    #[error("step {step} cannot be merged: {source}", step = .step.0)]
    Merge { step: StepNumber, source: StateError },
    #[error("the conditional edge after \"{node}\" {what}; it may lead to: {allowed}")]
    Route { node: NodeName, what: String, allowed: String },
    #[error("{}; what the thread had done outside is compensated", .fault.text)]
    Compensated { fault: Fault },
    #[error("nothing is due any more, and the join before \"{node}\" still waits for {missing}")]
    Starved { node: NodeName, missing: String },
}

impl RunFailure {
    /// Where it comes from, seen from a graph outside.
    pub(super) fn origin(&self) -> Origin {
        match self {
            Self::Node { failure, .. } => failure.origin,
            Self::Compensated { fault } => Origin::of_code(&fault.code),
            Self::StepLimit { .. } => Origin::StepLimit,
            Self::TaskLimit { .. } => Origin::TaskLimit,
            Self::UpdateLimit(_) => Origin::UpdateLimit,
            Self::StateLimit { .. } => Origin::StateLimit,
            Self::Merge { source: StateError::UnknownMessage { .. }, .. } => Origin::UnknownMessage,
            Self::Merge { source: StateError::Function { .. }, .. } => Origin::MergeFunction,
            Self::Merge { .. } => Origin::Merge,
            Self::Route { .. } => Origin::Route,
            Self::Starved { .. } => Origin::Starved,
        }
    }

    /// Whether something is too large, or too much.
    pub(super) fn is_size(&self) -> bool {
        matches!(self, Self::TaskLimit { .. } | Self::UpdateLimit(_) | Self::StateLimit { .. })
    }

    /// The word for it that stays the same.
    pub(crate) fn code(&self) -> &'static str {
        self.origin().code()
    }

    /// What the node that called the graph gets to know of it.
    pub(super) fn seen_outside(&self) -> Failure {
        let class = match self {
            Self::Node { failure, .. } => failure.class,
            Self::StepLimit { .. }
            | Self::TaskLimit { .. }
            | Self::UpdateLimit(_)
            | Self::StateLimit { .. }
            | Self::Merge { .. }
            | Self::Route { .. }
            | Self::Starved { .. }
            | Self::Compensated { .. } => Class::Deterministic,
        };
        let tried = matches!(self, Self::Node { failure, .. } if failure.tried);
        Failure { origin: self.origin(), class, message: self.to_string(), causes: Vec::new(), tried }
    }

    pub(crate) fn fault(&self) -> Fault {
        let node = match self {
            Self::Node { node, .. } | Self::Route { node, .. } | Self::Starved { node, .. } => Some(node.clone()),
            Self::Compensated { fault } => fault.node.clone(),
            Self::StepLimit { .. }
            | Self::TaskLimit { .. }
            | Self::UpdateLimit(_)
            | Self::StateLimit { .. }
            | Self::Merge { .. } => None,
        };
        Fault { code: self.code().to_owned(), node, text: self.to_string(), failure: None }
    }

    /// Why a thread is compensated.
    pub(crate) fn cause(&self) -> Fault {
        let failure = match self {
            Self::Node { failure, .. } => Some(Box::new(failure.clone())),
            _ => None,
        };
        Fault { failure, ..self.fault() }
    }
}
