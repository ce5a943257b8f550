//! A chat in the terminal that can be killed at any moment and goes on.
//!
//! ```sh
//! cargo run --example chat
//! ```
//!
//! With `OPENAI_MODEL` and `OPENAI_API_KEY` or `OPENAI_BASE_URL` it talks to that model. Without them a model of a few lines answers, which needs no key, server
//! or download. The conversation is kept under a budget: what is old is summed up, and what was said word for word can be found again.
//!
//! | line | what it does |
//! | --- | --- |
//! | `/history` | lists the turns of this and every other line of the conversation |
//! | `/fork N` | the next message goes on from turn N; nothing is removed |
//! | `/pin TEXT` | keeps a fact word for word, whatever is summed up |
//! | `/recall WORDS` | finds what was said, summed up or not |
//! | `/quit`, or the end of the input | ends; the same command goes on |
//!
//! | option | meaning | default |
//! | --- | --- | --- |
//! | `--store FILE` | where the conversation is kept | `chat.redb` |
//! | `--thread NAME` | which conversation | `chat` |
//! | `--budget TOKENS` | the most tokens of one request | 4000 |

use std::error::Error;
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;

use ferrata::log::Source;
use ferrata::state::{Message, Role};
use ferrata::store::RedbStore;
use ferrata::{Checkpoint, END, Failure, Graph, Outcome, Position, Retry, Runner, START, State, Thread};
use ferrata_nodes::{
    ChatFuture, ChatModel, ChatNode, ChatReply, ChatRequest, ContextPlan, Extractive, OpenAi, Originals, Purpose, RollingSummary,
    SUMMARY_ID, pinned,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const INSTRUCTIONS: &str = "You are in a conversation in a terminal. Answer in a few sentences.";

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Chat {
    #[state(messages)]
    messages: Vec<Message>,
}

/// Answers without any model: it says how much it sees, and what it was asked.
#[derive(Debug)]
struct Offline;

impl ChatModel for Offline {
    fn name(&self) -> &str {
        "offline"
    }

    fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a> {
        Box::pin(async move {
            if request.purpose == Purpose::Condense {
                return Extractive::new().chat(request).await;
            }
            let said = request.messages.iter().filter(|message| message.role == Role::User).count();
            let last = request.messages.last().map_or("", |message| &message.content);
            Ok(ChatReply::new(format!("I see {said} of your messages. The last one was: {last}")))
        })
    }
}

struct Options {
    store: String,
    thread: String,
    budget: usize,
}

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self { store: "chat.redb".to_owned(), thread: "chat".to_owned(), budget: 4_000 };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--store" => options.store = value,
                "--thread" => options.thread = value,
                "--budget" => options.budget = value.parse().map_err(|_| format!("--budget takes a number, not {value}"))?,
                _ => return Err(format!("there is no option {name}; there are --store, --thread and --budget").into()),
            }
        }
        Ok(options)
    }
}

/// The summary has three quarters of the budget: the rest is for instructions and what a summary cannot shorten.
fn graph(model: &Arc<dyn ChatModel>, budget: usize) -> Result<Graph<Chat>, ferrata::BuildError> {
    let summary = RollingSummary::new().budget(budget / 4 * 3).over(Chat::MESSAGES, Arc::clone(model)).retry(Retry::transient(3));
    // A chat goes on without it: what does not fit is left out of the request, and the next turn tries again.
    let summary = summary.fallback(|_: &Chat, failure: &Failure| {
        eprintln!("Nothing was summed up: {}", failure.message);
        Chat::update()
    });
    let chat = ChatNode::new(Arc::clone(model)).instructions(INSTRUCTIONS).context(ContextPlan::new(budget));
    let chat = chat.over(Chat::MESSAGES).retry(Retry::transient(3));
    Graph::new("chat")
        .node("summary", summary)
        .node("chat", chat)
        .edge(START, "summary")
        .edge("summary", "chat")
        .edge("chat", END)
        .build()
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let options = Options::read(std::env::args().skip(1))?;
    let model: Arc<dyn ChatModel> = match OpenAi::from_env()? {
        Some(model) => Arc::new(model),
        None => Arc::new(Offline),
    };
    let runner = Runner::new(graph(&model, options.budget)?, RedbStore::open(&options.store)?);
    let thread = || runner.thread(&options.thread);
    go_on(&thread()).await?;
    let mut from: Option<Position> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (command, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        match command {
            "" => {}
            "/quit" => break,
            "/history" => history(&thread()).await?,
            "/fork" => from = fork(&thread(), rest).await?.or(from),
            "/pin" if rest.trim().is_empty() => println!("What is to be kept? /pin TEXT"),
            "/pin" => say(&thread(), &mut from, pinned(Message::user(rest))).await,
            "/recall" => recall(&thread(), rest).await?,
            _ if command.starts_with('/') => println!("There are /history, /fork N, /pin TEXT, /recall WORDS and /quit."),
            _ => say(&thread(), &mut from, Message::user(line.trim())).await,
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// A turn that was cut off is finished first.
async fn go_on(thread: &Thread<Chat>) -> Result<(), ferrata::Error> {
    match thread.state().await {
        Err(error) if error.is_unknown_thread() => println!("A new conversation."),
        Err(error) => return Err(error),
        Ok(state) => {
            println!("The conversation goes on, with {} messages in view.", state.values.messages.len());
            if !state.next.is_empty() {
                show(thread.resume().await);
            }
        }
    }
    Ok(())
}

/// One turn. When it fails, it is told why, and the chat goes on: what was said is kept, and the next message takes the place of the work that failed.
async fn say(thread: &Thread<Chat>, from: &mut Option<Position>, message: Message) {
    let thread = match from.take() {
        Some(position) => thread.clone().at(position),
        None => thread.clone(),
    };
    show(thread.supersede().run(Chat::update().message(message)).await);
}

fn show(outcome: Result<Outcome<Chat>, ferrata::Error>) {
    match outcome {
        Ok(Outcome::Done(state)) => println!("< {}", state.messages.last().map_or("", |message| &message.content)),
        Ok(Outcome::Waiting(_) | Outcome::Outside(_) | Outcome::Suspended(_)) => {
            println!("The turn is not finished; the next start goes on with it.")
        }
        Err(error) => println!("That failed: {error}"),
    }
}

/// The checkpoints after which a turn was complete, the oldest first.
async fn turns(thread: &Thread<Chat>) -> Result<Vec<Checkpoint<Chat>>, ferrata::Error> {
    let mut turns = thread.history().await?;
    turns.retain(|checkpoint| checkpoint.source != Source::Input && checkpoint.next.is_empty());
    turns.sort_by_key(|checkpoint| checkpoint.position);
    Ok(turns)
}

async fn history(thread: &Thread<Chat>) -> Result<(), Box<dyn Error>> {
    for (number, turn) in turns(thread).await?.iter().enumerate() {
        let is_said = |message: &&Message| message.role == Role::User && message.id != SUMMARY_ID;
        let said = turn.values.messages.iter().rfind(is_said).map_or("", |message| &message.content);
        let summed_up = if turn.values.messages.iter().any(|message| message.id == SUMMARY_ID) { ", summed up" } else { "" };
        let said: String = said.chars().take(60).collect();
        println!("{:>4}  line {}, {} messages{summed_up}: {said}", number + 1, turn.branch.0, turn.values.messages.len());
    }
    Ok(())
}

async fn fork(thread: &Thread<Chat>, number: &str) -> Result<Option<Position>, ferrata::Error> {
    let turns = turns(thread).await?;
    let turn = number.trim().parse::<usize>().ok().and_then(|number| turns.get(number.checked_sub(1)?));
    match turn {
        Some(_) => println!("The next message goes on from turn {}.", number.trim()),
        None => println!("There is no such turn; /history lists them."),
    }
    Ok(turn.map(|turn| turn.position))
}

async fn recall(thread: &Thread<Chat>, words: &str) -> Result<(), ferrata::Error> {
    let originals = Originals::in_log(&thread.log().await?, "messages");
    let found = originals.search(words, 3);
    if found.is_empty() {
        println!("Nothing was said with these words.");
    }
    found.iter().for_each(|found| println!("{:?}: {}", found.message.role, found.message.content));
    Ok(())
}
