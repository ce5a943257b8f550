//! A small state, and what several tests do with threads of it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ferrata::store::{InboxQuery, Store};
use ferrata::{Ask, Context, GraphBuilder, QuestionId, Runner, State, Thread};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
pub(crate) struct Case {
    pub(crate) n: u64,
    #[state(append)]
    pub(crate) log: Vec<String>,
}

pub(crate) type Doing<T> = Pin<Box<dyn Future<Output = ferrata::Result<T>> + Send>>;

pub(crate) async fn ask(ctx: Context) -> ferrata::Result<CaseUpdate> {
    Ok(Case::update().push_log(ctx.ask("name", Ask::<String>::new("Who?")).await?))
}

pub(crate) fn hold(gate: &Arc<Notify>) -> impl Fn() -> Doing<CaseUpdate> + Send + Sync + Clone + 'static {
    let gate = Arc::clone(gate);
    move || {
        let gate = Arc::clone(&gate);
        Box::pin(async move {
            gate.notified().await;
            Ok(Case::update().push_log("worked"))
        })
    }
}

pub(crate) fn runner(graph: GraphBuilder<Case>, store: impl Store) -> Runner<Case> {
    Runner::new(graph.build().expect("the graph is right"), store)
}

pub(crate) fn thread(graph: GraphBuilder<Case>, store: impl Store) -> Thread<Case> {
    runner(graph, store).thread("t")
}

/// The inbox and the thread agree.
pub(crate) async fn agree(runner: &Runner<Case>) {
    let inbox = runner.inbox(InboxQuery::new()).await.expect("the inbox");
    let mut listed: Vec<QuestionId> = inbox.items.iter().map(|item| item.question.id).collect();
    let mut open: Vec<QuestionId> = runner.thread("t").questions().await.expect("open").iter().map(|q| q.id).collect();
    listed.sort();
    open.sort();
    assert_eq!(listed, open, "the inbox, and what the thread has open");
    assert!(inbox.unreadable.is_empty());
}

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), what).await.expect("it comes to an end")
}
