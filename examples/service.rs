//! A service with a supervisor: it goes on with what a process that died left behind, tells of what goes wrong, and ends in order on SIGTERM.
//!
//! ```sh
//! cargo run --example service -- --store /tmp/service.redb --ledger /tmp/service.txt   # kill -9, kill, or Ctrl-C, and again
//! ```
//!
//! ```text
//! START -> prepare -> charge -> deliver -> END        `charge` and `deliver` do something to the world, which is the ledger
//! ```
//!
//! It prints a line of JSON for each notice, and when it ends one for what became of the runs. Whoever sits at the keyboard can answer a question:
//! `approve THREAD`, `reject THREAD`, `performed THREAD`, `missing THREAD`.
//!
//! | option | meaning | default |
//! | --- | --- | --- |
//! | `--store FILE`, `--ledger FILE` | where the threads are kept, and where all that happens is written down | |
//! | `--threads N` | how many threads there are at least: `job-0` and so on | 20 |
//! | `--step-ms N` | how long a step takes | 200 |
//! | `--patience-ms N` | how long a step may give no sign of life | 600000 |
//! | `--drain-ms N` | how long steps have to end on SIGTERM, before they are cut off | 10000 |
//! | `--deaths-max N` | after how many deaths of its process a thread is given up | 3 |
//! | `--ask` | a person is asked about an effect in doubt; without it the ledger is looked up | |
//! | `--poison`, `--hang`, `--block THREAD` | in its `charge` that thread aborts the process, hangs for ever, blocks its thread of the runtime for ever | |
//!
//! Exit code 0: no thread has anything left to do, or it was told to end; 1: an error; 2: options that make no sense.

mod service_cli {
    pub(crate) mod keyboard;
    pub(crate) mod options;
}

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ferrata::store::{RedbStore, ThreadQuery, ThreadStatus};
use ferrata::{
    BuildError, Context, Dep, END, Graph, NodeError, Notice, Notifier, Notifying, Performed, Recovery, Runner, START, State, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use service_cli::keyboard;
use service_cli::options::Options;
use tokio::task::JoinSet;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
struct Job {
    number: u64,
    #[state(append)]
    log: Vec<String>,
}

/// What the nodes work with: a file in which each line is one write to its end, and what was asked for on the command line.
#[derive(Debug)]
struct Works {
    ledger: File,
    options: Options,
}

impl Works {
    fn write(&self, line: &Value) -> Result<(), NodeError> {
        // A line that a kill has torn ends where this one begins.
        (&self.ledger).write_all(format!("\n{line}\n").as_bytes()).map_err(NodeError::from)
    }

    async fn pause(&self) {
        tokio::time::sleep(self.options.step / 2).await;
    }

    fn begin(&self, ctx: &Context) -> Result<(), NodeError> {
        self.write(&json!({"begins": ctx.task().to_string(), "thread": ctx.thread(), "attempt": ctx.attempt()}))
    }

    /// An effect: it happens in the middle of its time, so that it may or may not have happened when it is cut off.
    async fn act(&self, ctx: &Context, what: &str, key: String) -> ferrata::Result<String> {
        self.pause().await;
        self.write(&json!({"performs": key, "thread": ctx.thread(), "what": what})).map_err(NodeError::not_performed)?;
        self.pause().await;
        Ok(receipt(&key))
    }

    /// Nothing that an earlier process began comes to the ledger any more.
    async fn look_up(&self, key: &str) -> ferrata::Result<Performed<String>> {
        let ledger = std::fs::read_to_string(&self.options.ledger)?;
        let is_there = ledger.contains(&format!("\"performs\":\"{key}\""));
        Ok(if is_there { Performed::Yes(receipt(key)) } else { Performed::No })
    }

    /// The misfortune of a thread, if it has one.
    async fn suffer(&self, ctx: &Context) {
        let Options { poison, hang, block, .. } = &self.options;
        let is_about = |name: &Option<String>| name.as_deref() == Some(ctx.thread().as_str());
        if is_about(poison) {
            std::process::abort();
        }
        if is_about(hang) {
            std::future::pending::<()>().await;
        }
        if is_about(block) {
            loop {
                std::thread::park();
            }
        }
    }
}

fn receipt(key: &str) -> String {
    format!("receipt for {key}")
}

async fn prepare(ctx: Context, works: Dep<Arc<Works>>) -> ferrata::Result<JobUpdate> {
    works.begin(&ctx)?;
    works.pause().await;
    Ok(Job::update().push_log("prepared"))
}

async fn charge(job: View<Job>, ctx: Context, works: Dep<Arc<Works>>) -> ferrata::Result<JobUpdate> {
    works.begin(&ctx)?;
    works.suffer(&ctx).await;
    once(&job, &ctx, &works, "charge").await
}

async fn deliver(job: View<Job>, ctx: Context, works: Dep<Arc<Works>>) -> ferrata::Result<JobUpdate> {
    works.begin(&ctx)?;
    once(&job, &ctx, &works, "deliver").await
}

/// Does something to the world, at most once.
async fn once(job: &Job, ctx: &Context, works: &Works, what: &str) -> ferrata::Result<JobUpdate> {
    let effect = ctx.effect(what, |key| works.act(ctx, what, key)).arguments(&job.number);
    let done = match works.options.asks {
        true => effect.await?,
        false => effect.check(|key| async move { works.look_up(&key).await }).await?,
    };
    Ok(Job::update().push_log(done))
}

fn graph() -> Result<Graph<Job>, BuildError> {
    Graph::<Job>::new("service")
        .node("prepare", prepare)
        .node("charge", charge)
        .node("deliver", deliver)
        .edge(START, "prepare")
        .edge("prepare", "charge")
        .edge("charge", "deliver")
        .edge("deliver", END)
        .build()
}

/// Prints what there is to tell.
#[derive(Debug)]
struct Lines;

impl Notifier for Lines {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn notify<'n>(&'n self, notice: &'n Notice) -> Notifying<'n> {
        println!("{}", json!(notice));
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Begins what is not there yet; the supervisor goes on with the rest.
async fn begin(runner: Runner<Job>, number: u64) {
    let thread = runner.thread(&format!("job-{number}"));
    if thread.state().await.is_err_and(|error| error.is_unknown_thread())
        && let Err(error) = thread.run_once(Job::update().number(number)).await
    {
        eprintln!("job-{number}: {}: {error}", error.code());
    }
}

/// Whether a thread has something to do, or waits for somebody.
async fn is_busy(runner: &Runner<Job>) -> Result<bool, ferrata::Error> {
    let statuses = [ThreadStatus::Running, ThreadStatus::Ready, ThreadStatus::Waiting, ThreadStatus::Outside];
    let query = statuses.into_iter().fold(ThreadQuery::new().limit(1), ThreadQuery::status);
    Ok(!runner.threads(query).await?.is_empty())
}

async fn serve(options: Options) -> Result<(), Box<dyn Error>> {
    let store = RedbStore::open(&options.store)?;
    let ledger = OpenOptions::new().create(true).append(true).open(&options.ledger)?;
    let (threads, patience, drain) = (options.threads, options.patience, options.drain);
    let recovery = Recovery::default().deaths_max(options.deaths_max);
    let runner = Runner::new(graph()?, store).provide(Arc::new(Works { ledger, options }));
    let told_to_end = told_to_end()?;
    tokio::pin!(told_to_end);
    let supervisor = runner.supervise().notify(Lines).patience(Some(patience)).recovery(recovery).start().await?;
    let mut work: JoinSet<()> = (0..threads).map(|number| begin(runner.clone(), number)).collect();
    let (mut typed, mut tick) = (keyboard::lines(), tokio::time::interval(Duration::from_millis(20)));
    loop {
        tokio::select! {
            () = &mut told_to_end => break,
            Some(line) = typed.recv() => {
                work.spawn(keyboard::answer(runner.clone(), line));
            }
            _ = tick.tick() => {
                while work.try_join_next().is_some() {}
                if work.is_empty() && !is_busy(&runner).await? {
                    break;
                }
            }
        }
    }
    let down = supervisor.drain(drain).await;
    println!("{}", json!({"ended": down.ended, "cut": down.cut, "stuck": down.stuck}));
    Ok(())
}

/// SIGTERM, or Ctrl-C at the keyboard.
fn told_to_end() -> std::io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    #[cfg(unix)]
    let terminated = async move { _ = terminate.recv().await };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    Ok(async move {
        tokio::select! {
            () = terminated => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    })
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return Ok(ExitCode::from(2));
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    let served = runtime.block_on(serve(options));
    // A node that blocks its thread does not keep the program from ending.
    runtime.shutdown_background();
    if let Err(error) = served {
        eprintln!("{error}");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
