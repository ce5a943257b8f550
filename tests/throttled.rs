//! "A provider throttled us; every worker retried in step, and the account was blocked."
//!
//! How it could break: workers that begin in step; a server that asks one of them to wait and is stormed by the others; workers that had a time to begin
//! before it asked, and begin all the same; a breaker that lets all in at once when it closes.
//!
//! The server is a real one on loopback, in the same runtime, which takes five requests a second and bans for ever whoever it has refused fifty times. Time is
//! tokio's paused one: 2,000 requests at five a second take no time here.

#[allow(dead_code, reason = "each test uses a part of it")]
mod support {
    pub(crate) mod http;
    pub(crate) mod tokio_clock;
}

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::store::MemoryStore;
use ferrata::{Breaker, END, Graph, IntoNode, NodeError, Resource, Retry, Runner, START, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use support::http::{self, Reply};
use support::tokio_clock::{TokioClock, tokio_now};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
struct Job {
    records: u64,
    #[state(sum)]
    done: u64,
}

const SECOND: Duration = Duration::from_secs(1);
const PER_SECOND: usize = 5;
const BAN_AT: usize = 50;
const RECORDS: u64 = 2_000;
const WORKERS: usize = 20;

/// What was asked, when, and with which answer.
type Log = Arc<Mutex<Vec<(Instant, Reply)>>>;

struct Server {
    address: SocketAddr,
    log: Log,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, log) = (listener.local_addr().expect("an address"), Log::default());
        let (kept, rules) = (Arc::clone(&log), Arc::new(Mutex::new(Rules::default())));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&rules), Arc::clone(&kept)));
            }
        });
        Self { address, log }
    }

    fn log(&self) -> Vec<(Instant, Reply)> {
        self.log.lock().expect("no panic").clone()
    }

    fn answered(&self, status: u16) -> usize {
        self.log().iter().filter(|(_, reply)| reply.status == status).count()
    }

    /// How long after each request the next one came.
    fn spaces(&self) -> Vec<Duration> {
        self.log().windows(2).map(|pair| pair[1].0.duration_since(pair[0].0)).collect()
    }
}

#[derive(Default)]
struct Rules {
    recent: VecDeque<Instant>,
    refused: usize,
}

impl Rules {
    fn take(&mut self, now: Instant) -> Reply {
        while self.recent.front().is_some_and(|at| now.duration_since(*at) >= SECOND) {
            self.recent.pop_front();
        }
        if self.refused >= BAN_AT {
            Reply { status: 403, retry_after: None }
        } else if self.recent.len() >= PER_SECOND {
            self.refused += 1;
            Reply { status: 429, retry_after: Some(1) }
        } else {
            self.recent.push_back(now);
            Reply { status: 200, retry_after: None }
        }
    }
}

async fn serve(mut stream: TcpStream, rules: Arc<Mutex<Rules>>, log: Log) -> std::io::Result<()> {
    http::read_head(&mut stream).await?;
    let now = tokio_now();
    let reply = rules.lock().expect("no panic").take(now);
    log.lock().expect("no panic").push((now, reply));
    let header = reply.retry_after.map(|seconds| format!("Retry-After: {seconds}\r\n")).unwrap_or_default();
    let answer = format!("HTTP/1.1 {} \r\n{header}Content-Length: 0\r\nConnection: close\r\n\r\n", reply.status);
    stream.write_all(answer.as_bytes()).await
}

/// What a program does with the answer of a service.
fn taken(reply: Reply) -> ferrata::Result<JobUpdate> {
    if reply.status == 200 {
        return Ok(Job::update().done(1));
    }
    let error = NodeError::http(reply.status, format!("HTTP {}", reply.status));
    Err(match reply.retry_after {
        Some(seconds) => error.retry_after(Duration::from_secs(seconds)),
        None => error,
    })
}

/// Twenty workers send all records. Gives how it ended, and what the workers have seen, by the time before and the time after.
async fn job(server: &Server, resource: Option<Resource>) -> (Result<u64, String>, Vec<(Instant, Instant, Reply)>) {
    let (address, seen) = (server.address, Arc::new(Mutex::new(Vec::new())));
    let by_worker = Arc::clone(&seen);
    let send = move |_record: u64| {
        let seen = Arc::clone(&by_worker);
        async move {
            let begun = tokio_now();
            let reply = http::get(address).await?;
            seen.lock().expect("no panic").push((begun, tokio_now(), reply));
            taken(reply)
        }
    };
    let send = send.concurrency(WORKERS).retry(Retry::transient(10).first_delay(SECOND));
    let send = if resource.is_some() { send.uses("service") } else { send };
    let graph = Graph::<Job>::new("job")
        .node("list", || async { Ok(Job::update()) })
        .fan_out("list", "send", |job: &Job| (0..job.records).collect::<Vec<_>>())
        .node("send", send)
        .edge(START, "list")
        .edge("send", END);
    let clock = TokioClock { is_jittery: true, ..TokioClock::new() };
    let runner = Runner::with_clock(graph.build().expect("the graph is right"), MemoryStore::new(), clock);
    let runner = resource.into_iter().fold(runner, Runner::resource);
    let ended = runner.thread("t").run(Job::update().records(RECORDS)).await;
    let ended = ended.map(|outcome| outcome.done().expect("nothing asks").done).map_err(|error| error.to_string());
    let seen = std::mem::take(&mut *seen.lock().expect("no panic"));
    (ended, seen)
}

fn breaker() -> Breaker {
    Breaker::new().calls_min(5).open_for(5 * SECOND)
}

#[tokio::test(start_paused = true)]
async fn with_a_rate_and_a_breaker_nobody_is_banned_and_the_log_of_the_server_shows_spacing_and_jitter() {
    let server = Server::start().await;
    let resource = Resource::new("service").rate(5, SECOND).breaker(breaker());
    let (ended, seen) = job(&server, Some(resource)).await;
    assert_eq!(ended, Ok(RECORDS));
    let log = server.log();
    assert!(server.answered(403) == 0 && server.answered(429) < 5, "{} were refused", server.answered(429));
    let spaces = server.spaces();
    let close = spaces.iter().filter(|space| **space < SECOND / 10).count();
    assert_eq!(close, 0, "none comes close behind another one");
    let kinds: BTreeSet<u128> = spaces.iter().map(Duration::as_millis).collect();
    assert!(kinds.len() > 10, "they come with jitter: {kinds:?}");
    // No time passed while a request was under way, so that the two have seen the same.
    assert!(seen.iter().all(|(begun, ended, _)| begun == ended));
    assert_eq!(seen.iter().map(|(at, _, reply)| (*at, *reply)).collect::<Vec<_>>(), log);
}

#[tokio::test(start_paused = true)]
async fn without_a_resource_everybody_is_polite_for_itself_and_all_are_banned() {
    let server = Server::start().await;
    let (ended, _) = job(&server, None).await;
    assert!(ended.expect_err("they are banned").contains("HTTP 403"));
    assert_eq!(server.answered(429), BAN_AT);
}

#[tokio::test(start_paused = true)]
async fn with_the_breaker_off_all_are_banned() {
    let server = Server::start().await;
    let (ended, _) = job(&server, Some(Resource::new("service").concurrency(WORKERS))).await;
    assert!(ended.expect_err("they are banned").contains("HTTP 403"));
    assert_eq!(server.answered(429), BAN_AT);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_alone_finds_out_how_fast_it_may_be() {
    let server = Server::start().await;
    let (ended, _) = job(&server, Some(Resource::new("service").concurrency(WORKERS).breaker(breaker()))).await;
    assert_eq!(ended, Ok(RECORDS));
    assert_eq!(server.answered(403), 0);
    let log = server.log();
    let since = |at: Instant| at.duration_since(log[0].0);
    let refused: Vec<Duration> = log.iter().filter(|(_, reply)| reply.status == 429).map(|(at, _)| since(*at)).collect();
    // Those of the first moment, when nobody knew; then one now and then, when it tries whether more is allowed.
    let (storm, later): (Vec<Duration>, Vec<Duration>) = refused.iter().partition(|at| at.is_zero());
    assert!(storm.len() <= WORKERS && later.first() >= Some(&(5 * SECOND)), "{refused:?}");
    assert!(later.len() < 25 && later.windows(2).skip(1).all(|pair| pair[1] - pair[0] > 10 * SECOND), "{refused:?}");
    let took = since(log.last().expect("a request").0);
    assert!(took < 700 * SECOND, "it takes at least 400 s, and took {took:?}");
}
