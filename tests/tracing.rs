//! A run explains itself while it goes on: spans for run, step, task, attempt and effect, each inside the one before.
//!
//! How it could break: a span without its parent, so that nobody can tell which run an effect belongs to; retries that look like other tasks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::store::MemoryStore;
use ferrata::{Context, END, Graph, IntoNode, NodeError, Retry, Runner, START, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Order {
    paid: bool,
}

/// Keeps the way from the outermost span to each span that was opened.
#[derive(Clone, Default)]
struct Ways {
    next: Arc<AtomicU64>,
    opened: Arc<Mutex<Opened>>,
}

#[derive(Default)]
struct Opened {
    ways: HashMap<u64, String>,
    in_order: Vec<String>,
}

thread_local! {
    static ENTERED: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Subscriber for Ways {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("ferrata")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::SeqCst) + 1;
        let parent = span.parent().map(Id::into_u64).or_else(|| ENTERED.with_borrow(|entered| entered.last().copied()));
        let mut opened = self.opened.lock().expect("not poisoned");
        let way = match parent.and_then(|parent| opened.ways.get(&parent)) {
            Some(way) => format!("{way} > {}", span.metadata().name()),
            None => span.metadata().name().to_owned(),
        };
        opened.ways.insert(id, way.clone());
        opened.in_order.push(way);
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(span.into_u64()));
    }

    fn exit(&self, _: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.pop());
    }
}

#[test]
fn run_step_task_attempt_and_effect_are_inside_each_other() {
    async fn pay(ctx: Context) -> ferrata::Result<OrderUpdate> {
        ctx.effect("pay", |_| async { Ok(()) }).await?;
        if ctx.attempt() == 1 {
            return Err(NodeError::new("the printer is out of paper").transient());
        }
        Ok(Order::update().paid(true))
    }
    let graph = Graph::<Order>::new("order")
        .node("pay", pay.retry(Retry::transient(2).first_delay(Duration::ZERO)))
        .edge(START, "pay")
        .edge("pay", END)
        .build()
        .expect("the graph is right");
    let ways = Ways::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tracing::subscriber::with_default(ways.clone(), || {
        let runner = Runner::new(graph, MemoryStore::new());
        runtime.block_on(async { runner.thread("t").run(Order::update()).await }).expect("it runs").done().expect("it ends");
    });
    let opened = ways.opened.lock().expect("not poisoned").in_order.clone();
    let expected = [
        "run",
        "run > step",
        "run > step > task",
        "run > step > task > attempt",
        "run > step > task > attempt > effect",
        "run > step > task > attempt",
        "run > step > task > attempt > effect",
    ];
    assert_eq!(opened, expected);
}
