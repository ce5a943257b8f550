//! A refund agent in front of a slow HTTP service: it looks an order up, asks a person, and pays at most once.
//!
//! ```text
//! START -> look_up -> assess -> approve -> pay -> receipt -> END
//!                       |          `-> declined -> END
//!                       `-> too_much -> END
//! ```
//!
//! ```sh
//! cargo run --example refund -- 1001                   # asks; without a terminal it says how to go on and exits 3
//! cargo run --example refund -- 1001 --answer approve  # goes on where it stood: approve, reject, or amount=CENTS to pay less
//! cargo run --example refund -- 1002                   # costs more than the --limit, so nobody is asked
//! ```
//!
//! Without `--service URL` the orders and the bank are played by a task of this program, with the orders 1001, 1002 and 1003. It pays in
//! the middle of its delay, so that there is a time in which the money has moved and nobody knows:
//!
//! ```sh
//! cargo run --example refund -- 1003 --answer approve --delay-ms 5000 --ledger ledger.txt  # Ctrl-C as soon as the ledger has a line
//! cargo run --example refund -- 1003 --ledger ledger.txt                                   # in doubt: exits 4 with the key to look for
//! cargo run --example refund -- 1003 --answer performed=RECEIPT                            # or --answer not-performed
//! ```
//!
//! Other options: `--store FILE` (refunds.redb), `--limit CENTS` (50000; the one of an order's first run stays). A failure is told
//! with exit 1, and the same command tries again from there; an error in the command itself exits 2.

use std::collections::HashSet;
use std::error::Error;
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ferrata::store::RedbStore;
use ferrata::{
    Answer, Approval, Context, END, Graph, IntoNode, NodeError, Outcome, Question, Retry, Route, Runner, START, State, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

const ORDERS: [(&str, u64); 3] = [("1001", 4_200), ("1002", 129_900), ("1003", 19_950)];
const PATIENCE: Duration = Duration::from_secs(30);
const MESSAGE_MAX: usize = 64 * 1024;
const ANSWERS: &str = "approve, reject, or amount=CENTS to pay less";
const DOUBT_ANSWERS: &str = "performed=RECEIPT, or not-performed";
const USAGE: &str =
    "refund ORDER [--store FILE] [--answer ANSWER] [--limit CENTS] [--service URL] [--delay-ms N] [--ledger FILE]";

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Refund {
    order: String,
    limit_cents: u64,
    amount_cents: Option<u64>, // not known yet is not zero
    receipt: Option<String>,
    #[state(append)]
    notes: Vec<String>,
}

#[derive(Route)]
enum Assessment {
    Approve,
    TooMuch,
}

fn graph(service: &Service) -> Result<Graph<Refund>, ferrata::BuildError> {
    let (orders, bank) = (service.clone(), service.clone());
    let look_up = move |state: View<Refund>| look_up(orders.clone(), state);
    let pay = move |state: View<Refund>, ctx: Context| pay(bank.clone(), state, ctx);
    Graph::new("refund")
        .node("look_up", look_up.retry(Retry::transient(3)).timeout(PATIENCE))
        .node("assess", assess)
        .node("too_much", too_much)
        .question("approve", ask)
        .edited("approve", |_: &Refund, cents: u64| Refund::update().amount_cents(cents))
        .refused("approve", |_: &Refund, reason| Refund::update().note(format!("not refunded: {reason}")))
        .node("pay", pay.irreversible().timeout(PATIENCE))
        .node("receipt", receipt)
        .edge(START, "look_up")
        .edge("look_up", "assess")
        .route("assess", within_limit)
        .edge("too_much", END)
        .approved("approve", "pay")
        .rejected("approve", END)
        .edge("pay", "receipt")
        .edge("receipt", END)
        .build()
}

async fn look_up(service: Service, state: View<Refund>) -> ferrata::Result<RefundUpdate> {
    let (status, body) = service.connect().await?.exchange(&format!("GET /orders/{}", state.order), "", "").await?;
    match (status, body["amount_cents"].as_u64()) {
        (200, Some(cents)) => Ok(Refund::update().amount_cents(cents)),
        (404, _) => Err(NodeError::new(format!("there is no order {}; check the number", state.order)).deterministic()),
        (500.., _) => Err(NodeError::new(format!("the order service answers {status}; try again later")).transient()),
        _ => Err(NodeError::new(format!("the order service answers {status}: {body}")).deterministic()),
    }
}

async fn assess(state: View<Refund>) -> ferrata::Result<RefundUpdate> {
    Ok(Refund::update().note(format!("order {} cost {}", state.order, amount(&state))))
}

fn within_limit(state: &Refund) -> Assessment {
    if state.amount_cents.is_some_and(|cents| cents <= state.limit_cents) { Assessment::Approve } else { Assessment::TooMuch }
}

async fn too_much(state: View<Refund>) -> ferrata::Result<RefundUpdate> {
    Ok(Refund::update().note(format!("not refunded: more than the limit of {}", money(state.limit_cents))))
}

fn ask(state: &Refund) -> Approval {
    let text = format!("Refund {} for order {}?", amount(state), state.order);
    let less = json!({ "minimum": 1, "maximum": state.amount_cents });
    Approval::ask(text).show(&json!({ "order": state.order, "amount_cents": state.amount_cents })).edit_within(less)
}

async fn pay(service: Service, state: View<Refund>, ctx: Context) -> ferrata::Result<RefundUpdate> {
    let receipt: String = ctx.effect("refund", |key| async move { refund(&service, &state, &key).await }).await?;
    Ok(Refund::update().receipt(receipt))
}

/// Only what certainly did not reach the bank, or what the bank refused, may say "not performed". Every other failure is in doubt.
async fn refund(service: &Service, state: &Refund, key: &str) -> ferrata::Result<String> {
    let connection = service.connect().await.map_err(NodeError::not_performed)?;
    let order = json!({ "order": state.order, "amount_cents": state.amount_cents }).to_string();
    let (status, body) = connection.exchange("POST /refunds", &format!("Idempotency-Key: {key}\r\n"), &order).await?;
    match (status, body["receipt"].as_str()) {
        (200, Some(receipt)) => Ok(receipt.to_owned()),
        (400..500, _) => Err(NodeError::new(format!("the bank refuses the refund: {body}")).deterministic().not_performed()),
        _ => Err(NodeError::new(format!("the bank answers {status}: {body}"))),
    }
}

async fn receipt(state: View<Refund>) -> ferrata::Result<RefundUpdate> {
    let receipt = state.receipt.as_deref().unwrap_or("none");
    Ok(Refund::update().note(format!("refunded {} for order {}, receipt {receipt}", amount(&state), state.order)))
}

fn amount(state: &Refund) -> String {
    state.amount_cents.map_or_else(|| "an unknown amount".to_owned(), money)
}

fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// Where orders and bank are, as host and port.
#[derive(Clone)]
struct Service(Arc<str>);

impl Service {
    fn at(url: &str) -> Result<Self, String> {
        let address = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
        address.map(|address| Self(address.into())).ok_or_else(|| format!("--service {url}: write http://HOST:PORT"))
    }

    async fn connect(&self) -> ferrata::Result<Connection> {
        let advice = "start it or check --service; the same command goes on from here";
        let failed = |error| NodeError::new(format!("cannot reach the service at {}: {error}; {advice}", self.0)).transient();
        TcpStream::connect(&*self.0).await.map(Connection).map_err(failed)
    }
}

struct Connection(TcpStream);

impl Connection {
    async fn exchange(mut self, what: &str, headers: &str, body: &str) -> ferrata::Result<(u16, Value)> {
        self.write(&format!("{what} HTTP/1.1\r\nHost: refund\r\n{headers}"), body).await?;
        let (head, body) = self.read().await?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.ok_or_else(|| NodeError::new("the service does not speak HTTP"))?, serde_json::from_str(&body)?))
    }

    async fn write(&mut self, head: &str, body: &str) -> std::io::Result<()> {
        let message = format!("{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.0.write_all(message.as_bytes()).await
    }

    /// The head and the body of a message that says how long it is.
    async fn read(&mut self) -> std::io::Result<(String, String)> {
        let mut reader = BufReader::new((&mut self.0).take(MESSAGE_MAX as u64));
        let mut head = String::new();
        while reader.read_line(&mut head).await? > "\r\n".len() {}
        let length = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; MESSAGE_MAX.min(length)];
        reader.read_exact(&mut body).await?;
        Ok((head, String::from_utf8_lossy(&body).into_owned()))
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// The service this example brings along. With a ledger it knows its refunds by their keys also after a restart.
struct Bank {
    delay: Duration,
    ledger: Option<PathBuf>,
    keys: Mutex<HashSet<String>>,
}

impl Bank {
    async fn start(delay: Duration, ledger: Option<PathBuf>) -> Result<Service, Box<dyn Error>> {
        let known = ledger.as_ref().filter(|path| path.exists()).map(std::fs::read_to_string).transpose()?.unwrap_or_default();
        let keys = known.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect();
        let bank = Arc::new(Self { delay, ledger, keys: Mutex::new(keys) });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let service = Service(listener.local_addr()?.to_string().into());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(bank.clone().serve(Connection(stream)));
            }
        });
        Ok(service)
    }

    async fn serve(self: Arc<Self>, mut connection: Connection) -> std::io::Result<()> {
        let (head, body) = connection.read().await?;
        tokio::time::sleep(self.delay / 2).await;
        let answer = match head.split(' ').take(2).collect::<Vec<_>>()[..] {
            ["GET", path] => path.strip_prefix("/orders/").and_then(price).map(|cents| json!({ "amount_cents": cents })),
            ["POST", "/refunds"] => self.refund(header(&head, "idempotency-key"), &serde_json::from_str(&body)?).await?,
            _ => None,
        };
        tokio::time::sleep(self.delay / 2).await;
        let status = if answer.is_some() { "200 OK" } else { "404 Not Found" };
        connection.write(&format!("HTTP/1.1 {status}\r\n"), &answer.unwrap_or_default().to_string()).await
    }

    async fn refund(&self, key: Option<&str>, body: &Value) -> std::io::Result<Option<Value>> {
        let (Some(key), Some(order), Some(cents)) = (key, body["order"].as_str(), body["amount_cents"].as_u64()) else {
            return Ok(None);
        };
        if price(order).is_none_or(|price| cents > price) {
            return Ok(None);
        }
        let mut keys = self.keys.lock().await;
        if let (Some(path), false) = (&self.ledger, keys.contains(key)) {
            let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
            writeln!(file, "{order} {cents} {key}")?;
        }
        keys.insert(key.to_owned());
        Ok(Some(json!({ "receipt": format!("R-{}", key.get(..8).unwrap_or(key)) })))
    }
}

fn price(order: &str) -> Option<u64> {
    ORDERS.iter().find(|(id, _)| *id == order).map(|(_, cents)| *cents)
}

struct Options {
    order: String,
    store: PathBuf,
    service: Option<String>,
    answer: Option<String>,
    limit: u64,
    delay: Duration,
    ledger: Option<PathBuf>,
}

impl Options {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let order = words.next().ok_or("which order?")?;
        if order.is_empty() || !order.chars().all(|letter| letter.is_ascii_alphanumeric()) {
            return Err(format!("{order:?} is no order number: letters and digits only"));
        }
        let (store, delay) = ("refunds.redb".into(), Duration::from_millis(300));
        let mut options = Self { order, store, service: None, answer: None, limit: 50_000, delay, ledger: None };
        while let Some(name) = words.next() {
            let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--store" => options.store = value.into(),
                "--service" => options.service = Some(value),
                "--answer" => options.answer = Some(value),
                "--limit" => options.limit = number(&value)?,
                "--delay-ms" => options.delay = Duration::from_millis(number(&value)?),
                "--ledger" => options.ledger = Some(value.into()),
                _ => return Err(format!("there is no option {name}")),
            }
        }
        Ok(options)
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is no whole number"))
}

/// What was typed, as an answer to this question.
fn answer(question: &Question, text: &str) -> Result<Answer, String> {
    match (question.is_doubt(), text.split_once('='), text) {
        (false, _, "approve") => Ok(Approval::approve()),
        (false, _, "reject") => Ok(Approval::reject("the refund was rejected")),
        (false, Some(("amount", cents)), _) => Ok(Approval::edit(number(cents)?)),
        (true, _, "not-performed") => Ok(Answer::not_performed()),
        (true, Some(("performed", receipt)), _) if !receipt.is_empty() => Ok(Answer::performed(receipt)),
        _ => Err(format!("{text:?} is no answer to this question, which stays open: {}", choices(question))),
    }
}

fn choices(question: &Question) -> &'static str {
    if question.is_doubt() { DOUBT_ANSWERS } else { ANSWERS }
}

fn show(question: &Question) {
    println!("{}", question.text);
    if let (true, Some(known)) = (question.is_doubt(), &question.show) {
        println!("the bank has it under the key {}, or not at all", known["idempotency_key"].as_str().unwrap_or_default());
    }
}

fn read_answer() -> std::io::Result<Option<String>> {
    let mut line = String::new();
    if std::io::stdin().is_terminal() {
        std::io::stdin().read_line(&mut line)?;
    }
    Ok(Some(line.trim().to_owned()).filter(|line| !line.is_empty()))
}

async fn go(mut options: Options) -> Result<u8, Box<dyn Error>> {
    let service = match &options.service {
        Some(url) => Service::at(url)?,
        None => Bank::start(options.delay, options.ledger.take()).await?,
    };
    let runner = Runner::new(graph(&service)?, RedbStore::open(&options.store)?);
    let thread = runner.thread(&options.order);
    let mut outcome = thread.run_once(Refund::update().order(&options.order).limit_cents(options.limit)).await?;
    loop {
        let question = match outcome {
            Outcome::Done(state) => {
                state.notes.iter().for_each(|note| println!("{note}"));
                return Ok(0);
            }
            Outcome::Outside(_) => return Err("this graph waits for people only".into()),
            Outcome::Suspended(why) => return Err(format!("the run was stopped: {why}; the same command goes on").into()),
            Outcome::Waiting(questions) => questions.into_iter().next().ok_or("the run waits for nothing")?,
        };
        show(&question);
        println!("answers: {}", choices(&question));
        let Some(text) = options.answer.take().map_or_else(read_answer, |text| Ok(Some(text)))? else {
            println!("go on with the same command and --answer");
            return Ok(if question.is_doubt() { 4 } else { 3 });
        };
        outcome = thread.answer(question.id, answer(&question, &text)?.by("the command line")).await?;
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("refund: {error}\nusage: {USAGE}");
            return ExitCode::from(2);
        }
    };
    match go(options).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("refund: {error}");
            ExitCode::FAILURE
        }
    }
}
