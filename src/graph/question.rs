//! How questions are written: approvals, and free questions with a typed answer.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::NodeError;
use crate::log::{QuestionKind, QuestionSpec};
use crate::state::to_value;

/// An approval: a person says yes, no, or yes with a correction.
///
/// ```
/// use ferrata::Approval;
/// use std::time::Duration;
///
/// let question = Approval::ask("Refund 42.00?").show(&("order-7", 4_200)).deadline(Duration::from_secs(24 * 3600));
/// let answer = Approval::approve().by("dana");
/// let refusal = Approval::reject("the order is from last year");
/// ```
///
/// A question node with an approval has edges of its own: `approved` and `rejected`. `GraphBuilder::edited` says what becomes of a
/// correction, `GraphBuilder::refused` what becomes of the reason of a refusal.
#[derive(Clone, Debug)]
#[must_use]
pub struct Approval {
    text: String,
    show: Option<Value>,
    deadline: Option<Duration>,
    edit_schema: Option<Value>,
    edit_bounds: Option<Value>,
}

impl Approval {
    /// Asks for approval.
    pub fn ask(text: impl Into<String>) -> Self {
        Self { text: text.into(), show: None, deadline: None, edit_schema: None, edit_bounds: None }
    }

    /// The data a person needs to decide. A value that cannot be stored (a float that is not finite) is shown as the error text.
    pub fn show<T: Serialize + ?Sized>(mut self, data: &T) -> Self {
        self.show = Some(to_value(data).unwrap_or_else(|error| Value::String(error.to_string())));
        self
    }

    /// How long after asking it should be answered. Kept with the question; nothing happens by itself when it passes.
    pub fn deadline(mut self, within: Duration) -> Self {
        self.deadline = Some(within);
        self
    }

    /// Allows the answer "yes, with this correction" of that type. On a question node, `Graph::edited` does this.
    pub fn edits<T: JsonSchema>(mut self) -> Self {
        self.edit_schema = Some(schemars::schema_for!(T).to_value());
        self
    }

    /// Narrows what a correction may be, by a JSON Schema beside that of its type: `json!({"maximum": 4200})`. A correction beyond it is
    /// refused, and the question stays open.
    pub fn edit_within(mut self, schema: Value) -> Self {
        self.edit_bounds = Some(schema);
        self
    }

    /// The answer yes.
    pub fn approve() -> Answer {
        Answer::new(json!({"verdict": "approve"}))
    }

    /// The answer no.
    pub fn reject(reason: impl Into<String>) -> Answer {
        Answer::new(json!({"verdict": "reject", "reason": reason.into()}))
    }

    /// The answer yes, with a correction.
    pub fn edit<T: Serialize>(value: T) -> Answer {
        match to_value(&value) {
            Ok(value) => Answer::new(json!({"verdict": "edit", "value": value})),
            // Refused by the question's schema, with this text in the error.
            Err(error) => Answer::new(json!({"verdict": "edit", "error": error.to_string()})),
        }
    }

    fn schema(&self) -> Value {
        let verdict = |word: &str| json!({"const": word});
        let mut kinds = vec![
            json!({"type": "object", "required": ["verdict"], "additionalProperties": false,
                   "properties": {"verdict": verdict("approve")}}),
            json!({"type": "object", "required": ["verdict"], "additionalProperties": false,
                   "properties": {"verdict": verdict("reject"), "reason": {"type": "string"}}}),
        ];
        let mut schema = serde_json::Map::new();
        if let Some(mut edit) = self.edit_schema.clone() {
            // `$ref`s of the correction's schema point at the root.
            if let Some(definitions) = edit.as_object_mut().and_then(|edit| edit.remove("$defs")) {
                schema.insert("$defs".to_owned(), definitions);
            }
            if let Some(bounds) = &self.edit_bounds {
                edit = json!({"allOf": [edit, bounds]});
            }
            kinds.push(json!({"type": "object", "required": ["verdict", "value"], "additionalProperties": false,
                              "properties": {"verdict": verdict("edit"), "value": edit}}));
        }
        schema.insert("anyOf".to_owned(), Value::Array(kinds));
        Value::Object(schema)
    }
}

/// What a person said to an approval.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Yes.
    Approve,
    /// No.
    Reject {
        /// Why.
        #[serde(default)]
        reason: String,
    },
    /// Yes, with a correction.
    Edit {
        /// The correction, which fits the schema that the question gave.
        value: Value,
    },
}

/// A free question with an answer of type `T`.
///
/// ```
/// use ferrata::Ask;
/// let question = Ask::<u32>::new("How many seats?").show(&["Heron", "Lark"]);
/// ```
#[derive(Debug)]
#[must_use]
pub struct Ask<T> {
    text: String,
    show: Option<Value>,
    deadline: Option<Duration>,
    answer: PhantomData<fn() -> T>,
}

impl<T> Ask<T> {
    /// Asks.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), show: None, deadline: None, answer: PhantomData }
    }

    /// The data a person needs to answer. A value that cannot be stored (a float that is not finite) is shown as the error text.
    pub fn show<D: Serialize + ?Sized>(mut self, data: &D) -> Self {
        self.show = Some(to_value(data).unwrap_or_else(|error| Value::String(error.to_string())));
        self
    }

    /// How long after asking it should be answered. Kept with the question; nothing happens by itself when it passes.
    pub fn deadline(mut self, within: Duration) -> Self {
        self.deadline = Some(within);
        self
    }
}

/// What can be asked: [`Approval`] and [`Ask`].
pub trait Asking {
    /// What an answer becomes.
    type Answer: DeserializeOwned;

    /// Whether it is an approval, with edges of its own for yes and no.
    #[doc(hidden)]
    const IS_APPROVAL: bool;

    #[doc(hidden)]
    fn into_parts(self) -> AskParts;
}

/// What a question consists of.
#[doc(hidden)]
#[derive(Debug)]
pub struct AskParts {
    kind: QuestionKind,
    text: String,
    show: Option<Value>,
    schema: Value,
    deadline: Option<Duration>,
    edit_bounds: Option<Value>,
}

impl AskParts {
    pub(crate) fn spec(self, key: Arc<str>, occurrence: u32) -> QuestionSpec {
        let deadline_ms = self.deadline.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
        QuestionSpec { key, occurrence, kind: self.kind, text: self.text, show: self.show, schema: self.schema, deadline_ms }
    }
}

impl Asking for Approval {
    type Answer = Verdict;
    const IS_APPROVAL: bool = true;

    fn into_parts(self) -> AskParts {
        let schema = self.schema();
        let edit_bounds = self.edit_bounds;
        AskParts { kind: QuestionKind::Approval, text: self.text, show: self.show, schema, deadline: self.deadline, edit_bounds }
    }
}

impl<T: DeserializeOwned + JsonSchema> Asking for Ask<T> {
    type Answer = T;
    const IS_APPROVAL: bool = false;

    fn into_parts(self) -> AskParts {
        let schema = schemars::schema_for!(T).to_value();
        AskParts {
            kind: QuestionKind::Free,
            text: self.text,
            show: self.show,
            schema,
            deadline: self.deadline,
            edit_bounds: None,
        }
    }
}

/// An answer to a question, and who gives it.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an answer does nothing until it is given to a thread"]
pub struct Answer {
    pub(crate) value: Value,
    pub(crate) by: Option<String>,
}

impl Answer {
    /// An answer as JSON.
    pub fn new(value: impl Into<Value>) -> Self {
        Self { value: value.into(), by: None }
    }

    /// Says who gives it. The engine records this and does not check it.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }

    /// The answer to an effect in doubt: it was performed, and this is its result. If the result does not fit what the node
    /// expects, the doubt is asked about again, and nothing is performed.
    pub fn performed(result: impl Into<Value>) -> Self {
        Self::new(json!({"performed": true, "result": result.into()}))
    }

    /// The answer to an effect in doubt: it was not performed, and may be.
    pub fn not_performed() -> Self {
        Self::new(json!({"performed": false}))
    }
}

impl<T: Into<Value>> From<T> for Answer {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// JSON Schema of the answer to an effect in doubt.
pub(crate) fn doubt_schema() -> Value {
    json!({"type": "object", "required": ["performed"], "additionalProperties": false,
           "properties": {"performed": {"type": "boolean"}, "result": {}}})
}

/// A question node: what it asks, and what becomes of the answer.
pub(crate) struct QuestionNode<S> {
    pub(crate) is_approval: bool,
    pub(crate) ask: Arc<dyn Fn(&S) -> AskParts + Send + Sync>,
    pub(crate) take: Option<Take<S>>,
    /// What becomes of a refusal's reason.
    pub(crate) refused: Option<Arc<RefusedFn<S>>>,
}

type RefusedFn<S> = dyn Fn(&S, String) -> crate::state::Update + Send + Sync;

type TakeFn<S> = dyn Fn(&S, Value) -> Result<crate::state::Update, NodeError> + Send + Sync;

/// What becomes of an answer or of a correction.
pub(crate) struct Take<S> {
    pub(crate) schema: Value,
    pub(crate) apply: Arc<TakeFn<S>>,
}

impl<S> Clone for QuestionNode<S> {
    fn clone(&self) -> Self {
        let take = self.take.as_ref().map(|t| Take { schema: t.schema.clone(), apply: Arc::clone(&t.apply) });
        Self { is_approval: self.is_approval, ask: Arc::clone(&self.ask), take, refused: self.refused.clone() }
    }
}

impl<S> QuestionNode<S> {
    /// The question on this state.
    pub(crate) fn spec(&self, state: &S, node: &str) -> QuestionSpec {
        let mut parts = (self.ask)(state);
        if let (true, Some(take)) = (self.is_approval, &self.take) {
            let edit_bounds = parts.edit_bounds.take();
            let approval = Approval { edit_schema: Some(take.schema.clone()), edit_bounds, ..Approval::ask("") };
            parts.schema = approval.schema();
        }
        parts.spec(node.into(), 0)
    }
}
