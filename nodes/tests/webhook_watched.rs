//! Nothing secret of a webhook is logged, whatever goes wrong.
//!
//! Alone in its program: what is logged is collected by thread, and a place that logs first on another one is left out for good.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::Arc;
use std::time::Duration;

use ferrata::Runner;
use ferrata::store::MemoryStore;
use ferrata_nodes::Webhook;

#[path = "support/asking.rs"]
mod asking;
#[allow(dead_code, reason = "a part of it is used")]
#[path = "../../tests/support/http.rs"]
mod http;
#[path = "support/logs.rs"]
mod logs;
#[path = "support/receiver.rs"]
mod receiver;

use asking::{ask, graph, until_nothing_is_kept};
use logs::Logs;
use receiver::{Act, Receiver, SECRET};

#[tokio::test(start_paused = true)]
async fn who_is_gone_is_given_up_with_a_word_that_shows_no_secret() {
    let (logs, _guard) = Logs::begin();
    let receiver = Receiver::start(|seen, _| match seen.requests.len() {
        0 => Act::Refuse("500 do-not-show"),
        1 => Act::Break,
        _ => Act::Refuse("410 do-not-show\r\nx-key: do-not-show"),
    })
    .await;
    let store = Arc::new(MemoryStore::new());
    let runner = Runner::new(graph(), Arc::clone(&store));
    let url = receiver.url.replace("http://", "http://user:do-not-show@") + "?key=do-not-show";
    let webhook = Webhook::new(&url).unwrap().secret(SECRET).unwrap().header("x-key", "do-not-show").unwrap();
    let shown = format!("{webhook:?}");
    let supervisor = runner.supervise().notify(receiver::Held(webhook)).start().await.unwrap();
    ask(&runner, 0..1).await;
    receiver.has_read(3).await;
    until_nothing_is_kept(&store).await;
    supervisor.drain(Duration::from_secs(1)).await;
    assert!(receiver.seen().requests[0].head.contains("?key=do-not-show"), "it is sent");
    let text = logs.text();
    for word in ["status 500", "status 410", "remove the webhook", "dropped"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    for secret in ["do-not-show", "MfKQ9r8G", "ZG8tbm90LXNob3c"] {
        assert!(!text.contains(secret) && !shown.contains(secret), "{secret}: {shown} {text}");
    }
}
