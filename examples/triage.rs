//! Shortens a long conversation under a budget, answers it as a stream, and lets the model decide what happens next.
//!
//! ```sh
//! cargo run --example triage -- --base-url http://127.0.0.1:8080/v1 --model qwen3-8b
//! ```
//!
//! Kill it at any moment; the same command goes on where it was, and no answer that was complete is asked for again.
//!
//! | option | meaning | default |
//! | --- | --- | --- |
//! | `--base-url URL` | the root of an OpenAI-compatible API | `OPENAI_BASE_URL`; without it a scripted model answers |
//! | `--model NAME` | the model | `OPENAI_MODEL`, or `demo` |
//! | `--budget TOKENS` | the most tokens that the conversation may have | 400 |
//! | `--store FILE` | where the thread is kept | `ferrata.redb` |
//! | `--thread NAME` | the thread | `triage` |
//!
//! The answer is printed as it comes, then one line of JSON: the decision, what it led to, and what each model cost in tokens.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use ferrata::state::Message;
use ferrata::store::RedbStore;
use ferrata::{Context, END, Event, Graph, IntoNode, Outcome, Retry, Runner, START, State, View};
use ferrata_nodes::{ChatDelta, ChatModel, ChatNode, ChatRequest, OpenAi, Prices, Purpose, RollingSummary, Scripted, ask_for};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
struct Case {
    #[state(messages)]
    messages: Vec<Message>,
    next: Option<Next>,
    #[state(append)]
    log: Vec<String>,
}

/// What the case needs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Next {
    Refund,
    Escalate,
    Close,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Decision {
    next: Next,
}

struct Options {
    base_url: Option<String>,
    model: String,
    budget: usize,
    store: PathBuf,
    thread: String,
}

impl Options {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let model = variable("OPENAI_MODEL").unwrap_or_else(|| "demo".to_owned());
        let (store, thread) = (PathBuf::from("ferrata.redb"), "triage".to_owned());
        let mut options = Self { base_url: variable("OPENAI_BASE_URL"), model, budget: 400, store, thread };
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("`{word}` needs a value"))?;
            match word.as_str() {
                "--base-url" => options.base_url = Some(value),
                "--model" => options.model = value,
                "--budget" => options.budget = value.parse().map_err(|_| format!("`{value}` is no number of tokens"))?,
                "--store" => options.store = value.into(),
                "--thread" => options.thread = value,
                other => return Err(format!("there is no option `{other}`").into()),
            }
        }
        Ok(options)
    }

    fn model(&self) -> Arc<dyn ChatModel> {
        match &self.base_url {
            Some(url) => {
                let model = OpenAi::new(url, &self.model);
                Arc::new(match std::env::var("OPENAI_API_KEY") {
                    Ok(key) => model.api_key(key),
                    Err(_) => model,
                })
            }
            None => Arc::new(Scripted::answering(|request| {
                let text = match (request.purpose, &request.schema) {
                    (Purpose::Condense, _) => "The customer was charged twice and wants the money back.",
                    (_, Some(_)) => r#"{"next": "refund"}"#,
                    _ => "I am sorry. You were charged twice, and the second charge goes back to your card.",
                };
                Ok(ferrata_nodes::ChatReply::new(text))
            })),
        }
    }
}

/// A conversation of about a thousand tokens.
fn history() -> Vec<Message> {
    let mut messages = vec![
        Message::system("You help customers of a bicycle shop. Be brief and kind."),
        Message::user("My card was charged twice for order 7731. Please help me to get one charge back."),
    ];
    for turn in 1..=24 {
        messages.push(Message::assistant(format!(
            "Thank you. I have looked at payment number {turn} of your account and found no mistake in it."
        )));
        messages.push(Message::user(format!(
            "That is not it. The charge I mean is later than payment {turn}, please look at the next one."
        )));
    }
    messages.push(Message::user("So what happens now?"));
    messages
}

fn graph(model: &Arc<dyn ChatModel>, budget: usize) -> Result<Graph<Case>, ferrata::BuildError> {
    let retry = || Retry::transient(3);
    let summary = RollingSummary::new().budget(budget).over(Case::MESSAGES, Arc::clone(model));
    let answer = ChatNode::new(Arc::clone(model)).output_tokens_max(60).streamed().over(Case::MESSAGES);
    let decide = {
        let model = Arc::clone(model);
        move |case: View<Case>, ctx: Context| {
            let model = Arc::clone(&model);
            async move {
                let last = case.messages.iter().rev().take(2).rev().cloned();
                let ask =
                    Message::user("What does this case need: refund, escalate or close? Answer as JSON: {\"next\": \"refund\"}");
                let request = ChatRequest::new(last.chain([ask])).output_tokens_max(40).setting("temperature", 0);
                let decision: Decision = ask_for(&ctx, &*model, request, 3).await?;
                Ok(Case::update().next(Some(decision.next)))
            }
        }
    };
    let act = |what: &'static str| move || async move { Ok(Case::update().push_log(what)) };
    Graph::<Case>::new("triage")
        .node("summary", summary.retry(retry()))
        .node("answer", answer.retry(retry()))
        .node("decide", decide.retry(retry()))
        .node("refund", act("the second charge goes back"))
        .node("escalate", act("a person takes over"))
        .node("close", act("nothing is left to do"))
        .edge(START, "summary")
        .edge("summary", "answer")
        .edge("answer", "decide")
        .route_to("decide", ["refund", "escalate", "close"], |case: &Case| match case.next {
            Some(Next::Refund) => "refund",
            Some(Next::Close) => "close",
            Some(Next::Escalate) | None => "escalate",
        })
        .edge("refund", END)
        .edge("escalate", END)
        .edge("close", END)
        .build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::read(std::env::args().skip(1))?;
    let runner = Runner::new(graph(&options.model(), options.budget)?, RedbStore::open(&options.store)?);
    let thread = runner.thread(&options.thread);
    let mut events = match thread.state().await {
        Err(error) if error.is_unknown_thread() => thread.stream(Case::update().messages(history()))?,
        Err(error) => return Err(error.into()),
        Ok(_) => thread.stream_resume()?,
    };
    while let Some(event) = events.next().await {
        let Event::Custom { value, .. } = event else { continue };
        match serde_json::from_value(value) {
            Ok(ChatDelta::Began { attempt: 1 }) => {}
            Ok(ChatDelta::Began { attempt }) => print!("\n[attempt {attempt}] "),
            Ok(ChatDelta::Text(text)) => print!("{text}"),
            _ => {}
        }
        std::io::stdout().flush()?;
    }
    println!();
    let Outcome::Done(case) = events.outcome().await? else { return Err("the run was stopped; the same command goes on".into()) };
    let costs = Prices::new().of_log(&thread.log().await?);
    let costs = costs.iter().map(|cost| json!({"model": cost.model, "calls": cost.calls, "read": cost.usage.input_tokens, "written": cost.usage.output_tokens}));
    let summary = case.messages.iter().find(|message| message.id == ferrata_nodes::SUMMARY_ID).map(|message| &message.content);
    println!(
        "{}",
        json!({"next": case.next, "log": case.log, "messages": case.messages.len(), "summary": summary, "costs": costs.collect::<Vec<_>>()})
    );
    Ok(())
}
