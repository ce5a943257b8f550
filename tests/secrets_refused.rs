//! What the engine refuses where secrets are concerned, and what it says.
//!
//! How it could break: a secret that is stored because nobody said what to do with it; a value that is gone and that a node takes for an empty one;
//! an error that quotes a secret.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ferrata::log::Record;
use ferrata::state::{Field, MergeFunction, Rule, Schema, Update, Values};
use ferrata::store::{MemoryStore, Store, ThreadQuery};
use ferrata::{
    Ask, Context, END, ForgetSecrets, Graph, GraphBuilder, NodeError, Outcome, Runner, START, SealSecrets, SecretPlace, State,
    StaticState, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const TOKEN: &str = "key-to-the-hut";

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Job {
    #[state(secret)]
    #[serde(default = "never")]
    token: String,
    #[state(secret)]
    other: Option<u64>,
    #[state(append)]
    log: Vec<String>,
}

/// What serde makes of a token that is not stored; its JSON Schema would tell it.
fn never() -> String {
    "a default that is no secret".to_owned()
}

type Shared = Arc<MemoryStore>;

/// Logs what the token is, and asks once.
fn job() -> Graph<Job> {
    let work = |s: View<Job>| async move { Ok(Job::update().push_log(format!("{} bytes", s.token.len()))) };
    let ask = |ctx: Context| async move {
        ctx.ask("go on", Ask::<bool>::new("Go on?")).await?;
        Ok(Job::update())
    };
    let graph = Graph::<Job>::new("job").node("work", work).node("ask", ask).node("again", work);
    graph.edge(START, "work").edge("work", "ask").edge("ask", "again").edge("again", END).build().unwrap()
}

fn forgetful(store: &Shared) -> Runner<Job> {
    Runner::new(job(), Arc::clone(store)).secrets(ForgetSecrets)
}

/// A thread that waits, with a token that is forgotten.
async fn waiting(store: &Shared) -> Arc<ferrata::Question> {
    let outcome = forgetful(store).thread("t").run(Job::update().token(TOKEN)).await.unwrap();
    let Outcome::Waiting(questions) = outcome else { panic!("it asks") };
    Arc::clone(&questions[0])
}

#[track_caller]
fn assert_error<T>(result: Result<T, ferrata::Error>, code: &str, texts: &[&str]) {
    let error = result.err().expect("it is refused");
    let text = format!("{error}\n{error:?}");
    assert_eq!(error.code(), code, "{text}");
    texts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
    assert!(!text.contains(TOKEN), "{text}");
}

#[tokio::test]
async fn without_a_hook_nothing_is_written() {
    let store = Shared::default();
    let thread = Runner::new(job(), Arc::clone(&store)).thread("t");
    let says = ["thread \"t\"", "(token, other)", "Runner::secrets", "nothing was stored"];
    assert_error(thread.run(Job::update().token(TOKEN)).await, "no-secrets", &says);
    assert_error(thread.run_once(Job::update()).await, "no-secrets", &says);
    assert_error(thread.update(Job::update(), None).await, "no-secrets", &says);
    assert_error(thread.stream(Job::update()).unwrap().outcome().await, "no-secrets", &says);
    assert_error(thread.state().await, "no-secrets", &says);
    assert!(store.threads(&ThreadQuery::new()).await.unwrap().is_empty());
    assert!(
        Runner::without_store(job()).thread("t").run(Job::update()).await.unwrap().questions().len() == 1,
        "nothing is stored"
    );
}

#[tokio::test]
async fn secrets_of_graphs_inside_count_where_they_are_stored() {
    #[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
    struct Outer {
        log: String,
    }
    let outer = |unstored: bool| {
        let inner = Graph::<Job>::new("job").node("work", || async { Ok(Job::update()) }).edge(START, "work").edge("work", END);
        let inner = inner.build().unwrap();
        let inner = if unstored { inner.unstored() } else { inner };
        let inner =
            inner.mapped(|_: &Outer| Job::update().token(TOKEN), |_, job: &Job| Outer::update().log(job.token.len().to_string()));
        let graph = Graph::<Outer>::new("outer").node("child", inner).edge(START, "child").edge("child", END);
        Runner::new(graph.build().unwrap(), MemoryStore::new())
    };
    assert_error(outer(false).thread("t").run(Outer::update()).await, "no-secrets", &["(child/token, child/other)"]);
    let runner = outer(true);
    assert_eq!(runner.thread("t").run(Outer::update()).await.unwrap().done().unwrap().log, TOKEN.len().to_string());
    let log = serde_json::to_string(&runner.thread("t").log().await.unwrap()).unwrap();
    assert!(!log.contains(TOKEN), "{log}");
}

#[tokio::test]
async fn what_is_forgotten_is_no_empty_value() {
    let store = Shared::default();
    let question = waiting(&store).await;
    let thread = forgetful(&store).thread("t");
    let before = thread.log().await.unwrap();
    let says = ["thread \"t\" cannot go on", "`token`", ".secret(field, value)"];
    assert_error(thread.resume().await, "secret-missing", &says);
    assert_error(thread.answer(question.id, true).await, "secret-missing", &says);
    assert_error(thread.clone().supersede().run(Job::update()).await, "secret-missing", &says);
    assert_error(thread.update(Job::update().push_log("edited"), Some("work")).await, "secret-missing", &says);
    assert_error(thread.clone().at(before[3].position).resume().await, "secret-missing", &says);
    assert_eq!(thread.log().await.unwrap(), before, "nothing was written");

    // It can be read, and says what is not there.
    let state = thread.state().await.unwrap();
    assert_eq!(
        (state.values.token.as_str(), &*state.missing, &*state.values.log),
        ("", &["token".to_owned()][..], &["14 bytes".to_owned()][..])
    );
    let history = thread.history().await.unwrap();
    let missing: Vec<usize> = history.iter().map(|checkpoint| checkpoint.missing.len()).collect();
    assert_eq!(missing, [1, 1, 0], "before the input was applied there was none");

    // Handed in, it is there; the store still does not get it.
    let answered = thread.clone().secret("token", TOKEN).answer(question.id, true).await.unwrap();
    let state = answered.done().unwrap();
    assert_eq!((state.token.as_str(), &*state.log), (TOKEN, &["14 bytes".to_owned(), "14 bytes".to_owned()][..]));
    assert!(!serde_json::to_string(&thread.log().await.unwrap()).unwrap().contains(TOKEN));
    // A thread that has ended does not give an empty one either.
    assert_error(thread.resume().await, "secret-missing", &says);
    assert_eq!(thread.secret("token", TOKEN).resume().await.unwrap().done().unwrap().token, TOKEN);
}

#[tokio::test]
async fn an_input_or_an_edit_may_bring_it() {
    let store = Shared::default();
    waiting(&store).await;
    let thread = forgetful(&store).thread("t");
    thread.update(Job::update().token("shorter"), Some("ask")).await.unwrap();
    assert_error(forgetful(&store).thread("t").resume().await, "secret-missing", &["`token`"]);
    let Outcome::Waiting(_) = thread.clone().supersede().run(Job::update().token("anew")).await.unwrap() else {
        panic!("it asks")
    };
    assert_eq!(thread.state().await.unwrap().values.log, ["14 bytes", "4 bytes"]);
    // What tells nothing is stored as it is, and never missing.
    let cleared = forgetful(&store).thread("t").supersede();
    let Outcome::Waiting(questions) = cleared.run(Job::update().token("").other(None::<u64>)).await.unwrap() else {
        panic!("it asks")
    };
    let state = forgetful(&store).thread("t").answer(questions[0].id, true).await.unwrap().done().unwrap();
    assert_eq!(
        (state.token.as_str(), state.other, &state.log[2..]),
        ("", None, &["0 bytes".to_owned(), "0 bytes".to_owned()][..])
    );
    // A number always tells something.
    let other = forgetful(&store).thread("t").run(Job::update().other(0)).await.unwrap();
    assert_eq!(other.questions().len(), 1);
    assert_error(forgetful(&store).thread("t").resume().await, "secret-missing", &["`other`"]);
    let log = serde_json::to_string(&thread.log().await.unwrap()).unwrap();
    assert!(
        log.contains(r#"{"field":"token","op":{"set":""}}"#)
            && log.contains(r#"{"field":"other","op":{"set":{"$secret":null}}}"#)
    );
}

#[tokio::test]
async fn an_input_that_may_not_bring_it_does_not_count() {
    let fields = || vec![Field::new("token", Rule::Replace).secret(), Field::new("n", Rule::Replace)];
    let schema = || Schema::new("S", fields(), json!({"type": "object"}));
    let write = |_: View<Values>| async { Ok(Update::new().set("token", TOKEN)) };
    let graph = || {
        let graph =
            GraphBuilder::<Values>::with_schema("s", schema()).node("write", write).edge(START, "write").edge("write", END);
        graph.input_fields(["n"]).build().unwrap()
    };
    let store = Shared::default();
    let runner = || Runner::new(graph(), Arc::clone(&store)).secrets(ForgetSecrets);
    runner().thread("t").run(Update::new().set("n", &1)).await.unwrap().done().unwrap();
    let before = runner().thread("t").log().await.unwrap();
    // The graph drops what an input writes beside its input fields.
    assert_error(runner().thread("t").run(Update::new().set("token", TOKEN)).await, "secret-missing", &["`token`"]);
    assert_eq!(runner().thread("t").log().await.unwrap(), before);
    let state = runner().thread("t").state().await.unwrap();
    assert_eq!((state.values.get("token"), state.missing), (None, vec!["token".to_owned()]), "absent, and said to be missing");
    let end = runner().thread("t").secret("token", "handed in").run(Update::new().set("n", &2)).await.unwrap().done().unwrap();
    assert_eq!(end.get("token"), Some(&json!(TOKEN)));
}

fn join(old: String, new: String) -> String {
    old + &new
}

#[tokio::test]
async fn a_result_that_is_pending_may_be_what_is_missing() {
    #[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
    struct Pair {
        #[state(secret)]
        token: String,
        #[state(with = "join", secret)]
        joined: String,
        #[state(append)]
        log: Vec<String>,
    }
    let store = Shared::default();
    let fails = Arc::new(AtomicBool::new(true));
    let runner = || {
        let fails = Arc::clone(&fails);
        let finds = || async { Ok(Pair::update().token(TOKEN).joined(TOKEN).push_log("found")) };
        let other = move || {
            let fails = fails.swap(false, Ordering::SeqCst);
            async move { if fails { Err(NodeError::new("busy")) } else { Ok(Pair::update()) } }
        };
        let uses = |s: View<Pair>| async move { Ok(Pair::update().push_log(format!("{} {}", s.token.len(), s.joined.len()))) };
        let graph = Graph::<Pair>::new("pair").node("finds", finds).node("other", other).node("uses", uses);
        let graph = graph.edge(START, "finds").edge(START, "other").join(["finds", "other"], "uses").edge("uses", END);
        Runner::new(graph.build().unwrap(), Arc::clone(&store)).secrets(ForgetSecrets)
    };
    assert_error(runner().thread("t").run(Pair::update()).await, "node-failed", &[]);
    let state = runner().thread("t").state().await.unwrap();
    assert_eq!(
        (&*state.values.log, &*state.missing),
        (&["found".to_owned()][..], &["joined".to_owned(), "token".to_owned()][..])
    );
    assert_error(runner().thread("t").resume().await, "secret-missing", &["`joined`, `token`"]);
    assert_error(runner().thread("t").secret("token", TOKEN).resume().await, "secret-missing", &["values of `joined`, which"]);
    let thread = runner().thread("t").secret("token", TOKEN).secret("joined", format!("{TOKEN}!"));
    assert_eq!(thread.resume().await.unwrap().done().unwrap().log, ["found", "14 15"]);
}

#[tokio::test]
async fn nothing_of_the_graph_is_asked_while_something_is_missing() {
    let store = Shared::default();
    let asked = Arc::new(AtomicU32::new(0));
    let runner = || {
        let asked = Arc::clone(&asked);
        let route = move |job: &Job| {
            asked.fetch_add(1, Ordering::SeqCst);
            if job.token.is_empty() { END } else { "work" }
        };
        let graph = Graph::<Job>::new("job").node("work", || async { Ok(Job::update()) }).edge("work", END);
        let graph = graph.route_to(START, ["work", END], route).build().unwrap();
        Runner::new(graph, Arc::clone(&store)).secrets(ForgetSecrets)
    };
    runner().thread("t").run(Job::update().token(TOKEN)).await.unwrap().done().unwrap();
    assert_error(runner().thread("t").run(Job::update().other(1)).await, "secret-missing", &["`token`"]);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "a conditional edge does not see an empty token");
}

#[tokio::test]
async fn what_is_handed_in_has_to_fit() {
    let store = Shared::default();
    waiting(&store).await;
    let thread = forgetful(&store).thread("t");
    let unknown = thread.clone().secret("tokem", TOKEN).resume().await;
    assert_error(unknown, "secret-unknown", &["no secret field `tokem`", "other, token"]);
    assert_error(thread.clone().secret("log", json!([])).state().await, "secret-unknown", &["`log`"]);
    let wrong = thread.clone().secret("token", json!([TOKEN])).resume().await;
    assert_error(wrong, "secret", &["`token`", "cannot be handed in", "not told"]);
    let sealed = thread.clone().secret("token", json!({"$secret": TOKEN})).resume().await;
    assert_error(sealed, "secret", &["$secret"]);
    // One that is there is not touched.
    let kept =
        forgetful(&Shared::default()).thread("t").secret("token", TOKEN).run(Job::update().token("its own")).await.unwrap();
    assert_eq!(kept.questions().len(), 1);
}

#[tokio::test]
async fn a_hook_that_fails_or_panics_stops_the_run_and_loses_nothing() {
    let broken = Arc::new(AtomicU32::new(0));
    let (seals, opens) = (Arc::clone(&broken), Arc::clone(&broken));
    let hook = SealSecrets::new(
        move |_: SecretPlace<'_>, value: Value| match seals.load(Ordering::SeqCst) {
            1 => Err("the vault is shut"),
            2 => panic!("the vault is on fire"),
            _ => Ok(json!({"v": value.as_str().map(|text| text.chars().rev().collect::<String>())})),
        },
        move |_: SecretPlace<'_>, stored: Value| match opens.load(Ordering::SeqCst) {
            3 => Err("the vault is shut"),
            4 => panic!("the vault is on fire"),
            5 => Ok(None),
            6 => Ok(Some(json!({"$secret": 1}))),
            _ => Ok(stored["v"].as_str().map(|text| Value::from(text.chars().rev().collect::<String>()))),
        },
    );
    let store = Shared::default();
    let runner = Runner::new(job(), Arc::clone(&store)).secrets(hook);
    let thread = runner.thread("t");
    for (how, says) in [(1, "cannot be sealed: the vault is shut"), (2, "cannot be sealed: it panicked")] {
        broken.store(how, Ordering::SeqCst);
        assert_error(thread.run(Job::update().token(TOKEN)).await, "secret", &["`token` of thread \"t\"", says]);
        assert!(store.threads(&ThreadQuery::new()).await.unwrap().is_empty(), "nothing of the append is stored");
    }
    broken.store(0, Ordering::SeqCst);
    let question = thread.run(Job::update().token(TOKEN)).await.unwrap().questions()[0].id;
    let stored = thread.log().await.unwrap();
    for (how, code, says) in [
        (3, "secret", "cannot be opened: the vault is shut"),
        (4, "secret", "cannot be opened: it panicked"),
        (5, "secret-missing", "`token`"),
        (6, "secret", "it gave a sealed value"),
    ] {
        broken.store(how, Ordering::SeqCst);
        assert_error(thread.answer(question, true).await, code, &[says]);
        assert_eq!(thread.log().await.unwrap(), stored);
    }
    broken.store(0, Ordering::SeqCst);
    assert_eq!(thread.answer(question, true).await.unwrap().done().unwrap().token, TOKEN);
}

/// The same state without, and with, the mark.
mod open {
    use super::*;

    #[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
    pub(super) struct Job {
        pub(super) token: String,
        pub(super) other: Option<u64>,
        #[state(append)]
        pub(super) log: Vec<String>,
    }

    pub(super) fn runner(store: &Shared) -> Runner<Job> {
        let node = |name: &str| (name.to_owned(), |_: View<Job>| async { Ok(Job::update().push_log("open")) });
        let graph = ["work", "ask", "again"].iter().fold(Graph::<Job>::new("job"), |graph, name| graph.node(name, node(name).1));
        let graph = graph.edge(START, "work").edge("work", "ask").edge("ask", "again").edge("again", END);
        Runner::new(graph.build().unwrap(), Arc::clone(store))
    }
}

fn reversing() -> impl ferrata::Secrets {
    let turn = |value: &Value| Value::from(value.as_str().unwrap_or_default().chars().rev().collect::<String>());
    SealSecrets::new(
        move |_: SecretPlace<'_>, value: Value| Ok::<_, std::fmt::Error>(turn(&value)),
        move |_: SecretPlace<'_>, stored: Value| Ok::<_, std::fmt::Error>(Some(turn(&stored))),
    )
}

#[tokio::test]
async fn the_mark_may_come_and_go() {
    let store = Shared::default();
    let marked = || Runner::new(job(), Arc::clone(&store)).secrets(reversing());
    open::runner(&store).thread("t").run(open::Job::update().token("from before")).await.unwrap().done().unwrap();
    // What was stored before the mark stays plain, and is read.
    let question = marked().thread("t").run(Job::update()).await.unwrap().questions()[0].id;
    assert_eq!(marked().thread("t").answer(question, true).await.unwrap().done().unwrap().token, "from before");

    // An older value does not show in the place of one that was forgotten.
    let forgets = || Runner::new(job(), Arc::clone(&store)).secrets(ForgetSecrets).thread("t");
    let Outcome::Waiting(_) = forgets().run(Job::update().token(TOKEN)).await.unwrap() else { panic!("it asks") };
    let state = forgets().state().await.unwrap();
    assert_eq!((state.values.token.as_str(), state.missing), ("", vec!["token".to_owned()]));

    let marked_thread = marked().thread("new");
    let question = marked_thread.run(Job::update().token(TOKEN)).await.unwrap().questions()[0].id;
    marked_thread.answer(question, true).await.unwrap().done().unwrap();
    // Without the mark and without the hook it would be read as something else.
    assert_error(open::runner(&store).thread("new").state().await, "no-secrets", &["(token, other)"]);
    let state = open::runner(&store).secrets(reversing()).thread("new").state().await.unwrap();
    assert_eq!(state.values.token, TOKEN);
    let forgotten = open::runner(&store).secrets(ForgetSecrets).thread("new").state().await;
    assert_error(forgotten, "secret", &["mark the field secret again"]);
}

#[tokio::test]
async fn errors_that_are_stored_do_not_quote_it() {
    let fail = || MergeFunction::new("fail", |_: Value, operand: Value| Err::<Value, _>(format!("{operand} is wrong")));
    let fields = vec![Field::with("token", fail()).secret(), Field::new("pin", Rule::Sum).secret()];
    let schema = Schema::new("S", fields, json!({"type": "object"}));
    let fails = AtomicBool::new(true);
    let node = move || {
        let fails = fails.swap(false, Ordering::SeqCst);
        async move {
            if fails {
                return Err(NodeError::new(format!("no entry with {TOKEN}, says the server")));
            }
            Ok(Update::new().combine("token", TOKEN))
        }
    };
    let graph = GraphBuilder::<Values>::with_schema("s", schema).node("n", node).edge(START, "n").edge("n", END).build().unwrap();
    let runner = Runner::new(graph, MemoryStore::new()).secrets(reversing());
    let thread = runner.thread("t");
    // Nothing knows it yet: a text that quotes what is no value of the state is the node's own business.
    let error = thread.run(Update::new()).await.unwrap_err();
    assert_eq!(error.code(), "node-failed");
    assert_error(thread.resume().await, "merge-function", &["function `fail` of field `token` failed", "not told"]);
    let log = thread.log().await.unwrap();
    let told: Vec<String> =
        log.iter().map(|entry| serde_json::to_string(&entry.record).unwrap()).filter(|r| r.contains(TOKEN)).collect();
    assert_eq!(told.len(), 2, "what the node said itself, in the task's failure and in the run's: {told:#?}");
    assert!(matches!(&log.last().unwrap().record, Record::RunEnded(ended) if format!("{ended:?}").contains("not told")));
}

#[tokio::test]
async fn a_state_that_does_not_fit_is_refused_without_its_secrets() {
    #[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
    struct Changed {
        #[state(secret)]
        token: u64,
        other: Option<u64>,
        #[state(append)]
        log: Vec<String>,
    }
    #[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
    struct More {
        #[state(secret)]
        token: String,
        other: Option<u64>,
        #[state(append)]
        log: Vec<String>,
        more: String,
    }
    fn runner<S: StaticState>(store: &Shared) -> Runner<S>
    where
        S::Update: ferrata::IntoReturn<S>,
    {
        let names = ["work", "ask", "again"];
        let node = || async { Ok(S::Update::from(Update::new())) };
        let graph = names.iter().fold(Graph::<S>::new("job"), |graph, name| graph.node(name, node));
        let graph = graph.edge(START, "work").edge("work", "ask").edge("ask", "again").edge("again", END);
        Runner::new(graph.build().unwrap(), Arc::clone(store)).secrets(reversing())
    }
    let store = Shared::default();
    Runner::new(job(), Arc::clone(&store))
        .secrets(reversing())
        .thread("t")
        .run(Job::update().token(TOKEN))
        .await
        .unwrap()
        .questions();
    let says = ["token: string (secret)", "token: integer (secret)", "field `token`"];
    assert_error(runner::<Changed>(&store).thread("t").state().await, "state-shape", &says);
    // What has nothing to do with secrets is told.
    assert_error(runner::<More>(&store).thread("t").state().await, "state-shape", &["more: string", "field `more` is missing"]);
}

#[test]
fn a_schema_holds_no_secret() {
    let schema = Job::schema();
    assert!(schema.field("token").unwrap().secret && !schema.field("log").unwrap().secret);
    assert!(schema.json()["properties"]["token"]["default"].is_null(), "{}", schema.json());
    let stored = serde_json::to_value(&schema).unwrap();
    assert_eq!((&stored["fields"][0]["secret"], stored["fields"][2].get("secret")), (&json!(true), None));
    assert_eq!(serde_json::from_value::<Schema>(stored).unwrap(), schema);

    let fields = |initial: Value| vec![Field::new("token", Rule::Replace).secret().initial(initial)];
    let build = |schema: Schema| {
        let node = || async { Ok(Update::new()) };
        GraphBuilder::<Values>::with_schema("s", schema).node("n", node).edge(START, "n").edge("n", END).build()
    };
    let error = build(Schema::new("S", fields(json!(TOKEN)), json!({}))).unwrap_err();
    assert_eq!(error.mistakes()[0].code(), "stored-secret");
    assert!(error.to_string().contains("\"token\"") && !error.to_string().contains(TOKEN), "{error}");
    let read = json!({"name": "S", "fields": [{"name": "token", "rule": "replace", "secret": true}],
        "json": {"properties": {"token": {"default": TOKEN}}}});
    let error = build(serde_json::from_value(read).unwrap()).unwrap_err();
    assert_eq!(error.mistakes()[0].code(), "stored-secret");
    build(Schema::new("S", fields(json!("")), json!({}))).unwrap();
}
