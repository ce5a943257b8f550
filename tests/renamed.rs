//! The derives work where ferrata has another name: a renamed dependency, or a crate that hands it on.
//!
//! How it could break: the code that is made says `::ferrata` somewhere, which is another crate here, or none.

extern crate ferrata as via;
// Whatever still says `::ferrata` finds the wrong crate, as in a program whose Cargo.toml renames it.
extern crate core as ferrata;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use via::state::{Message, typed::NumberField};
use via::store::MemoryStore;
use via::{END, Graph, Runner, START, State, View};

/// A crate of one's own that hands ferrata on.
mod framework {
    pub(crate) mod engine {
        pub(crate) use via::*;
    }
}

fn longer(old: String, new: String) -> String {
    if new.len() > old.len() { new } else { old }
}

/// A field of every kind, so that all the code that can be made is made.
#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
#[state(crate = "::via")]
struct Renamed {
    plain: Option<String>,
    #[state(sum)]
    total: u64,
    #[state(append)]
    log: Vec<String>,
    #[state(merge)]
    prices: BTreeMap<String, u64>,
    #[state(messages)]
    messages: Vec<Message>,
    #[state(with = "longer")]
    best: String,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
#[state(crate = "framework::engine")]
struct HandedOn<N> {
    #[state(max)]
    most: N,
    #[state(with = "longer", operand = "String")]
    best: String,
}

#[derive(via::Route)]
#[route(crate = "::via")]
enum After {
    #[route("finish")]
    Last,
    End,
}

#[derive(via::Route)]
#[route(crate = "crate::framework::engine")]
enum Only {
    End,
}

#[tokio::test]
async fn a_graph_of_a_renamed_crate_runs() {
    let graph = Graph::<Renamed>::new("renamed")
        .node("work", |s: View<Renamed>| async move {
            let update = Renamed::update().total(s.total + 1).push_log("work").price("bread", 4_u64).plain("plain".to_owned());
            Ok(update.message(Message::user("hello")).best("longest"))
        })
        .node("finish", || async { Ok(Renamed::update().push_log("finish").best("short")) })
        .edge(START, "work")
        .route("work", |s: &Renamed| if s.total > 0 { After::Last } else { After::End })
        .edge("finish", END)
        .build()
        .expect("the graph is right");
    let outcome = Runner::new(graph, MemoryStore::new()).thread("t").run(Renamed::update().total(2)).await.expect("it runs");
    let state = outcome.done().expect("nothing asks");
    assert_eq!((state.total, &*state.best, state.prices["bread"], state.messages.len()), (5, "longest", 4, 1));
    assert_eq!(state.log, ["work", "finish"]);
    assert_eq!(Renamed::BEST.get(&state), "longest");
}

#[tokio::test]
async fn a_graph_of_a_crate_that_was_handed_on_runs() {
    fn graph<N>() -> Graph<HandedOn<N>>
    where
        HandedOn<N>: framework::engine::StaticState + State<Update = HandedOnUpdate<N>>,
        N: NumberField + From<u8> + 'static,
    {
        let graph = Graph::<HandedOn<N>>::new("handed on")
            .node("work", || async { Ok(HandedOn::<N>::update().most(N::from(7)).best("best")) })
            .edge(START, "work")
            .route("work", |_: &HandedOn<N>| Only::End);
        graph.build().expect("the graph is right")
    }
    let outcome = Runner::new(graph::<u32>(), MemoryStore::new()).thread("t").run(HandedOn::<u32>::update().most(3)).await;
    let state = outcome.expect("it runs").done().expect("nothing asks");
    assert_eq!((state.most, &*state.best), (7, "best"));
}
