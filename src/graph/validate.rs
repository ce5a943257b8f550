//! Finds every mistake of a declared graph at once.

use std::collections::HashSet;
use std::fmt;

use super::defaults::policies;
use super::guard::guards;
use super::node::Handler;
use super::plan::{APPROVED, END, EXPIRED, EdgeKind, Plan, REJECTED, START, TakeKind};
use super::shape::Keeps;
use super::ways::{starving_joins, unguarded, ways};
use crate::id::NodeName;
use crate::state::{Field, Schema, is_empty};

/// A graph that cannot be built, with everything that is wrong with it.
#[derive(Debug, Clone, thiserror::Error)]
#[error("graph \"{graph}\" cannot be built:{}", list(.mistakes))]
pub struct BuildError {
    graph: String,
    mistakes: Vec<Mistake>,
}

fn list(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(|mistake| format!("\n  - {mistake}")).collect()
}

impl BuildError {
    /// What is wrong, check by check.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}

/// One mistake in a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    code: &'static str,
    what: String,
    hint: String,
}

impl Mistake {
    pub(super) fn new(code: &'static str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, what: what.into(), hint: hint.into() }
    }

    /// A word for the kind of mistake that stays the same, for example `unknown-node`.
    pub fn code(&self) -> &'static str {
        self.code
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.hint)
    }
}

/// Checks everything; what depends on names is checked only once the names are right.
pub(crate) fn check<S>(plan: &Plan<S>, schema: &Schema) -> Result<(), BuildError> {
    let mut mistakes = names(plan);
    mistakes.extend(subgraphs(plan));
    mistakes.extend(edge_ends(plan));
    mistakes.extend(guards(plan));
    if mistakes.is_empty() {
        mistakes.extend(entry(plan));
        mistakes.extend(two_ways_on(plan));
        mistakes.extend(fields(plan, schema));
        mistakes.extend(missing_functions(schema));
        mistakes.extend(stored_secrets(schema));
        mistakes.extend(policies(plan));
        mistakes.extend(questions(plan));
        mistakes.extend(super::outside::mistakes(plan));
        mistakes.extend(payloads(plan));
        mistakes.extend(ways(plan));
        mistakes.extend(starving_joins(plan));
        mistakes.extend(unguarded(plan));
        mistakes.extend(super::past::mistakes(plan, schema));
    }
    if mistakes.is_empty() { Ok(()) } else { Err(BuildError { graph: plan.name.clone(), mistakes }) }
}

fn names<S>(plan: &Plan<S>) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let mut seen = HashSet::new();
    for node in &plan.nodes {
        let name = node.name.as_str();
        if name.is_empty() || name.starts_with("__") || name.contains(['/', ':', '#', '@']) || name.chars().any(char::is_control)
        {
            let hint = "use a name that is not empty, does not start with __ and has none of / : # @";
            mistakes.push(Mistake::new("reserved-name", format!("a node cannot be called \"{name}\""), hint));
        }
        if !seen.insert(name) {
            let what = format!("there are two nodes called \"{name}\"");
            mistakes.push(Mistake::new("duplicate-node", what, "give each node a name of its own"));
        }
    }
    mistakes
}

fn subgraphs<S>(plan: &Plan<S>) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for (place, (key, _)) in plan.callable.iter().enumerate() {
        if plan.callable[..place].iter().any(|(earlier, _)| earlier == key) || plan.node(&NodeName::from(&**key)).is_some() {
            let what = format!("the graph \"{key}\" to be called is declared twice, or a node has that name");
            mistakes.push(Mistake::new("duplicate-subgraph", what, "give it a name of its own"));
        }
    }
    for (key, subgraph) in plan.subgraphs() {
        if subgraph.is_shared && subgraph.keeps == Keeps::Continued {
            let what = format!("the subgraph \"{key}\" shares the state of this graph, so it has none to continue");
            mistakes.push(Mistake::new(
                "shared-and-continued",
                what,
                "map its state with `.mapped(..)`, or leave out `.continued()`",
            ));
        }
    }
    for node in plan.nodes.iter().filter(|node| node.node.on_error_is_graph) {
        let what = format!("the error handler of \"{}\" is a graph", node.name);
        mistakes.push(Mistake::new("handler-is-graph", what, "declare it with `.callable(..)`, and let the handler call it"));
    }
    mistakes
}

fn edge_ends<S>(plan: &Plan<S>) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for (from, to, what) in all_ends(plan) {
        if from.as_str() == END {
            let text = format!("the {what} to \"{}\" starts at the end", shown(to));
            mistakes.push(Mistake::new("edge-from-end", text, "nothing comes after END; start it at a node"));
        } else if from.as_str() != START && plan.node(from).is_none() {
            mistakes.push(unknown(plan, what, from));
        }
        if to.as_str() == START {
            let text = format!("the {what} from \"{}\" leads to the start", shown(from));
            mistakes.push(Mistake::new("edge-to-start", text, "lead to the first node instead"));
        } else if to.as_str() != END && plan.node(to).is_none() {
            mistakes.push(unknown(plan, what, to));
        }
    }
    for route in plan.routes.iter().filter(|route| route.to.is_empty()) {
        let what = format!("the conditional edge after \"{}\" has no targets", shown(&route.from));
        mistakes.push(Mistake::new("no-targets", what, "list the nodes that it may lead to"));
    }
    for route in plan.routes.iter().filter(|route| route.sends.is_some() && route.to.iter().any(|to| to.as_str() == END)) {
        let what = format!("the fan-out after \"{}\" leads to the end, which takes nothing", shown(&route.from));
        mistakes.push(Mistake::new("fan-out-to-end", what, "lead it to a node"));
    }
    for (node, kind) in &plan.takes {
        let (method, asks, approval) = match kind {
            TakeKind::Edited => ("edited", "an approval", true),
            TakeKind::Refused => ("refused", "an approval", true),
            TakeKind::Answered => ("answered", "a free question", false),
        };
        match plan.node(node).map(|n| &n.node.handler) {
            Some(Handler::Question(question)) if question.is_approval == approval => {}
            _ => {
                let what = format!("`.{method}(\"{node}\", ..)` needs a question node \"{node}\" that asks {asks}");
                mistakes.push(Mistake::new("no-question", what, "declare it with `.question(..)` first"));
            }
        }
        if plan.takes.iter().filter(|take| **take == (node.clone(), *kind)).count() > 1 {
            let what = format!("`.{method}(\"{node}\", ..)` is declared twice, and only the last one would count");
            mistakes.push(Mistake::new("duplicate-take", what, "remove one"));
        }
    }
    let mut told = HashSet::new();
    mistakes.retain(|mistake| told.insert(mistake.to_string()));
    mistakes
}

/// A name as the user writes it.
pub(super) fn shown(name: &NodeName) -> &str {
    match name.as_str() {
        START => "START",
        END => "END",
        name => name,
    }
}

fn all_ends<S>(plan: &Plan<S>) -> Vec<(&NodeName, &NodeName, &'static str)> {
    let mut ends = Vec::new();
    for edge in &plan.edges {
        let what = match edge.kind {
            EdgeKind::Always => "edge",
            EdgeKind::Label(label) if label == APPROVED => "approved edge",
            EdgeKind::Label(label) if label == EXPIRED => "expired edge",
            EdgeKind::Label(_) => "rejected edge",
        };
        ends.push((&edge.from, &edge.to, what));
    }
    for join in &plan.joins {
        ends.extend(join.from.iter().map(|from| (from, &join.to, "join")));
    }
    for route in &plan.routes {
        let what = if route.sends.is_some() { "fan-out" } else { "conditional edge" };
        ends.extend(route.to.iter().map(|to| (&route.from, to, what)));
    }
    for node in &plan.nodes {
        ends.extend(node.node.gotos().map(|to| (&node.name, to, "goto")));
    }
    ends
}

pub(super) fn unknown<S>(plan: &Plan<S>, what: &str, name: &NodeName) -> Mistake {
    let near = plan.nodes.iter().map(|n| n.name.as_str()).min_by_key(|known| distance(known, name.as_str()));
    let hint = match near.filter(|known| distance(known, name.as_str()) <= 2) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("there are: {}", plan.nodes.iter().map(|n| n.name.as_str()).collect::<Vec<_>>().join(", ")),
    };
    Mistake::new("unknown-node", format!("the {what} names \"{name}\", which is no node"), hint)
}

/// How many letters must change to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

fn entry<S>(plan: &Plan<S>) -> Option<Mistake> {
    let leads = plan.lines().iter().any(|line| line.from.as_str() == START);
    (!leads).then(|| Mistake::new("no-entry", "nothing leads from the start to a node", "add `.edge(START, \"first_node\")`"))
}

/// A node has edges, or it says itself where to go; both together would add up in a way that nobody sees.
fn two_ways_on<S>(plan: &Plan<S>) -> Vec<Mistake> {
    let has_edges = |name: &NodeName| {
        plan.edges.iter().any(|e| e.from == *name)
            || plan.routes.iter().any(|r| r.from == *name)
            || plan.joins.iter().any(|j| j.from.contains(name))
    };
    let both = plan.nodes.iter().filter(|node| !node.node.leads_to.is_empty() && has_edges(&node.name));
    both.map(|node| {
        let what = format!("\"{}\" has edges and says itself where to go", node.name);
        Mistake::new("two-ways-on", what, "keep the edges, or `.leads_to(..)` with every target")
    })
    .collect()
}

/// Names of fields and of nodes to stop at.
fn fields<S>(plan: &Plan<S>, schema: &Schema) -> Vec<Mistake> {
    let reads = plan.nodes.iter().filter_map(|node| node.node.reads.as_ref());
    let named = plan.input.iter().chain(&plan.output).chain(reads).flatten();
    let mut mistakes: Vec<Mistake> = named
        .filter(|name| schema.field(name).is_none())
        .map(|name| {
            let hint = format!("the state has: {}", schema.field_names());
            Mistake::new("unknown-field", format!("\"{name}\" is no field of the state"), hint)
        })
        .collect();
    for name in plan.pauses.before.iter().chain(&plan.pauses.after).filter(|name| plan.node(name).is_none()) {
        mistakes.push(unknown(plan, "pause", name));
    }
    mistakes
}

/// Merge functions of a schema that was read: only their names were stored.
fn missing_functions(schema: &Schema) -> Vec<Mistake> {
    let missing = schema.missing_functions().map(|(field, function)| {
        let what = format!("field \"{field}\" is merged by \"{function}\", of which the schema has only the name");
        Mistake::new("missing-function", what, "give the function back with `Schema::with_function`")
    });
    missing.collect()
}

/// Secret values that would be stored with the schema.
fn stored_secrets(schema: &Schema) -> Vec<Mistake> {
    let secrets = schema.fields().iter().filter(|field| field.secret);
    let told = secrets.filter(|field| {
        let default = &schema.json()["properties"][&field.name]["default"];
        !field.initial.iter().chain([default]).all(is_empty)
    });
    let mistake = |field: &Field| {
        let what = format!("the secret field \"{}\" has a value from the beginning, which is stored with the schema", field.name);
        Mistake::new("stored-secret", what, "leave it out, or begin with an empty one, and hand the secret in with the input")
    };
    told.map(mistake).collect()
}

fn questions<S>(plan: &Plan<S>) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for node in &plan.nodes {
        let name = &node.name;
        let labelled = |label| plan.edges.iter().any(|e| e.from == *name && e.kind == EdgeKind::Label(label));
        let is_approval = matches!(&node.node.handler, Handler::Question(question) if question.is_approval);
        for label in [APPROVED, REJECTED] {
            if is_approval && !labelled(label) {
                let what = format!("the approval \"{name}\" does not say where it leads when it is {label}");
                mistakes.push(Mistake::new(
                    "open-approval",
                    what,
                    format!("add `.{label}(\"{name}\", ..)`; END is a target too"),
                ));
            }
            if !is_approval && labelled(label) {
                let what = format!("\"{name}\" has an edge for {label}, but asks for no approval");
                mistakes.push(Mistake::new("no-approval", what, "use `.edge`, or let the node be a question with an `Approval`"));
            }
        }
        if plan.can_expire(name) && !matches!(&node.node.handler, Handler::Question(_)) {
            let what = format!("\"{name}\" has an edge for expired, but is no question");
            mistakes.push(Mistake::new("no-question", what, "declare it with `.question(..)`, or use `.edge`"));
        }
        if let Handler::Question(question) = &node.node.handler
            && !is_approval
            && !question.is_wait()
            && question.take.is_none()
        {
            let what = format!("nothing becomes of the answer to \"{name}\"");
            mistakes.push(Mistake::new("lost-answer", what, format!("add `.answered(\"{name}\", |state, answer| update)`")));
        }
    }
    mistakes
}

fn payloads<S>(plan: &Plan<S>) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    for node in &plan.nodes {
        let name = &node.name;
        let sends: Vec<_> = plan.routes.iter().filter(|r| r.to.contains(name)).filter_map(|r| r.sends).collect();
        // A branch, and a node that says itself where to go, may bring one.
        let by_edge = plan.edges.iter().any(|edge| edge.to == *name)
            || plan.joins.iter().any(|join| join.to == *name)
            || plan.routes.iter().any(|route| route.sends.is_none() && !route.is_branch && route.to.contains(name));
        match node.node.payload {
            Some(payload) if by_edge => {
                let what = format!("\"{name}\" takes a {}, but an edge brings it none", payload.name);
                mistakes.push(Mistake::new("no-payload", what, "lead to it by `.fan_out`, or let it take a View of the state"));
            }
            Some(payload) => {
                for sent in sends.iter().filter(|sent| sent.id != payload.id) {
                    let what = format!("\"{name}\" takes a {}, but a fan-out sends it a {}", payload.name, sent.name);
                    mistakes.push(Mistake::new("other-payload", what, "make them the same type"));
                }
            }
            None if !sends.is_empty() => {
                let what = format!("a fan-out sends something to \"{name}\", which takes nothing but the state");
                mistakes.push(Mistake::new("unused-payload", what, "give the node an argument of the type that is sent"));
            }
            None => {}
        }
    }
    mistakes
}
