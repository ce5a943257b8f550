//! Resuming a thread in a new process.

use std::path::Path;

use ferrata::{END, Graph, Outcome, Route, Runner, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::workloads::letters;
use crate::{now, proc_field, runner, seconds_since};

use crate::workloads::Problem;

type Result<T> = std::result::Result<T, Problem>;

/// Bytes of other threads in a large store, and of each of them.
const OTHERS_BYTES: u64 = 1_000_000_000;
const OTHER_BYTES: u64 = 50_000;
/// How many of them are written at once.
const AT_ONCE: u64 = 200;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Counter {
    n: u64,
    limit: u64,
    text: String,
}

#[derive(Route)]
enum Next {
    Inc,
    Final,
}

fn graph(at_final: impl Fn() + Send + Sync + 'static) -> Result<Graph<Counter>> {
    let last = move |_: View<Counter>| {
        at_final();
        async move { Ok(Counter::update()) }
    };
    Ok(Graph::<Counter>::new("resume")
        .node("inc", |s: View<Counter>| async move { Ok(Counter::update().n(s.n + 1)) })
        .node("final", last)
        .edge(START, "inc")
        .route("inc", |s: &Counter| if s.n < s.limit { Next::Inc } else { Next::Final })
        .edge("final", END)
        .build()?)
}

/// A thread of so many steps that stands before its last node.
pub(crate) async fn prepare(variant: &str, steps: u64, dir: &Path) -> Result<()> {
    until_final(&runner(graph(|| ())?, variant, dir)?, steps).await
}

async fn until_final(runner: &Runner<Counter>, steps: u64) -> Result<()> {
    let outcome = runner.thread("t0").steps_max(steps + 2).pause_before(["final"]).run(Counter::update().limit(steps)).await?;
    if matches!(outcome, Outcome::Suspended(_)) { Ok(()) } else { Err("it did not stop before its last node".into()) }
}

/// The same in a store with 1 GB of other threads, and the process dies without closing it.
pub(crate) async fn prepare_and_abort(variant: &str, steps: u64, dir: &Path) -> Result<()> {
    let runner = runner(graph(|| ())?, variant, dir)?;
    for first in (0..OTHERS_BYTES / OTHER_BYTES).step_by(AT_ONCE as usize) {
        let runs = (first..first + AT_ONCE).map(|number| {
            let (thread, text) = (runner.thread(&format!("other-{number:06}")), letters(number + 1, OTHER_BYTES));
            tokio::spawn(async move { thread.run(Counter::update().text(text)).await.map(drop) })
        });
        for run in runs.collect::<Vec<_>>() {
            run.await??;
        }
    }
    until_final(&runner, steps).await?;
    std::process::abort()
}

/// Opens the store, resumes, and tells when the last node began.
pub(crate) async fn resume(variant: &str, steps: u64, dir: &Path) -> Result<()> {
    let began = now();
    let place = dir.to_owned();
    let name = variant.to_owned();
    let tell = move |in_final: u64, ms: f64, rss: u64| {
        let spawned = std::env::var("BENCH_T0").ok().and_then(|t| t.parse::<u64>().ok()).unwrap_or(in_final);
        println!(
            "{}",
            json!({"peer": "ours", "workload": "w5", "variant": name, "n": steps, "steps": 1,
                "wall_s": (in_final - spawned) as f64 / 1e9, "open_to_node_ms": ms, "rss_peak_kb": rss,
                "store_bytes": crate::tree_bytes(&place)})
        );
    };
    let at_final = move || tell(monotonic_ns(), seconds_since(began) * 1e3, proc_field("/proc/self/status", "VmHWM:"));
    let state = runner(graph(at_final)?, variant, dir)?.thread("t0").resume().await?.done().ok_or("not done")?;
    if state.n == steps { Ok(()) } else { Err(format!("{} steps, not {steps}", state.n).into()) }
}

/// The clock that whoever spawned this process read.
fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
