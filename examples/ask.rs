//! Asks a model once, without retries, and prints what came of it as one JSON object.
//!
//! ```sh
//! cargo run --example ask -- --base-url http://127.0.0.1:8080/v1 --mode stream "What is a log?"
//! ```
//!
//! | option | meaning | default |
//! | --- | --- | --- |
//! | `--base-url URL` | the root of the API | `OPENAI_BASE_URL` |
//! | `--mode stream\|unary` | whether the answer comes in pieces, shown on stderr, or as a whole | `stream` |
//! | `--model NAME` | the model | `OPENAI_MODEL`, or `demo` |
//! | `--tools FILE` | JSON list of tools: name, description, arguments (a JSON Schema) | none |
//!
//! The key is taken from `OPENAI_API_KEY`. Exit code 0: there is a JSON object, be it of an error; 2: wrong options.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use ferrata::state::Message;
use ferrata_nodes::{ChatModel, ChatReply, ChatRequest, Delta, ModelError, OpenAi, ToolSpec};
use serde_json::{Value, json};

struct Options {
    base_url: String,
    streams: bool,
    model: String,
    tools: Vec<ToolSpec>,
    prompt: String,
}

impl Options {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let (mut base_url, mut model) = (variable("OPENAI_BASE_URL"), variable("OPENAI_MODEL"));
        let (mut streams, mut tools, mut prompt) = (true, Vec::new(), Vec::new());
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
            match word.as_str() {
                "--base-url" => base_url = Some(value()?),
                "--model" => model = Some(value()?),
                "--mode" => {
                    streams = match value()?.as_str() {
                        "stream" => true,
                        "unary" => false,
                        other => return Err(format!("--mode is stream or unary, not `{other}`").into()),
                    }
                }
                "--tools" => {
                    let file = value()?;
                    let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
                    tools = serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))?;
                }
                option if option.starts_with("--") => return Err(format!("there is no option `{option}`").into()),
                _ => prompt.push(word),
            }
        }
        let base_url = base_url.ok_or("say which server with --base-url URL, or set OPENAI_BASE_URL")?;
        let prompt = if prompt.is_empty() { "Say hello.".to_owned() } else { prompt.join(" ") };
        Ok(Self { base_url, streams, model: model.unwrap_or_else(|| "demo".to_owned()), tools, prompt })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Options::read(std::env::args().skip(1)) {
        Ok(options) => {
            let answered = ask(&options).await;
            println!("{}", answered.map_or_else(|error| failure(&error), |reply| success(&reply)));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

async fn ask(options: &Options) -> Result<ChatReply, ModelError> {
    let mut model = OpenAi::new(&options.base_url, &options.model);
    if let Ok(key) = std::env::var("OPENAI_API_KEY") {
        model = model.api_key(key);
    }
    let request = ChatRequest::new([Message::user(&options.prompt)]).tools(options.tools.clone());
    if !options.streams {
        return model.chat(&request).await;
    }
    let mut show = |delta: Delta<'_>| {
        if let Delta::Text(text) = delta {
            eprint!("{text}");
        }
    };
    let answered = model.chat_streamed(&request, &mut show).await;
    eprintln!();
    answered
}

fn success(reply: &ChatReply) -> Value {
    let finish = reply.finish.code();
    // Arguments that are no JSON are shown as the text that came.
    let arguments = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    let calls = reply.tool_calls.iter().map(|call| json!({"id": call.id, "name": call.name, "args": arguments(&call.arguments)}));
    let usage = reply.usage.map(|usage| {
        let total = usage.input_tokens.saturating_add(usage.output_tokens);
        json!({"prompt": usage.input_tokens, "completion": usage.output_tokens, "total": total})
    });
    json!({"outcome": "ok", "text": reply.content, "tool_calls": calls.collect::<Vec<_>>(), "finish": finish, "usage": usage,
           "reasoning": reply.reasoning, "model": reply.model})
}

fn failure(error: &ModelError) -> Value {
    let seconds = error
        .retry_after()
        .map(|wait: Duration| if wait.subsec_nanos() == 0 { json!(wait.as_secs()) } else { json!(wait.as_secs_f64()) });
    json!({"outcome": "error", "error_class": error.class().code(), "retryable": error.is_transient(), "status": error.status(),
           "message": error.to_string(), "partial_text": error.partial_text(), "retry_after_s": seconds})
}
