//! What is not wrong for certain, but worth a look.

use std::collections::HashMap;

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;

use super::plan::{END, Line, Plan};
use super::validate::Mistake;
use crate::id::NodeName;

/// Loops that nothing leads out of: they end by the step limit only.
pub(crate) fn loops_without_exit<S>(plan: &Plan<S>) -> Vec<Mistake> {
    let lines = plan.lines();
    let mut graph = DiGraph::<&NodeName, ()>::new();
    let mut places = HashMap::new();
    for Line { from, to, .. } in &lines {
        let [from, to] = [*from, *to].map(|name| *places.entry(name).or_insert_with(|| graph.add_node(name)));
        graph.update_edge(from, to, ());
    }
    let mut loops: Vec<Vec<&NodeName>> = Vec::new();
    for part in tarjan_scc(&graph) {
        let names: Vec<&NodeName> = part.iter().map(|place| graph[*place]).collect();
        let circles = part.len() > 1 || graph.contains_edge(part[0], part[0]);
        let leaves = lines.iter().any(|line| names.contains(&line.from) && !names.contains(&line.to));
        if circles && !leaves && names.iter().all(|name| name.as_str() != END) {
            loops.push(plan.nodes.iter().map(|node| &node.name).filter(|name| names.contains(name)).collect());
        }
    }
    loops.sort();
    loops.iter().map(|names| mistake(names)).collect()
}

fn mistake(names: &[&NodeName]) -> Mistake {
    let names = names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let what = format!("nothing leads out of the loop of {names}: only the step limit ends it");
    Mistake::new("endless-loop", what, "add a conditional edge that leads out, or to END")
}
