//! Limits of size and number: what is exactly at one works, one more does not, nothing is lost, and the thread goes on with a higher one.
//!
//! How it could break: a limit that is passed unseen, since what is added up is less than what there is; a refusal that records half of a step; work that is
//! done again because a merge was refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ferrata::log::Record;
use ferrata::store::{MemoryStore, RedbStore};
use ferrata::{
    Answer, Approval, Ask, Class, Context, Durability, END, Error, Graph, GraphBuilder, IntoNode, Next, Node, NodeError, Outcome,
    Runner, START, State, Target, Thread, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tempfile::TempDir;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Work {
    n: i64,
    hint: String,
    #[state(append)]
    log: Vec<String>,
}

fn one(node: Node<Work>) -> GraphBuilder<Work> {
    Graph::<Work>::new("one").node("work", node).edge(START, "work").edge("work", END)
}

fn ended(outcome: Result<Outcome<Work>, Error>) -> View<Work> {
    outcome.expect("it works").done().expect("it ends")
}

/// How often something was done in the world. Clones count together.
#[derive(Clone, Default)]
struct World(Arc<AtomicU32>);

impl World {
    fn act(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn done(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Over which store a thread is.
enum Place {
    Memory(Arc<MemoryStore>),
    Redb { store: Arc<RedbStore>, _folder: TempDir },
}

impl Place {
    fn both() -> [Self; 2] {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Arc::new(RedbStore::open(folder.path().join("s.redb")).expect("it opens"));
        [Self::Memory(Arc::default()), Self::Redb { store, _folder: folder }]
    }

    /// As another process would open it.
    fn thread(&self, graph: GraphBuilder<Work>) -> Thread<Work> {
        let graph = graph.build().expect("the graph is right");
        match self {
            Self::Memory(store) => Runner::new(graph, Arc::clone(store)).thread("t"),
            Self::Redb { store, .. } => Runner::new(graph, Arc::clone(store)).thread("t"),
        }
    }
}

/// Checks that a limit is told, with its code and with what sets it.
fn told<T: std::fmt::Debug>(result: Result<T, Error>, code: &str) {
    let error = result.expect_err("it is over the limit");
    assert_eq!((error.code(), error.is_limit()), (code, true), "{error}");
    let setter = match code {
        "task-limit" => "step_tasks_max",
        "update-limit" => "update_bytes_max",
        "state-limit" => "state_bytes_max",
        _ => "questions_max",
    };
    assert!(error.to_string().contains(setter), "{error}");
}

/// What a change of `hint` counts beside its letters.
const HINT: usize = 10;
/// What a state counts beside the letters of its hint and what its log holds.
const STATE: usize = 32;

fn letters(count: usize) -> String {
    "x".repeat(count)
}

/// A node that acts once in the world, and writes a hint of that many letters.
fn writes(world: &World, count: usize) -> Node<Work> {
    let world = world.clone();
    let write = move |ctx: Context| {
        let world = world.clone();
        async move {
            let act = |_key| async { Ok(world.act()) };
            ctx.effect("act", act).await?;
            Ok(Work::update().hint(letters(count)))
        }
    };
    write.into_node()
}

/// Plans, then works on `n` things at once.
fn plan(world: &World, sends: usize) -> GraphBuilder<Work> {
    let each = |thing: u64| async move { Ok(Work::update().push_log(format!("{thing}"))) };
    let graph = Graph::<Work>::new("plan").node("plan", writes(world, 1)).node("each", each);
    graph.fan_out("plan", "each", move |_| 0..sends as u64).edge(START, "plan").edge("each", END)
}

#[tokio::test]
async fn a_step_after_which_too_many_tasks_are_due_is_not_merged() {
    for place in Place::both() {
        let world = World::default();
        told(place.thread(plan(&world, 6)).step_tasks_max(5).run(Work::update()).await, "task-limit");
        let thread = place.thread(plan(&world, 6)).step_tasks_max(6);
        let at_rest = thread.history().await.expect("a history");
        assert_eq!((at_rest[0].step.0, at_rest[0].values.hint.as_str()), (0, ""));
        assert_eq!(ended(thread.resume().await).log.len(), 6);
        assert_eq!(world.done(), 1);
    }
}

#[tokio::test]
async fn an_input_or_an_edit_that_leads_to_too_many_tasks_is_refused() {
    let each = |thing: u64| async move { Ok(Work::update().push_log(format!("{thing}"))) };
    let graph = || {
        let graph =
            Graph::<Work>::new("plan").node("each", each).node("other", each).node("rest", || async { Ok(Work::update()) });
        let branch = |work: &Work| Ok((0..work.n).map(|n| Target::send("each", n)).collect());
        graph.branch(START, ["each"], branch).edge(START, "rest").edge("each", END).edge("rest", END)
    };
    let graph = || graph().fan_out("rest", "other", |_| Vec::<u64>::new()).edge("other", END);
    for place in Place::both() {
        // An edge and three sends.
        told(place.thread(graph()).step_tasks_max(3).run(Work::update().n(3)).await, "task-limit");
        assert!(place.thread(graph()).state().await.expect_err("nothing is on record").is_unknown_thread());
        ended(place.thread(graph()).step_tasks_max(4).run(Work::update().n(3)).await);
        let before = place.thread(graph()).log().await.expect("a log").len();
        told(place.thread(graph()).step_tasks_max(4).update(Work::update().n(4), Some(START)).await, "task-limit");
        assert_eq!(place.thread(graph()).log().await.expect("a log").len(), before);
        place.thread(graph()).step_tasks_max(5).update(Work::update().n(4), Some(START)).await.expect("it fits");
        assert_eq!(ended(place.thread(graph()).resume().await).log.len(), 7);
    }
}

#[tokio::test]
async fn a_node_that_sends_too_many_and_a_graph_inside_are_held_to_the_limit_too() {
    for place in Place::both() {
        let world = World::default();
        let inner = || {
            one(plan(&world, 6)
                .build()
                .expect("right")
                .mapped(|_| Work::update(), |_, w: &Work| Work::update().n(w.log.len() as i64)))
        };
        told(place.thread(inner()).step_tasks_max(5).run(Work::update()).await, "task-limit");
        assert_eq!(ended(place.thread(inner()).step_tasks_max(6).resume().await).n, 6);
        assert_eq!(world.done(), 1);
    }
    // Where the graph inside begins, it has its input on record already.
    for place in Place::both() {
        let each = |thing: u64| async move { Ok(Work::update().push_log(format!("{thing}"))) };
        let inner = || Graph::<Work>::new("inner").node("each", each).fan_out(START, "each", |_| 0..6_u64).edge("each", END);
        let work = |ctx: Context| async move {
            let inner = ctx.call::<Work>("inner", Work::update().hint(letters(100))).await?;
            Ok(Work::update().n(inner.log.len() as i64))
        };
        let graph = || one(work.into_node()).callable("inner", inner().build().expect("right"));
        let bytes = (STATE + 100) as u64;
        told(place.thread(graph()).step_tasks_max(5).run(Work::update()).await, "task-limit");
        told(place.thread(graph()).state_bytes_max(bytes - 1).resume().await, "state-limit");
        assert_eq!(ended(place.thread(graph()).step_tasks_max(6).resume().await).n, 6);
    }
    let sends = || async { Ok(Next::update(Work::update()).goto((0..6).map(|n| Target::send("each", n)))) };
    let each = |thing: u64| async move { Ok(Work::update().push_log(format!("{thing}"))) };
    let graph = || {
        let graph = Graph::<Work>::new("g").node("sends", sends.leads_to(["each"])).node("each", each);
        graph.edge(START, "sends").edge("each", END)
    };
    let [place, _] = Place::both();
    told(place.thread(graph()).step_tasks_max(5).run(Work::update()).await, "task-limit");
    assert_eq!(ended(place.thread(graph()).step_tasks_max(6).resume().await).log.len(), 6);
}

#[tokio::test]
async fn a_result_that_is_too_large_fails_the_node_and_what_it_did_is_not_done_again() {
    for place in Place::both() {
        let world = World::default();
        let graph = || one(writes(&world, 1_000));
        let bytes = (1_000 + HINT) as u64;
        let outcome = place.thread(graph()).update_bytes_max(bytes - 1).run(Work::update()).await;
        let failure = outcome.as_ref().expect_err("too large").node_failure().expect("a node").1.clone();
        assert_eq!(failure.class, Class::Deterministic);
        told(outcome, "update-limit");
        assert_eq!(ended(place.thread(graph()).update_bytes_max(bytes).resume().await).hint.len(), 1_000);
        assert_eq!(world.done(), 1);
    }
}

#[tokio::test]
async fn an_input_and_an_edit_that_are_too_large_are_refused() {
    let (graph, bytes) = (|| one((|| async { Ok(Work::update()) }).into_node()), (100 + HINT) as u64);
    for place in Place::both() {
        let thread = place.thread(graph()).update_bytes_max(bytes);
        told(thread.run(Work::update().hint(letters(101))).await, "update-limit");
        assert!(thread.state().await.expect_err("nothing is on record").is_unknown_thread());
        ended(thread.run(Work::update().hint(letters(100))).await);
        let before = thread.log().await.expect("a log").len();
        told(thread.update(Work::update().hint(letters(101)), None).await, "update-limit");
        told(thread.run(Work::update().hint(letters(101))).await, "update-limit");
        assert_eq!(thread.log().await.expect("a log").len(), before);
        thread.update(Work::update().hint(letters(100)), None).await.expect("it fits");
    }
}

/// One node of each kind that wants something recorded that may be too large.
fn records(what: &'static str, count: usize) -> GraphBuilder<Work> {
    let work = move |ctx: Context| async move {
        let text = letters(count);
        match what {
            "mark" => ctx.mark("m", &text).await?,
            "effect" => _ = ctx.effect("e", |_key| async { Ok(text) }).repeatable().await?,
            "call" => _ = ctx.call::<Work>("inner", Work::update().hint(text)).await?,
            _ => return Ok(Next::update(Work::update()).goto([Target::send("other", text)])),
        }
        Ok(Next::update(Work::update()).goto([Target::node(END)]))
    };
    let other = |text: String| async move { Ok(Work::update().n(text.len() as i64)) };
    let inner = one((|| async { Ok(Work::update()) }).into_node()).build().expect("right");
    let graph = Graph::<Work>::new("g").node("work", work.leads_to(["other", END])).node("other", other).callable("inner", inner);
    graph.edge(START, "work").edge("other", END)
}

#[tokio::test]
async fn what_a_node_wants_recorded_is_held_to_the_limit() {
    // Beside the letters: nothing but the quotes, and the name of the field for a call.
    for (what, beside) in [("mark", 2), ("effect", 2), ("call", HINT), ("send", 2)] {
        for place in Place::both() {
            let bytes = (500 + beside) as u64;
            told(place.thread(records(what, 501)).update_bytes_max(bytes).run(Work::update()).await, "update-limit");
            ended(place.thread(records(what, 500)).update_bytes_max(bytes).resume().await);
        }
    }
}

/// It was performed, and has to be told from one that was not.
#[tokio::test]
async fn an_effect_whose_result_is_too_large_is_put_to_a_person() {
    for place in Place::both() {
        let world = World::default();
        let graph = || {
            let world = world.clone();
            let work = move |ctx: Context| {
                let world = world.clone();
                async move {
                    let pay = |_key| async {
                        world.act();
                        Ok(letters(500))
                    };
                    Ok(Work::update().hint(ctx.effect("pay", pay).await?))
                }
            };
            one(work.into_node())
        };
        let outcome = place.thread(graph()).update_bytes_max(500).run(Work::update()).await.expect("it waits");
        assert!(outcome.questions()[0].text.contains("502 bytes"), "{outcome:?}");
        let answer = Answer::performed("paid");
        assert_eq!(ended(place.thread(graph()).answer(outcome.questions()[0].id, answer).await).hint, "paid");
        assert_eq!(world.done(), 1);
    }
}

#[tokio::test]
async fn a_payload_of_a_conditional_edge_is_held_to_the_limit() {
    for place in Place::both() {
        let world = World::default();
        let graph = || {
            let each = |text: String| async move { Ok(Work::update().push_log(text)) };
            let graph = Graph::<Work>::new("g").node("work", writes(&world, 1)).node("each", each);
            graph.fan_out("work", "each", |_| [letters(200), letters(300)]).edge(START, "work").edge("each", END)
        };
        told(place.thread(graph()).update_bytes_max(301).run(Work::update()).await, "update-limit");
        // A line of the log counts ten beside its letters and quotes.
        assert_eq!(ended(place.thread(graph()).update_bytes_max(312).resume().await).log.len(), 2);
        assert_eq!(world.done(), 1);
    }
}

#[tokio::test]
async fn an_answer_and_a_question_that_are_too_large_are_refused() {
    let asks = |count: usize| {
        let work = move |ctx: Context| async move {
            let ask = Ask::<String>::new("Which?").show(&json!(letters(count)));
            Ok(Work::update().hint(ctx.ask("which", ask).await?))
        };
        one(work.into_node())
    };
    for place in Place::both() {
        told(place.thread(asks(1_000)).update_bytes_max(500).run(Work::update()).await, "update-limit");
        let outcome = place.thread(asks(100)).update_bytes_max(500).resume().await.expect("it asks");
        let question = outcome.questions()[0].id;
        let thread = place.thread(asks(100)).update_bytes_max(500);
        let refused = thread.answer(question, letters(499)).await;
        assert!(refused.as_ref().is_err_and(Error::is_answer_refused), "{refused:?}");
        told(refused, "update-limit");
        assert_eq!(ended(place.thread(asks(100)).answer(question, letters(499)).await).hint.len(), 499);
    }
}

#[tokio::test]
async fn a_step_that_makes_the_state_too_large_is_not_merged() {
    for place in Place::both() {
        let world = World::default();
        let graph = || one(writes(&world, 1_000));
        let bytes = (1_000 + STATE) as u64;
        told(place.thread(graph()).state_bytes_max(bytes - 1).run(Work::update()).await, "state-limit");
        assert_eq!(place.thread(graph()).history().await.expect("a history")[0].values.hint, "");
        assert_eq!(ended(place.thread(graph()).state_bytes_max(bytes).resume().await).hint.len(), 1_000);
        assert_eq!(world.done(), 1);
    }
}

#[tokio::test]
async fn an_input_or_an_edit_that_makes_the_state_too_large_is_refused() {
    let (graph, bytes) = (|| one((|| async { Ok(Work::update()) }).into_node()), (100 + STATE) as u64);
    for place in Place::both() {
        let thread = place.thread(graph()).state_bytes_max(bytes);
        told(thread.run(Work::update().hint(letters(101))).await, "state-limit");
        assert!(thread.state().await.expect_err("nothing is on record").is_unknown_thread());
        ended(thread.run(Work::update().hint(letters(100))).await);
        let before = thread.log().await.expect("a log").len();
        told(thread.update(Work::update().push_log(""), None).await, "state-limit");
        told(thread.run(Work::update().push_log("")).await, "state-limit");
        assert_eq!(thread.log().await.expect("a log").len(), before);
        thread.update(Work::update().hint(letters(90)).push_log("1234567"), None).await.expect("it fits");
    }
}

/// Each writes its own line, until there are `n` of them; and a hint of a hundred letters in place of the last one.
fn lines() -> GraphBuilder<Work> {
    let line = |work: View<Work>| async move { Ok(Work::update().push_log("1234567").hint(letters(100)).n(work.n + 1)) };
    Graph::<Work>::new("lines")
        .node("line", line)
        .edge(START, "line")
        .route_to("line", ["line", END], |work| if work.n < 50 { "line" } else { END })
}

/// A run that is stored as one step is held to the limit as well, and what it did is kept.
#[tokio::test]
async fn a_run_that_is_stored_at_its_end_keeps_what_it_did_before_the_limit() {
    for place in Place::both() {
        let thread = |lines_max: usize| {
            let bytes = (100 + STATE + lines_max * 10) as u64;
            place.thread(lines()).durability(Durability::Exit).state_bytes_max(bytes)
        };
        told(thread(20).run(Work::update()).await, "state-limit");
        assert_eq!(place.thread(lines()).history().await.expect("a history")[0].values.log.len(), 20);
        assert_eq!(place.thread(lines()).state().await.expect("a state").values.log.len(), 21);
        assert_eq!(ended(thread(50).resume().await).log.len(), 50);
    }
}

/// What is added up grows with each step, also by what takes the place of something. The state itself is what counts.
#[tokio::test]
async fn a_state_that_grows_step_by_step_comes_exactly_to_the_limit() {
    for place in Place::both() {
        for nth in [49, 50] {
            let bytes = (100 + STATE + nth * 10) as u64;
            let outcome = match nth {
                49 => place.thread(lines()).state_bytes_max(bytes).run(Work::update()).await,
                _ => place.thread(lines()).state_bytes_max(bytes).resume().await,
            };
            match nth {
                49 => told(outcome, "state-limit"),
                _ => assert_eq!(ended(outcome).log.len(), 50),
            }
        }
        let log = place.thread(lines()).log().await.expect("a log");
        let done = log.iter().filter(|entry| matches!(entry.record, Record::TaskDone(_))).count();
        assert_eq!(done, 50);
    }
}

#[tokio::test]
async fn the_state_of_each_graph_is_held_to_the_limit_for_itself() {
    for place in Place::both() {
        let mapped = || lines().build().expect("right").mapped(|_| Work::update(), |_, inner: &Work| Work::update().n(inner.n));
        let inside = (100 + STATE + 500) as u64;
        told(place.thread(one(mapped())).state_bytes_max(inside - 1).run(Work::update()).await, "state-limit");
        assert_eq!(ended(place.thread(one(mapped())).state_bytes_max(inside).resume().await).n, 50);
    }
    for place in Place::both() {
        // What the graph outside holds is a part of the state that it shares.
        let shared = || one(lines().build().expect("right").shared());
        let bytes = (100 + STATE + 510) as u64;
        told(place.thread(shared()).state_bytes_max(bytes - 1).run(Work::update().push_log("outside")).await, "state-limit");
        assert_eq!(ended(place.thread(shared()).state_bytes_max(bytes).resume().await).log.len(), 51);
    }
}

/// Three tasks that ask, and one that does not.
fn asking(world: &World) -> GraphBuilder<Work> {
    let mut graph = Graph::<Work>::new("asking").node("write", writes(world, 1)).edge(START, "write").edge("write", END);
    for name in ["a", "b", "c"] {
        let ask = move |ctx: Context| async move {
            Ok::<WorkUpdate, NodeError>(Work::update().push_log(ctx.ask(name, Ask::<String>::new("Well?")).await?))
        };
        graph = graph.node(name, ask).edge(START, name).edge(name, END);
    }
    graph
}

#[tokio::test]
async fn a_task_that_asks_one_question_too_many_fails_and_asks_when_there_is_room() {
    for place in Place::both() {
        let world = World::default();
        told(place.thread(asking(&world)).questions_max(2).run(Work::update()).await, "question-limit");
        let open = place.thread(asking(&world)).questions().await.expect("a thread");
        assert_eq!(open.len(), 2);
        told(place.thread(asking(&world)).questions_max(2).resume().await, "question-limit");
        let outcome = place.thread(asking(&world)).questions_max(2).answer(open[0].id, "yes").await.expect("there is room");
        assert_eq!(outcome.questions().len(), 2);
        for question in outcome.questions() {
            let _ = place.thread(asking(&world)).questions_max(2).answer(question.id, "yes").await.expect("it is taken");
        }
        assert_eq!(ended(place.thread(asking(&world)).resume().await).log, ["yes", "yes", "yes"]);
        assert_eq!(world.done(), 1);
    }
}

/// As many as may be are asked at once; with a higher limit the thread goes on, also where a graph inside asks.
#[tokio::test]
async fn questions_inside_are_questions_of_the_thread() {
    for place in Place::both() {
        let world = World::default();
        let graph = || one(asking(&world).build().expect("right").shared());
        told(place.thread(graph()).questions_max(2).run(Work::update()).await, "question-limit");
        let outcome = place.thread(graph()).questions_max(3).resume().await.expect("it asks");
        assert_eq!(outcome.questions().len(), 3);
        let answers = outcome.questions().iter().map(|question| (question.id, "yes"));
        ended(place.thread(graph()).answer_all(answers).await);
        assert_eq!(world.done(), 1);
    }
}

/// A result that breaks a rule goes to a person, however many questions are open.
#[tokio::test]
async fn what_is_asked_about_results_is_always_asked() {
    let [place, _] = Place::both();
    let world = World::default();
    let never = |_: &Work, _: &Work| Err::<(), _>("no");
    let graph = || {
        let graph = asking(&world).node("breaks", writes(&world, 1).verify(never).rounds(1));
        graph.edge(START, "breaks").edge("breaks", END)
    };
    let outcome = place.thread(graph()).questions_max(3).run(Work::update()).await;
    let outcome = outcome.expect("it asks");
    assert_eq!(outcome.questions().len(), 4);
    let violation = outcome.questions().iter().find(|question| &*question.key == "violation").expect("it is asked");
    let _ = place.thread(graph()).answer(violation.id, Approval::approve()).await.expect("it is taken");
}

/// More than the loop's queue takes: whoever comes too many waits, and nobody waits for ever.
#[tokio::test]
async fn a_node_may_do_more_at_once_than_a_queue_takes() {
    let world = World::default();
    let graph = || {
        let world = world.clone();
        let work = move |ctx: Context| {
            let world = world.clone();
            async move {
                let mut all = tokio::task::JoinSet::new();
                for n in 0..6_000 {
                    let (ctx, world) = (ctx.clone(), world.clone());
                    let act = move |_key| async move { Ok(world.act()) };
                    all.spawn(async move { ctx.effect(&n.to_string(), act).repeatable().await });
                }
                while let Some(done) = all.join_next().await {
                    done?.map(drop)?;
                }
                Ok(Work::update().n(1))
            }
        };
        one(work.into_node())
    };
    let [place, _] = Place::both();
    ended(place.thread(graph()).run(Work::update()).await);
    assert_eq!(world.done(), 6_000);
}

#[tokio::test]
async fn a_limit_of_nothing_is_told() {
    let [place, _] = Place::both();
    let world = World::default();
    let thread = || place.thread(asking(&world));
    let zero = [
        (thread().step_tasks_max(0), "step_tasks_max"),
        (thread().update_bytes_max(0), "update_bytes_max"),
        (thread().state_bytes_max(0), "state_bytes_max"),
        (thread().questions_max(0), "questions_max"),
    ];
    for (thread, name) in zero {
        for result in [thread.run(Work::update()).await.map(drop), thread.update(Work::update(), None).await] {
            let error = result.expect_err("nothing gets through");
            assert!(error.code() == "limit-zero" && error.to_string().contains(name), "{error}");
        }
        assert!(thread.state().await.expect_err("nothing is on record").is_unknown_thread());
    }
}
