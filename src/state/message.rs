//! Messages of a conversation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions from the program.
    System,
    /// A person, or the task.
    User,
    /// The model.
    Assistant,
    /// The result of a tool.
    Tool,
}

/// A tool that the model wants called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCall {
    /// Identifies the call; its result names it.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments, as JSON text.
    pub arguments: String,
}

/// One message of a conversation.
///
/// A message without an id gets one when the task that wrote it finishes: the same one whenever that task is folded again.
///
/// ```
/// use ferrata::state::{Message, Role};
/// let message = Message::user("Book a table for 6").with_id("first-task");
/// assert_eq!((message.role, message.id.as_str()), (Role::User, "first-task"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Identifies the message in its list; empty until one is given.
    #[serde(default)]
    pub id: String,
    /// Who says it.
    pub role: Role,
    /// The text.
    pub content: String,
    /// Tools the model wants called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that this is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message of that role.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { id: String::new(), role, content: content.into(), tool_calls: Vec::new(), tool_call_id: None }
    }

    /// Instructions from the program.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new(Role::System, content)
    }

    /// What a person says, or the task.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new(Role::User, content)
    }

    /// What the model says.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new(Role::Assistant, content)
    }

    /// The same message under that id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }
}

/// What a list under the rule `messages` holds: things with an id, stored as objects with a key `id`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an item of a `#[state(messages)]` field",
    note = "use `ferrata::state::Message`, or implement `HasId` for a type that serializes with a field `id`"
)]
pub trait HasId {
    /// The id; empty if there is none yet.
    fn id(&self) -> &str;
}

impl HasId for Message {
    fn id(&self) -> &str {
        &self.id
    }
}
