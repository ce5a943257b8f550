//! Mistakes in the ways through a graph: nodes that no way leads to or from, joins that can wait for ever, what no approval guards.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::Dfs;

use super::node::Handler;
use super::plan::{EdgeKind, Line, Plan, START};
use super::validate::{Mistake, shown};
use crate::id::NodeName;

/// Nodes that nothing leads to, and nodes that lead nowhere.
pub(super) fn ways<S>(plan: &Plan<S>) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    let lines = plan.lines();
    let (own, reached) = (plan.own_lines(), reachable(&lines));
    for node in &plan.nodes {
        let name = &node.name;
        if node.node.compensates.is_some() {
            if lines.iter().any(|line| line.from == name || line.to == name) {
                let what = format!("\"{name}\" compensates effects, and an edge leads to it or from it");
                mistakes.push(Mistake::new(
                    "compensation-edge",
                    what,
                    "remove the edge; an effect names it with `.compensate(..)`",
                ));
            }
            continue;
        }
        if !reached.contains(name) {
            let what = format!("nothing leads to \"{name}\"");
            mistakes.push(Mistake::new("unreachable-node", what, "add an edge to it, or remove it"));
        }
        // What an approval misses is told elsewhere.
        let approval = matches!(&node.node.handler, Handler::Question(question) if question.is_approval);
        if !own.iter().any(|line| line.from == name) && !approval {
            let what = format!("\"{name}\" leads nowhere");
            mistakes.push(Mistake::new(
                "dead-end",
                what,
                format!("say so with `.edge(\"{name}\", END)`, or add the edge that is missing"),
            ));
        }
    }
    mistakes
}

fn reachable<'a>(lines: &[Line<'a>]) -> HashSet<&'a NodeName> {
    let mut graph = DiGraph::<&NodeName, ()>::new();
    let mut places: HashMap<&NodeName, NodeIndex> = HashMap::new();
    for line in lines {
        let [from, to] = [line.from, line.to].map(|name| *places.entry(name).or_insert_with(|| graph.add_node(name)));
        graph.update_edge(from, to, ());
    }
    let start = places.iter().find(|(name, _)| name.as_str() == START).map(|(_, place)| *place);
    let mut reached = HashSet::new();
    if let Some(start) = start {
        let mut search = Dfs::new(&graph, start);
        while let Some(place) = search.next(&graph) {
            reached.insert(graph[place]);
        }
    }
    reached
}

/// A join starves if some way through the graph runs a part of its sources only. Whatever may be chosen (a target of a
/// conditional edge, or all edges of one label together) must lead, by edges that are always taken, to all of its sources or to none.
pub(super) fn starving_joins<S>(plan: &Plan<S>) -> Vec<Mistake> {
    let lines = plan.lines();
    let start = NodeName::from(START);
    let choices = choices(plan, &start);
    let mut mistakes = Vec::new();
    for join in plan.joins.iter().filter(|join| join.from.len() > 1 && join.starved.is_none()) {
        let handled =
            |source: &NodeName| plan.node(source).is_some_and(|node| node.node.on_error.is_some() && !node.node.policy.degrades);
        let other_ways = plan.other_ways();
        let rerouted = |source: &NodeName| other_ways.iter().any(|line| line.from == source);
        let by_itself = |source: &&NodeName| handled(source) || plan.can_expire(source) || rerouted(source);
        if let Some(source) = join.from.iter().find(by_itself) {
            let instead = match (handled(source), rerouted(source)) {
                (true, _) => "an error handler, which takes",
                (false, true) => "a guard, whose other way takes",
                (false, false) => "`expired` edges, which take",
            };
            let what = format!(
                "the join before \"{}\" can wait for ever: \"{source}\" has {instead} the place of its edges",
                shown(&join.to)
            );
            mistakes.push(Mistake::new(
                "starving-join",
                what,
                "say with `.join_or(..)` what happens then, or use plain edges, which do not wait",
            ));
            continue;
        }
        for choice in &choices {
            let sure = certain_from(&lines, choice);
            let (run, skipped): (Vec<_>, Vec<_>) = join.from.iter().partition(|source| sure.contains(source));
            if let (Some(run), Some(skipped)) = (run.first(), skipped.first()) {
                let way = match choice.first().map(|name| name.as_str()) {
                    Some(START) | None => "from the start".to_owned(),
                    Some(name) => format!("when \"{name}\" is chosen"),
                };
                let what = format!(
                    "the join before \"{}\" can wait for ever: {way}, \"{run}\" runs and \"{skipped}\" may not",
                    shown(&join.to)
                );
                let hint =
                    "let every choice lead to all of its sources, say with `.join_or(..)` what happens then, or use plain edges";
                mistakes.push(Mistake::new("starving-join", what, hint));
                break;
            }
        }
    }
    mistakes
}

/// What may be chosen on its own: the start, each target of a conditional edge, the edges of each label.
fn choices<'p, S>(plan: &'p Plan<S>, start: &'p NodeName) -> BTreeSet<Vec<&'p NodeName>> {
    let mut choices = BTreeSet::from([vec![start]]);
    choices.extend(plan.routes.iter().filter(|route| route.sends.is_none()).flat_map(|route| &route.to).map(|to| vec![to]));
    choices.extend(plan.nodes.iter().flat_map(|node| node.node.gotos()).map(|to| vec![to]));
    for edge in plan.edges.iter().filter(|edge| edge.kind != EdgeKind::Always || plan.can_expire(&edge.from)) {
        let together = plan.edges.iter().filter(|other| other.from == edge.from && other.kind == edge.kind);
        choices.insert(together.map(|other| &other.to).collect());
    }
    choices
}

fn certain_from<'a>(lines: &[Line<'a>], choice: &[&'a NodeName]) -> HashSet<&'a NodeName> {
    let mut sure: HashSet<&NodeName> = choice.iter().copied().collect();
    let mut queue: VecDeque<&NodeName> = choice.iter().copied().collect();
    while let Some(node) = queue.pop_front() {
        for line in lines.iter().filter(|line| line.certain && line.from == node) {
            if sure.insert(line.to) {
                queue.push_back(line.to);
            }
        }
    }
    sure
}

/// Irreversible nodes that can be reached without passing an approval.
pub(super) fn unguarded<S>(plan: &Plan<S>) -> Vec<Mistake> {
    let lines: Vec<Line<'_>> = plan.lines().into_iter().filter(|line| !line.approved).collect();
    let mut came_from: HashMap<&str, &str> = HashMap::new();
    let mut queue = VecDeque::from([START]);
    while let Some(node) = queue.pop_front() {
        for line in lines.iter().filter(|line| line.from.as_str() == node) {
            if line.to.as_str() != START && !came_from.contains_key(line.to.as_str()) {
                came_from.insert(line.to.as_str(), line.from.as_str());
                queue.push_back(line.to.as_str());
            }
        }
    }
    let risky = plan.nodes.iter().filter(|n| n.node.irreversible && n.node.unguarded.is_none());
    risky
        .filter(|node| came_from.contains_key(node.name.as_str()))
        .map(|node| unguarded_mistake(&node.name, &came_from))
        .collect()
}

fn unguarded_mistake(node: &NodeName, came_from: &HashMap<&str, &str>) -> Mistake {
    let mut way = vec![node.as_str()];
    while let Some(before) = way.last().and_then(|name| came_from.get(name)) {
        way.push(before);
    }
    let way: Vec<&str> = way.into_iter().rev().map(|name| if name == START { "START" } else { name }).collect();
    let what = format!("`{node}` is irreversible and can be reached without an approval: {}", way.join(" -> "));
    Mistake::new("unguarded-node", what, "put a question with an `Approval` before it, or say `.unguarded(\"reason\")`")
}
