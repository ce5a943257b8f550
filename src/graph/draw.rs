//! Drawings of a graph.

use std::fmt::Write;

use super::node::Handler;
use super::plan::{END, EdgeKind, Plan, START};

/// The graph as a Mermaid flowchart, in declared order.
pub(crate) fn mermaid<S>(plan: &Plan<S>) -> String {
    let mut text = String::from("flowchart TD\n    START([start])\n");
    for node in &plan.nodes {
        let label = label(node.name.as_str(), node.node.unguarded.as_deref());
        let id = id(plan, node.name.as_str());
        let (open, close) = match (&node.node.handler, node.node.irreversible) {
            _ if node.node.compensates.is_some() => ("([", "])"),
            (Handler::Question(_), _) => ("{{", "}}"),
            (_, true) => ("[[", "]]"),
            _ => ("[", "]"),
        };
        let _ = writeln!(text, "    {id}{open}\"{label}\"{close}");
    }
    text.push_str("    END([end])\n");
    for edge in &plan.edges {
        let (from, to) = (id(plan, edge.from.as_str()), id(plan, edge.to.as_str()));
        let _ = match edge.kind {
            EdgeKind::Always => writeln!(text, "    {from} --> {to}"),
            EdgeKind::Label(label) => writeln!(text, "    {from} -- {label} --> {to}"),
        };
    }
    for (number, join) in plan.joins.iter().enumerate() {
        let _ = writeln!(text, "    J{number}{{{{all}}}}");
        for from in &join.from {
            let _ = writeln!(text, "    {} --> J{number}", id(plan, from.as_str()));
        }
        let _ = writeln!(text, "    J{number} --> {}", id(plan, join.to.as_str()));
    }
    for node in &plan.nodes {
        for to in node.node.gotos() {
            let _ = writeln!(text, "    {} -.-> {}", id(plan, node.name.as_str()), id(plan, to.as_str()));
        }
    }
    for way in plan.other_ways() {
        let _ = writeln!(text, "    {} -. guard .-> {}", id(plan, way.from.as_str()), id(plan, way.to.as_str()));
    }
    for route in &plan.routes {
        for to in &route.to {
            let arrow = if route.sends.is_some() { "-. each .->" } else { "-.->" };
            let _ = writeln!(text, "    {} {arrow} {}", id(plan, route.from.as_str()), id(plan, to.as_str()));
        }
    }
    text
}

/// The graph in Graphviz' language, in declared order.
pub(crate) fn dot<S>(plan: &Plan<S>) -> String {
    let mut text = format!("digraph {:?} {{\n    START [shape=circle];\n", plan.name);
    for node in &plan.nodes {
        let shape = match (&node.node.handler, node.node.irreversible) {
            _ if node.node.compensates.is_some() => "oval",
            (Handler::Question(_), _) => "hexagon",
            (_, true) => "box3d",
            _ => "box",
        };
        let label = label(node.name.as_str(), node.node.unguarded.as_deref()).replace("<br/>", "\\n").replace("#quot;", "\\\"");
        let _ = writeln!(text, "    {} [shape={shape}, label=\"{label}\"];", id(plan, node.name.as_str()));
    }
    text.push_str("    END [shape=doublecircle];\n");
    for line in plan.lines() {
        let (from, to) = (id(plan, line.from.as_str()), id(plan, line.to.as_str()));
        let style = if line.certain { "solid" } else { "dashed" };
        let _ = writeln!(text, "    {from} -> {to} [style={style}];");
    }
    text.push_str("}\n");
    text
}

/// Node names may hold anything, Mermaid's ids may not.
fn id<S>(plan: &Plan<S>, name: &str) -> String {
    match name {
        START => "START".to_owned(),
        END => "END".to_owned(),
        _ => plan.nodes.iter().position(|n| n.name.as_str() == name).map_or_else(|| "unknown".to_owned(), |n| format!("N{n}")),
    }
}

fn label(name: &str, unguarded: Option<&str>) -> String {
    let text = match unguarded {
        Some(reason) => format!("{name}<br/>unguarded: {reason}"),
        None => name.to_owned(),
    };
    text.replace('"', "#quot;")
}
