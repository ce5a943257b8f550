//! A model and a node of tools in a loop.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::BTreeMap;

use ferrata::state::{Message, Role};
use ferrata::store::MemoryStore;
use ferrata::{END, Graph, Node, Runner, START, State};
use ferrata_nodes::{ChatModel, ChatNode, ChatReply, Risk, Scripted, Tool, ToolContext, ToolsNode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
pub(crate) struct Chat {
    #[state(messages)]
    pub(crate) messages: Vec<Message>,
    #[state(merge)]
    pub(crate) artifacts: BTreeMap<String, String>,
}

impl Chat {
    pub(crate) fn ask(text: &str) -> ChatUpdate {
        Self::update().message(Message::user(text))
    }
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Echo {
    pub(crate) text: String,
}

pub(crate) fn echo(risk: Risk) -> Tool {
    Tool::new("echo", "Says it again.", |echo: Echo, _: ToolContext| async { Ok(echo.text) }).risk(risk)
}

/// One turn of a model: (id, tool, arguments).
pub(crate) fn calls<'c>(calls: impl IntoIterator<Item = (&'c str, &'c str, Value)>) -> ChatReply {
    calls.into_iter().fold(ChatReply::new(""), |reply, (id, name, arguments)| reply.tool_call(id, name, &arguments))
}

/// A model that wants these turns, and then is done.
pub(crate) fn scripted(turns: impl IntoIterator<Item = ChatReply>) -> Scripted {
    Scripted::replies(turns.into_iter().chain([ChatReply::new("Done.")]).map(Ok))
}

pub(crate) fn graph(model: impl ChatModel + 'static, tools: ToolsNode) -> Graph<Chat> {
    graph_of(model, &tools, tools.clone().over(Chat::MESSAGES))
}

pub(crate) fn graph_of(model: impl ChatModel + 'static, tools: &ToolsNode, node: Node<Chat>) -> Graph<Chat> {
    build(ChatNode::new(model), tools, node)
}

pub(crate) fn graph_with(model: impl ChatModel + 'static, instructions: &str, tools: &ToolsNode) -> Graph<Chat> {
    build(ChatNode::new(model).instructions(instructions), tools, tools.clone().over(Chat::MESSAGES))
}

fn build(chat: ChatNode, tools: &ToolsNode, node: Node<Chat>) -> Graph<Chat> {
    Graph::<Chat>::new("chat")
        .node("chat", chat.tools(tools.specs()).over(Chat::MESSAGES))
        .node("tools", node)
        .edge(START, "chat")
        .route_to("chat", ["tools", END], |chat: &Chat| if ToolsNode::is_wanted(&chat.messages) { "tools" } else { END })
        .edge("tools", "chat")
        .build()
        .expect("it is whole")
}

/// Runs these turns to their end.
pub(crate) async fn run(tools: ToolsNode, turns: impl IntoIterator<Item = ChatReply>) -> Chat {
    let outcome = Runner::new(graph(scripted(turns), tools), MemoryStore::new()).thread("t").run(Chat::ask("Go")).await;
    Chat::clone(&outcome.expect("it goes on").done().expect("nobody is asked"))
}

/// The results of all calls, as (id, text).
pub(crate) fn results(chat: &Chat) -> Vec<(String, String)> {
    let results = chat.messages.iter().filter(|message| message.role == Role::Tool);
    results.map(|message| (message.tool_call_id.clone().expect("it names its call"), message.content.clone())).collect()
}
