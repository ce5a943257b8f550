//! A notice gets through at least once, and is acted on once.
//!
//! How this could break: an answer that is taken for another one, so that a notice is lost or sent for ever; an id that changes from attempt to attempt; a signature
//! over other bytes than those sent; a receiver that hangs and holds up everything; a redirect that carries off what was signed.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferrata::clock::{ManualClock, Timestamp};
use ferrata::store::{MemoryStore, RedbStore, Store};
use ferrata::{Notice, Notifier, NotifyError, Runner};
use ferrata_nodes::{Webhook, WebhookSecret};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;

#[path = "support/asking.rs"]
mod asking;
#[allow(dead_code, reason = "a part of it is used")]
#[path = "../../tests/support/http.rs"]
mod http;
#[path = "support/receiver.rs"]
mod receiver;

use asking::{ask, graph, until_nothing_is_kept};
use receiver::{Act, Received, Receiver, SECRET, Seen};

fn notice() -> Notice {
    let id = "6f5c2f1e-3c0b-4a52-9a41-9d0c5b7e2e61";
    serde_json::from_value(json!({"id": id, "kind": "asked", "thread": "t", "text": "Größe?", "at": 5})).unwrap()
}

async fn tell(webhook: &impl Notifier) -> Result<(), NotifyError> {
    webhook.notify(&notice()).await
}

#[tokio::test]
async fn a_request_is_a_standard_webhook() {
    let receiver = Receiver::answering("204 X").await;
    let url = receiver.url.replace("http://", "http://user:word@") + "?key=of-the-query#part";
    let clock = ManualClock::at(Timestamp(1_700_000_000_900));
    let webhook = Webhook::new(&url).unwrap().secret(SECRET).unwrap().header("X-Team", "agents").unwrap().clock(clock);
    tell(&webhook).await.unwrap();
    let request = receiver.seen().requests[0].clone();
    assert!(request.head.starts_with("POST /hooks?key=of-the-query HTTP/1.1\r\n"), "{}", request.head);
    assert_eq!(request.header("content-type"), "application/json");
    assert_eq!(request.header("authorization"), "Basic dXNlcjp3b3Jk");
    assert_eq!(request.header("x-team"), "agents");
    assert_eq!(request.id(), notice().id.to_string());
    assert_eq!(request.header("webhook-timestamp"), "1700000000");
    assert_eq!(serde_json::from_str::<Notice>(&request.body).unwrap(), notice());
    let secret = WebhookSecret::new(SECRET).unwrap();
    assert_eq!(
        request.header("webhook-signature"),
        secret.sign(request.id(), Timestamp(1_700_000_000_000), request.body.as_bytes())
    );
}

#[tokio::test]
async fn without_a_secret_nothing_is_signed() {
    let receiver = Receiver::answering("200 X").await;
    tell(&Webhook::new(&receiver.url).unwrap()).await.unwrap();
    assert_eq!(receiver.seen().requests[0].header("webhook-signature"), "");
}

#[tokio::test]
async fn an_answer_means_what_the_table_says() {
    // Status and headers, whether it is final, and how long it is to be left alone.
    let cases: &[(&str, bool, Option<u64>)] = &[
        ("408 X", false, None),
        ("409 X", false, None),
        ("425 X", false, None),
        ("429 X\r\nretry-after: 7", false, Some(7)),
        ("500 X", false, None),
        ("503 X\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\nretry-after: Sun, 06 Nov 1994 08:50:37 GMT", false, Some(60)),
        ("599 X", false, None),
        ("300 X", true, None),
        ("304 X", true, None),
        ("400 X\r\nretry-after: 7", true, None),
        ("401 X", true, None),
        ("404 X", true, None),
        ("410 X", true, None),
        ("418 X", true, None),
        ("600 X", true, None),
    ];
    for (answer, is_final, seconds) in cases {
        let receiver = Receiver::answering(answer).await;
        let error = tell(&receiver.webhook()).await.unwrap_err();
        assert_eq!((error.is_final(), error.delay()), (*is_final, seconds.map(Duration::from_secs)), "{answer}: {error}");
        assert!(error.to_string().contains(&answer[..3]) && (error.to_string().contains(';') || !is_final), "{error}");
    }
    for answer in ["200 X", "202 X", "204 X", "299 X\r\nretry-after: 7"] {
        tell(&Receiver::answering(answer).await.webhook()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn no_answer_means_later() {
    let hanging = Receiver::start(|_, _| Act::Hang).await;
    let error = tell(&hanging.webhook()).await.unwrap_err();
    assert!(!error.is_final() && error.to_string().contains("10s"), "{error}");
    let breaking = Receiver::start(|_, _| Act::Break).await;
    let error = tell(&breaking.webhook()).await.unwrap_err();
    assert!(!error.is_final(), "{error}");
    // Somebody has the port, and does not listen.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/x?key=do-not-show", silent.local_addr().unwrap());
    let error = tell(&receiver::Held(Webhook::new(&url).unwrap())).await.unwrap_err();
    assert!(!error.is_final() && error.to_string().contains("refused"), "{error}");
    assert!(!error.to_string().contains("do-not-show"), "{error}");
}

/// A server that sends this head, and a body without an end, or none; it ends when the client goes.
async fn without_end(status: &'static str, sends: bool) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        http::read_request(&mut stream).await.unwrap();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 99999999999\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        while sends && stream.write_all(&[b'x'; 4096]).await.is_ok() {}
        _ = stream.read(&mut [0]).await;
    });
    (url, serving)
}

/// Neither a body that never ends nor one that never comes is waited for, and the status counts.
#[tokio::test]
async fn a_body_is_not_waited_for() {
    let cases = [("200", true, None), ("200", false, None), ("500", true, Some(false)), ("410", false, Some(true))];
    for (status, sends, is_final) in cases {
        let (url, serving) = without_end(status, sends).await;
        let webhook = Webhook::new(&url).unwrap().timeout(Duration::from_secs(50));
        let told = tokio::time::timeout(Duration::from_secs(40), tell(&webhook)).await.expect("it is not waited for");
        assert_eq!(told.as_ref().err().map(NotifyError::is_final), is_final, "{told:?}");
        serving.await.unwrap();
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = Receiver::answering("200 X").await;
    for status in [301, 302, 303, 307, 308] {
        let answer = format!("{status} X\r\nlocation: {}?key=do-not-show", other.url).leak();
        let receiver = Receiver::answering(answer).await;
        let error = tell(&receiver.webhook()).await.unwrap_err();
        assert!(error.is_final() && error.to_string().contains("redirects are not followed"), "{error}");
        assert!(!error.to_string().contains("do-not-show"), "{error}");
    }
    assert!(other.seen().requests.is_empty());
}

#[tokio::test]
async fn a_bad_webhook_is_told_and_not_shown() {
    for url in [
        "",
        "do-not-show",
        "ftp://do-not-show@host/",
        "http://",
        "https://do-not-show:99999999/",
        "file:///do-not-show",
        "data:do-not-show",
    ] {
        let error = Webhook::new(url).unwrap_err();
        assert!(
            error.to_string().contains("https://") && !format!("{error} {error:?}").contains("do-not-show"),
            "{url}: {error:?}"
        );
    }
    let webhook = || Webhook::new("https://host/path").unwrap();
    let errors = [
        webhook().secret("do-not-show").unwrap_err(),
        webhook().secret("whsec_do-not-show").unwrap_err(),
        webhook().secret_bytes(b"do-not-show").unwrap_err(),
        webhook().header("x key", "do-not-show").unwrap_err(),
        webhook().header("x-key", "do-not-show\r\n").unwrap_err(),
        webhook().header("Webhook-Id", "do-not-show").unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains(';') || error.to_string().contains("no header has"), "{error}");
        assert!(!format!("{error} {error:?}").contains("do-not-show"), "{error:?}");
    }
    assert_eq!(Notifier::name(&webhook()), "webhook:host/path");
}

/// Fails in every way, and answers at last.
fn unreliable(seen: &Seen, received: &Received) -> Act {
    let times = seen.times();
    let (ids, nth) = (times.len(), times.get(received.id()).copied().unwrap_or(0));
    let ways = [
        Act::Answer("500 X"),
        Act::Hang,
        Act::Answer("200 X"),
        Act::Break,
        Act::Refuse("503 X\r\nretry-after: 2"),
        Act::Drop,
        Act::Answer("429 X"),
    ];
    if nth > 2 { Act::Answer("200 X") } else { ways[(ids + 3 * nth) % ways.len()].clone() }
}

/// Every notice was acted on once, though many came more than once, and every signature was right, over this body and no other.
fn check(receiver: &Receiver, count: usize) {
    let seen = receiver.seen();
    let threads: BTreeSet<_> = seen.done.iter().map(|notice| notice.thread.clone().unwrap()).collect();
    assert_eq!((seen.done.len(), threads.len(), seen.times().len()), (count, count, count));
    assert!(seen.times().values().filter(|times| **times > 1).count() > count / 3, "{:?}", seen.times());
    for request in &seen.requests {
        assert!(request.is_right(&request.body), "{request:?}");
        assert!(!request.is_right(&request.body.replacen("Ship", "Sink", 1)), "{request:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_question_gets_through_and_is_acted_on_once() {
    let receiver = Receiver::start(unreliable).await;
    let store = Arc::new(MemoryStore::new());
    let runner = Runner::new(graph(), Arc::clone(&store));
    let supervisor = runner.supervise().notify(receiver.webhook()).start().await.unwrap();
    ask(&runner, 0..20).await;
    receiver.has_acted_on(20).await;
    until_nothing_is_kept(&store).await;
    check(&receiver, 20);
    supervisor.drain(Duration::from_secs(1)).await;
}

/// The receiver goes down in the middle, and the program ends with notices that nobody has got.
#[tokio::test(start_paused = true)]
async fn what_was_not_told_is_told_by_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("threads.redb");
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    let receiver = Receiver::start(move |seen, received| match seen.done.len() {
        8.. if down.load(Ordering::SeqCst) => Act::Drop,
        _ => unreliable(seen, received),
    })
    .await;
    is_down.store(true, Ordering::SeqCst);
    {
        let store = Arc::new(RedbStore::open(&file).unwrap());
        let runner = Runner::new(graph(), Arc::clone(&store));
        let supervisor = runner.supervise().notify(receiver.webhook()).start().await.unwrap();
        ask(&runner, 0..20).await;
        receiver.has_acted_on(8).await;
        let so_far = receiver.seen().requests.len();
        receiver.has_read(so_far + 3).await;
        while store.notes("notice/", None, 100).await.unwrap().len() < 12 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(supervisor);
    }
    assert_eq!(receiver.seen().done.len(), 8);
    is_down.store(false, Ordering::SeqCst);
    let store = Arc::new(reopened(&file).await);
    let runner = Runner::new(graph(), Arc::clone(&store));
    let supervisor = runner.supervise().notify(receiver.webhook()).start().await.unwrap();
    receiver.has_acted_on(20).await;
    until_nothing_is_kept(&store).await;
    check(&receiver, 20);
    supervisor.drain(Duration::from_secs(1)).await;
    drop((runner, store));
    // Drained, it has let go of its file.
    RedbStore::open(&file).unwrap();
}

/// A supervisor that is dropped lets go of the store a moment later.
async fn reopened(file: &std::path::Path) -> RedbStore {
    for _ in 0..1_000 {
        if let Ok(store) = RedbStore::open(file) {
            return store;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the file is held");
}

#[tokio::test(start_paused = true)]
async fn nobody_comes_before_retry_after() {
    let receiver = Receiver::start(|seen, _| match seen.requests.len() {
        0 => Act::Refuse("429 X\r\nretry-after: 30"),
        1 => Act::Refuse("503 X\r\nretry-after: 3600"),
        _ => Act::Answer("200 X"),
    })
    .await;
    let runner = Runner::new(graph(), MemoryStore::new());
    let supervisor = runner.supervise().notify(receiver.webhook()).start().await.unwrap();
    ask(&runner, 0..1).await;
    receiver.has_acted_on(1).await;
    let at: Vec<_> = receiver.seen().requests.iter().map(|request| request.at).collect();
    let waits = [at[1] - at[0], at[2] - at[1]];
    assert!(waits[0] >= Duration::from_secs(30) && waits[0] < Duration::from_secs(40), "{waits:?}");
    assert!(waits[1] >= Duration::from_secs(3_600) && waits[1] < Duration::from_secs(4_000), "{waits:?}");
    supervisor.drain(Duration::from_secs(1)).await;
}
