//! What a tool can do besides computing.

use std::fmt;
use std::sync::Arc;

use ferrata::{Context, NodeError};
use serde::Serialize;

use super::credentials::Credentials;
use super::kept::Kept;

/// What a tool has besides its arguments: the call it answers, the credentials it was given, and nothing else of the program.
///
/// A tool cannot ask a person, and is itself the effect: questions are the business of [`Risk::Irreversible`](crate::Risk::Irreversible).
///
/// ```
/// use ferrata_nodes::{Tool, ToolContext};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Mail { to: String }
///
/// async fn send(mail: Mail, ctx: ToolContext) -> ferrata::Result<String> {
///     let _token = ctx.credential("mail")?; // goes to the service, with the key that makes a second try safe
///     Ok(format!("sent to {} under {}", mail.to, ctx.idempotency_key()))
/// }
/// let tool = Tool::new("send", "Sends a mail.", send).credential("mail", "s3cr3t");
/// assert!(!format!("{tool:?}").contains("s3cr3t"));
/// ```
#[derive(Clone)]
pub struct ToolContext {
    pub(super) ctx: Context,
    pub(super) tool: Arc<str>,
    pub(super) call_id: Arc<str>,
    pub(super) key: String,
    pub(super) credentials: Credentials,
    pub(super) kept: Kept,
}

impl ToolContext {
    /// The id that the model gave to the call.
    pub fn call_id(&self) -> &str {
        &self.call_id
    }

    /// A key for the other side, the same when the call is tried again: what it has done under this key it need not do again.
    pub fn idempotency_key(&self) -> &str {
        &self.key
    }

    /// A credential that the tool was given.
    ///
    /// # Errors
    ///
    /// It was given none of that name. Nothing was done then, and the model is told so.
    pub fn credential(&self, name: &str) -> Result<&str, NodeError> {
        self.credentials.get(name).ok_or_else(|| {
            let text = format!("the tool \"{}\" has no credential \"{name}\"; add it with `Tool::credential`", self.tool);
            NodeError::new(text).deterministic().not_performed()
        })
    }

    /// Gives a sign of life; see [`Context::heartbeat`](ferrata::Context::heartbeat).
    pub fn heartbeat(&self) {
        self.ctx.heartbeat();
    }

    /// Tells whoever watches the run; see [`Context::emit`](ferrata::Context::emit).
    ///
    /// # Errors
    ///
    /// The value is none that can be stored.
    pub fn emit<T: Serialize + ?Sized>(&self, value: &T) -> Result<(), NodeError> {
        self.ctx.emit(value)
    }

    /// The whole of a large result, by its id, as it was when the step began; see [`ToolsNode::over_with_artifacts`](crate::ToolsNode::over_with_artifacts).
    pub fn artifact(&self, id: &str) -> Option<String> {
        self.kept.read(id)
    }
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext").field("tool", &self.tool).field("call_id", &self.call_id).finish_non_exhaustive()
    }
}
