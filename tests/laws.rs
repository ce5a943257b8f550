//! Two laws over many cases: order never depends on timing, and a history is what its changes say, whoever makes them.
//!
//! How it could break: a merge in the order of finishing; a send that takes the place of another; an edit whose edges differ from those of
//! the node that it stands for; a counter of joins or deferred nodes that only a run keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrata::clock::{ManualClock, Timestamp};
use ferrata::log::{Record, Source};
use ferrata::state::{Message, Update};
use ferrata::store::MemoryStore;
use ferrata::{Context, END, Graph, IntoNode, Runner, START, State, Target, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Work {
    #[state(append)]
    log: Vec<String>,
    #[state(sum)]
    total: i64,
    #[state(min)]
    least: Option<i64>,
    #[state(with = "Option::or", operand = "Option<String>")]
    first: Option<String>,
    #[state(merge)]
    marks: BTreeMap<String, u64>,
    #[state(messages)]
    said: Vec<Message>,
    round: u64,
}

fn writes(name: &str, s: &Work) -> WorkUpdate {
    let n = name.bytes().map(i64::from).sum::<i64>();
    let said = Message::user(format!("{name} saw {}", s.said.len()));
    let update = Work::update().push_log(name).total(n).least(Some(n)).first(Some(name.to_owned()));
    update.mark("last", n.unsigned_abs()).mark(name, s.round).push_said(said)
}

/// All orders of so many things.
fn orders(of: usize) -> Vec<Vec<usize>> {
    if of == 0 {
        return vec![Vec::new()];
    }
    let longer = |order: Vec<usize>| (0..=order.len()).map(move |at| [&order[..at], &[of - 1], &order[at..]].concat());
    orders(of - 1).into_iter().flat_map(longer).collect()
}

/// Two nodes due by edges and three sends to one node, in one step; task k ends when its gate opens.
fn wide(gates: &Arc<[Notify; 5]>) -> Graph<Work> {
    let gated = |gates: &Arc<[Notify; 5]>, number: Option<usize>| {
        let gates = Arc::clone(gates);
        move |s: View<Work>, ctx: Context| {
            let gates = Arc::clone(&gates);
            let number = number.unwrap_or_else(|| 2 + ctx.task().send.map_or(0, |send| send as usize));
            async move {
                gates[number].notified().await;
                Ok(writes(&format!("{}{number}", ctx.node()), &s))
            }
        }
    };
    let send = |_: &Work| {
        let send = |n: i32| {
            Target::send(
                "c",
                serde_json::json!({"log": [], "total": n, "least": null, "first": null,
            "marks": {}, "said": [], "round": n}),
            )
        };
        Ok([Target::node("a"), Target::node("b")].into_iter().chain((0..3).map(send)).collect())
    };
    let graph = Graph::<Work>::new("wide")
        .node("b", gated(gates, Some(1)))
        .node("a", gated(gates, Some(0)))
        .node("c", gated(gates, None));
    graph.branch(START, ["a", "b", "c"], send).edge("a", END).edge("b", END).edge("c", END).build().expect("the graph is right")
}

#[tokio::test]
async fn whoever_ends_first_the_merged_step_is_the_same_to_the_byte() {
    let mut seen: Option<(String, String)> = None;
    let orders = orders(5);
    assert_eq!(orders.len(), 120);
    for order in &orders {
        let gates: Arc<[Notify; 5]> = Arc::default();
        let clock = ManualClock::at(Timestamp(0));
        let runner = Runner::with_clock(wide(&gates), MemoryStore::new(), clock);
        let mut events = runner.thread("t").stream(Work::update().round(3)).expect("it runs");
        let mut ended = Vec::new();
        let mut left = order.iter();
        // The next gate opens when the result before it is recorded.
        let mut begun = 0;
        while let Some(event) = events.next().await {
            match event {
                ferrata::Event::TaskStarted { .. } => begun += 1,
                ferrata::Event::Update { task, .. } => ended.push(task),
                _ => continue,
            }
            if begun == 5 {
                left.next().into_iter().for_each(|gate| gates[*gate].notify_one());
            }
        }
        assert_eq!(ended.len(), 5);
        let state = events.outcome().await.expect("it runs").done().expect("it ends");
        let log = runner.thread("t").log().await.expect("a log");
        let finished: Vec<usize> = log.iter().filter_map(|entry| number(&entry.record)).collect();
        assert_eq!(finished, *order, "they ended as they were let");
        let step = log.iter().rev().find(|entry| matches!(entry.record, Record::Stepped(_))).expect("a step");
        let merged = serde_json::to_string(&step.record).expect("a record is JSON");
        let state = serde_json::to_string(&*state).expect("a state is JSON");
        let first = seen.get_or_insert_with(|| (merged.clone(), state.clone()));
        assert_eq!((&merged, &state), (&first.0, &first.1), "{order:?}");
    }
    let (_, state) = seen.expect("many orders");
    assert!(state.contains(r#""log":["b1","a0","c2","c3","c4"]"#), "edges in declared order, then sends: {state}");
}

/// Which task has a result.
fn number(record: &Record) -> Option<usize> {
    let Record::TaskDone(done) = record else { return None };
    Some(match (done.task.node.as_str(), done.task.send) {
        ("a", _) => 0,
        ("b", _) => 1,
        (_, send) => 2 + send.map_or(0, |send| send as usize),
    })
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A chain of nodes with routes back and forth, a deferred node and a join of what always runs one after the other.
fn chain(seed: u64) -> Graph<Work> {
    let mut dice = Dice(seed);
    let many = 3 + dice.below(4);
    let name = |n: u64| format!("n{n}");
    let mut graph = Graph::<Work>::new("chain");
    for n in 0..many {
        let own = name(n);
        let node = move |s: View<Work>| {
            let update = writes(&own, &s).round(s.round + 1);
            async move { Ok(update) }
        };
        graph = if dice.below(4) == 0 { graph.node(&name(n), IntoNode::deferred(node)) } else { graph.node(&name(n), node) };
    }
    graph = graph.edge(START, &name(0));
    for n in 0..many - 1 {
        let (next, back, often) = (name(n + 1), name(dice.below(n + 1)), 4 + dice.below(9));
        let targets = [next.clone(), back.clone()];
        let choose = move |s: &Work| if s.round.is_multiple_of(3) && s.round < often { back.clone() } else { next.clone() };
        graph = graph.route_to(&name(n), targets.iter().map(String::as_str), choose);
    }
    graph.edge(&name(many - 1), END).build().expect("the graph is right")
}

#[tokio::test]
async fn a_history_rebuilt_by_editing_the_state_step_by_step_is_the_original() {
    let mut steps = 0;
    for seed in 0..40 {
        let runner = Runner::new(chain(seed), MemoryStore::new());
        runner.thread("run").run(Work::update().round(0).push_log("in")).await.expect("it runs").done().expect("it ends");
        let original = runner.thread("run").history().await.expect("a history");
        let rebuilt = runner.thread("rebuilt");
        for entry in runner.thread("run").log().await.expect("a log") {
            // The ids that the run gave to messages stand in its records, so that the edits give none.
            match entry.record {
                Record::Input(input) => rebuilt.update(Update::from_changes(input.changes), Some(START)).await.expect("an edit"),
                Record::TaskDone(done) => {
                    let update = Update::from_changes(done.changes.clone());
                    rebuilt.update(update, Some(done.task.node.as_str())).await.expect("an edit");
                    steps += 1;
                }
                _ => {}
            }
        }
        let edited = rebuilt.history().await.expect("a history");
        // The input before it is applied is a checkpoint of runs alone.
        let original: Vec<_> = original.iter().filter(|checkpoint| checkpoint.source != Source::Input).collect();
        assert_eq!(edited.len(), original.len(), "seed {seed}");
        for (edited, original) in edited.iter().zip(original) {
            assert_eq!((edited.step, &edited.next), (original.step, &original.next), "seed {seed}");
            assert_eq!(*edited.values, *original.values, "seed {seed}, step {}", original.step.0);
        }
    }
    assert!(steps > 200, "only {steps} steps were compared");
}
