//! Spans, and what the types of the crate say of themselves, tell no secret.
//!
//! How it could break: a span with a value of the state in a field; a handle whose `Debug` shows what was handed in. Alone in its file, since what
//! is heard of a span depends on who else listens in the process.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::{Arc, Mutex};

use ferrata::store::MemoryStore;
use ferrata::{Ask, Context, END, ForgetSecrets, Graph, NodeError, Runner, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const TOKEN: &str = "key-to-the-hut";

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Job {
    #[state(secret)]
    token: String,
}

fn runner(store: &Arc<MemoryStore>) -> Runner<Job> {
    let again = |s: View<Job>, ctx: Context| async move {
        let token = s.token.clone();
        ctx.effect("use", |_| async move { Err::<(), _>(NodeError::new(format!("no entry with {token}")).not_performed()) })
            .await
            .ok();
        ctx.ask("go on", Ask::<bool>::new(format!("Go on with {}?", s.token))).await?;
        Ok(Job::update().token(format!("{}!", s.token)))
    };
    let graph = Graph::<Job>::new("job").node("again", again).edge(START, "again").edge("again", END).build().unwrap();
    Runner::new(graph, Arc::clone(store)).secrets(ForgetSecrets)
}

/// Keeps everything that spans and events are given.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<String>>);

impl tracing::field::Visit for Heard {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write;
        let _ = write!(self.0.lock().unwrap(), "{field}={value:?};");
    }
}

impl tracing::Subscriber for Heard {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn spans_and_handles_tell_nothing_of_it() {
    let heard = Heard::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(heard.clone(), || {
        runtime.block_on(async {
            let store = Arc::<MemoryStore>::default();
            let question = runner(&store).thread("t").run(Job::update().token(TOKEN)).await.unwrap().questions()[0].id;
            let thread = runner(&store).thread("t").secret("token", TOKEN).tag("who", "dana");
            assert!(!format!("{thread:?} {:?}", runner(&store)).contains(TOKEN));
            thread.answer(question, true).await.unwrap().done().unwrap();
        });
    });
    let heard = heard.0.lock().unwrap();
    assert!(heard.contains("dana") && heard.contains("again@") && !heard.contains(TOKEN), "{heard}");
}
