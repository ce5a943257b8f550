//! Digests documents, asks whether to publish, and survives whatever happens in between.
//!
//! ```sh
//! cargo run --example digest                        # this repository's own documents
//! cargo run --example digest -- notes/ report.md    # files and folders, text and Markdown
//! ```
//!
//! Kill it at any moment; the same command goes on where it was. With `OPENAI_MODEL` and `OPENAI_API_KEY` or `OPENAI_BASE_URL` it uses that model, without
//! them it picks the most central sentences, which needs no key, server or download.
//!
//! | option | meaning | default |
//! | --- | --- | --- |
//! | `--budget TOKENS` | the most tokens that the findings have together | 2000 |
//! | `--parallel N` | how many documents are read at a time | 8 |
//! | `--answer approve\|reject\|edit=TEXT` | answers without a terminal | ask |
//! | `--store FILE` | where the thread is kept | `ferrata.redb` |
//! | `--out FILE` | where the digest goes | `digest.md` |
//! | `--thread NAME` | the thread | `digest` |
//! | `--new` | starts over | go on |
//!
//! Exit code 0: published or rejected; 1: an error, described on stderr; 2: wrong options; 3: it waits for an answer.

mod digest_cli {
    pub(crate) mod ask;
    pub(crate) mod documents;
    pub(crate) mod options;
    pub(crate) mod report;
}

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use digest_cli::options::{Options, Usage};
use digest_cli::{ask, documents, report};
use ferrata::store::RedbStore;
use ferrata::{Event, Events, Outcome, Runner, Thread};
use ferrata_graphs::digest::{Digest, Settings, graph};
use ferrata_nodes::{ChatModel, Extractive, OpenAi};

const WAITING: u8 = 3;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprintln!("  because: {cause}");
                source = cause.source();
            }
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

async fn run() -> Result<ExitCode, Box<dyn Error>> {
    let options = Options::read(std::env::args().skip(1))?;
    let documents = documents::find(&options.paths)?;
    let model = model()?;
    let settings = Settings::new(&options.out).budget(options.budget).parallel(options.parallel);
    let runner = Runner::new(graph(Arc::clone(&model), settings)?, RedbStore::open(&options.store)?);
    let thread = runner.thread(&options.thread);
    if options.new {
        thread.delete().await?;
    }
    let events = match thread.state().await {
        Err(error) if error.is_unknown_thread() => {
            println!("{} documents, condensed by {}", documents.len(), model.name());
            thread.stream(Digest::update().documents(documents))?
        }
        Err(error) => return Err(error.into()),
        Ok(state) => {
            documents::must_be_the_same(&options.thread, &state.values.documents, &documents)?;
            if state.next.is_empty() {
                return Ok(finished(&options, &state.values));
            }
            println!("thread \"{}\" goes on", options.thread);
            thread.stream_resume()?
        }
    };
    let mut outcome = watch(events).await?;
    if let Outcome::Waiting(questions) = &outcome {
        let Some(answer) = ask::answer(options.answer.as_ref(), &questions[0])? else {
            println!("\nThe draft waits for an answer. Go on with the same command and one of");
            println!("  --answer approve\n  --answer reject\n  --answer edit=TEXT");
            return Ok(ExitCode::from(WAITING));
        };
        outcome = thread.answer(questions[0].id, answer).await?;
    }
    report::print(&thread.report().await?);
    Ok(conclude(&outcome, &thread, &options).await?)
}

fn model() -> Result<Arc<dyn ChatModel>, Box<dyn Error>> {
    Ok(match OpenAi::from_env()? {
        Some(model) => Arc::new(model),
        None => Arc::new(Extractive::new()),
    })
}

/// Prints what happens until the run ends. Every line but `reading` is durable when it is printed.
async fn watch(mut events: Events<Digest>) -> Result<Outcome<Digest>, ferrata::Error> {
    while let Some(event) = events.next().await {
        match event {
            Event::Update { task, changes, .. } => match documents::of_finding(&changes) {
                Some(document) => println!("{} {document}", task.node),
                None => println!("{}", task.node),
            },
            Event::Failed { task, attempt, failure, again: true } => {
                eprintln!("{}, attempt {attempt}: {failure}; it is tried again", task.node)
            }
            Event::Custom { value, .. } => println!("{}", value.as_str().unwrap_or_default()),
            _ => {}
        }
    }
    events.outcome().await
}

fn finished(options: &Options, state: &Digest) -> ExitCode {
    let end = state.published.as_ref().map_or("it was rejected".to_owned(), |path| format!("it was published to {path}"));
    println!("thread \"{}\" is finished: {end}. To start over, use --new.", options.thread);
    ExitCode::SUCCESS
}

async fn conclude(outcome: &Outcome<Digest>, thread: &Thread<Digest>, options: &Options) -> Result<ExitCode, ferrata::Error> {
    match outcome {
        Outcome::Done(state) => match &state.published {
            Some(path) => println!("\nThe digest is in {path}."),
            None => println!("\nRejected: nothing was published."),
        },
        Outcome::Waiting(_) => {
            println!("\nThread \"{}\" waits for an answer.", options.thread);
            return Ok(ExitCode::from(WAITING));
        }
        Outcome::Outside(waits) => println!("\nThread {} waits: {waits:?}", thread.name()?),
        Outcome::Suspended(why) => println!("\nThread {} was stopped: {why}. The same command goes on.", thread.name()?),
    }
    Ok(ExitCode::SUCCESS)
}
