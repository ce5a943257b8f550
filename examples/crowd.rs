//! Two hundred threads of one graph at once, over one store: a crowd that can be killed at any moment and goes on.
//!
//! ```sh
//! cargo run --example crowd -- --store /tmp/crowd.redb --ledger /tmp/crowd.txt --rounds 3   # Ctrl-C or kill -9, and again
//! ```
//!
//! ```text
//! START -> plan -> pay, look, ask around, read one to three pages --> gather -> polish, one to three times --> file -> END
//!                                                                                       |`-> review -> inside -> file
//!                                                                                       `--> inside: stamp -> file
//! ```
//!
//! What a thread does depends on its number: some ask in the middle of a node, some at a question node, some run a graph inside, some fail
//! once and are tried again. All pay, which must not happen twice, after a look at the price, which may. Nobody sits here to answer: the program
//! does it, and what an effect in doubt has done it looks up in the ledger by the effect's key, as a person would at the bank.
//!
//! | option | meaning | default |
//! | --- | --- | --- |
//! | `--store FILE` | where the threads are kept | |
//! | `--ledger FILE` | where all that happens is written down, whatever the store knows of it | |
//! | `--threads N` | how many threads | 200 |
//! | `--rounds N` | how often each thread gets an input; one that has had more ends the round that it is in | 1 |
//! | `--halt PLACE:N` | for tests: stands still when it comes for the N-th time to `before:KIND` or `after:KIND` of record, `effect`, `repeatable`, `written`, `sync` or `synced` | |
//! | `--check` | verifies the store and all threads, and does nothing else | |
//!
//! Exit code 0: all are through, or all is well; 1: an error, or a fault that `--check` has found.

mod crowd_cli {
    pub(crate) mod ledger;
    pub(crate) mod line;
    pub(crate) mod options;
    pub(crate) mod watched;
}

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crowd_cli::ledger::Ledger;
use crowd_cli::line::{Line, digest};
use crowd_cli::options::Options;
use crowd_cli::watched::Watched;
use ferrata::store::ThreadQuery;
use ferrata::{
    Answer, Approval, Ask, BuildError, Context, Dep, END, Graph, IntoNode, NodeError, Outcome, Question, Retry, Runner, START,
    State, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
struct Job {
    /// Which thread it is, from 0.
    number: u64,
    /// Which input it works on, from 1.
    round: u64,
    polished: u64,
    /// Larger than what is kept in records, for some.
    scan: String,
    #[state(append)]
    log: Vec<String>,
}

type World = Dep<Arc<Ledger>>;
type Failed = Box<dyn Error + Send + Sync>;

const RETRY: Retry = Retry::transient(3).first_delay(Duration::from_millis(1));

fn graph() -> Result<Graph<Job>, BuildError> {
    let inside = Graph::<Job>::new("inside").node("open", step).node("stamp", stamp).node("close", step);
    let inside = inside.edge(START, "open").edge("open", "stamp").edge("stamp", "close").edge("close", END).build()?;
    let graph = Graph::<Job>::new("crowd")
        .node("plan", plan)
        .node("pay", pay.retry(RETRY))
        .node("look", look.retry(RETRY).on_error(looked_in_vain.leads_to(["gather"])))
        .node("ask_around", ask_around)
        .node("gather", step)
        .node("polish", polish)
        .question("review", |job: &Job| Approval::ask("Is it good?").show(&approves(job)))
        .refused("review", |job: &Job, reason| Job::update().push_log(format!("{} {reason}", job.round)))
        .node("inside", inside.shared())
        .node("file", file)
        .node("read", read);
    ["pay", "look", "ask_around"]
        .iter()
        .fold(graph, |graph, node| graph.edge("plan", node).edge(node, "gather"))
        .edge(START, "plan")
        .fan_out("plan", "read", |job: &Job| 0..=job.number % 3)
        .edge("read", "gather")
        .edge("gather", "polish")
        .route_to("polish", ["polish", "review", "inside", "file"], |job: &Job| match job.number % 4 {
            _ if job.polished <= job.number % 3 => "polish",
            0 => "review",
            2 => "inside",
            _ => "file",
        })
        .approved("review", "inside")
        .rejected("review", "file")
        .edge("inside", "file")
        .edge("file", END)
        .build()
}

/// What the question node is answered.
fn approves(job: &Job) -> bool {
    !job.round.is_multiple_of(3)
}

/// A node has begun. It takes a little while, now and then.
async fn begin(ctx: &Context, world: &World) {
    let (thread, task) = (ctx.thread().to_string(), ctx.task().to_string());
    let ms = task.bytes().map(u64::from).sum::<u64>() % 4;
    world.write(&Line::Starts { thread, task });
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

fn note(job: &Job, what: impl std::fmt::Display) -> JobUpdate {
    Job::update().push_log(format!("{} {what}", job.round))
}

async fn step(job: View<Job>, ctx: Context, world: World) -> ferrata::Result<JobUpdate> {
    begin(&ctx, &world).await;
    Ok(note(&job, ctx.node()))
}

async fn plan(job: View<Job>, ctx: Context, world: World) -> ferrata::Result<JobUpdate> {
    begin(&ctx, &world).await;
    Ok(note(&job, "plan").polished(0))
}

/// Does something to the world. Its result tells which thread and round it was for.
async fn perform(ctx: &Context, world: &World, job: &Job, what: &str, key: String, repeatable: bool) -> ferrata::Result<String> {
    let (thread, result) = (ctx.thread().to_string(), format!("{what} {}", job.round));
    let effect = format!("{what} of {}", ctx.task());
    world.perform(Line::Performs { thread, effect, key, result: result.clone(), repeatable });
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok(result)
}

async fn pay(job: View<Job>, ctx: Context, world: World) -> ferrata::Result<JobUpdate> {
    begin(&ctx, &world).await;
    let quote = |key| perform(&ctx, &world, &job, "quote", key, true);
    ctx.effect("quote", quote).repeatable().await?;
    let charge = |key| async {
        if job.number.is_multiple_of(7) && ctx.attempt() == 1 {
            return Err(NodeError::new("the bank is closed for lunch").transient().not_performed());
        }
        perform(&ctx, &world, &job, "charge", key, false).await
    };
    let receipt: String = ctx.effect("charge", charge).await?;
    Ok(note(&job, receipt))
}

async fn look(job: View<Job>, ctx: Context, world: World) -> ferrata::Result<JobUpdate> {
    begin(&ctx, &world).await;
    match job.number % 5 {
        0 if ctx.attempt() == 1 => Err(NodeError::new("it is foggy").transient()),
        1 => Err(NodeError::new("it is dark").deterministic()),
        _ => Ok(note(&job, "look")),
    }
}

async fn looked_in_vain(job: View<Job>, ctx: Context, world: World) -> ferrata::Result<ferrata::Next> {
    begin(&ctx, &world).await;
    Ok(ferrata::Next::update(note(&job, "saw nothing")).goto([ferrata::Target::node("gather")]))
}

/// Asks in the middle, between two effects.
async fn ask_around(job: View<Job>, ctx: Context, world: World) -> ferrata::Result<JobUpdate> {
    begin(&ctx, &world).await;
    if job.number % 4 != 1 {
        return Ok(note(&job, "nobody asked"));
    }
    ctx.effect("invite", |key| perform(&ctx, &world, &job, "invite", key, false)).await?;
    let heard = ctx.ask("heard", Ask::<String>::new("What is the news?").show(&job.round)).await?;
    ctx.effect("thank", |key| perform(&ctx, &world, &job, "thank", key, true)).repeatable().await?;
    Ok(note(&job, heard))
}

async fn read(page: u64, job: View<Job>, ctx: Context) -> ferrata::Result<JobUpdate> {
    begin(&ctx, &ctx.dependency()?).await;
    Ok(note(&job, format!("page {page}")))
}

async fn polish(job: View<Job>, ctx: Context, world: World) -> ferrata::Result<JobUpdate> {
    begin(&ctx, &world).await;
    Ok(note(&job, "polish").polished(job.polished + 1))
}

async fn stamp(job: View<Job>, ctx: Context, world: World) -> ferrata::Result<JobUpdate> {
    begin(&ctx, &world).await;
    let stamp: String = ctx.effect("stamp", |key| perform(&ctx, &world, &job, "stamp", key, false)).await?;
    Ok(note(&job, stamp))
}

async fn file(job: View<Job>, ctx: Context, world: World) -> ferrata::Result<JobUpdate> {
    begin(&ctx, &world).await;
    let scan = if job.number % 40 == 3 { format!("{}", job.round).repeat(70_000) } else { String::new() };
    Ok(note(&job, "file").scan(scan))
}

/// Carries one thread through its rounds, from wherever it stands.
async fn carry(runner: Runner<Job>, number: u64, is_known: bool, rounds: u64, world: Arc<Ledger>) -> Result<(), Failed> {
    let thread = runner.thread(&name(number));
    let input = |round| Job::update().number(number).round(round);
    let mut outcome = if is_known { thread.resume().await? } else { thread.run(input(1)).await? };
    loop {
        let thread_name = name(number);
        outcome = match outcome {
            Outcome::Done(state) => {
                let told = digest(&serde_json::to_value(&*state)?);
                world.write(&Line::Done { thread: thread_name, round: state.round, state: told });
                if state.round >= rounds {
                    return Ok(());
                }
                thread.run(input(state.round + 1)).await?
            }
            Outcome::Waiting(questions) => {
                let ids = questions.iter().map(|question| question.id.to_string()).collect();
                world.write(&Line::Waits { thread: thread_name, questions: ids });
                // Some answer whatever is asked, some one question after the other.
                let some = if number.is_multiple_of(2) { questions.len() } else { 1 };
                let answers: Vec<_> = questions[..some].iter().map(|question| (question.id, answer(question, &world))).collect();
                thread.answer_all(answers).await?
            }
            Outcome::Outside(waits) => return Err(format!("nothing in this graph waits outside, and yet {waits:?}").into()),
            Outcome::Suspended(why) => return Err(format!("nobody stops {thread_name}, and yet {why}").into()),
        }
    }
}

fn name(number: u64) -> String {
    format!("job-{number:03}")
}

fn answer(question: &Question, world: &Ledger) -> Answer {
    let shown = question.show.clone().unwrap_or_default();
    if question.is_doubt() {
        let key = shown["idempotency_key"].as_str().unwrap_or_default();
        return world.result_of(key).map_or_else(Answer::not_performed, Answer::performed).by("the ledger");
    }
    match shown.as_bool() {
        Some(true) => Approval::approve(),
        Some(false) => Approval::reject("not good"),
        None => Answer::new(format!("news {shown}")),
    }
}

async fn check(runner: &Runner<Job>, store: &Watched) -> Result<ExitCode, Box<dyn Error>> {
    let (bytes, records) = (store.store().verify().await?, runner.verify().await?);
    println!(
        "{} threads, {} records, {} snapshots, {} artifacts",
        records.threads, records.records, bytes.snapshots, bytes.artifacts
    );
    bytes.faults.iter().for_each(|fault| println!("{fault}"));
    records.faults.iter().for_each(|(thread, fault)| println!("{thread}: {fault}"));
    let is_well = bytes.is_sound() && records.faults.is_empty();
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::read(std::env::args().skip(1))?;
    let ledger = Arc::new(Ledger::open(&options.ledger, options.halt.clone())?);
    let store = Arc::new(Watched::open(&options.store, options.halt.as_ref(), &ledger)?);
    let runner = Runner::new(graph()?, Arc::clone(&store)).provide(Arc::clone(&ledger));
    if options.check {
        return check(&runner, &store).await;
    }
    let all = ThreadQuery::new().limit(usize::try_from(options.threads)?);
    let threads: BTreeMap<String, u64> =
        runner.threads(all).await?.iter().map(|thread| (thread.name.to_string(), thread.records)).collect();
    ledger.write(&Line::Found { threads: threads.clone() });
    println!("open");
    let mut crowd = JoinSet::new();
    for number in 0..options.threads {
        let is_known = threads.contains_key(&name(number));
        crowd.spawn(carry(runner.clone(), number, is_known, options.rounds, Arc::clone(&ledger)));
    }
    while let Some(ended) = crowd.join_next().await {
        ended?.map_err(|failed| failed.to_string())?;
    }
    println!("done");
    Ok(ExitCode::SUCCESS)
}

#[tokio::main]
async fn main() -> ExitCode {
    run().await.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}
