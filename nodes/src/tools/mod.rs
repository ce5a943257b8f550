//! Tools that a model may want called, and the node that calls them.

mod context;
mod credentials;
mod history;
mod join;
mod kept;
mod perform;
mod tool;
mod turn;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ferrata::state::{FieldRef, Message, Update};
use ferrata::{Approval, Context, IntoNode, Node, State, View};
use jsonschema::Validator;

use crate::model::ToolSpec;
use crate::names::is_name;
pub use context::ToolContext;
#[cfg(feature = "mcp")]
pub(crate) use credentials::Credentials;
pub(crate) use history::settled;
use kept::{Kept, RECALL, Read};
#[cfg(feature = "mcp")]
pub(crate) use tool::Said;
pub use tool::{Risk, Tool};
use turn::{Results, Turn};

/// How many tokens a result may have in the conversation if nobody says otherwise.
const RESULT_TOKENS_MAX: usize = 4_000;

/// Less than that has no room for the words around a part of a result.
const RESULT_TOKENS_LEAST: usize = 160;

/// How many calls of one turn are answered if nobody says otherwise.
const CALLS_MAX: usize = 32;

/// A node that calls the tools which a model wants called: all calls of its last message that have no result yet, beside each other. Each gets
/// one result, a message with the role [`Tool`](ferrata::state::Role::Tool) and the id of the call, in the order of the calls.
///
/// | what happens | what becomes of the call |
/// | --- | --- |
/// | a tool that does not exist or may not be used, arguments that are no JSON or do not fit | nothing is done; the model is told what is wrong, and what there is |
/// | an error, a panic or a time-out of a tool that reads; an error that says [`not_performed`](ferrata::NodeError::not_performed) | the model is told |
/// | the same in a tool that writes, without `not_performed` | it is in doubt: its [check](Tool::check) finds out, or a person says what came of it |
/// | a result that breaks the rule of its tool | the model is told what is wrong, and does not see the result |
/// | an [irreversible](Risk::Irreversible) tool | a person sees the arguments first, and approves, changes or refuses them; the model is told of a change or a refusal |
/// | a result of a tool that reads, too large to be recorded | the model is told |
/// | a tool that is taken away or changed after a call of it was performed | the model is told that it may have been |
/// | a result that is too large for the conversation | the model sees its beginning; the rest is cut, or kept ([`over_with_artifacts`](Self::over_with_artifacts)) |
/// | a [terminal](ferrata::NodeError::terminal) error | the node fails |
/// | the process dies | what is recorded is not done again; what may have been done is in doubt, as above |
/// | the run is given up for new input | [`ChatNode`](crate::ChatNode) says so in the place of the result, before it goes on |
///
/// A result is data, in a role of its own: it is never put into instructions. Failures are told to the guard of the node
/// ([`note_failure`](ferrata::Context::note_failure)), and calls of the same tool with the same arguments are the same action to it, whatever their ids: a
/// [`Guard`](ferrata::Guard) on the node stops a model that goes in circles.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata::store::MemoryStore;
/// use ferrata::{END, Graph, Guard, IntoNode, Runner, START, State};
/// use ferrata_nodes::{ChatNode, ChatReply, Risk, Scripted, Tool, ToolContext, ToolsNode};
/// use serde::{Deserialize, Serialize};
/// use serde_json::json;
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Chat { #[state(messages)] messages: Vec<Message> }
///
/// #[derive(Deserialize, schemars::JsonSchema)]
/// struct City { name: String }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let weather = |city: City, _: ToolContext| async move { Ok(format!("Rain in {}.", city.name)) };
/// let tools = ToolsNode::new([Tool::new("weather", "The weather of a city.", weather).risk(Risk::Read)])?;
/// let model = Scripted::replies([
///     Ok(ChatReply::new("").tool_call("c1", "weather", &json!({"name": "Bergen"})).tool_call("c2", "weather", &json!({}))),
///     Ok(ChatReply::new("Take an umbrella.")),
/// ]);
/// let graph = Graph::<Chat>::new("chat")
///     .node("chat", ChatNode::new(model).tools(tools.specs()).over(Chat::MESSAGES))
///     .node("tools", tools.over(Chat::MESSAGES).guard(Guard::new()))
///     .edge(START, "chat")
///     .route_to("chat", ["tools", END], |chat: &Chat| if ToolsNode::is_wanted(&chat.messages) { "tools" } else { END })
///     .edge("tools", "chat")
///     .build()?;
/// let thread = Runner::new(graph, MemoryStore::new()).thread("t");
/// let chat = thread.run(Chat::update().message(Message::user("Do I need an umbrella?"))).await?.done().unwrap();
/// assert_eq!(chat.messages[2].content, "Rain in Bergen.");
/// assert!(chat.messages[3].content.ends_with("\"name\" is a required property"));
/// assert_eq!(chat.messages[4].content, "Take an umbrella.");
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct ToolsNode {
    tools: Arc<[Ready]>,
    result_tokens_max: usize,
    calls_max: usize,
    approvals: Arc<dyn Fn(Approval) -> Approval + Send + Sync>,
}

/// A tool that can be called.
#[derive(Clone)]
struct Ready {
    tool: Tool,
    validator: Arc<Validator>,
    is_allowed: bool,
}

impl ToolsNode {
    /// A node with these tools, all of them allowed.
    ///
    /// # Errors
    ///
    /// A name that endpoints do not take or that is there twice, arguments whose schema is none of an object.
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> Result<Self, ToolsError> {
        let mut ready: Vec<Ready> = Vec::new();
        for tool in tools {
            let name = tool.name.to_string();
            if !is_name(&name) {
                return Err(ToolsError::Name { name });
            }
            if ready.iter().any(|known| known.tool.name == tool.name) {
                return Err(ToolsError::Twice { name });
            }
            if tool.arguments["type"] != "object" {
                return Err(ToolsError::Arguments { name, why: "they have to be an object".to_owned() });
            }
            match jsonschema::validator_for(&tool.arguments) {
                Ok(validator) => ready.push(Ready { tool, validator: Arc::new(validator), is_allowed: true }),
                Err(error) => return Err(ToolsError::Arguments { name, why: error.to_string() }),
            }
        }
        let approvals = Arc::new(|approval| approval);
        Ok(Self { tools: ready.into(), result_tokens_max: RESULT_TOKENS_MAX, calls_max: CALLS_MAX, approvals })
    }

    /// Allows these tools and no others. The model is not told of the others; one that it calls nevertheless gets an answer that says so.
    ///
    /// # Errors
    ///
    /// There is no tool of that name.
    pub fn allow<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Result<Self, ToolsError> {
        let names: Vec<&str> = names.into_iter().collect();
        if let Some(name) = names.iter().find(|name| !self.tools.iter().any(|ready| *ready.tool.name == ***name)) {
            let known = self.tools.iter().map(|ready| ready.tool.name.to_string()).collect::<Vec<_>>().join(", ");
            return Err(ToolsError::Unknown { name: (*name).to_owned(), known });
        }
        let allow = |ready: &Ready| Ready { is_allowed: names.contains(&&*ready.tool.name), ..ready.clone() };
        self.tools = self.tools.iter().map(allow).collect();
        Ok(self)
    }

    /// How many tokens a result may have in the conversation: 4,000 if nothing is said, never less than 160. They are counted with the o200k vocabulary.
    pub fn result_tokens_max(mut self, tokens: usize) -> Self {
        self.result_tokens_max = tokens.max(RESULT_TOKENS_LEAST);
        self
    }

    /// How many calls of one turn are answered: 32 if nothing is said. The model is told of the others that they were too many.
    pub fn calls_max(mut self, calls: usize) -> Self {
        self.calls_max = calls;
        self
    }

    /// Adds to the questions that are asked before irreversible calls: who may answer, until when, and what then. A question that may go on
    /// without an answer counts as refused.
    ///
    /// ```
    /// # use ferrata_nodes::ToolsNode;
    /// use ferrata::OnExpiry;
    /// use std::time::Duration;
    /// let tools = ToolsNode::new([])?.approvals(|ask| ask.assignee("finance").deadline(Duration::from_secs(3600)).on_expiry(OnExpiry::GoOn));
    /// # Ok::<(), ferrata_nodes::ToolsError>(())
    /// ```
    pub fn approvals(mut self, change: impl Fn(Approval) -> Approval + Send + Sync + 'static) -> Self {
        self.approvals = Arc::new(change);
        self
    }

    /// The tools that are allowed, for the model to be told: see [`ChatNode::tools`](crate::ChatNode::tools).
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.tools.iter().filter(|ready| ready.is_allowed).map(|ready| ready.tool.spec()).collect()
    }

    /// Whether the last message of the conversation has calls without a result: the route from the model to this node.
    pub fn is_wanted(messages: &[Message]) -> bool {
        !history::open_calls(messages).is_empty()
    }

    /// The node, over that field of the state. A result that is too large is cut.
    pub fn over<S: State>(self, field: FieldRef<S, Vec<Message>>) -> Node<S> {
        self.node(field, None)
    }

    /// As [`over`](Self::over), and a result that is too large goes as a whole into another field, under an id that is made from its content. Its message has
    /// the beginning, the size and the id; with [`Tool::recall`] the model can read on.
    ///
    /// The field needs the rule `merge`: `#[state(merge)] artifacts: BTreeMap<String, String>`.
    pub fn over_with_artifacts<S: State>(
        self,
        field: FieldRef<S, Vec<Message>>,
        artifacts: FieldRef<S, BTreeMap<String, String>>,
    ) -> Node<S> {
        self.node(field, Some(artifacts))
    }

    fn node<S: State>(
        self,
        field: FieldRef<S, Vec<Message>>,
        artifacts: Option<FieldRef<S, BTreeMap<String, String>>>,
    ) -> Node<S> {
        let node = move |state: View<S>, ctx: Context| {
            let this = self.clone();
            async move {
                let calls: Vec<_> = history::open_calls(field.get(&state)).into_iter().cloned().collect();
                let kept = this.kept(artifacts.map(|field| -> Read { Arc::new(move |id| field.get(&state).get(id).cloned()) }));
                let Results { messages, artifacts: new } = Turn { node: &this, ctx: &ctx, kept }.run(&calls).await?;
                let update = Update::new();
                let update = if messages.is_empty() { update } else { update.put(field.name(), &messages) };
                Ok(match artifacts.filter(|_| !new.is_empty()) {
                    Some(artifacts) => update.patch(artifacts.name(), &new),
                    None => update,
                })
            }
        };
        node.into_node()
    }

    fn kept(&self, read: Option<Read>) -> Kept {
        let is_recalled = self.tools.iter().any(|ready| ready.is_allowed && *ready.tool.name == *RECALL);
        Kept { read, tokens_max: self.result_tokens_max, is_recalled }
    }
}

impl fmt::Debug for ToolsNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<_> = self.tools.iter().map(|ready| &ready.tool).collect();
        f.debug_struct("ToolsNode").field("tools", &tools).finish_non_exhaustive()
    }
}

/// Tools that cannot be used as they are.
///
/// ```
/// use ferrata_nodes::{Tool, ToolsNode};
/// let error = ToolsNode::new([Tool::recall()])?.allow(["recal"]).unwrap_err();
/// assert_eq!(error.to_string(), "there is no tool \"recal\" to allow; the tools are: recall");
/// # Ok::<(), ferrata_nodes::ToolsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolsError {
    /// Endpoints do not take the name.
    #[error("no tool can be named \"{name}\"; use 1 to 64 letters, digits, `_` and `-`")]
    Name {
        /// The name.
        name: String,
    },
    /// Two tools have the same name.
    #[error("there are two tools named \"{name}\"; rename one of them")]
    Twice {
        /// The name.
        name: String,
    },
    /// A name is allowed that no tool has.
    #[error("there is no tool \"{name}\" to allow; the tools are: {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The names of the tools.
        known: String,
    },
    /// The schema of the arguments cannot be used.
    #[error("the arguments of the tool \"{name}\" cannot be checked: {why}")]
    Arguments {
        /// The name.
        name: String,
        /// What is wrong.
        why: String,
    },
}
