//! Functions as nodes: what their arguments can be, and how they are called.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::context::Context;
use super::dependency::Dep;
use crate::error::NodeError;
use crate::graph::{
    APPROVED, EXPIRED, Handler, IntoNode, IntoReturn, Need, Node, NodeReturn, PayloadType, QuestionNode, REJECTED, Verdict,
};
use crate::state::{Schema, State, StateCell, View};

pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = Result<NodeReturn, NodeError>> + Send>>;

/// A node that can be started, whatever its state type.
pub(crate) type Startable = Arc<dyn Fn(&StateCell, Option<Arc<Value>>, Context) -> TaskFuture + Send + Sync>;

/// What the graph keeps for the runner without looking into it.
struct Function<S>(Box<dyn Fn(TaskInput<S>) -> TaskFuture + Send + Sync>);

/// What a task gets.
#[doc(hidden)]
#[derive(Debug)]
pub struct TaskInput<S> {
    state: View<S>,
    payload: Option<Arc<Value>>,
    context: Context,
}

/// What can be an argument of a node: a view of the state, the context, what was handed in, or the payload.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a node of a graph over `{S}`",
    note = "an argument is `View<{S}>`, `Context`, `Dep` of what is handed in, or a payload that is `Deserialize`"
)]
pub trait FromTask<S>: Sized {
    #[doc(hidden)]
    fn payload() -> Option<PayloadType> {
        None
    }
    #[doc(hidden)]
    fn need() -> Option<Need> {
        None
    }
    #[doc(hidden)]
    fn from_task(input: &TaskInput<S>) -> Result<Self, NodeError>;
}

impl<S: State> FromTask<S> for View<S> {
    fn from_task(input: &TaskInput<S>) -> Result<Self, NodeError> {
        Ok(input.state.clone())
    }
}

impl<S> FromTask<S> for Context {
    fn from_task(input: &TaskInput<S>) -> Result<Self, NodeError> {
        Ok(input.context.clone())
    }
}

impl<S, T: Send + Sync + 'static> FromTask<S> for Dep<T> {
    fn need() -> Option<Need> {
        Some(Self::as_need())
    }

    fn from_task(input: &TaskInput<S>) -> Result<Self, NodeError> {
        input.context.dependency()
    }
}

impl<S, P: DeserializeOwned + 'static> FromTask<S> for P {
    fn payload() -> Option<PayloadType> {
        Some(PayloadType::of::<P>())
    }

    fn from_task(input: &TaskInput<S>) -> Result<Self, NodeError> {
        let payload = input.payload.as_deref().unwrap_or(&Value::Null);
        P::deserialize(payload)
            .map_err(|error| NodeError::new(format!("the payload is no {}: {error}", std::any::type_name::<P>())).deterministic())
    }
}

macro_rules! node_of {
    ($($arg:ident),+) => {
        impl<S, F, Fut, R, $($arg),+> IntoNode<S, ($($arg,)+)> for F
        where
            S: State,
            F: Fn($($arg),+) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<R, NodeError>> + Send + 'static,
            R: IntoReturn<S>,
            $($arg: FromTask<S>),+
        {
            fn into_node(self) -> Node<S> {
                let call = move |input: TaskInput<S>| -> TaskFuture {
                    #[allow(non_snake_case, reason = "named as the types are")]
                    let arguments = (|| Ok(($($arg::from_task(&input)?,)+)))();
                    match arguments {
                        #[allow(non_snake_case, reason = "named as the types are")]
                        Ok(($($arg,)+)) => {
                            let future = self($($arg),+);
                            Box::pin(async move { future.await.map(IntoReturn::into_return) })
                        }
                        Err(error) => Box::pin(std::future::ready(Err(error))),
                    }
                };
                let payload = None$(.or($arg::payload()))+;
                let mut node = Node::new(Handler::Function { call: Arc::new(Function::<S>(Box::new(call))), payload }, payload);
                node.needs = [$($arg::need()),+].into_iter().flatten().collect();
                node
            }
        }
    };
}
impl<S, F, Fut, R> IntoNode<S, ()> for F
where
    S: State,
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, NodeError>> + Send + 'static,
    R: IntoReturn<S>,
{
    fn into_node(self) -> Node<S> {
        let call = move |_: TaskInput<S>| -> TaskFuture {
            let future = self();
            Box::pin(async move { future.await.map(IntoReturn::into_return) })
        };
        Node::new(Handler::Function { call: Arc::new(Function::<S>(Box::new(call))), payload: None }, None)
    }
}

node_of!(A);
node_of!(A, B);
node_of!(A, B, C);

/// Makes a handler startable, so that the loop need not know the state's type.
pub(crate) fn startable<S: State>(handler: Handler<S>, sees: Option<Vec<String>>, schema: &Arc<Schema>) -> Startable {
    let schema = Arc::clone(schema);
    match handler {
        Handler::Function { call, payload: takes } => {
            let function = call.downcast::<Function<S>>().expect("made by `into_node` above");
            Arc::new(move |state, payload, context| {
                let state = match &payload {
                    // A node that takes no payload but was sent one gets it as its state.
                    Some(sent) if takes.is_none() => match sent_state(&schema, sent) {
                        Ok(state) => state,
                        Err(error) => return Box::pin(std::future::ready(Err(error))),
                    },
                    _ => seen(state, sees.as_deref()),
                };
                (function.0)(TaskInput { state, payload, context })
            })
        }
        Handler::Question(question) => {
            Arc::new(move |state, _, context| Box::pin(ask(question.clone(), seen(state, sees.as_deref()), context)))
        }
    }
}

fn seen<S: State>(state: &StateCell, fields: Option<&[String]>) -> View<S> {
    let view = state.view::<S>();
    match fields {
        Some(fields) => View::new(view.only(&|name| fields.iter().any(|field| field == name))),
        None => view,
    }
}

fn sent_state<S: State>(schema: &Schema, sent: &Value) -> Result<View<S>, NodeError> {
    let Value::Object(fields) = sent else {
        return Err(NodeError::new("a node that takes a view of the state was sent something that is no object").deterministic());
    };
    let state = S::decode(schema, fields.clone()).map_err(|error| NodeError::from(error).deterministic())?;
    Ok(View::new(state))
}

/// A question node: asks, and when the answer is there says what becomes of it.
async fn ask<S: State>(node: QuestionNode<S>, state: View<S>, context: Context) -> Result<NodeReturn, NodeError> {
    let attempt = &context.attempt;
    let Some(answer) = attempt.start.journal.answer(context.node(), 0).cloned() else {
        if attempt.start.journal.is_expired(context.node(), 0) {
            // A time that was waited for has come; a signal has not, or an answer.
            if !node.can_expire {
                return Ok(NodeReturn::default());
            }
            return Ok(NodeReturn { label: Some(EXPIRED), ..NodeReturn::default() });
        }
        let spec = node.spec(&state, context.node())?;
        if spec.until.is_some_and(|time| time <= attempt.run.clock.now()) {
            return Ok(NodeReturn::default());
        }
        return context.ask_spec(spec).await;
    };
    if !node.is_approval {
        return Ok(NodeReturn { update: take(&node, &state, answer)?, ..NodeReturn::default() });
    }
    match serde_json::from_value(answer)? {
        Verdict::Approve => Ok(NodeReturn { label: Some(APPROVED), ..NodeReturn::default() }),
        Verdict::Reject { reason } => {
            let update = node.refused.as_ref().map(|refused| refused(&state, reason)).unwrap_or_default();
            Ok(NodeReturn { update, label: Some(REJECTED), ..NodeReturn::default() })
        }
        Verdict::Edit { value } => {
            Ok(NodeReturn { update: take(&node, &state, value)?, label: Some(APPROVED), ..NodeReturn::default() })
        }
    }
}

fn take<S>(node: &QuestionNode<S>, state: &S, answer: Value) -> Result<crate::state::Update, NodeError> {
    match &node.take {
        Some(take) => (take.apply)(state, answer),
        None if node.is_wait() => Ok(crate::state::Update::default()),
        None => Err(NodeError::new("the graph does not say what becomes of this answer").deterministic()),
    }
}
