//! An agent whose state is full of secrets, and a store that looks at its own file after every append.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ferrata::state::Message;
use ferrata::store::{Append, Appended, Pending, RedbStore, Store, StoreError};
use ferrata::{
    Ask, Context, END, Graph, IntoNode, Next, NodeError, Runner, START, SealSecrets, SecretPlace, Secrets, State, Target, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// In every secret value.
pub(crate) const HUSH: &str = "hush-hush";
/// In every value that is none.
pub(crate) const TOLD: &str = "told-to-all";

fn join(old: String, new: String) -> String {
    format!("{old}{new}")
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
pub(crate) struct Agent {
    #[state(append)]
    pub(crate) log: Vec<String>,
    #[state(secret)]
    pub(crate) token: String,
    #[state(append, secret)]
    pub(crate) notes: Vec<String>,
    #[state(append, secret)]
    pub(crate) text: String,
    #[state(merge, secret)]
    pub(crate) keys: BTreeMap<String, String>,
    #[state(messages, secret)]
    pub(crate) messages: Vec<Message>,
    #[state(with = "join", secret)]
    pub(crate) joined: String,
    #[state(sum, secret)]
    pub(crate) pin: u64,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
pub(crate) struct Inner {
    pub(crate) plain: String,
    #[state(secret)]
    pub(crate) key: Option<String>,
}

pub(crate) fn hush(what: &str) -> String {
    format!("{HUSH} {what}")
}

/// Every operation on every secret field.
pub(crate) fn everything(by: &str) -> AgentUpdate {
    let secret = |what: &str| hush(&format!("{what} by {by}"));
    Agent::update()
        .note(secret("note"))
        .text(secret("text"))
        .key(by, secret("key"))
        .message(Message::user(secret("message")).with_id(by))
        .joined(secret("joined"))
        .pin(7_u64)
}

fn pad(bytes: usize) -> String {
    format!("{TOLD} {}", "x".repeat(bytes))
}

/// What goes wrong once.
#[derive(Default)]
pub(crate) struct Once(AtomicBool);

impl Once {
    fn now(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }
}

/// gather, then two that were sent something, then a graph that shares the state and asks, then one with a state of its own that asks, then the end.
pub(crate) fn agent(fails: &Arc<Once>) -> Graph<Agent> {
    let gather = |_: View<Agent>| async {
        let sent = json!({"token": hush("sent"), "log": [], "notes": [hush("sent note")], "text": "", "keys": {}, "messages": [],
            "joined": "", "pin": 0});
        let update = everything("gather").token(hush("token")).push_log(pad(20_000));
        Ok(Next::update(update).goto([Target::send("sent", sent), Target::node("count")]))
    };
    let sent = |s: View<Agent>| async move {
        assert_eq!((s.token.as_str(), s.notes[0].as_str()), (&*hush("sent"), &*hush("sent note")));
        Ok(Next::update(Agent::update().push_log("sent").note(hush("of sent")))
            .goto([Target::send("sent_too", json!({"token": s.token}))]))
    };
    let fails = Arc::clone(fails);
    // Fails beside one that has a result: the result is pending then, with everything in it.
    let count = move |s: View<Agent>| {
        let fails = Arc::clone(&fails);
        async move {
            assert_eq!(s.token, hush("token"));
            if fails.now() {
                return Err(NodeError::new(format!("no entry with {}", s.token)).context("logging in").deterministic());
            }
            Ok(Agent::update().push_log(pad(25_000)).set_text(hush("text anew")).remove_keys(["gather"]))
        }
    };
    let route = |s: &Agent| Ok(vec![Target::send("sent_too", json!({"token": s.token.clone()}))]);
    let sent_too = |payload: Value, s: View<Agent>| async move {
        assert!([hush("sent"), s.token.clone()].map(|token| json!(token)).contains(&payload["token"]), "{payload}");
        Ok(everything("sent_too"))
    };
    let ask = |s: View<Agent>, ctx: Context| async move {
        assert_eq!(s.token, hush("token"));
        let ask = Ask::<bool>::new(format!("May {} be used?", s.token)).show(&json!({"token": s.token, "all": *s}));
        ctx.ask("may", ask).await?;
        Ok(Agent::update().push_log(pad(10)))
    };
    let write = |_: View<Agent>| async { Ok(everything("write").push_log(pad(60_000))) };
    let shared = Graph::<Agent>::new("shared").node("write", write).node("ask", ask);
    let shared = shared.edge(START, "write").edge("write", "ask").edge("ask", END).build().unwrap();
    let log_in = |s: View<Inner>| async move { Ok(Inner::update().plain(pad(200_000)).key(s.key.clone().map(|key| key + "!"))) };
    let ask = |s: View<Inner>, ctx: Context| async move {
        ctx.ask("sure", Ask::<bool>::new("Sure?")).await?;
        assert_eq!(s.key, Some(hush("token") + "!"));
        Ok(Inner::update().key(s.key.clone().map(|key| key + "!")))
    };
    let mapped = Graph::<Inner>::new("mapped").node("log_in", log_in).node("ask", ask);
    let mapped = mapped.edge(START, "log_in").edge("log_in", "ask").edge("ask", END).build().unwrap();
    let mapped = mapped.mapped(
        |s: &Agent| Inner::update().key(s.token.clone()),
        |_, inner: &Inner| Agent::update().note(inner.key.clone().unwrap_or_default()),
    );
    let both = |s: View<Agent>| async move { Ok(everything("last").set_joined(s.joined.clone() + "?")) };
    Graph::<Agent>::new("agent")
        .node("gather", gather.leads_to(["sent", "count"]))
        .node("sent", sent.leads_to(["sent_too"]))
        .node("count", count)
        .node("sent_too", sent_too)
        .node("shared", shared.shared())
        .node("mapped", mapped)
        .node("last", both)
        .edge(START, "gather")
        .branch("count", ["sent_too"], route)
        .edge("sent_too", "shared")
        .edge("shared", "mapped")
        .edge("mapped", "last")
        .edge("last", END)
        .build()
        .unwrap()
}

/// An encryption that is as good as none, but hides the text: bytes as numbers, each by itself.
pub(crate) fn sealing() -> impl Secrets {
    let seal = |place: SecretPlace<'_>, value: Value| {
        let numbers: Vec<u8> = serde_json::to_vec(&value)?.iter().map(|byte| byte ^ 0x5a).collect();
        Ok::<_, serde_json::Error>(json!({"for": format!("{}:{}{}", place.thread, place.path, place.field), "is": numbers}))
    };
    let open = |place: SecretPlace<'_>, stored: Value| {
        let is_for = format!("{}:{}{}", place.thread, place.path, place.field);
        if stored["for"] != is_for.as_str() {
            return Err(format!("it was sealed for {}, and is opened as {is_for}", stored["for"]));
        }
        let numbers: Vec<u8> = serde_json::from_value(stored["is"].clone()).map_err(|error| error.to_string())?;
        let bytes: Vec<u8> = numbers.iter().map(|byte| byte ^ 0x5a).collect();
        serde_json::from_slice(&bytes).map(Some).map_err(|error| error.to_string())
    };
    SealSecrets::new(seal, open)
}

/// A hook that hides nothing, so that the search can be seen to find it.
pub(crate) fn telling() -> impl Secrets {
    SealSecrets::new(
        |_: SecretPlace<'_>, value| Ok::<_, NoError>(value),
        |_: SecretPlace<'_>, value| Ok::<_, NoError>(Some(value)),
    )
}

#[derive(Debug)]
pub(crate) struct NoError;

impl std::fmt::Display for NoError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("none")
    }
}

impl std::error::Error for NoError {}

/// What was found in the file, over all processes.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Appends after which a secret stood in the file.
    pub(crate) leaks: Vec<String>,
    pub(crate) appends: usize,
    pub(crate) snapshots: usize,
    /// Where in records and snapshots something is sealed.
    pub(crate) places: BTreeSet<String>,
}

/// A redb file that is searched after every append.
#[derive(Clone, Debug)]
pub(crate) struct Searched {
    inner: Arc<RedbStore>,
    file: PathBuf,
    pub(crate) found: Arc<Mutex<Found>>,
}

impl Searched {
    pub(crate) fn open(file: &Path, found: &Arc<Mutex<Found>>) -> Self {
        Self { inner: Arc::new(RedbStore::open(file).unwrap()), file: file.to_owned(), found: Arc::clone(found) }
    }
}

pub(crate) fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Where in a value something is sealed: `input.changes.op.set`.
fn places(value: &Value, place: &str, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if fields.contains_key("$secret") => _ = into.insert(place.to_owned()),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| places(value, &format!("{place}.{name}"), into)),
        Value::Array(items) => items.iter().for_each(|item| places(item, place, into)),
        _ => {}
    }
}

impl Store for Searched {
    ferrata::hand_on_store!(inner);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        Box::pin(async move {
            let what = format!(
                "{:?}",
                append.records.iter().map(|r| format!("{r:?}").chars().take(30).collect::<String>()).collect::<Vec<_>>()
            );
            {
                let mut found = self.found.lock().unwrap();
                places(&serde_json::to_value(&append.records).unwrap(), "", &mut found.places);
                places(&serde_json::to_value(&append.snapshot).unwrap(), "snapshot", &mut found.places);
                found.appends += 1;
                found.snapshots += usize::from(append.snapshot.is_some());
            }
            let appended = self.inner.append(append).await?;
            let bytes = std::fs::read(&self.file).map_err(|_| StoreError::Closed)?;
            if holds(&bytes, HUSH) {
                self.found.lock().unwrap().leaks.push(what);
            }
            Ok(appended)
        })
    }
}

/// What a new process has: the file opened again, and a graph of its own.
pub(crate) fn process(file: &Path, found: &Arc<Mutex<Found>>, fails: &Arc<Once>, secrets: impl Secrets) -> Runner<Agent> {
    Runner::new(agent(fails), Searched::open(file, found)).secrets(secrets)
}
