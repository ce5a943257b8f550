//! Question nodes: what they ask, where their answers lead, and what becomes of them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::outside::Wait;
use super::plan::{APPROVED, EXPIRED, EdgeKind, REJECTED, TakeKind};
use super::question::{AskParts, Asking, approval_schema};
use super::{GraphBuilder, Handler, Node};
use crate::error::NodeError;
use crate::id::NodeName;
use crate::log::{OnExpiry, QuestionKind, QuestionSpec};
use crate::state::{State, Update};

/// A question node: what it asks, and what becomes of the answer.
pub(crate) struct QuestionNode<S> {
    pub(crate) is_approval: bool,
    pub(crate) ask: Asks<S>,
    pub(crate) take: Option<Take<S>>,
    /// What becomes of a refusal's reason.
    pub(crate) refused: Option<Arc<RefusedFn<S>>>,
    /// Whether it has `expired` edges.
    pub(crate) can_expire: bool,
}

/// What a question node asks on a state: people, or nobody.
pub(crate) enum Asks<S> {
    People(Arc<dyn Fn(&S) -> AskParts + Send + Sync>),
    Nobody(Arc<dyn Fn(&S) -> Wait + Send + Sync>),
}

impl<S> Clone for Asks<S> {
    fn clone(&self) -> Self {
        match self {
            Self::People(ask) => Self::People(Arc::clone(ask)),
            Self::Nobody(wait) => Self::Nobody(Arc::clone(wait)),
        }
    }
}

type RefusedFn<S> = dyn Fn(&S, String) -> Update + Send + Sync;

type TakeFn<S> = dyn Fn(&S, Value) -> Result<Update, NodeError> + Send + Sync;

/// What becomes of an answer or of a correction.
pub(crate) struct Take<S> {
    pub(crate) schema: Value,
    pub(crate) apply: Arc<TakeFn<S>>,
}

impl<S> Clone for QuestionNode<S> {
    fn clone(&self) -> Self {
        let take = self.take.as_ref().map(|t| Take { schema: t.schema.clone(), apply: Arc::clone(&t.apply) });
        let Self { is_approval, can_expire, .. } = *self;
        Self { is_approval, ask: self.ask.clone(), take, refused: self.refused.clone(), can_expire }
    }
}

impl<S> QuestionNode<S> {
    fn asking(is_approval: bool, ask: Asks<S>) -> Self {
        Self { is_approval, ask, take: None, refused: None, can_expire: false }
    }

    /// A node that waits, and asks nobody.
    pub(super) fn waiting(wait: impl Fn(&S) -> Wait + Send + Sync + 'static) -> Self {
        Self::asking(false, Asks::Nobody(Arc::new(wait)))
    }

    fn wait_spec(&self, wait: Wait, node: &str) -> Result<QuestionSpec, NodeError> {
        let spec = wait.spec(node.into(), 0);
        let ends = matches!(spec.kind, QuestionKind::Signal(_)) && spec.deadline_ms.is_some();
        if ends && !self.can_expire {
            let text = format!(
                "the wait for a signal ends, and the graph does not say where to go then: add `.expired(\"{node}\", ..)`"
            );
            return Err(NodeError::new(text).deterministic());
        }
        Ok(spec)
    }

    /// Whether it asks nobody.
    pub(crate) fn is_wait(&self) -> bool {
        matches!(self.ask, Asks::Nobody(_))
    }

    /// The question on this state.
    pub(crate) fn spec(&self, state: &S, node: &str) -> Result<QuestionSpec, NodeError> {
        let mut parts = match &self.ask {
            Asks::People(ask) => ask(state),
            Asks::Nobody(wait) => return self.wait_spec(wait(state), node),
        };
        match &parts.says.on_expiry {
            None if self.can_expire => parts.says.on_expiry = Some(OnExpiry::GoOn),
            Some(OnExpiry::GoOn) if !self.can_expire => {
                let text = format!(
                    "the question is to go on when it expires, and the graph does not say where: add `.expired(\"{node}\", ..)`"
                );
                return Err(NodeError::new(text).deterministic());
            }
            _ => {}
        }
        if let (true, Some(take)) = (self.is_approval, &self.take) {
            parts.schema = approval_schema(Some(take.schema.clone()), parts.edit_bounds.as_ref());
        }
        Ok(parts.spec(node.into(), 0))
    }
}

impl<S: State> GraphBuilder<S> {
    /// Adds a question node: it asks, and does nothing else. The question is an [`Approval`](crate::Approval), with edges
    /// [`approved`](Self::approved) and [`rejected`](Self::rejected), or an [`Ask`](crate::Ask), with [`answered`](Self::answered).
    pub fn question<Q: Asking>(self, name: &str, ask: impl Fn(&S) -> Q + Send + Sync + 'static) -> Self {
        let question = QuestionNode::asking(Q::IS_APPROVAL, Asks::People(Arc::new(move |state: &S| ask(state).into_parts())));
        self.node(name, Node::new(Handler::Question(question), None))
    }

    /// After the approval `from` was given, with or without a correction, `to` runs.
    pub fn approved(self, from: &str, to: &str) -> Self {
        self.line(from, to, EdgeKind::Label(APPROVED))
    }

    /// After the approval `from` was refused, `to` runs.
    pub fn rejected(self, from: &str, to: &str) -> Self {
        self.line(from, to, EdgeKind::Label(REJECTED))
    }

    /// When the question node `from` was not answered before its deadline, `to` runs. See [`OnExpiry`](crate::OnExpiry).
    pub fn expired(mut self, from: &str, to: &str) -> Self {
        let name = NodeName::from(from);
        for node in self.plan.nodes.iter_mut().filter(|n| n.name == name) {
            if let Handler::Question(node) = &mut node.node.handler {
                node.can_expire = true;
            }
        }
        self.line(from, to, EdgeKind::Label(EXPIRED))
    }

    /// Allows the approval `question` to be answered with a correction of type `T`, and says what becomes of it. The
    /// approved edges follow.
    pub fn edited<T, U>(self, question: &str, apply: impl Fn(&S, T) -> U + Send + Sync + 'static) -> Self
    where
        T: DeserializeOwned + JsonSchema,
        U: Into<Update>,
    {
        self.take(question, TakeKind::Edited, apply)
    }

    /// Says what becomes of the reason when the approval `question` is refused. The rejected edges follow.
    pub fn refused<U: Into<Update>>(mut self, question: &str, apply: impl Fn(&S, String) -> U + Send + Sync + 'static) -> Self {
        let name = NodeName::from(question);
        let apply = Arc::new(move |state: &S, reason: String| apply(state, reason).into());
        for node in self.plan.nodes.iter_mut().filter(|n| n.name == name) {
            if let Handler::Question(node) = &mut node.node.handler {
                node.refused = Some(apply.clone());
            }
        }
        self.plan.takes.push((name, TakeKind::Refused));
        self
    }

    /// Says what becomes of the answer to the question node `question`.
    pub fn answered<T, U>(self, question: &str, apply: impl Fn(&S, T) -> U + Send + Sync + 'static) -> Self
    where
        T: DeserializeOwned + JsonSchema,
        U: Into<Update>,
    {
        self.take(question, TakeKind::Answered, apply)
    }

    fn take<T, U>(mut self, question: &str, kind: TakeKind, apply: impl Fn(&S, T) -> U + Send + Sync + 'static) -> Self
    where
        T: DeserializeOwned + JsonSchema,
        U: Into<Update>,
    {
        let name = NodeName::from(question);
        let apply = Arc::new(move |state: &S, value: serde_json::Value| {
            let answer: T = serde_json::from_value(value).map_err(NodeError::from)?;
            Ok(apply(state, answer).into())
        });
        let schema = schemars::schema_for!(T).to_value();
        for node in self.plan.nodes.iter_mut().filter(|n| n.name == name) {
            if let Handler::Question(node) = &mut node.node.handler {
                node.take = Some(Take { schema: schema.clone(), apply: apply.clone() });
            }
        }
        self.plan.takes.push((name, kind));
        self
    }
}
