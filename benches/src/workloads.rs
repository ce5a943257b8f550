//! The workloads. Each one checks its final state.

use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ferrata::{BuildError, END, Graph, Route, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Measured, now, runner, seconds_since};

pub(crate) type Problem = Box<dyn Error + Send + Sync>;
pub(crate) type Outcome = Result<Measured, Problem>;

#[derive(Route)]
enum Next {
    Work,
    End,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Counter {
    n: u64,
    limit: u64,
}

fn counter_graph() -> Result<Graph<Counter>, BuildError> {
    Graph::<Counter>::new("counter")
        .node("work", |s: View<Counter>| async move { Ok(Counter::update().n(s.n + 1)) })
        .edge(START, "work")
        .route("work", |s: &Counter| if s.n < s.limit { Next::Work } else { Next::End })
        .build()
}

/// The yardstick: a task spawned and awaited, N times.
pub(crate) async fn spawned(n: u64) -> Outcome {
    let start = now();
    let mut sum = 0;
    for number in 0..n {
        sum += tokio::spawn(async move { number }).await?;
    }
    assert_eq!(sum, n * n.saturating_sub(1) / 2);
    Ok(Measured { steps: n, wall_s: seconds_since(start), first100_us: None, last100_us: None })
}

pub(crate) async fn counter(variant: &str, n: u64, dir: &Path) -> Outcome {
    let warm = runner(counter_graph()?, "none", dir)?;
    warm.thread("warm").run(Counter::update().limit(20_u64)).await?.done();
    let runner = runner(counter_graph()?, variant, dir)?;
    let start = now();
    let state = runner.thread("t0").steps_max(n + 1).run(Counter::update().limit(n)).await?.done().ok_or("not done")?;
    let wall_s = seconds_since(start);
    assert_eq!(state.n, n);
    Ok(Measured { steps: n, wall_s, first100_us: None, last100_us: None })
}

pub(crate) async fn many(variant: &str, threads: u64, dir: &Path) -> Outcome {
    let runner = runner(counter_graph()?, variant, dir)?;
    let start = now();
    let runs: Vec<_> = (0..threads)
        .map(|number| {
            let thread = runner.thread(&format!("t{number:04}"));
            tokio::spawn(async move { thread.run(Counter::update().limit(10_u64)).await })
        })
        .collect();
    for run in runs {
        let state = run.await??.done().ok_or("not done")?;
        assert_eq!(state.n, 10);
    }
    Ok(Measured { steps: threads * 10, wall_s: seconds_since(start), first100_us: None, last100_us: None })
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Said {
    role: String,
    content: String,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Chat {
    #[state(append)]
    messages: Vec<Said>,
}

pub(crate) async fn chat(variant: &str, n: u64, dir: &Path) -> Outcome {
    let said: Arc<Vec<Said>> = Arc::new((0..n).map(message).collect());
    let entered: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (messages, stamps) = (Arc::clone(&said), Arc::clone(&entered));
    let say = move |s: View<Chat>| {
        stamps.lock().unwrap_or_else(PoisonError::into_inner).push(now());
        let message = messages[s.messages.len()].clone();
        async move { Ok(Chat::update().message(message)) }
    };
    let limit = usize::try_from(n)?;
    let graph = Graph::<Chat>::new("chat")
        .node("work", say)
        .edge(START, "work")
        .route("work", move |s: &Chat| if s.messages.len() < limit { Next::Work } else { Next::End })
        .build()?;
    let runner = runner(graph, variant, dir)?;
    let start = now();
    let state = runner.thread("t0").steps_max(n + 1).run(Chat::update()).await?.done().ok_or("not done")?;
    let wall_s = seconds_since(start);
    assert_eq!(state.messages.len(), limit);
    let entered = entered.lock().unwrap_or_else(PoisonError::into_inner);
    let mean = |from: usize, to: usize| (entered[to] - entered[from]).as_secs_f64() * 1e6 / (to - from) as f64;
    let (first100_us, last100_us) =
        if limit > 200 { (Some(mean(0, 100)), Some(mean(limit - 101, limit - 1))) } else { (None, None) };
    Ok(Measured { steps: n, wall_s, first100_us, last100_us })
}

fn message(i: u64) -> Said {
    let role = if i.is_multiple_of(2) { "user" } else { "assistant" };
    Said { role: role.to_owned(), content: format!("{i:08}") + &letters(i + 1, 392) }
}

/// So many letters from a seed.
pub(crate) fn letters(seed: u64, len: u64) -> String {
    let mut x = seed;
    let letter = |_| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((x >> 33) % 26).unwrap_or(0))
    };
    (0..len).map(letter).collect()
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Sum {
    items: Vec<u64>,
    #[state(append)]
    results: Vec<u64>,
    total: u64,
}

pub(crate) async fn fan_out(variant: &str, n: u64, dir: &Path) -> Outcome {
    let graph = Graph::<Sum>::new("sum")
        .node("seed", move |_: View<Sum>| async move { Ok(Sum::update().items((0..n).collect::<Vec<_>>())) })
        .fan_out("seed", "work", |s: &Sum| s.items.clone())
        .node("work", |x: u64| async move { Ok(Sum::update().result(2 * x)) })
        .node("reduce", |s: View<Sum>| async move { Ok(Sum::update().total(s.results.iter().sum::<u64>())) })
        .edge(START, "seed")
        .edge("work", "reduce")
        .edge("reduce", END)
        .build()?;
    let runner = runner(graph, variant, dir)?;
    let start = now();
    let state = runner.thread("t0").run(Sum::update()).await?.done().ok_or("not done")?;
    let wall_s = seconds_since(start);
    assert_eq!(state.total, n * (n - 1));
    Ok(Measured { steps: n, wall_s, first100_us: None, last100_us: None })
}
