//! Threads that sleep: what they take while nothing happens, and how soon one that is due goes on.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::clock::{Clock, SystemClock, Timestamp};
use ferrata::store::{RedbOptions, RedbStore};
use ferrata::{Context, END, Graph, Runner, START, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinSet;

use crate::workloads::Problem;
use crate::{cpu_ticks, proc_field};

/// How much of the store is kept in memory, in bytes.
const CACHE: usize = 16 << 20;
/// How many threads are begun at once.
const AT_ONCE: usize = 1_000;
/// How many are woken, one after the other.
const WOKEN: u64 = 50;
const IDLE: Duration = Duration::from_secs(20);

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Sleeper {
    until: u64,
}

/// By how many milliseconds sleepers woke up late.
type Late = Arc<Mutex<Vec<u64>>>;

fn graph(late: &Late) -> Result<Graph<Sleeper>, Problem> {
    let late = Arc::clone(late);
    let sleep = move |state: ferrata::View<Sleeper>, ctx: Context| {
        let late = Arc::clone(&late);
        async move {
            ctx.sleep_until(Timestamp(state.until)).await?;
            late.lock().expect("no panic").push(SystemClock.now().ms_since(Timestamp(state.until)));
            Ok(Sleeper::update())
        }
    };
    Ok(Graph::<Sleeper>::new("sleepers").node("sleep", sleep).edge(START, "sleep").edge("sleep", END).build()?)
}

fn open(dir: &Path, late: &Late) -> Result<Runner<Sleeper>, Problem> {
    let store: RedbStore = RedbOptions::new().cache_bytes(CACHE).open(dir.join("peer.redb"))?;
    Ok(Runner::new(graph(late)?, store))
}

/// Puts `n` threads to sleep for a day.
pub(crate) async fn prepare(n: u64, dir: &Path) -> Result<(), Problem> {
    let runner = open(dir, &Late::default())?;
    let tomorrow = SystemClock.now().0 + 86_400_000;
    let mut threads = JoinSet::new();
    for number in 0..n {
        if threads.len() >= AT_ONCE {
            threads.join_next().await.ok_or("there is one")???;
        }
        let thread = runner.thread(&format!("sleeper-{number:06}"));
        threads.spawn(async move { thread.run(Sleeper::update().until(tomorrow)).await.map(|_| ()) });
    }
    while let Some(ended) = threads.join_next().await {
        ended??;
    }
    Ok(())
}

/// Supervises them in a new process: first while nothing happens, then with some that are due.
pub(crate) async fn supervise(dir: &Path) -> Result<(), Problem> {
    let late = Late::default();
    let before = proc_field("/proc/self/status", "VmRSS:");
    let runner = open(dir, &late)?;
    let supervisor = runner.supervise().start().await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let cpu = cpu_ticks();
    tokio::time::sleep(IDLE).await;
    let (idle_cpu, idle_rss) = (cpu_ticks() - cpu, proc_field("/proc/self/status", "VmRSS:"));
    for number in 0..WOKEN {
        let until = SystemClock.now().0 + 100;
        let _ = runner.thread(&format!("woken-{number}")).run(Sleeper::update().until(until)).await?;
        while late.lock().expect("no panic").len() <= usize::try_from(number)? {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let mut late = late.lock().expect("no panic").clone();
    late.sort_unstable();
    let line = json!({
        "workload": "s1", "rss_before_kb": before, "rss_idle_kb": idle_rss, "rss_peak_kb": proc_field("/proc/self/status", "VmHWM:"),
        "cpu_idle_ms_per_s": idle_cpu as f64 * 10.0 / IDLE.as_secs_f64(),
        "late_ms_median": late[late.len() / 2], "late_ms_max": late[late.len() - 1], "store_bytes": crate::tree_bytes(dir),
    });
    println!("{line}");
    supervisor.drain(Duration::from_secs(5)).await;
    Ok(())
}
