//! Orders a courier at an HTTP service, once, whatever happens on the way: a kill, a time-out, a broken connection, a cancelled run.
//!
//! ```sh
//! cargo run --example courier -- 1001 --service http://127.0.0.1:8080                   # in doubt, it asks you
//! cargo run --example courier -- 1001 --service http://127.0.0.1:8080 --policy check    # in doubt, it asks the service
//! ```
//!
//! What may be done about an order of which nobody knows whether it reached the courier depends on the other side, so there is a `--policy`:
//!
//! | policy | in doubt | what the service has to promise |
//! | --- | --- | --- |
//! | `ask`, the default | a person says what became of it | nothing |
//! | `check` | `GET /ship/KEY` tells | it knows what it has done, and an order it does not know never comes any more |
//! | `repeatable` | the order is sent again | the same `Idempotency-Key` is the same order |
//!
//! The service takes `POST /ship` and `POST /label`, and answers 200 with `{"slip": TEXT}`. 503 says that it did nothing.
//!
//! | `--graph` | nodes |
//! | --- | --- |
//! | `plain`, the default | pack, ship |
//! | `approved` | a question with a deadline (`--within-ms`), then ship, or nothing, or late if nobody answered |
//! | `labelled` | pack, then label: an effect and a question in one node, then ship or cancel |
//!
//! Each line on standard output is JSON. The program waits at a question for a line on standard input, and ends if there is none; or it takes
//! `--answer`: `yes`, `no`, `performed=SLIP` or `not-performed`. With `--to QUESTION` the answer is for that question and no other, as from a
//! link in a mail. The line `cancel` cuts the run. The same command again goes on where the order stands.
//!
//! Exit code 0: done; 1: it failed; 2: an error in the command; 3: it waits for an answer; 4: an order is in doubt; 5: it was cancelled.
//!
//! Other options: `--store FILE` (courier.redb), `--patience-ms N` for one attempt, `--attempts N`. `--hold NODE` stands still at the beginning of that
//! node, `--hold request` just before the request, behind the line `"held"`: time to kill the process.

use std::error::Error;
use std::future::Future;
use std::io::BufRead as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ferrata::store::RedbStore;
use ferrata::{
    Answer, Approval, Ask, BuildError, Context, END, Graph, IntoNode, NodeError, Outcome, Performed, Question, Retry, Runner,
    START, State, Thread, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

const BODY_MAX: usize = 64 * 1024;
const USAGE: &str = "courier ORDER --service URL [--store FILE] [--policy ask|check|repeatable] [--graph plain|approved|labelled] \
                     [--answer ANSWER [--to QUESTION]] [--within-ms N] [--patience-ms N] [--attempts N] [--hold NODE|request]";

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Parcel {
    order: String,
    insured: Option<bool>,
    label: Option<String>,
    slip: Option<String>,
    #[state(append)]
    log: Vec<String>,
}

#[derive(Clone, Copy)]
enum Policy {
    Ask,
    Check,
    Repeatable,
}

/// The courier's service, and how it is dealt with.
struct Courier {
    address: String,
    policy: Policy,
    hold: Option<String>,
}

impl Courier {
    /// Has something done by the service, at most once.
    async fn once(&self, ctx: &Context, what: &str, order: &str) -> ferrata::Result<String> {
        let effect = ctx.effect(what, move |key| async move { self.act(what, order, &key).await }).arguments(order);
        match self.policy {
            Policy::Ask => effect.await,
            Policy::Check => effect.check(move |key| async move { self.look_up(what, &key).await }).await,
            Policy::Repeatable => effect.repeatable().await,
        }
    }

    /// Only what certainly did not reach the service, or what it refused, may say "not performed". Every other failure leaves a doubt.
    async fn act(&self, what: &str, order: &str, key: &str) -> ferrata::Result<String> {
        self.hold_at("request").await;
        let stream = self.connect().await.map_err(NodeError::not_performed)?;
        let (headers, body) = (format!("Idempotency-Key: {key}\r\n"), json!({ "order": order }).to_string());
        let answered = exchange(stream, &format!("POST /{what}"), &headers, &body).await;
        let (status, body) = answered.map_err(|error| NodeError::from(error).transient())?;
        match (status, body["slip"].as_str()) {
            (200, Some(slip)) => Ok(slip.to_owned()),
            (503, _) => Err(NodeError::new("the courier is busy").transient().not_performed()),
            (400..500, _) => Err(NodeError::new(format!("the courier refuses: {body}")).deterministic().not_performed()),
            _ => Err(NodeError::new(format!("the courier answers {status}: {body}"))),
        }
    }

    /// An answer that is neither a yes nor a no is an error: nothing is ordered before there is one.
    async fn look_up(&self, what: &str, key: &str) -> ferrata::Result<Performed<String>> {
        let answered = exchange(self.connect().await?, &format!("GET /{what}/{key}"), "", "").await;
        let (status, body) = answered.map_err(|error| NodeError::from(error).transient())?;
        match (status, body["slip"].as_str()) {
            (200, Some(slip)) => Ok(Performed::Yes(slip.to_owned())),
            (404, _) => Ok(Performed::No),
            (503, _) => Err(NodeError::new("the courier is busy").transient()),
            _ => Err(NodeError::new(format!("the courier answers {status}: {body}")).deterministic()),
        }
    }

    async fn connect(&self) -> ferrata::Result<TcpStream> {
        let failed = |error| NodeError::new(format!("cannot reach the courier at {}: {error}", self.address)).transient();
        TcpStream::connect(&self.address).await.map_err(failed)
    }

    async fn hold_at(&self, place: &str) {
        if self.hold.as_deref() == Some(place) {
            println!("{}", json!("held"));
            std::future::pending::<()>().await;
        }
    }
}

/// One request and its answer.
async fn exchange(mut stream: TcpStream, what: &str, headers: &str, body: &str) -> std::io::Result<(u16, Value)> {
    let length = body.len();
    let head = format!("{what} HTTP/1.1\r\nHost: courier\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes()).await?;
    let mut reader = BufReader::new(stream.take(BODY_MAX as u64));
    let mut head = String::new();
    while reader.read_line(&mut head).await? > "\r\n".len() {}
    let field = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length:").and_then(|n| n.trim().parse().ok());
    let (status, length) = (head.split(' ').nth(1).and_then(|status| status.parse().ok()), head.lines().find_map(field));
    let (Some(status), Some(length)) = (status, length.filter(|length| *length <= BODY_MAX)) else {
        return Err(std::io::Error::other("the connection ended without a whole answer"));
    };
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    Ok((status, serde_json::from_slice(&body)?))
}

async fn ship(courier: Arc<Courier>, parcel: View<Parcel>, ctx: Context) -> ferrata::Result<ParcelUpdate> {
    courier.hold_at("ship").await;
    let slip = courier.once(&ctx, "ship", &parcel.order).await?;
    Ok(Parcel::update().slip(slip).push_log("shipped"))
}

/// When the answer comes, in this process or a later one, the node begins anew, and the label is there already.
async fn label(courier: Arc<Courier>, parcel: View<Parcel>, ctx: Context) -> ferrata::Result<ParcelUpdate> {
    let label = courier.once(&ctx, "label", &parcel.order).await?;
    let insured = ctx.ask("insured", Ask::<bool>::new("Has somebody insured it?").show(&label)).await?;
    Ok(Parcel::update().label(label).insured(insured).push_log("labelled"))
}

fn note(text: &'static str) -> impl IntoNode<Parcel, ()> {
    move || async move { Ok(Parcel::update().push_log(text)) }
}

fn graph(options: Options) -> Result<Graph<Parcel>, BuildError> {
    let Options { graph, service, policy, hold, within, patience, attempts, .. } = options;
    let courier = Arc::new(Courier { address: service, policy, hold });
    let labelling = Arc::clone(&courier);
    let ship = move |parcel: View<Parcel>, ctx: Context| ship(Arc::clone(&courier), parcel, ctx);
    let label = move |parcel: View<Parcel>, ctx: Context| label(Arc::clone(&labelling), parcel, ctx);
    let retry = Retry::transient(attempts).delay_max(Duration::from_millis(50));
    let plain = Graph::<Parcel>::new("courier").node("ship", ship.retry(retry).timeout(patience)).edge("ship", END);
    match graph {
        Way::Plain => plain.node("pack", note("packed")).edge(START, "pack").edge("pack", "ship").build(),
        Way::Approved => plain
            .question("approve", move |parcel: &Parcel| {
                let ask = Approval::ask(format!("Ship order {}?", parcel.order));
                within.map_or(ask.clone(), |within| ask.deadline(within))
            })
            .refused("approve", |_: &Parcel, reason| Parcel::update().push_log(format!("refused: {reason}")))
            .node("late", note("expired"))
            .edge(START, "approve")
            .approved("approve", "ship")
            .rejected("approve", END)
            .expired("approve", "late")
            .edge("late", END)
            .build(),
        Way::Labelled => plain
            .node("pack", note("packed"))
            .node("label", label.retry(retry).timeout(patience))
            .node("cancel", note("cancelled"))
            .edge(START, "pack")
            .edge("pack", "label")
            .route_to("label", ["ship", "cancel"], |parcel: &Parcel| if parcel.insured == Some(true) { "ship" } else { "cancel" })
            .edge("cancel", END)
            .build(),
    }
}

#[derive(Clone, Copy)]
enum Way {
    Plain,
    Approved,
    Labelled,
}

struct Options {
    order: String,
    store: PathBuf,
    service: String,
    policy: Policy,
    graph: Way,
    answer: Option<String>,
    to: Option<String>,
    within: Option<Duration>,
    patience: Duration,
    attempts: u32,
    hold: Option<String>,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let order = words.next().ok_or("which order?")?;
        let mut options = Self {
            order,
            store: "courier.redb".into(),
            service: String::new(),
            policy: Policy::Ask,
            graph: Way::Plain,
            answer: None,
            to: None,
            within: None,
            patience: Duration::from_secs(30),
            attempts: 3,
            hold: None,
        };
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            match (name.as_str(), value.as_str()) {
                ("--store", _) => options.store = value.into(),
                ("--service", url) => options.service = url.trim_start_matches("http://").trim_end_matches('/').to_owned(),
                ("--policy", "ask") => options.policy = Policy::Ask,
                ("--policy", "check") => options.policy = Policy::Check,
                ("--policy", "repeatable") => options.policy = Policy::Repeatable,
                ("--graph", "plain") => options.graph = Way::Plain,
                ("--graph", "approved") => options.graph = Way::Approved,
                ("--graph", "labelled") => options.graph = Way::Labelled,
                ("--answer", _) => options.answer = Some(value),
                ("--to", _) => options.to = Some(value),
                ("--within-ms", number) => options.within = Some(millis(number)?),
                ("--patience-ms", number) => options.patience = millis(number)?,
                ("--attempts", number) => options.attempts = number.parse().map_err(|_| format!("{number:?} is no number"))?,
                ("--hold", _) => options.hold = Some(value),
                _ => return Err(format!("there is no option {name} {value}")),
            }
        }
        if options.service.is_empty() {
            return Err("where is the courier? --service http://HOST:PORT".to_owned());
        }
        Ok(options)
    }
}

fn millis(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_millis).map_err(|_| format!("{text:?} is no number of milliseconds"))
}

/// What is typed while the program runs.
struct Keyboard {
    lines: mpsc::UnboundedReceiver<String>,
    cancel: Arc<Notify>,
}

impl Keyboard {
    fn listen() -> Self {
        let (tell, lines) = mpsc::unbounded_channel();
        let cancel = Arc::new(Notify::new());
        let told = Arc::clone(&cancel);
        // A thread of its own: the program ends without waiting for the next line.
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                match line.trim() {
                    "cancel" => told.notify_one(),
                    "" => {}
                    other => _ = tell.send(other.to_owned()),
                }
            }
        });
        Self { lines, cancel }
    }

    /// Waits for the run, and cuts it if that is typed.
    async fn watch<R: Future>(&self, thread: &Thread<Parcel>, run: R) -> Result<R::Output, ferrata::Error> {
        let mut run = std::pin::pin!(run);
        loop {
            tokio::select! {
                outcome = &mut run => return Ok(outcome),
                () = self.cancel.notified() => { thread.cancel().await?; }
            }
        }
    }
}

/// What was typed, as an answer to this question.
fn fit(question: &Question, text: &str) -> Result<Answer, String> {
    match (question.is_doubt(), text.split_once('='), text) {
        (true, Some(("performed", slip)), _) => Ok(Answer::performed(slip)),
        (true, _, "not-performed") => Ok(Answer::not_performed()),
        (true, ..) => Err(format!("{text:?} does not say whether it was performed: performed=SLIP or not-performed")),
        (false, _, "yes" | "no") if &*question.key == "approve" => Ok(decision(text)),
        (false, _, "yes" | "no") => Ok(Answer::new(text == "yes")),
        (false, ..) => Err(format!("{text:?} is neither yes nor no")),
    }
}

fn decision(text: &str) -> Answer {
    if text == "yes" { Approval::approve() } else { Approval::reject("somebody said no") }
}

async fn go(mut options: Options) -> Result<u8, Box<dyn Error>> {
    let (order, store) = (options.order.clone(), options.store.clone());
    let (mut given, to) = (options.answer.take(), options.to.take());
    let runner = Runner::new(graph(options)?, RedbStore::open(store)?);
    let thread = runner.thread(&order);
    let mut keyboard = Keyboard::listen();
    let mut outcome = match (&to, &given) {
        (Some(id), Some(text)) => {
            let decision = decision(text);
            given = None;
            keyboard.watch(&thread, thread.answer(id.parse()?, decision)).await??
        }
        _ => keyboard.watch(&thread, thread.run_once(Parcel::update().order(&order))).await??,
    };
    loop {
        let question = match outcome {
            Outcome::Done(state) => {
                println!("{}", json!({ "state": &*state }));
                return Ok(0);
            }
            Outcome::Outside(_) => return Err("this graph waits for people only".into()),
            Outcome::Suspended(why) => {
                println!("{}", json!({ "suspended": why.to_string() }));
                return Ok(5);
            }
            Outcome::Waiting(questions) => questions.into_iter().next().ok_or("it waits for nothing")?,
        };
        let log = &thread.state().await?.values.log;
        println!("{}", json!({ "question": question.id, "text": question.text, "show": question.show, "log": log }));
        let text = match given.take() {
            Some(text) => Some(text),
            None => keyboard.lines.recv().await,
        };
        let Some(text) = text else { return Ok(if question.is_doubt() { 4 } else { 3 }) };
        let answer = fit(&question, &text)?.by("the command line");
        outcome = keyboard.watch(&thread, thread.answer(question.id, answer)).await??;
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("courier: {error}\nusage: {USAGE}");
            return ExitCode::from(2);
        }
    };
    match go(options).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Programs read the code, people the text.
            let code = error.downcast_ref::<ferrata::Error>().map_or("failed", ferrata::Error::code);
            eprintln!("courier: {code}: {error}");
            ExitCode::FAILURE
        }
    }
}
