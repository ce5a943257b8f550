//! A wrong graph is never built, and every mistake in it is told at once, with the names and what to do.
//!
//! The promise breaks if a check misses a graph that would end in silence or pay without being asked, if it refuses a good graph
//! (so each case is mended and must build), or if one mistake hides another.

use ferrata::{Approval, Ask, END, Graph, GraphBuilder, IntoNode, Route, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Order {
    seats: u32,
    #[state(append)]
    notes: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Parcel {
    weight: u32,
}

async fn work(state: View<Order>) -> ferrata::Result<OrderUpdate> {
    Ok(Order::update().note(format!("{} seats", state.seats)))
}

async fn pack(parcel: Parcel) -> ferrata::Result<OrderUpdate> {
    Ok(Order::update().note(format!("{} g", parcel.weight)))
}

fn approval(_: &Order) -> Approval {
    Approval::ask("Pay?")
}

fn parcels(state: &Order) -> Vec<Parcel> {
    vec![Parcel { weight: state.seats }]
}

#[derive(Route)]
enum Choice {
    Left,
    Right,
}

fn choice(state: &Order) -> Choice {
    if state.seats == 0 { Choice::Left } else { Choice::Right }
}

type Build = fn(GraphBuilder<Order>) -> GraphBuilder<Order>;

/// A wrong graph, the mistakes it must be refused for, a part of the text, and the graph as it should be.
struct Case {
    codes: &'static [&'static str],
    text: &'static str,
    wrong: Build,
    mended: Build,
}

/// The codes and the text of the mistakes; nothing if the graph is built.
fn mistakes(declare: Build) -> (Vec<&'static str>, String) {
    match declare(Graph::<Order>::new("order")).build() {
        Ok(_) => (Vec::new(), String::new()),
        Err(error) => (error.mistakes().iter().map(|mistake| mistake.code()).collect(), error.to_string()),
    }
}

fn check(cases: &[Case]) {
    for Case { codes, text, wrong, mended } in cases {
        let (found, told) = mistakes(*wrong);
        assert_eq!(found, *codes, "{told}");
        assert!(told.contains(text), "{text:?} is not in:\n{told}");
        let (found, told) = mistakes(*mended);
        assert!(found.is_empty(), "the mended graph for {codes:?} is refused: {told}");
    }
}

#[test]
fn names_are_checked() {
    check(&[
        Case {
            codes: &["unknown-node"],
            text: "names \"pya\", which is no node; did you mean \"pay\"?",
            wrong: |g| g.node("pay", work).node("ship", work).edge(START, "pya").edge("pay", "ship").edge("ship", END),
            mended: |g| g.node("pay", work).node("ship", work).edge(START, "pay").edge("pay", "ship").edge("ship", END),
        },
        Case {
            codes: &["unknown-node"],
            text: "names \"deliver\", which is no node; there are: pay, ship",
            wrong: |g| g.node("pay", work).node("ship", work).edge(START, "pay").edge("pay", "deliver").edge("ship", END),
            mended: |g| g.node("pay", work).node("ship", work).edge(START, "pay").edge("pay", "ship").edge("ship", END),
        },
        Case {
            codes: &["unknown-node", "unknown-node"],
            text: "names \"lefty\"",
            wrong: |g| {
                g.node("a", work)
                    .edge(START, "a")
                    .route_to("a", ["lefty", END], |_| END)
                    .fan_out("a", "packer", parcels)
                    .edge("a", END)
            },
            mended: |g| g.node("a", work).edge(START, "a").route_to("a", ["a", END], |_| END),
        },
        Case {
            codes: &["duplicate-node"],
            text: "two nodes called \"pay\"",
            wrong: |g| g.node("pay", work).node("pay", work).edge(START, "pay").edge("pay", END),
            mended: |g| g.node("pay", work).node("pay 2", work).edge(START, "pay").edge("pay", "pay 2").edge("pay 2", END),
        },
        Case {
            codes: &["reserved-name"],
            text: "a node cannot be called \"__pay\"",
            wrong: |g| g.node("__pay", work).edge(START, "__pay").edge("__pay", END),
            mended: |g| g.node("_pay", work).edge(START, "_pay").edge("_pay", END),
        },
    ]);
    for name in ["", "__", START, END, "a/b", "a:b", "a#b", "a@b", "a\nb", "a\0"] {
        let error = Graph::<Order>::new("order").node(name, work).build().expect_err("the name is reserved");
        assert!(error.mistakes().iter().any(|mistake| mistake.code() == "reserved-name"), "{name:?}: {error}");
    }
    for name in ["look up", "Überweisung", "a-b.c", "_", "支払い"] {
        let graph = Graph::<Order>::new("order").node(name, work).edge(START, name).edge(name, END).build();
        assert!(graph.is_ok(), "{name:?}: {graph:?}");
    }
}

#[test]
fn edges_are_checked() {
    check(&[
        Case {
            codes: &["edge-from-end"],
            text: "the edge to \"a\" starts at the end",
            wrong: |g| g.node("a", work).edge(START, "a").edge("a", END).edge(END, "a"),
            mended: |g| g.node("a", work).edge(START, "a").edge("a", END),
        },
        Case {
            codes: &["edge-to-start"],
            text: "the edge from \"b\" leads to the start",
            wrong: |g| g.node("a", work).node("b", work).edge(START, "a").edge("a", "b").edge("b", START),
            mended: |g| g.node("a", work).node("b", work).edge(START, "a").edge("a", "b").route_to("b", ["a", END], |_| END),
        },
    ]);
}

#[test]
fn every_node_is_reached_and_leads_somewhere() {
    check(&[
        Case {
            codes: &["no-entry", "unreachable-node"],
            text: "nothing leads from the start to a node; add `.edge(START, \"first_node\")`",
            wrong: |g| g.node("a", work).edge("a", END),
            mended: |g| g.node("a", work).edge(START, "a").edge("a", END),
        },
        Case {
            codes: &["unreachable-node", "unreachable-node"],
            text: "nothing leads to \"c\"",
            // The two lead to each other, which is not enough.
            wrong: |g| {
                let g = g.node("a", work).node("b", work).node("c", work).edge(START, "a").edge("a", END);
                g.edge("b", "c").route_to("c", ["b", END], |_| END)
            },
            mended: |g| {
                let g = g.node("a", work).node("b", work).node("c", work).edge(START, "a").edge("a", "b");
                g.edge("b", "c").route_to("c", ["b", END], |_| END)
            },
        },
        Case {
            codes: &["dead-end"],
            text: "\"b\" leads nowhere; say so with `.edge(\"b\", END)`",
            wrong: |g| g.node("a", work).node("b", work).edge(START, "a").edge("a", "b"),
            mended: |g| g.node("a", work).node("b", work).edge(START, "a").edge("a", "b").edge("b", END),
        },
    ]);
}

#[test]
fn every_answer_leads_somewhere() {
    check(&[
        Case {
            codes: &["open-approval"],
            text: "\"ask\" does not say where it leads when it is rejected; add `.rejected(\"ask\", ..)`",
            wrong: |g| g.question("ask", approval).edge(START, "ask").approved("ask", END),
            mended: |g| g.question("ask", approval).edge(START, "ask").approved("ask", END).rejected("ask", END),
        },
        Case {
            codes: &["open-approval", "open-approval"],
            text: "when it is approved",
            wrong: |g| g.question("ask", approval).edge(START, "ask").edge("ask", END),
            mended: |g| g.question("ask", approval).edge(START, "ask").approved("ask", END).rejected("ask", END),
        },
        Case {
            codes: &["no-approval"],
            text: "\"a\" has an edge for approved, but asks for no approval",
            wrong: |g| g.node("a", work).edge(START, "a").approved("a", END),
            mended: |g| g.node("a", work).edge(START, "a").edge("a", END),
        },
        Case {
            codes: &["no-approval"],
            text: "\"seats\" has an edge for rejected",
            wrong: |g| {
                let g = g.question("seats", |_: &Order| Ask::<u32>::new("Seats?")).edge(START, "seats");
                g.answered("seats", |_, seats: u32| Order::update().seats(seats)).rejected("seats", END)
            },
            mended: |g| {
                let g = g.question("seats", |_: &Order| Ask::<u32>::new("Seats?")).edge(START, "seats");
                g.answered("seats", |_, seats: u32| Order::update().seats(seats)).edge("seats", END)
            },
        },
        Case {
            codes: &["lost-answer"],
            text: "nothing becomes of the answer to \"seats\"; add `.answered(\"seats\", |state, answer| update)`",
            wrong: |g| g.question("seats", |_: &Order| Ask::<u32>::new("Seats?")).edge(START, "seats").edge("seats", END),
            mended: |g| {
                let g = g.question("seats", |_: &Order| Ask::<u32>::new("Seats?")).edge(START, "seats").edge("seats", END);
                g.answered("seats", |_, seats: u32| Order::update().seats(seats))
            },
        },
        Case {
            codes: &["no-question"],
            text: "`.answered(\"a\", ..)` needs a question node \"a\"",
            wrong: |g| {
                let g = g.node("a", work).edge(START, "a").edge("a", END);
                g.answered("a", |_, seats: u32| Order::update().seats(seats))
            },
            mended: |g| g.node("a", work).edge(START, "a").edge("a", END),
        },
        Case {
            codes: &["no-question"],
            text: "`.edited(\"seats\", ..)` needs a question node",
            wrong: |g| {
                let g = g.question("seats", |_: &Order| Ask::<u32>::new("Seats?")).edge(START, "seats").edge("seats", END);
                g.edited("seats", |_, seats: u32| Order::update().seats(seats))
            },
            mended: |g| {
                let g = g.question("seats", approval).edge(START, "seats").approved("seats", END).rejected("seats", END);
                g.edited("seats", |_, seats: u32| Order::update().seats(seats))
            },
        },
    ]);
}

#[test]
fn payloads_fit() {
    check(&[
        Case {
            codes: &["no-payload"],
            text: "but an edge brings it none; lead to it by `.fan_out`",
            wrong: |g| g.node("a", work).node("pack", pack).edge(START, "a").edge("a", "pack").edge("pack", END),
            mended: |g| g.node("a", work).node("pack", pack).edge(START, "a").fan_out("a", "pack", parcels).edge("pack", END),
        },
        Case {
            codes: &["no-payload"],
            text: "\"pack\" takes a ",
            // A fan-out beside the edge does not help.
            wrong: |g| {
                let g = g.node("a", work).node("pack", pack).edge(START, "a").edge("pack", END);
                g.fan_out("a", "pack", parcels).edge("a", "pack")
            },
            mended: |g| g.node("a", work).node("pack", pack).edge(START, "a").fan_out("a", "pack", parcels).edge("pack", END),
        },
        Case {
            codes: &["other-payload"],
            text: "but a fan-out sends it a u32",
            wrong: |g| g.node("pack", pack).fan_out(START, "pack", |s| [s.seats]).edge("pack", END),
            mended: |g| g.node("pack", pack).fan_out(START, "pack", parcels).edge("pack", END),
        },
        Case {
            codes: &["unused-payload"],
            text: "sends something to \"a\", which takes nothing but the state",
            wrong: |g| g.node("a", work).fan_out(START, "a", parcels).edge("a", END),
            mended: |g| g.node("a", work).edge(START, "a").edge("a", END),
        },
    ]);
}

#[test]
fn no_join_waits_for_ever() {
    check(&[
        Case {
            codes: &["starving-join"],
            text: "the join before \"d\" can wait for ever: when \"left\" is chosen, \"left\" runs and \"right\" may not",
            wrong: |g| {
                let g = g.node("a", work).node("left", work).node("right", work).node("d", work).edge(START, "a");
                g.route("a", choice).join(["left", "right"], "d").edge("d", END)
            },
            mended: |g| {
                let g = g.node("a", work).node("left", work).node("right", work).node("d", work).edge(START, "a");
                g.route("a", choice).edge("left", "d").edge("right", "d").edge("d", END)
            },
        },
        Case {
            codes: &["starving-join"],
            text: "from the start, \"a\" runs and \"b\" may not",
            wrong: |g| {
                let g = g.question("ask", approval).node("a", work).node("b", work).node("d", work);
                let g = g.edge(START, "a").edge(START, "ask").approved("ask", "b").rejected("ask", END);
                g.join(["a", "b"], "d").edge("d", END)
            },
            // Both sources stand behind the approval.
            mended: |g| {
                let g = g.question("ask", approval).node("go", work).node("a", work).node("b", work).node("d", work);
                let g = g.edge(START, "ask").approved("ask", "go").rejected("ask", END);
                g.edge("go", "a").edge("go", "b").join(["a", "b"], "d").edge("d", END)
            },
        },
        Case {
            codes: &["starving-join"],
            text: "when \"b\" is chosen, \"b\" runs and \"a\" may not",
            // The way back reaches one source only: the second time the join would wait.
            wrong: |g| {
                let g = g.node("a", work).node("b", work).node("d", work).edge(START, "a").edge(START, "b");
                g.join(["a", "b"], "d").route_to("d", ["b", END], |_| END)
            },
            // A way back to where both begin.
            mended: |g| {
                let g = g.node("s", work).node("a", work).node("b", work).node("d", work);
                let g = g.edge(START, "s").edge("s", "a").edge("s", "b");
                g.join(["a", "b"], "d").route_to("d", ["s", END], |_| END)
            },
        },
    ]);
}

#[test]
fn what_cannot_be_undone_stands_behind_an_approval() {
    check(&[
        Case {
            codes: &["unguarded-node"],
            text: "can be reached without an approval: START -> left -> pay; put a question with an `Approval` before it",
            wrong: |g| {
                let g = g.node("left", work).question("right", approval).node("pay", work.irreversible());
                let g = g.route(START, choice).approved("right", "pay").rejected("right", END);
                g.edge("left", "pay").edge("pay", END)
            },
            mended: |g| {
                let g = g.node("left", work).question("right", approval).node("pay", work.irreversible());
                let g = g.route(START, choice).approved("right", "pay").rejected("right", END);
                g.edge("left", END).edge("pay", END)
            },
        },
        Case {
            codes: &["unguarded-node"],
            text: "START -> ask -> pay",
            // A rejection passes the question too.
            wrong: |g| {
                let g = g.question("ask", approval).node("pay", work.irreversible()).edge(START, "ask");
                g.approved("ask", END).rejected("ask", "pay").edge("pay", END)
            },
            mended: |g| {
                let g = g.question("ask", approval).node("pay", work.irreversible()).edge(START, "ask");
                g.approved("ask", "pay").rejected("ask", END).edge("pay", END)
            },
        },
        Case {
            codes: &["unguarded-node"],
            text: "START -> ask -> pay",
            // An edge that is always taken passes it as well.
            wrong: |g| {
                let g = g.question("ask", approval).node("pay", work.irreversible()).edge(START, "ask").edge("pay", END);
                g.approved("ask", END).rejected("ask", END).edge("ask", "pay")
            },
            mended: |g| {
                let g = g.question("ask", approval).node("pay", work.irreversible()).edge(START, "ask").edge("pay", END);
                g.approved("ask", "pay").rejected("ask", "ask")
            },
        },
        Case {
            codes: &["unguarded-node"],
            text: "START -> pay",
            wrong: |g| g.node("pay", work.irreversible()).edge(START, "pay").edge("pay", END),
            mended: |g| g.node("pay", work.irreversible().unguarded("cents")).edge(START, "pay").edge("pay", END),
        },
    ]);
}

#[test]
fn all_mistakes_are_told_at_once() {
    let (codes, text) = mistakes(|g| {
        let g = g.node("pay", work).node("pay", work).node("a/b", work);
        g.edge(START, "pya").edge("pay", START).edge(END, "pay").edge("pay", END).edge("pay", END)
    });
    let names = ["duplicate-node", "reserved-name", "unknown-node", "edge-to-start", "edge-from-end"];
    assert_eq!(sorted(codes), sorted(names.into()), "{text}");

    // With the names right, everything that depends on them.
    let (codes, text) = mistakes(|g| {
        let g = g.question("ask", approval).node("pay", work.irreversible()).node("lost", work).node("pack", pack);
        g.edge(START, "ask").approved("ask", END).edge("ask", "pay").edge("pay", "pack")
    });
    let ways = ["open-approval", "no-payload", "unreachable-node", "dead-end", "dead-end", "unguarded-node"];
    assert_eq!(sorted(codes), sorted(ways.into()), "{text}");
    assert!(text.starts_with("graph \"order\" cannot be built:\n  - "), "{text}");
    assert_eq!(text.lines().count(), 1 + ways.len(), "one line each:\n{text}");
}

fn sorted(mut codes: Vec<&str>) -> Vec<&str> {
    codes.sort_unstable();
    codes
}

fn drawn(g: GraphBuilder<Order>) -> GraphBuilder<Order> {
    let g = g.node("plan", work).node("pack", pack).node("say \"hi\"", work).node("bill", work).question("ask", approval);
    let g = g.node("pay", work.irreversible()).node("tip", work.irreversible().unguarded("it is small"));
    let g =
        g.edge(START, "plan").edge("plan", "say \"hi\"").fan_out("plan", "pack", parcels).join(["pack", "say \"hi\""], "bill");
    let g = g.route_to("bill", ["ask", END], |_| "ask").approved("ask", "pay").rejected("ask", END);
    g.edge("pay", "tip").edge("tip", END)
}

const DRAWN: &str = r#"flowchart TD
    START([start])
    N0["plan"]
    N1["pack"]
    N2["say #quot;hi#quot;"]
    N3["bill"]
    N4{{"ask"}}
    N5[["pay"]]
    N6[["tip<br/>unguarded: it is small"]]
    END([end])
    START --> N0
    N0 --> N2
    N4 -- approved --> N5
    N4 -- rejected --> END
    N5 --> N6
    N6 --> END
    J0{{all}}
    N1 --> J0
    N2 --> J0
    J0 --> N3
    N0 -. each .-> N1
    N3 -.-> N4
    N3 -.-> END
"#;

#[test]
fn the_drawing_is_the_same_each_time() {
    for _ in 0..20 {
        let graph = drawn(Graph::<Order>::new("order")).build().expect("the graph is right");
        assert_eq!(graph.mermaid(), DRAWN);
    }
}

#[test]
fn what_would_be_lost_in_silence_is_a_mistake() {
    fn seats() -> fn(&Order) -> Ask<u32> {
        |_| Ask::new("How many seats?")
    }
    check(&[
        Case {
            codes: &["no-targets"],
            text: "the conditional edge after \"a\" has no targets",
            wrong: |g| g.node("a", work).edge(START, "a").edge("a", END).route_to("a", [], |_| END),
            mended: |g| g.node("a", work).edge(START, "a").route_to("a", [END], |_| END),
        },
        Case {
            codes: &["fan-out-to-end"],
            text: "leads to the end, which takes nothing",
            wrong: |g| g.node("a", work).edge(START, "a").fan_out("a", END, parcels),
            mended: |g| g.node("a", work).node("pack", pack).edge(START, "a").fan_out("a", "pack", parcels).edge("pack", END),
        },
        Case {
            codes: &["dead-end"],
            text: "\"ask\" leads nowhere",
            wrong: |g| g.question("ask", seats()).answered("ask", |_, n: u32| Order::update().seats(n)).edge(START, "ask"),
            mended: |g| {
                g.question("ask", seats())
                    .answered("ask", |_, n: u32| Order::update().seats(n))
                    .edge(START, "ask")
                    .edge("ask", END)
            },
        },
        Case {
            codes: &["duplicate-take"],
            text: "declared twice, and only the last one would count",
            wrong: |g| {
                let g = g.question("ask", seats()).edge(START, "ask").edge("ask", END);
                g.answered("ask", |_, n: u32| Order::update().seats(n)).answered("ask", |_, n: u32| Order::update().seats(n + 1))
            },
            mended: |g| {
                g.question("ask", seats())
                    .answered("ask", |_, n: u32| Order::update().seats(n))
                    .edge(START, "ask")
                    .edge("ask", END)
            },
        },
    ]);
}

#[test]
fn edges_that_are_taken_together_feed_a_join_together() {
    let (found, told) = mistakes(|g| {
        let g = g.question("ask", approval).node("a", work).node("b", work).node("d", work).edge(START, "ask");
        g.approved("ask", "a").approved("ask", "b").rejected("ask", END).join(["a", "b"], "d").edge("d", END)
    });
    assert!(found.is_empty(), "{told}");
    let (found, told) = mistakes(|g| {
        let g = g.node("s", work).node("a", work).node("b", work).node("c", work).node("d", work);
        let g = g.edge(START, "s").edge("s", "a").edge("s", "b").edge("s", "c");
        g.join(["a", "b"], "d").join(["a", "c"], "d").edge("d", END)
    });
    assert!(found.is_empty(), "joins that share a source are two joins: {told}");
}

#[test]
fn an_edge_that_is_declared_again_counts_once() {
    let once = |g: GraphBuilder<Order>| g.node("a", work).node("b", work).edge(START, "a").edge("a", "b").edge("b", END);
    let twice = |g: GraphBuilder<Order>| once(g).edge("a", "b").join(["a"], "b").join(["a"], "b");
    let (one, two) = (once(Graph::new("order")).join(["a"], "b").build(), twice(Graph::new("order")).build());
    assert_eq!(one.expect("it is right").mermaid(), two.expect("it is right").mermaid());
}

#[test]
fn a_loop_that_nothing_leads_out_of_is_worth_a_look() {
    let lints = |declare: Build| {
        let graph = declare(Graph::<Order>::new("order")).build().expect("it builds");
        graph.lints().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let endless = lints(|g| g.node("a", work).node("b", work).edge(START, "a").edge("a", "b").edge("b", "a"));
    assert_eq!(endless.len(), 1);
    assert!(endless[0].contains("the loop of \"a\", \"b\""), "{endless:?}");
    assert_eq!(lints(|g| g.node("a", work).edge(START, "a").edge("a", "a")).len(), 1);
    assert!(lints(|g| g.node("a", work).edge(START, "a").route_to("a", ["a", END], |_| END)).is_empty());
}

#[test]
fn graphviz_gets_every_node_and_every_way() {
    let graph = Graph::<Order>::new("order").question("ask \"me\"", approval).node("pay", work.irreversible());
    let graph = graph.edge(START, "ask \"me\"").approved("ask \"me\"", "pay").rejected("ask \"me\"", END).edge("pay", END);
    let expected = r#"digraph "order" {
    START [shape=circle];
    N0 [shape=hexagon, label="ask \"me\""];
    N1 [shape=box3d, label="pay"];
    END [shape=doublecircle];
    START -> N0 [style=solid];
    N0 -> N1 [style=dashed];
    N0 -> END [style=dashed];
    N1 -> END [style=solid];
}
"#;
    assert_eq!(graph.build().expect("it is right").dot(), expected);
}
