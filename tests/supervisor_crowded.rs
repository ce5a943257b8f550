//! Many threads that have long work before them keep nobody from being told, and no deadline from ringing.
//!
//! How it could break: threads that wait for their turn take the room of those of which somebody has to be told; a question that is reminded of only
//! when some long run has ended, after days.

mod support {
    pub(crate) mod notes;
    pub(crate) mod tokio_clock;
}

use std::sync::Arc;
use std::time::Duration;

use ferrata::store::{MemoryStore, ThreadQuery, ThreadStatus};
use ferrata::{Approval, END, Graph, IntoNode, NoticeKind, Recovery, Runner, START, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use support::notes::Told;
use support::tokio_clock::TokioClock;

const HOUR: Duration = Duration::from_secs(3_600);
/// More than a supervisor looks after at once.
const CROWD: usize = 1_100;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Case {
    is_done: bool,
}

/// Work that takes weeks, and a question that has an hour.
fn graphs() -> [Graph<Case>; 2] {
    let work = || async {
        tokio::time::sleep(1_000 * HOUR).await;
        Ok(Case::update().is_done(true))
    };
    let long = Graph::<Case>::new("long").node("work", work.patience(None)).edge(START, "work").edge("work", END);
    let asks = Graph::<Case>::new("asks")
        .question("approve", |_| Approval::ask("Go?").remind_after(HOUR).deadline(2 * HOUR))
        .edge(START, "approve")
        .approved("approve", END)
        .rejected("approve", END);
    [long, asks].map(|graph| graph.build().expect("the graph is right"))
}

#[tokio::test(start_paused = true)]
async fn somebody_is_told_of_a_question_while_more_threads_wait_for_their_turn_than_are_looked_after_at_once() {
    let (clock, store) = (TokioClock::new(), Arc::new(MemoryStore::new()));
    let runners = || graphs().map(|graph| Runner::with_clock(graph, Arc::clone(&store), clock.clone()));
    let [long, asks] = runners();
    let supervisor = long.supervise().also(&asks).start().await.expect("it begins");
    for number in 0..CROWD {
        let thread = long.thread(&format!("long-{number}"));
        tokio::spawn(async move { thread.run(Case::update()).await });
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    supervisor.drain(Duration::from_secs(1)).await;
    let ready = long.threads(ThreadQuery::new().status(ThreadStatus::Ready).limit(2 * CROWD)).await.expect("a list");
    assert_eq!(ready.len(), CROWD);

    let [long, asks] = runners();
    let told = Told::default();
    let recovery = Recovery::default().at_once(10);
    let supervisor = long.supervise().also(&asks).notify(told.clone()).recovery(recovery).start().await.expect("it begins");
    tokio::time::sleep(Duration::from_secs(60)).await;
    _ = asks.thread("asks").run(Case::update()).await.expect("it asks");
    tokio::time::sleep(3 * HOUR).await;
    let kinds = told.kinds();
    assert_eq!(kinds[..2], [NoticeKind::Asked, NoticeKind::Reminded], "{kinds:?}");
    assert!(kinds.contains(&NoticeKind::Expired), "{kinds:?}");
    supervisor.drain(Duration::from_secs(1)).await;
}
