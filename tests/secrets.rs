//! The values of secret fields never reach the store, and are there all the same where the program has a way to keep them.
//!
//! How it could break: an operation, a payload, a snapshot or a record that the walk forgets, so that a secret stands in the file; an error or a
//! question that quotes one; a walk back that does not fit the walk forth, so that a node sees what was stored instead of its value.

#[path = "support/hush.rs"]
mod hush;

use std::path::Path;
use std::sync::{Arc, Mutex};

use ferrata::{Answer, Durability, ForgetSecrets, Outcome, Secrets, Thread};
use hush::{Agent, Found, HUSH, Once, TOLD, everything, holds, hush as secret, process, sealing, telling};
use serde_json::json;
use tempfile::TempDir;

const DURABILITIES: [Durability; 3] = [Durability::Step, Durability::Behind, Durability::Exit];

/// What a person hands in again where a process begins with a store that knows nothing of it.
type HandIn = fn(Thread<Agent>) -> Thread<Agent>;

struct Play<'p, H> {
    file: &'p Path,
    found: Arc<Mutex<Found>>,
    fails: Arc<Once>,
    durability: Durability,
    hook: fn() -> H,
    hand_in: HandIn,
}

impl<H: Secrets> Play<'_, H> {
    /// A process that begins anew.
    fn thread(&self) -> Thread<Agent> {
        let runner = process(self.file, &self.found, &self.fails, (self.hook)());
        (self.hand_in)(runner.thread("t").durability(self.durability))
    }

    async fn question(outcome: Result<Outcome<Agent>, ferrata::Error>, text: &str) -> Arc<ferrata::Question> {
        let Outcome::Waiting(questions) = outcome.expect("it runs") else { panic!("it asks") };
        assert!(questions[0].text.contains(text), "{}", questions[0].text);
        Arc::clone(&questions[0])
    }

    /// From the input to the end, each part in a process of its own: a failure, an edit inside, two questions, a fork.
    async fn play(&self) -> Agent {
        let input = everything("input").token(secret("token")).set_text(secret("first text"));
        let error = self.thread().run(input).await.expect_err("it fails once");
        assert_eq!(error.code(), "node-failed");
        assert!(error.to_string().contains(&secret("token")), "what the process itself is told is told in full: {error}");
        Self::question(self.thread().resume().await, &secret("token")).await;
        let thread = self.thread();
        assert!(thread.questions().await.expect("it is read")[0].text.contains("May [secret] be used?"));
        thread.inside::<Agent>(["shared"]).update(everything("edit"), Some("write")).await.expect("it is edited");
        let may = Self::question(thread.resume().await, "May").await;
        drop(thread);
        Self::question(self.thread().answer(may.id, Answer::new(true)).await, "Sure?").await;
        let sure = self.thread().questions().await.expect("it is read")[0].id;
        let state = self.thread().answer(sure, Answer::new(true)).await.expect("it runs").done().expect("it ends");
        let thread = self.thread();
        let checkpoints = thread.history().await.expect("it is read");
        let before_last = checkpoints.iter().find(|c| c.next.iter().any(|node| node.as_str() == "mapped"));
        let at = before_last.map_or(checkpoints[0].position, |checkpoint| checkpoint.position);
        thread.clone().at(at).update(everything("fork").token(secret("token two")), Some("mapped")).await.expect("it is forked");
        drop(thread);
        let forked = self.thread().secret("token", secret("token two")).resume().await.expect("it runs").done().expect("it ends");
        assert_eq!(forked.token, secret("token two"));
        assert_eq!(forked.messages.last().map(|message| &*message.content), Some(&*secret("message by last")));
        (*state).clone()
    }
}

/// What `play` ends with before the fork.
fn expected() -> Agent {
    let by = ["input", "gather", "sent_too", "sent_too", "write", "edit", "last"];
    let each = |what: &str, by: &[&str]| by.iter().map(|by| secret(&format!("{what} by {by}"))).collect::<Vec<_>>();
    let mut notes = each("note", &by);
    notes.insert(2, secret("of sent"));
    notes.insert(7, secret("token!!"));
    let texts = ["sent_too", "sent_too", "write", "edit", "last"];
    let named: Vec<&str> = vec!["input", "gather", "sent_too", "write", "edit", "last"];
    let message = |by: &&str| ferrata::state::Message::user(secret(&format!("message by {by}"))).with_id(*by);
    let joined = each("joined", &by[..6]).concat();
    Agent {
        log: Vec::new(),
        token: secret("token"),
        notes,
        text: format!("{}{}", secret("text anew"), each("text", &texts).concat()),
        keys: named.iter().filter(|by| **by != "gather").map(|by| ((*by).to_owned(), secret(&format!("key by {by}")))).collect(),
        messages: named.iter().map(message).collect(),
        joined: joined + "?",
        pin: 7 * 7,
    }
}

async fn played<H: Secrets>(durability: Durability, hook: fn() -> H, hand_in: HandIn) -> (Agent, Found, Vec<u8>, String) {
    let dir = TempDir::new().expect("a folder");
    let file = dir.path().join("s.redb");
    let (found, fails) = <(Arc<Mutex<Found>>, Arc<Once>)>::default();
    let play = Play { file: &file, found: Arc::clone(&found), fails, durability, hook, hand_in };
    let state = play.play().await;
    let log = serde_json::to_string(&play.thread().log().await.expect("it is read")).expect("it is JSON");
    let bytes = std::fs::read(&file).expect("the file is there");
    drop(play);
    let found = Arc::try_unwrap(found).expect("every store is closed").into_inner().expect("no panic");
    (state, found, bytes, log)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_the_file_after_any_append_and_new_processes_see_all_of_them() {
    let mut places = std::collections::BTreeSet::new();
    for durability in DURABILITIES {
        let (mut state, found, bytes, log) = played(durability, sealing, |thread| thread).await;
        assert!(state.log.iter().any(|entry| entry.contains(TOLD)));
        state.log.clear();
        assert_eq!(state, expected(), "{durability:?}");
        assert_eq!(found.leaks, Vec::<String>::new(), "{durability:?}");
        assert!(holds(&bytes, TOLD) && !holds(&bytes, HUSH), "{durability:?}");
        assert!(log.contains(TOLD) && !log.contains(HUSH) && log.contains("no entry with [secret]"), "{durability:?}");
        assert!(found.appends > 10, "{durability:?}: {}", found.appends);
        if durability != Durability::Exit {
            assert!(found.snapshots >= 3, "{durability:?}: {}", found.snapshots);
        }
        places.extend(found.places);
    }
    // Everywhere where a secret can stand, one did.
    for place in [
        ".input.changes.op.set",
        ".input.changes.op.overwrite",
        ".task_done.changes.op.set",
        ".task_done.changes.op.append",
        ".task_done.changes.op.put",
        ".task_done.changes.op.patch.gather",
        ".task_done.changes.op.combine",
        ".task_done.changes.op.overwrite",
        ".task_done.goto.send.payload.token",
        ".stepped.resolved.op.set",
        ".stepped.resolved.op.append",
        ".stepped.due.payload.token",
        ".stepped.written.append",
        "snapshot.graph.state.token",
        "snapshot.graph.facts.tasks.due.payload.token",
        "snapshot.graph.facts.tasks.status.done.changes.op.append",
        "snapshot.graph.facts.tasks.status.done.goto.send.payload.token",
        "snapshot.inner.state.key",
        "snapshot.inner.facts.written.append",
    ] {
        assert!(places.contains(place), "nothing was sealed at {place}: {places:#?}");
    }
}

/// What a person types in again, each time.
fn type_in(thread: Thread<Agent>) -> Thread<Agent> {
    let Agent { token, notes, text, keys, messages, joined, pin, .. } = expected();
    let thread = thread.secret("token", token).secret("notes", notes).secret("text", text).secret("keys", json!(keys));
    thread.secret("messages", json!(messages)).secret("joined", joined).secret("pin", pin).secret("key", secret("token!"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_is_handed_in_by_each_process() {
    for durability in DURABILITIES {
        let (state, found, bytes, log) = played(durability, || ForgetSecrets, type_in).await;
        assert_eq!((state.token, state.pin), (secret("token"), 7 * 7 + 7), "{durability:?}");
        assert_eq!(found.leaks, Vec::<String>::new(), "{durability:?}");
        assert!(holds(&bytes, TOLD) && !holds(&bytes, HUSH), "{durability:?}");
        assert!(log.contains(r#"{"set":{"$secret":null}}"#) && !log.contains("$secret\":\""), "{durability:?}");
        // Of a message its id is told, by which it is replaced.
        assert!(log.contains(r#"{"$secret":null,"id":"gather"}"#) || durability == Durability::Exit, "{durability:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_search_finds_what_a_hook_does_not_hide() {
    let (_, found, bytes, log) = played(Durability::Step, telling, |thread| thread).await;
    assert!(found.leaks.len() > 10 && holds(&bytes, HUSH) && log.contains(HUSH), "{}", found.leaks.len());
}
