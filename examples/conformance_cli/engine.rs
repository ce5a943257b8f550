//! The interpreter's side of the engine: everything that touches ferrata's API in a way that may change.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ferrata::log::Record;
use ferrata::state::{Change, Field as StateField, Rule, Schema, Update, Values};
use ferrata::{
    Ask, Class, Context, GraphBuilder, IntoNode, Next, Node as EngineNode, NodeError, Retry, Target as EngineTarget, View,
};
use serde_json::{Map, Value, json};

use super::body::{Body, Target};
use super::scenario::{FailureClass, Field, Reducer, RetryPolicy};
use super::update::{Fields, changes, plain};

pub(crate) type Runner = ferrata::Runner<Values>;
pub(crate) type Thread = ferrata::Thread<Values>;
pub(crate) type Builder = GraphBuilder<Values>;
pub(crate) type Graph = ferrata::Graph<Values>;

// ---- building ----

/// A graph over fields of the scenario's reducers.
pub(crate) fn builder<'f>(name: &str, fields: impl Iterator<Item = (&'f String, &'f Field)>) -> Builder {
    let fields = fields.map(|(name, field)| state_field(name, field)).collect();
    GraphBuilder::with_schema(name, Schema::new(name, fields, json!({"type": "object"})))
}

fn state_field(name: &str, field: &Field) -> StateField {
    let (rule, initial) = match field.reducer {
        Reducer::Last => (Rule::Replace, None),
        Reducer::Append => (Rule::Append, Some(json!([]))),
        Reducer::Concat => (Rule::Append, Some(json!(""))),
        Reducer::Add => (Rule::Sum, Some(json!(0))),
        Reducer::Max => (Rule::Max, Some(json!(0))),
        Reducer::Merge => (Rule::Merge, Some(json!({}))),
        Reducer::Messages => (Rule::Messages, Some(json!([]))),
    };
    let mut made = StateField::new(name, rule);
    if let Some(initial) = initial {
        made = made.initial(initial);
    }
    if field.private { made.private() } else { made }
}

/// A graph inside another one.
pub(crate) struct Inner {
    pub(crate) graph: Graph,
    pub(crate) fields: Fields,
}

/// What a node of a scenario says beside its name.
pub(crate) struct Parts {
    pub(crate) body: Body,
    /// The graph that the node is, in place of the body.
    pub(crate) graph: Option<Inner>,
    pub(crate) leads_to: Vec<String>,
    pub(crate) handler: Option<(Body, Vec<String>)>,
    pub(crate) reads: Option<Vec<String>>,
    pub(crate) retry: Vec<RetryPolicy>,
    pub(crate) deferred: bool,
}

pub(crate) fn node(builder: Builder, name: &str, parts: Parts) -> Builder {
    let mut node = match parts.graph {
        Some(graph) => graph_node(graph, parts.body.fields, parts.leads_to),
        None => body_node(parts.body, parts.leads_to),
    };
    if let Some((body, leads_to)) = parts.handler {
        node = node.on_error(body_node(body, leads_to));
    }
    if let Some(reads) = parts.reads {
        node = node.reads(reads);
    }
    if parts.deferred {
        node = node.deferred();
    }
    for policy in &parts.retry {
        node = node.retry(retry(policy));
    }
    builder.node(name, node)
}

/// A graph as a node: it gets what it has fields for, and what it gives back is written as a node would write it.
fn graph_node(inner: Inner, outer: Fields, leads_to: Vec<String>) -> EngineNode<Values> {
    let Inner { graph, fields } = inner;
    let node = graph.mapped(
        move |outer: &Values| write(&fields, outer.to_object()),
        move |_, ended: &Values| write(&outer, ended.to_object()),
    );
    if leads_to.is_empty() { node } else { node.leads_to(leads_to) }
}

/// What is written of an object: the fields there are.
fn write(fields: &Fields, mut object: Map<String, Value>) -> Update {
    object.retain(|name, _| fields.contains_key(name));
    Update::from_changes(changes(fields, plain(&object)))
}

/// Lets bodies call a graph.
pub(crate) fn callable(builder: Builder, key: &str, graph: Graph) -> Builder {
    builder.callable(key, graph)
}

/// What a graph keeps as a subgraph.
pub(crate) fn keeping(graph: Graph, checkpointer: Option<&str>) -> Graph {
    match checkpointer {
        Some("own") => graph.continued(),
        Some("off") => graph.unstored(),
        _ => graph,
    }
}

fn body_node(body: Body, leads_to: Vec<String>) -> EngineNode<Values> {
    let body = Arc::new(body);
    let function = move |view: View<Values>, context: Context| {
        let body = Arc::clone(&body);
        async move {
            let Returned { changes, goto, to_parent } = body.run(view.to_object(), context).await?;
            let update = Update::from_changes(changes);
            let next = if to_parent { Next::to_parent(update) } else { Next::update(update) };
            Ok(if goto.is_empty() { next } else { next.goto(goto.into_iter().map(target)) })
        }
    };
    let node = function.into_node();
    if leads_to.is_empty() { node } else { node.leads_to(leads_to) }
}

fn retry(policy: &RetryPolicy) -> Retry {
    let classes: Vec<Class> = policy.retry_on.iter().map(|class| class_of(*class)).collect();
    Retry::classes(policy.max_attempts, &classes).first_delay(Duration::ZERO)
}

fn class_of(class: FailureClass) -> Class {
    match class {
        FailureClass::Transient => Class::Transient,
        FailureClass::Fatal => Class::Deterministic,
    }
}

fn target(target: Target) -> EngineTarget {
    match target {
        Target::Node(node) => EngineTarget::node(node),
        Target::Send(node, payload) => EngineTarget::send(node, payload),
    }
}

/// A conditional edge that may lead to `targets`; an error of `choose` is one of the route.
pub(crate) fn branch(
    builder: Builder,
    from: &str,
    targets: &[String],
    choose: impl Fn(Map<String, Value>) -> Result<Vec<Target>, String> + Send + Sync + 'static,
) -> Builder {
    builder.branch(from, targets.iter().map(String::as_str), move |state: &Values| {
        let chosen = choose(state.to_object()).map_err(NodeError::new)?;
        Ok(chosen.into_iter().map(target).collect())
    })
}

// ---- inside a body ----

/// What a body gives back.
pub(crate) struct Returned {
    pub(crate) changes: Vec<Change>,
    pub(crate) goto: Vec<Target>,
    /// Whether both are meant for the graph outside.
    pub(crate) to_parent: bool,
}

/// Tells the stream what a task begins with.
pub(crate) fn tell_start(context: &Context, input: &Map<String, Value>) -> Result<(), NodeError> {
    context.emit(&json!({"start": input}))
}

pub(crate) fn emit(context: &Context, value: &Value) -> Result<(), NodeError> {
    context.emit(&json!({"emit": value}))
}

/// Asks with the question's value, which may be null, as what is shown.
pub(crate) async fn ask(context: &Context, question: &Value) -> Result<Value, NodeError> {
    context.ask("interrupt", Ask::<Value>::new(question.to_string()).show(&[question])).await
}

/// The value that [`ask`] was called with.
pub(crate) fn asked(question: &ferrata::log::Question) -> Value {
    question.show.as_ref().map(|shown| shown[0].clone()).unwrap_or_default()
}

/// Runs a graph inside the body.
pub(crate) async fn call(context: &Context, graph: &str, fields: &Fields, input: &Value) -> Result<Value, NodeError> {
    let input = write(fields, input.as_object().cloned().unwrap_or_default());
    Ok(Value::Object(context.call::<Values>(graph, input).await?.to_object()))
}

pub(crate) fn injected(class: FailureClass) -> NodeError {
    NodeError::new("injected").with_class(class_of(class))
}

/// Whether that many tasks of each of these nodes have ended in the step of `context`, by the log.
pub(crate) async fn have_ended(runner: &Runner, context: &Context, nodes: &BTreeSet<&str>, tasks: usize) -> bool {
    let Ok(log) = runner.thread(context.thread().as_str()).log().await else { return true };
    let own = context.task();
    let mut ended = HashSet::new();
    for entry in &log {
        let task = match &entry.record {
            Record::TaskDone(done) => &done.task,
            Record::TaskFailed(failed) => &failed.task,
            Record::Asked(question) => &question.task,
            _ => continue,
        };
        if (task.branch, &task.path, task.step) == (own.branch, &own.path, own.step) {
            ended.insert((task.node.as_str(), task.send));
        }
    }
    nodes.iter().all(|node| ended.iter().filter(|(name, _)| name == node).count() >= tasks)
}

// ---- errors ----

/// The scenario's name for an error, and the class of an injected failure.
pub(crate) fn named(error: &ferrata::Error) -> (String, Option<&'static str>) {
    if let ("node-failed", Some((_, failure))) = (error.code(), error.node_failure()) {
        let class = if failure.class == Class::Transient { "transient" } else { "fatal" };
        return ("NodeError".to_owned(), Some(class));
    }
    let name = match error.code() {
        "step-limit" => "GraphRecursion",
        "no-parent" => "NoParent",
        "unknown-message" => "InvalidMessage",
        "no-steps" => "InvalidConfig",
        "merge-conflict" | "input" | "value" | "update-refused" | "goto" | "edit-node" | "edit-changes" => "InvalidUpdate",
        "route" => "InvalidRoute",
        "thread-unknown" => "EmptyInput",
        "no-store" => "NoCheckpointer",
        other => other,
    };
    (name.to_owned(), None)
}

/// The scenario's name for the error of a task.
pub(crate) fn task_error(code: &str) -> &'static str {
    match code {
        "route" => "InvalidRoute",
        "merge-conflict" | "update-refused" | "goto" => "InvalidUpdate",
        _ => "NodeError",
    }
}
