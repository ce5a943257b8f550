//! A tool: a function that a model may want called, and the policy of its calls.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ferrata::state::to_value;
use ferrata::{NodeError, Performed};
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::context::ToolContext;
use super::credentials::Credentials;
use super::join::Going;
use crate::model::ToolSpec;

/// How long a call may take if nobody says otherwise.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What a call of a tool can do to the world.
///
/// ```
/// assert_eq!(ferrata_nodes::Risk::default(), ferrata_nodes::Risk::Write);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Nothing: it may be called again after a crash.
    Read,
    /// It changes something. A call whose outcome is not known is in doubt, and a person is asked unless the tool has a [check](Tool::check).
    #[default]
    Write,
    /// As `Write`, and nobody can take it back: a person approves each call first.
    Irreversible,
}

/// What a call came to that is known to be over.
pub(crate) enum Said {
    Result(String),
    /// The other side was reached, and says that it failed. Whether it did anything before is its secret.
    #[cfg_attr(not(feature = "mcp"), allow(dead_code, reason = "servers say so"))]
    Failure(String),
}

type Run = dyn Fn(Value, ToolContext) -> Going<'static, Result<Said, NodeError>> + Send + Sync;
type Check = dyn Fn(Value, ToolContext) -> Going<'static, Result<Performed<String>, NodeError>> + Send + Sync;
type Verify = dyn Fn(&Value, &str) -> Result<(), String> + Send + Sync;

/// A function that a model may want called, with the policy of its calls.
///
/// ```
/// use ferrata_nodes::{Risk, Tool, ToolContext};
/// use std::time::Duration;
///
/// /// What to look for.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Search {
///     /// A word of the title.
///     word: String,
/// }
///
/// async fn search(search: Search, _: ToolContext) -> ferrata::Result<Vec<String>> {
///     Ok(vec![format!("All about {}", search.word)])
/// }
///
/// let tool = Tool::new("search", "Finds books by a word of their title.", search)
///     .risk(Risk::Read)
///     .timeout(Duration::from_secs(5))
///     .verify(|_, result| if result == "[]" { Err("nothing was found; try another word".to_owned()) } else { Ok(()) });
/// assert_eq!(tool.spec().arguments["properties"]["word"]["description"], "A word of the title.");
/// ```
#[derive(Clone)]
#[must_use]
pub struct Tool {
    pub(super) name: Arc<str>,
    description: String,
    pub(super) arguments: Value,
    pub(super) risk: Risk,
    pub(super) timeout: Duration,
    pub(super) verify: Option<Arc<Verify>>,
    pub(super) check: Option<Arc<Check>>,
    pub(super) credentials: Credentials,
    pub(super) run: Arc<Run>,
    /// Whether arguments are of the type that the function takes.
    pub(super) read: fn(&Value) -> Result<(), String>,
}

impl Tool {
    /// A tool that calls this function. Its risk is [`Risk::Write`] until something else is said, and a call may take 60 seconds.
    ///
    /// The model is told the name (letters, digits, `_` and `-`), the description, and the JSON Schema of the arguments with what their comments say. A result that
    /// is a text goes to the model as it is, any other as JSON.
    ///
    /// An error of a [`Read`](Risk::Read) goes to the model, and so does one that says [`not_performed`](NodeError::not_performed). Any other error, a panic
    /// or a time-out of a tool that writes leaves the call in doubt. A [terminal](NodeError::terminal) error fails the node.
    ///
    /// All calls of a turn run in one task: a function that blocks its thread holds up the others, and no time-out ends it. Put such work into
    /// `tokio::task::spawn_blocking`.
    pub fn new<A, R, F, Fut>(name: impl Into<String>, description: impl Into<String>, f: F) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        R: Serialize,
        F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, NodeError>> + Send + 'static,
    {
        let mut arguments = schema_for!(A).to_value();
        if let Some(schema) = arguments.as_object_mut() {
            // They tell the model nothing.
            schema.retain(|word, _| word != "$schema" && word != "title");
        }
        let run = move |arguments: Value, ctx: ToolContext| -> Going<'static, Result<Said, NodeError>> {
            let arguments = match serde_json::from_value::<A>(arguments) {
                Ok(arguments) => arguments,
                Err(error) => return Box::pin(async { Err(NodeError::from(error).deterministic().not_performed()) }),
            };
            let going = f(arguments, ctx);
            Box::pin(async move { text_of(&going.await?).map(Said::Result) })
        };
        let read = |arguments: &Value| A::deserialize(arguments).map(drop).map_err(|error| error.to_string());
        Self { read, ..Self::with_run(name.into(), description.into(), arguments, Arc::new(run)) }
    }

    /// A tool whose arguments are known at run time only: the JSON Schema of an object, and a function that takes what fits it.
    ///
    /// ```
    /// use ferrata_nodes::{Tool, ToolContext};
    /// use serde_json::{Value, json};
    ///
    /// let schema = json!({"type": "object", "properties": {"row": {"type": "integer"}}, "required": ["row"]});
    /// let row = |arguments: Value, _: ToolContext| async move { Ok(format!("row {}", arguments["row"])) };
    /// assert_eq!(Tool::with_schema("row", "Reads a row.", schema.clone(), row).spec().arguments, schema);
    /// ```
    pub fn with_schema<F, Fut>(name: impl Into<String>, description: impl Into<String>, arguments: Value, f: F) -> Self
    where
        F: Fn(Value, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, NodeError>> + Send + 'static,
    {
        let run = move |arguments: Value, ctx: ToolContext| -> Going<'static, Result<Said, NodeError>> {
            let going = f(arguments, ctx);
            Box::pin(async move { going.await.map(Said::Result) })
        };
        Self::with_run(name.into(), description.into(), arguments, Arc::new(run))
    }

    /// A tool of a server, which says itself whether a call failed.
    #[cfg(feature = "mcp")]
    pub(crate) fn of_server<F, Fut>(name: String, description: String, arguments: Value, credentials: Credentials, f: F) -> Self
    where
        F: Fn(Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Said, NodeError>> + Send + 'static,
    {
        let run = Arc::new(move |arguments, _| -> Going<'static, Result<Said, NodeError>> { Box::pin(f(arguments)) });
        Self { credentials, ..Self::with_run(name, description, arguments, run) }
    }

    fn with_run(name: String, description: String, arguments: Value, run: Arc<Run>) -> Self {
        let (risk, verify, check, credentials) = (Risk::default(), None, None, Credentials::default());
        let read = |_: &Value| Ok(());
        Self { name: name.into(), description, arguments, risk, timeout: TIMEOUT, verify, check, credentials, run, read }
    }

    /// What a call of it can do.
    pub fn risk(mut self, risk: Risk) -> Self {
        self.risk = risk;
        self
    }

    /// How long a call may take, and how long its [check](Self::check).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A rule for results, which gets the arguments and the result as text: a result that breaks it does not go to the model, but what is wrong does.
    pub fn verify(mut self, rule: impl Fn(&Value, &str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.verify = Some(Arc::new(rule));
        self
    }

    /// Lets a function find out whether a call was performed of which nobody knows, mostly by its
    /// [key](ToolContext::idempotency_key); see [`Effect::check`](ferrata::Effect::check). Without one a person is asked. A read needs none.
    /// It has as long as a call; a panic in it means that it does not know.
    ///
    /// ```
    /// use ferrata::Performed;
    /// use ferrata_nodes::{Tool, ToolContext};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Note { text: String }
    ///
    /// let add = |note: Note, ctx: ToolContext| async move { Ok(format!("note {} added", ctx.idempotency_key())) };
    /// let look_up = |_: Note, ctx: ToolContext| async move { Ok(Performed::Yes(format!("note {} added", ctx.idempotency_key()))) };
    /// assert_eq!(Tool::new("add", "Adds a note.", add).check(look_up).spec().name, "add");
    /// ```
    pub fn check<A, R, F, Fut>(mut self, f: F) -> Self
    where
        A: DeserializeOwned,
        R: Serialize,
        F: Fn(A, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Performed<R>, NodeError>> + Send + 'static,
    {
        self.check = Some(Arc::new(move |arguments, ctx| {
            let going = serde_json::from_value::<A>(arguments).map(|arguments| f(arguments, ctx));
            Box::pin(async move {
                Ok(match going.map_err(NodeError::from)?.await? {
                    Performed::Yes(result) => Performed::Yes(text_of(&result)?),
                    Performed::No => Performed::No,
                    Performed::Unknown => Performed::Unknown,
                })
            })
        }));
        self
    }

    /// Gives it a credential, which it gets by [`ToolContext::credential`], and no other tool does. It is in no record: where it turns up in a result or
    /// an error, its name stands in its place.
    pub fn credential(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.credentials.add(name.into(), value.into());
        self
    }

    /// The tool as a model is told of it.
    pub fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.name.to_string(), description: self.description.clone(), arguments: self.arguments.clone() }
    }
}

fn text_of<R: Serialize>(result: &R) -> Result<String, NodeError> {
    let recorded = to_value(result);
    Ok(match recorded.map_err(|error| NodeError::from(error).context("it was performed, but its result cannot be recorded"))? {
        Value::String(text) => text,
        value => value.to_string(),
    })
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("name", &self.name)
            .field("risk", &self.risk)
            .field("timeout", &self.timeout)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}
