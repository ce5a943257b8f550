//! Builds the engine's graph from a scenario's.
//!
//! Nodes are declared in the order of their names, since updates are merged in declared order here and by name there. Ends of
//! branches, which scenarios leave out, are added.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrata::Starved;
use serde_json::Value;

use super::body::{Body, Target, targets};
use super::engine::{self, Builder, Parts};
use super::expr::{Scope, evaluate};
use super::scenario::{Conditional, END, Graph, Labels, Listed, Names, Node, Op, Retries};
use super::update::Fields;
use super::world::World;

/// Why there is no graph.
#[derive(Debug)]
pub(crate) enum BuildFailure {
    /// The engine refused it, for these reasons.
    Invalid(String),
    /// The store cannot be opened.
    Store(String),
}

/// The fields that are stored.
pub(crate) fn fields(graph: &Graph) -> Fields {
    let stored = graph.state.0.iter().filter(|(_, field)| field.kind != "remaining_steps");
    Arc::new(stored.cloned().collect::<BTreeMap<_, _>>())
}

/// Graphs that were built before, for those that use them.
pub(crate) type Built = BTreeMap<String, engine::Graph>;

/// What building a graph needs to know of the scenario around it.
pub(crate) struct Around<'s> {
    pub(crate) graphs: &'s Listed<Graph>,
    pub(crate) built: &'s Built,
    pub(crate) world: &'s Arc<World>,
}

/// Builds a graph whose bodies count in the scenario's world.
pub(crate) fn build(name: &str, graph: &Graph, around: &Around<'_>) -> Result<engine::Graph, BuildFailure> {
    let fields = fields(graph);
    let mut builder = engine::builder(name, fields.iter());
    let mut nodes: Vec<&(String, Node)> = graph.nodes.0.iter().chain(&graph.extra_nodes).collect();
    nodes.sort_by_key(|(name, _)| name);
    let names: Vec<String> = nodes.iter().map(|(name, _)| name.clone()).collect();
    let called: BTreeSet<&str> = nodes.iter().flat_map(|(_, node)| calls(&node.ops)).collect();
    for key in called {
        let graph = around.built.get(key).ok_or_else(|| BuildFailure::Invalid(format!("no graph {key} before {name}")))?;
        builder = engine::callable(builder, key, graph.clone());
    }
    for (node_name, node) in nodes {
        builder = engine::node(builder, node_name, parts((name, graph), (node_name, node), &names, &fields, around)?);
    }
    builder = connect(builder, graph, &names, around);
    builder = restrict(builder, graph, &names, &fields);
    let built = builder.build().map_err(|error| BuildFailure::Invalid(error.to_string()))?;
    Ok(engine::keeping(built, graph.compile.checkpointer.as_ref().and_then(Value::as_str)))
}

fn parts(
    (graph_name, graph): (&str, &Graph),
    (name, node): (&str, &Node),
    names: &[String],
    fields: &Fields,
    around: &Around<'_>,
) -> Result<Parts, BuildFailure> {
    let body = |name: String, ops: &[Op]| {
        let body = Body {
            name,
            ops: ops.to_vec(),
            fields: Arc::clone(fields),
            parent: parent(graph_name, around),
            graphs: around.graphs.0.iter().map(|(name, graph)| (name.clone(), self::fields(graph))).collect(),
            steps_left: steps_left(graph, node),
            world: Arc::clone(around.world),
        };
        (body, gotos(ops, names))
    };
    let (own, mut leads_to) = body(name.to_owned(), &node.ops);
    let mut inner = None;
    if let Some(key) = &node.subgraph {
        let unknown = || BuildFailure::Invalid(format!("no graph {key} before {graph_name}"));
        let graph = around.built.get(key).cloned().ok_or_else(unknown)?;
        inner = Some(engine::Inner { graph, fields: self::fields(around.graphs.get(key).ok_or_else(unknown)?) });
        leads_to = from_inside(key, names, around);
    }
    Ok(Parts {
        body: own,
        graph: inner,
        leads_to,
        handler: node.on_error.as_ref().map(|ops| body(format!("on_error:{name}"), ops)),
        reads: node.reads.as_ref().map(|reads| reads.iter().filter(|name| fields.contains_key(*name)).cloned().collect()),
        retry: match &node.retry {
            None => Vec::new(),
            Some(Retries::One(policy)) => vec![policy.clone()],
            Some(Retries::Many(policies)) => policies.clone(),
        },
        deferred: node.defer,
    })
}

/// The fields in which a node sees how many steps are left.
fn steps_left(graph: &Graph, node: &Node) -> Vec<String> {
    let counting = graph.state.0.iter().filter(|(_, field)| field.kind == "remaining_steps").map(|(name, _)| name);
    counting.filter(|name| node.reads.as_ref().is_none_or(|reads| reads.contains(name))).cloned().collect()
}

/// The fields of the graph that uses this one.
fn parent(name: &str, around: &Around<'_>) -> Option<Fields> {
    let uses = |node: &Node| node.subgraph.as_deref() == Some(name) || calls(&node.ops).contains(&name);
    let parent = around.graphs.0.iter().find(|(_, graph)| graph.nodes.0.iter().any(|(_, node)| uses(node)));
    parent.map(|(_, graph)| fields(graph))
}

/// The graphs that a body calls.
fn calls(ops: &[Op]) -> Vec<&str> {
    let mut found = Vec::new();
    for op in ops {
        match op {
            Op::Call { call, .. } => found.push(call.as_str()),
            Op::If { then, otherwise, .. } => found.extend([calls(then), calls(otherwise)].concat()),
            Op::While { body, .. } => found.extend(calls(body)),
            _ => {}
        }
    }
    found
}

/// The nodes that commands of a subgraph's bodies may lead to in the graph outside.
fn from_inside(key: &str, names: &[String], around: &Around<'_>) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (_, node) in around.graphs.get(key).iter().flat_map(|graph| &graph.nodes.0) {
        found.extend(commanded(&node.ops, names, true));
    }
    found.into_iter().collect()
}

/// The nodes that the commands of a body may lead to.
fn gotos(ops: &[Op], names: &[String]) -> Vec<String> {
    commanded(ops, names, false)
}

fn commanded(ops: &[Op], names: &[String], to_parent: bool) -> Vec<String> {
    let mut found = BTreeSet::new();
    for op in ops {
        match op {
            Op::Command { command } if command.graph.is_some() == to_parent => {
                command.goto.iter().for_each(|goto| named(goto, names, &mut found));
            }
            Op::If { then, otherwise, .. } => {
                found.extend([commanded(then, names, to_parent), commanded(otherwise, names, to_parent)].concat());
            }
            Op::While { body, .. } => found.extend(commanded(body, names, to_parent)),
            _ => {}
        }
    }
    found.into_iter().collect()
}

/// All names of nodes that stand in an expression, the end included.
fn named(expression: &Value, names: &[String], found: &mut BTreeSet<String>) {
    match expression {
        Value::String(text) if text == END || names.contains(text) => _ = found.insert(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| named(item, names, found)),
        Value::Object(object) => object.values().for_each(|item| named(item, names, found)),
        _ => {}
    }
}

/// Adds the edges, and an edge to the end for every node that leads nowhere.
fn connect(mut builder: Builder, graph: &Graph, names: &[String], around: &Around<'_>) -> Builder {
    let mut leading: BTreeSet<&str> = BTreeSet::new();
    for (from, to) in &graph.edges {
        leading.extend(from.list().iter().map(String::as_str));
        builder = match from.list() {
            [one] => builder.edge(one, to),
            // A barrier that never fills ends quietly in the engine that was recorded.
            many => builder.join_or(many.iter().map(String::as_str), to, Starved::Skip),
        };
    }
    for conditional in &graph.conditional {
        leading.insert(&conditional.from);
        builder = branch(builder, conditional, names);
    }
    let nodes = graph.nodes.0.iter().chain(&graph.extra_nodes);
    let goes = |node: &Node| {
        let inside = node.subgraph.as_ref().map(|key| from_inside(key, names, around));
        !gotos(&node.ops, names).is_empty() || inside.is_some_and(|inside| !inside.is_empty())
    };
    let ends: BTreeSet<&str> =
        nodes.filter(|(name, node)| !leading.contains(name.as_str()) && !goes(node)).map(|(name, _)| name.as_str()).collect();
    ends.into_iter().fold(builder, |builder, end| builder.edge(end, END))
}

fn branch(builder: Builder, conditional: &Conditional, names: &[String]) -> Builder {
    let Conditional { from, route, map } = conditional;
    let mut allowed: BTreeSet<String> = match map {
        None => names.iter().cloned().chain([END.to_owned()]).collect(),
        Some(Labels::Names(names)) => names.iter().cloned().collect(),
        Some(Labels::Labels(labels)) => labels.values().filter_map(Value::as_str).map(str::to_owned).collect(),
    };
    sends(route, &mut allowed);
    let allowed: Vec<String> = allowed.into_iter().collect();
    let (route, map) = (route.clone(), map.clone());
    engine::branch(builder, from, &allowed, move |fields| {
        let chosen = evaluate(&route, &Scope { fields, ..Scope::default() }).map_err(|error| error.to_string())?;
        let chosen = targets(&chosen).ok_or_else(|| format!("gave {chosen}"))?;
        chosen.into_iter().map(|target| labelled(target, map.as_ref())).collect()
    })
}

/// The nodes that a route sends to, with a map or without.
fn sends(expression: &Value, found: &mut BTreeSet<String>) {
    match expression {
        Value::Array(items) => items.iter().for_each(|item| sends(item, found)),
        Value::Object(object) => {
            found.extend(object.get("send").and_then(|send| send[0].as_str()).map(str::to_owned));
            object.values().for_each(|item| sends(item, found));
        }
        _ => {}
    }
}

/// What a label stands for; sends pass as they are.
fn labelled(target: Target, map: Option<&Labels>) -> Result<Target, String> {
    let (Target::Node(label), Some(Labels::Labels(labels))) = (&target, map) else { return Ok(target) };
    let node = labels.get(label).and_then(Value::as_str);
    node.map(|node| Target::Node(node.to_owned())).ok_or_else(|| format!("gave {label}, which its map lacks"))
}

/// Which fields go in and out, and where runs stop.
fn restrict(mut builder: Builder, graph: &Graph, names: &[String], fields: &Fields) -> Builder {
    let known = |list: &[String]| -> Vec<String> { list.iter().filter(|name| fields.contains_key(*name)).cloned().collect() };
    if let Some(input) = &graph.input_schema {
        builder = builder.input_fields(known(input));
    }
    if let Some(output) = &graph.output_schema {
        builder = builder.output_fields(known(output));
    }
    let before = stops(&graph.compile.interrupt_before, names);
    let after = stops(&graph.compile.interrupt_after, names);
    builder.pause_before(before).pause_after(after)
}

/// The nodes that a list of breakpoints stands for.
pub(crate) fn stops(stops: &Names, names: &[String]) -> Vec<String> {
    match stops {
        Names::Listed(listed) => listed.clone(),
        Names::All(word) if word == "*" => names.to_vec(),
        Names::All(name) => vec![name.clone()],
    }
}
