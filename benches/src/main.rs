//! `peer WORKLOAD none|mem|redb N DIR`: one workload in one process, one JSON line.
//!
//! w0: N tasks spawned and awaited one after the other, without the engine: what the machine can do today. w1: a loop of N steps. w2: N messages of 400 bytes, one a step. w3: N sends in one step. w4: N threads of 10 steps each.
//! w5prep, w5: a thread of N steps, and resuming it in a new process; w5abort prepares it beside 1 GB of other threads, and dies. w6: N steps with 1 MB of state.
//! c1: N checks whether one more message fits into a thread of 10,000. c2: N contexts of 128k tokens made of such a thread.
//! c3: N streamed answers, and how long their first token takes to whoever watches the run, over a bare client.
//! s1prep, s1: N threads that sleep, and a new process that supervises them: what it takes while nothing happens, and how late one is that is due.
//! A step is one execution of a node. The timed region starts before the first run and ends when the last one returned.

mod context;
mod resume;
mod sleepers;
mod stream;
mod wide;
mod workloads;

use std::path::Path;
use std::time::Instant;

use ferrata::store::{MemoryStore, RedbStore};
use ferrata::{Graph, Runner, StaticState};
use serde_json::json;

/// What a workload reports beside its time.
pub(crate) struct Measured {
    steps: u64,
    wall_s: f64,
    first100_us: Option<f64>,
    last100_us: Option<f64>,
}

/// A runner in the variant that was asked for.
pub(crate) fn runner<S: StaticState>(graph: Graph<S>, variant: &str, dir: &Path) -> Result<Runner<S>, workloads::Problem> {
    Ok(match variant {
        "none" => Runner::without_store(graph),
        "mem" => Runner::new(graph, MemoryStore::new()),
        "redb" => Runner::new(graph, RedbStore::open(dir.join("peer.redb"))?),
        other => return Err(format!("there is no variant {other}; use none, mem or redb").into()),
    })
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn seconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64()
}

fn main() -> Result<(), workloads::Problem> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [workload, variant, n, dir] = &*arguments else {
        return Err("usage: peer w0|w1|w2|w3|w4|w5prep|w5abort|w5|w6|c1|c2|c3|s1prep|s1 none|mem|redb N DIR".into());
    };
    let (n, dir) = (n.parse::<u64>()?, Path::new(dir));
    std::fs::create_dir_all(dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (written_before, cpu_before) = (proc_field("/proc/self/io", "wchar:"), cpu_ticks());
    let (named, place, kind) = (workload.clone(), dir.to_owned(), variant.clone());
    // Spawned, so that the runs are on a worker and not on the thread that only waits.
    let run = async move { perform(&named, &kind, n, &place).await };
    let Some(measured) = runtime.block_on(async move { tokio::spawn(run).await })?? else { return Ok(()) };
    let steps = measured.steps as f64;
    let line = json!({
        "peer": "ours", "workload": workload, "variant": variant, "n": n, "steps": measured.steps, "wall_s": measured.wall_s,
        "us_per_step": measured.wall_s * 1e6 / steps,
        "cpu_us_per_step": (cpu_ticks() - cpu_before) as f64 * 1e4 / steps,
        "rss_peak_kb": proc_field("/proc/self/status", "VmHWM:"),
        "wchar_per_step": (proc_field("/proc/self/io", "wchar:") - written_before) as f64 / steps,
        "store_bytes": tree_bytes(dir), "first100_us": measured.first100_us, "last100_us": measured.last100_us,
    });
    println!("{line}");
    Ok(())
}

/// Runs a workload. One that reports for itself, or prepares another one, measures nothing here.
async fn perform(workload: &str, variant: &str, n: u64, dir: &Path) -> Result<Option<Measured>, workloads::Problem> {
    Ok(Some(match workload {
        "w0" => workloads::spawned(n).await?,
        "w1" => workloads::counter(variant, n, dir).await?,
        "w2" => workloads::chat(variant, n, dir).await?,
        "w3" => workloads::fan_out(variant, n, dir).await?,
        "w4" => workloads::many(variant, n, dir).await?,
        "w6" => wide::wide(variant, n, dir).await?,
        "c1" => context::checks(n),
        "c2" => context::contexts(n)?,
        "c3" => stream::first_token(variant, n, dir).await?,
        "s1prep" => return sleepers::prepare(n, dir).await.map(|()| None),
        "s1" => return sleepers::supervise(dir).await.map(|()| None),
        "w5prep" => return resume::prepare(variant, n, dir).await.map(|()| None),
        "w5abort" => return resume::prepare_and_abort(variant, n, dir).await.map(|()| None),
        "w5" => return resume::resume(variant, n, dir).await.map(|()| None),
        other => return Err(format!("there is no workload {other}").into()),
    }))
}

/// Bytes of all files in a folder.
pub(crate) fn tree_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |path: std::path::PathBuf| if path.is_dir() { tree_bytes(&path) } else { path.metadata().map_or(0, |m| m.len()) };
    entries.map(|entry| bytes(entry.path())).sum()
}

pub(crate) fn proc_field(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// User and system time of the process in hundredths of a second.
pub(crate) fn cpu_ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].iter().filter_map(|place| fields.get(*place).and_then(|n| n.parse::<u64>().ok())).sum()
}
