//! A receiver of webhooks on loopback, byte by byte, that does wrong what it is told to do wrong.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ferrata::clock::{Clock, SystemClock};
use ferrata::{Notice, Notifier, Notifying};
use ferrata_nodes::{Webhook, WebhookSecret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::http::{hold_time, read_request};

pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// More than any attempt may take.
const LONG: Duration = Duration::from_secs(15);

/// What becomes of a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// It is acted on, and answered: status and headers, as they stand in the answer.
    Answer(&'static str),
    /// It is answered, and not acted on.
    Refuse(&'static str),
    /// It is acted on, and the connection breaks.
    Break,
    /// It is not even read to its end.
    Drop,
    /// It is acted on, and answered after the client's time.
    Hang,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: String,
    pub(crate) at: Instant,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        let line = self.head.lines().find_map(|line| line.split_once(": ").filter(|(key, _)| key.eq_ignore_ascii_case(name)));
        line.map_or("", |(_, value)| value)
    }

    pub(crate) fn id(&self) -> &str {
        self.header("webhook-id")
    }

    /// As a receiver does that knows the secret.
    pub(crate) fn is_right(&self, body: &str) -> bool {
        let (time, signature) = (self.header("webhook-timestamp"), self.header("webhook-signature"));
        let secret = WebhookSecret::new(SECRET).unwrap();
        secret.verify(self.id(), time, body.as_bytes(), signature, SystemClock.now(), Duration::from_secs(300)).is_ok()
    }
}

/// What it knows.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) requests: Vec<Received>,
    /// The ids that were acted on, each once.
    known: BTreeSet<String>,
    /// What was done: notices by what they are about.
    pub(crate) done: Vec<Notice>,
}

impl Seen {
    /// How often each id came.
    pub(crate) fn times(&self) -> BTreeMap<&str, usize> {
        let mut times = BTreeMap::new();
        self.requests.iter().for_each(|request| *times.entry(request.id()).or_default() += 1);
        times
    }
}

type Plan = dyn Fn(&Seen, &Received) -> Act + Send + Sync;

#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) url: String,
    seen: Arc<Mutex<Seen>>,
    /// How many requests were read, and how many acted on.
    counts: watch::Sender<(usize, usize)>,
    plan: Arc<Plan>,
}

impl Receiver {
    /// `plan`: what to do with a request, by what came before it.
    pub(crate) async fn start(plan: impl Fn(&Seen, &Received) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hooks", listener.local_addr().unwrap());
        let (seen, counts) = (Arc::default(), watch::Sender::new((0, 0)));
        let receiver = Self { url, seen, counts, plan: Arc::new(plan) };
        let own = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let own = own.clone();
                tokio::spawn(async move { own.serve(stream).await });
            }
        });
        receiver
    }

    pub(crate) async fn answering(answer: &'static str) -> Self {
        Self::start(move |_, _| Act::Answer(answer)).await
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    pub(crate) async fn has_acted_on(&self, count: usize) {
        self.counts.subscribe().wait_for(|(_, acted)| *acted >= count).await.unwrap();
    }

    pub(crate) async fn has_read(&self, count: usize) {
        self.counts.subscribe().wait_for(|(read, _)| *read >= count).await.unwrap();
    }

    /// A signed webhook to it, during whose attempts no time passes but what it is told to let pass.
    pub(crate) fn webhook(&self) -> Held {
        Held(Webhook::new(&self.url).unwrap().secret(SECRET).unwrap().name("pager"))
    }

    async fn serve(&self, mut stream: TcpStream) {
        let Ok(text) = read_request(&mut stream).await else { return };
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let received = Received { head: head.to_owned(), body: body.to_owned(), at: now() };
        let act = self.take(received);
        match act {
            Act::Answer(answer) | Act::Refuse(answer) => {
                let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
                _ = stream.write_all(answer.as_bytes()).await;
                _ = stream.shutdown().await;
            }
            Act::Break | Act::Drop => {}
            Act::Hang => {
                tokio::time::advance(LONG).await;
                // Until the client has gone.
                _ = stream.read(&mut [0]).await;
            }
        }
    }

    fn take(&self, received: Received) -> Act {
        let mut seen = self.seen();
        let act = (self.plan)(&seen, &received);
        if !matches!(act, Act::Refuse(_) | Act::Drop) && seen.known.insert(received.id().to_owned()) {
            seen.done.push(serde_json::from_str(&received.body).unwrap());
        }
        seen.requests.push(received);
        self.counts.send_replace((seen.requests.len(), seen.done.len()));
        act
    }
}

/// Paused time and sockets: while an attempt is under way, time does not run ahead.
#[derive(Debug)]
pub(crate) struct Held(pub(crate) Webhook);

impl Notifier for Held {
    fn name(&self) -> &str {
        Notifier::name(&self.0)
    }

    fn notify<'n>(&'n self, notice: &'n Notice) -> Notifying<'n> {
        Box::pin(async move {
            let held = hold_time();
            let told = self.0.notify(notice).await;
            held.release().await;
            told
        })
    }
}

#[allow(clippy::disallowed_methods, reason = "tokio's paused time is the clock of these tests")]
fn now() -> Instant {
    Instant::now()
}
