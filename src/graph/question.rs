//! How questions are written: approvals, and free questions with a typed answer.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::log::{OnExpiry, QuestionKind, QuestionSpec};
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
/// A question node with an approval has edges of its own: `approved` and `rejected`, and `expired` if nobody may answer in time. `GraphBuilder::edited` says what becomes of a
/// correction, `GraphBuilder::refused` what becomes of the reason of a refusal.
#[derive(Clone, Debug)]
#[must_use]
pub struct Approval {
    says: Says,
    edit_schema: Option<Value>,
    edit_bounds: Option<Value>,
}

/// What every question says.
#[derive(Clone, Debug, Default)]
pub(super) struct Says {
    text: String,
    show: Option<Value>,
    assignee: Option<String>,
    deadline: Option<Duration>,
    reminders: Vec<Duration>,
    pub(super) on_expiry: Option<OnExpiry>,
}

impl Says {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// What both kinds of question can be given.
macro_rules! says {
    () => {
        /// The data a person needs to decide. A value that cannot be stored (a float that is not finite) is shown as the error text.
        pub fn show<D: Serialize + ?Sized>(mut self, data: &D) -> Self {
            self.says.show = Some(to_value(data).unwrap_or_else(|error| Value::String(error.to_string())));
            self
        }

        /// Who may answer: a word of one's own, kept with the question. The engine does not check it; whoever takes answers in has to.
        pub fn assignee(mut self, who: impl Into<String>) -> Self {
            self.says.assignee = Some(who.into());
            self
        }

        /// How long after asking it can be answered. What happens then is said by [`on_expiry`](Self::on_expiry).
        ///
        /// The deadline is recorded with the question, and honoured when the thread is continued; a
        /// [supervisor](crate::Runner::supervise) does that in time. An answer that comes later is refused, with the code `question-expired`.
        pub fn deadline(mut self, within: Duration) -> Self {
            self.says.deadline = Some(within);
            self
        }

        /// How long after asking somebody should be reminded; can be said several times. Kept with the question; a
        /// [supervisor](crate::Runner::supervise) does it.
        pub fn remind_after(mut self, time: Duration) -> Self {
            self.says.reminders.push(time);
            self
        }

        /// What becomes of the question when its deadline has passed. If nothing is said, a question node with `expired` edges takes these, and any
        /// other question suspends the thread.
        pub fn on_expiry(mut self, then: impl Into<OnExpiry>) -> Self {
            self.says.on_expiry = Some(then.into());
            self
        }
    };
}

/// What an answer says, as what stands in its place when nobody gives one.
impl From<Answer> for OnExpiry {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer.value)
    }
}

impl Approval {
    /// Asks for approval.
    pub fn ask(text: impl Into<String>) -> Self {
        Self { says: Says::new(text), edit_schema: None, edit_bounds: None }
    }

    says!();

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
    says: Says,
    answer: PhantomData<fn() -> T>,
}

impl<T> Ask<T> {
    /// Asks.
    pub fn new(text: impl Into<String>) -> Self {
        Self { says: Says::new(text), answer: PhantomData }
    }

    says!();
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
    pub(super) says: Says,
    pub(super) schema: Value,
    pub(super) edit_bounds: Option<Value>,
}

impl AskParts {
    pub(crate) fn spec(self, key: Arc<str>, occurrence: u32) -> QuestionSpec {
        let Says { text, show, assignee, deadline, reminders, on_expiry } = self.says;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut reminders_ms: Vec<u64> = reminders.into_iter().map(ms).collect();
        reminders_ms.sort_unstable();
        QuestionSpec {
            key,
            occurrence,
            kind: self.kind,
            text,
            show,
            schema: self.schema,
            assignee,
            deadline_ms: deadline.map(ms),
            until: None,
            reminders_ms,
            on_expiry: on_expiry.unwrap_or_default(),
        }
    }
}

impl Asking for Approval {
    type Answer = Verdict;
    const IS_APPROVAL: bool = true;

    fn into_parts(self) -> AskParts {
        let edit_bounds = self.edit_bounds;
        let schema = approval_schema(self.edit_schema, edit_bounds.as_ref());
        AskParts { kind: QuestionKind::Approval, says: self.says, schema, edit_bounds }
    }
}

impl<T: DeserializeOwned + JsonSchema> Asking for Ask<T> {
    type Answer = T;
    const IS_APPROVAL: bool = false;

    fn into_parts(self) -> AskParts {
        let schema = schemars::schema_for!(T).to_value();
        AskParts { kind: QuestionKind::Free, says: self.says, schema, edit_bounds: None }
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

/// JSON Schema of the answer to an approval that takes corrections of that schema, if it takes any.
pub(super) fn approval_schema(edit: Option<Value>, bounds: Option<&Value>) -> Value {
    let verdict = |word: &str| json!({"const": word});
    let mut kinds = vec![
        json!({"type": "object", "required": ["verdict"], "additionalProperties": false,
               "properties": {"verdict": verdict("approve")}}),
        json!({"type": "object", "required": ["verdict"], "additionalProperties": false,
               "properties": {"verdict": verdict("reject"), "reason": {"type": "string"}}}),
    ];
    let mut schema = serde_json::Map::new();
    if let Some(mut edit) = edit {
        // `$ref`s of the correction's schema point at the root.
        if let Some(definitions) = edit.as_object_mut().and_then(|edit| edit.remove("$defs")) {
            schema.insert("$defs".to_owned(), definitions);
        }
        if let Some(bounds) = bounds {
            edit = json!({"allOf": [edit, bounds]});
        }
        kinds.push(json!({"type": "object", "required": ["verdict", "value"], "additionalProperties": false,
                          "properties": {"verdict": verdict("edit"), "value": edit}}));
    }
    schema.insert("anyOf".to_owned(), Value::Array(kinds));
    Value::Object(schema)
}

/// JSON Schema of what is said of a result that breaks a rule. Where there is none, it cannot be taken as it is.
pub(crate) fn verdict_schema(has_result: bool) -> Value {
    let mut schema = approval_schema(None, None);
    if !has_result && let Some(kinds) = schema["anyOf"].as_array_mut() {
        kinds.remove(0);
    }
    schema
}

/// JSON Schema of what is said of a node that goes in circles: it goes on, with or without a word for it, or it does not.
pub(crate) fn circle_schema() -> Value {
    approval_schema(Some(json!({"type": "string"})), None)
}

/// JSON Schema of the answer to an effect in doubt.
pub(crate) fn doubt_schema() -> Value {
    json!({"type": "object", "required": ["performed"], "additionalProperties": false,
           "properties": {"performed": {"type": "boolean"}, "result": {}}})
}
