//! A loop over several pieces of work, each of which is written and judged until it is good.

use ferrata::{END, Graph, GraphBuilder, Guard, Node, START, View};

use super::work::{Work, WorkUpdate};
use super::world::World;

/// A node that is noted in the world, and has nothing to say.
pub(crate) fn noted(
    world: &World,
    name: &'static str,
) -> impl Fn() -> std::future::Ready<ferrata::Result<WorkUpdate>> + Clone + Send + Sync + 'static {
    let world = world.clone();
    move || {
        world.act(name);
        std::future::ready(Ok(Work::update()))
    }
}

/// Writes and judges until the world says that it is good, for three pieces of work.
pub(crate) fn pieces(world: &World, guard: Guard, needs: usize) -> GraphBuilder<Work> {
    let judge = {
        let world = world.clone();
        move || {
            let since = world.done().iter().rev().take_while(|what| *what != "next").filter(|what| *what == "write").count();
            async move { Ok(Work::update().hint(if since >= needs { "good" } else { "bad" })) }
        }
    };
    let next = {
        let world = world.clone();
        move |work: View<Work>| {
            world.act("next");
            async move { Ok(Work::update().n(work.n + 1)) }
        }
    };
    Graph::<Work>::new("pieces")
        .node("next", next)
        .node("write", noted(world, "write"))
        .node("judge", judge)
        .phase("draft", ["write", "judge"], guard)
        .edge(START, "next")
        .edge("next", "write")
        .edge("write", "judge")
        .route_to("judge", ["write", "next", END], |work: &Work| match work.hint.as_str() {
            "good" if work.n == 3 => END,
            "good" => "next",
            _ => "write",
        })
}

pub(crate) fn holding(node: Node<Work>) -> GraphBuilder<Work> {
    Graph::<Work>::new("holding").node("sub", node).edge(START, "sub").edge("sub", END)
}

/// How often that was done.
pub(crate) fn times(world: &World, what: &str) -> usize {
    world.done().iter().filter(|done| *done == what).count()
}
