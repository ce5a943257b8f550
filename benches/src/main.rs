//! `peer WORKLOAD none|mem|redb N DIR`: one workload in one process, one JSON line.
//!
//! w0: N tasks spawned and awaited one after the other, without the engine: what the machine can do today. w1: a loop of N steps. w2: N messages of 400 bytes, one a step. w3: N sends in one step. w4: N threads of 10 steps each.
//! A step is one execution of a node. The timed region starts before the first run and ends when the last one returned.

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
pub(crate) fn runner<S: StaticState>(
    graph: Graph<S>,
    variant: &str,
    dir: &Path,
) -> Result<Runner<S>, Box<dyn std::error::Error>> {
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

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [workload, variant, n, dir] = &*arguments else {
        return Err("usage: peer w0|w1|w2|w3|w4 none|mem|redb N DIR".into());
    };
    let (n, dir) = (n.parse::<u64>()?, Path::new(dir));
    std::fs::create_dir_all(dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let variant_owned = variant.clone();
    let dir_owned = dir.to_owned();
    let workload_owned = workload.clone();
    let (written_before, cpu_before) = (proc_field("/proc/self/io", "wchar:"), cpu_ticks());
    // Spawned, so that the runs are on a worker and not on the thread that only waits.
    let measured = runtime.block_on(async move {
        let run = async move {
            match workload_owned.as_str() {
                "w0" => workloads::spawned(n).await,
                "w1" => workloads::counter(&variant_owned, n, &dir_owned).await,
                "w2" => workloads::chat(&variant_owned, n, &dir_owned).await,
                "w3" => workloads::fan_out(&variant_owned, n, &dir_owned).await,
                "w4" => workloads::many(&variant_owned, n, &dir_owned).await,
                other => Err(format!("there is no workload {other}; use w0, w1, w2, w3 or w4").into()),
            }
            .map_err(|error| error.to_string())
        };
        tokio::spawn(run).await
    })??;
    let steps = measured.steps as f64;
    let store_bytes = std::fs::metadata(dir.join("peer.redb")).map(|m| m.len()).ok();
    let line = json!({
        "peer": "ours", "workload": workload, "variant": variant, "n": n, "steps": measured.steps, "wall_s": measured.wall_s,
        "us_per_step": measured.wall_s * 1e6 / steps,
        "cpu_us_per_step": (cpu_ticks() - cpu_before) as f64 * 1e4 / steps,
        "rss_peak_kb": proc_field("/proc/self/status", "VmHWM:"),
        "wchar_per_step": (proc_field("/proc/self/io", "wchar:") - written_before) as f64 / steps,
        "store_bytes": store_bytes, "first100_us": measured.first100_us, "last100_us": measured.last100_us,
    });
    println!("{line}");
    Ok(())
}

fn proc_field(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// User and system time of the process in hundredths of a second.
fn cpu_ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [11, 12].iter().filter_map(|place| fields.get(*place).and_then(|n| n.parse::<u64>().ok())).sum()
}
