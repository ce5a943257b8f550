//! Large values: kept as files of their own, named by their content, for as long as something refers to them.
//!
//! How it could break: a file that goes although a copy of the thread needs it; one that stays for ever; a value that is read although its file holds
//! something else; a value of the user's that is taken for a reference.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ferrata::store::{RedbOptions, RedbStore, Store};
use ferrata::{Answer, Ask, Context, END, Graph, Keep, Outcome, Runner, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Book {
    text: String,
    any: Value,
    found: String,
    answer: Value,
}

/// Writes down what came in; with `asks`, what it found and was told as well.
fn library(store: impl Store) -> Runner<Book> {
    let read = |s: View<Book>, ctx: Context| async move {
        if s.any != json!("asks") {
            return Ok(Book::update());
        }
        let found: String = ctx.effect("search", |_| async { Ok("found ".repeat(20_000)) }).await?;
        let answer: Value = ctx.ask("what", Ask::new("What else?").show(&found)).await?;
        Ok(Book::update().found(found).answer(answer))
    };
    let graph = Graph::<Book>::new("library").node("read", read).edge(START, "read").edge("read", END);
    Runner::new(graph.build().expect("the graph is right"), store)
}

/// The artifacts of a store, by their names, with their sizes.
fn files(store: &Path) -> BTreeMap<String, u64> {
    let folder = PathBuf::from(format!("{}.artifacts", store.display()));
    let folders = std::fs::read_dir(folder).into_iter().flatten().map(|folder| folder.expect("an entry").path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).expect("a folder")).map(|file| file.expect("an entry"));
    files.map(|file| (file.file_name().to_string_lossy().into_owned(), file.metadata().expect("its size").len())).collect()
}

fn file_of(store: &Path, hash: &str) -> PathBuf {
    PathBuf::from(format!("{}.artifacts", store.display())).join(&hash[..2]).join(hash)
}

async fn keep(runner: &Runner<Book>, thread: &str, text: &str) {
    runner.thread(thread).run(Book::update().text(text)).await.expect("it runs").done().expect("it ends");
}

async fn text(runner: &Runner<Book>, thread: &str) -> String {
    runner.thread(thread).state().await.expect("a state").values.text.clone()
}

fn page(word: &str) -> String {
    word.repeat(100 * 1024 / word.len())
}

#[tokio::test]
async fn a_large_value_is_a_file_named_by_its_content() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    let store = RedbStore::open(&path).expect("a store");
    assert!(!store.artifacts().expect("there is a place").exists(), "it is made when it is needed");
    let runner = library(store.clone());
    keep(&runner, "small", &"x".repeat(60_000)).await;
    assert!(files(&path).is_empty(), "less than 64 KiB stays in the record");
    for thread in ["one", "two", "three"] {
        keep(&runner, thread, &page("word ")).await;
    }
    let found = files(&path);
    let json = serde_json::to_vec(&page("word ")).expect("it is JSON");
    assert_eq!(found, BTreeMap::from([(blake3::hash(&json).to_hex().to_string(), json.len() as u64)]), "one content, one file");
    drop((runner, store));
    // Whatever the setting, what is there is read.
    for above in [10, 64 * 1024, 1 << 30] {
        let runner = library(RedbOptions::new().artifacts_above(above).open(&path).expect("a store"));
        assert_eq!(text(&runner, "two").await, page("word "));
        assert_eq!(text(&runner, "small").await.len(), 60_000);
    }
    assert_eq!(files(&path), found, "reading changes nothing");
}

#[tokio::test]
async fn whatever_is_large_goes_out_and_comes_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    // Many small values that are large together, large ones in each other, and some that look like a reference.
    let hash = "0".repeat(64);
    let values = [
        json!((0..40_000).collect::<Vec<u32>>()),
        json!({ "a": [page("a "), { "b": page("b "), "c": (0..40_000).collect::<Vec<u32>>() }], "\u{0}artifact": page("c ") }),
        json!({ "\u{0}artifact": hash }),
        json!([{ "\u{0}artifact": hash }, { "\u{0}artifact": hash, "more": 1 }, { "\u{0}artifact": 5 }, page("d ")]),
        json!([page("\u{0}\u{1f}\"\\👩\u{200d}💻")]),
    ];
    for (number, value) in values.iter().enumerate() {
        let runner = library(RedbStore::open(&path).expect("a store"));
        let thread = runner.thread(&format!("t{number}"));
        thread.run(Book::update().any(value.clone())).await.expect("it runs").done().expect("it ends");
        drop((thread, runner));
        let runner = library(RedbStore::open(&path).expect("a store"));
        assert!(runner.thread(&format!("t{number}")).state().await.expect("a state").values.any == *value, "value {number}");
    }
    // An effect's result, what a question shows, and an answer.
    let runner = library(RedbStore::open(&path).expect("a store"));
    let Outcome::Waiting(questions) = runner.thread("t").run(Book::update().any(json!("asks"))).await.expect("it runs") else {
        panic!("it asks")
    };
    drop(runner);
    let store = RedbStore::open(&path).expect("a store");
    let runner = library(store.clone());
    let asked = runner.thread("t").questions().await.expect("the questions");
    assert_eq!(asked, questions);
    assert_eq!(asked[0].show, Some(json!("found ".repeat(20_000))));
    let end =
        runner.thread("t").answer(asked[0].id, Answer::new(json!([page("e ")]))).await.expect("it runs").done().expect("it ends");
    assert_eq!((end.found.len(), &end.answer), (120_000, &json!([page("e ")])));
    let verified = store.verify().await.expect("it is looked at");
    assert!(verified.is_sound() && verified.artifacts > 5, "{verified:?}");
    assert!(std::fs::metadata(&path).expect("the file").len() < 600 * 1024, "the file holds what is small");
}

#[tokio::test]
async fn a_file_goes_when_nothing_refers_to_it_any_more() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    let store = RedbStore::open(&path).expect("a store");
    let runner = library(store.clone());
    keep(&runner, "t", &page("old ")).await;
    runner.thread("t").copy_to("copy").await.expect("it is copied");
    keep(&runner, "t", &page("new ")).await;
    let mut lines = Vec::new();
    runner.thread("copy").export(&mut lines).await.expect("it is exported");
    let stray = file_of(&path, &"ab".repeat(32));
    std::fs::create_dir_all(stray.parent().expect("a folder")).expect("a folder");
    std::fs::write(&stray, vec![0; 1_000]).expect("what a crash may leave: a file, and no record that refers to it");
    // Nothing but the stray file can go.
    assert_eq!(store.compact().await.expect("it is compacted").artifacts, 1_000);
    assert!(!stray.exists());
    let (old, new) = (page("old "), page("new "));
    runner.thread("t").prune(Keep::Last(1)).await.expect("it is pruned");
    assert_eq!(store.compact().await.expect("it is compacted").artifacts, 0, "the copy needs the old text");
    assert_eq!((text(&runner, "t").await, text(&runner, "copy").await), (new.clone(), old.clone()));
    assert!(runner.thread("copy").delete().await.expect("it is deleted"));
    assert_eq!(files(&path).len(), 2, "it goes when the store is compacted");
    assert_eq!(store.compact().await.expect("it is compacted").artifacts, old.len() as u64 + 2);
    assert_eq!((files(&path).len(), text(&runner, "t").await), (1, new.clone()));
    // The lines hold the text themselves.
    runner.thread("copy").import(&mut &*lines).await.expect("it is imported");
    assert_eq!((files(&path).len(), text(&runner, "copy").await), (2, old));
    for thread in ["t", "copy"] {
        assert!(runner.thread(thread).delete().await.expect("it is deleted"));
    }
    store.compact().await.expect("it is compacted");
    assert!(files(&path).is_empty());
    assert!(store.verify().await.expect("it is looked at").is_sound());
}

#[tokio::test]
async fn a_file_that_is_missing_or_another_is_an_error_of_its_threads() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    let store = RedbStore::open(&path).expect("a store");
    let runner = library(store.clone());
    keep(&runner, "broken", &page("one ")).await;
    let hash = files(&path).into_keys().next().expect("a file");
    keep(&runner, "whole", &page("two ")).await;
    let file = file_of(&path, &hash);
    let content = std::fs::read(&file).expect("the file");
    let mut flipped = content.clone();
    flipped[50_000] ^= 1;
    for damage in [None, Some(Vec::new()), Some(content[1..].to_vec()), Some(flipped)] {
        match &damage {
            None => std::fs::remove_file(&file).expect("it was there"),
            Some(bytes) => std::fs::write(&file, bytes).expect("it is written"),
        }
        for error in [
            runner.thread("broken").state().await.expect_err("it is damaged"),
            runner.thread("broken").run(Book::update()).await.expect_err("it is damaged"),
            runner.thread("broken").export(&mut Vec::new()).await.expect_err("it is damaged"),
        ] {
            for word in [&hash, "thread \"broken\"", "from a copy"] {
                assert!(error.to_string().contains(word), "{word}: {error}");
            }
        }
        assert_eq!(text(&runner, "whole").await, page("two "), "other threads are not touched");
        let verified = store.verify().await.expect("it is looked at");
        assert!(verified.faults.iter().any(|fault| fault.contains(&hash)), "{verified:?}");
        assert!(verified.faults.iter().all(|fault| !fault.contains("\"whole\"")), "{verified:?}");
        let faults = runner.verify().await.expect("it is looked at").faults;
        assert_eq!(faults.iter().map(|(thread, _)| thread.as_str()).collect::<Vec<_>>(), ["broken"]);
        // It is written anew by whoever has the content, and else comes from a copy.
        if damage.is_some() {
            keep(&runner, "who has it", &page("one ")).await;
            assert!(runner.thread("who has it").delete().await.expect("it is deleted"));
        } else {
            std::fs::write(&file, &content).expect("it is written");
        }
        assert_eq!(text(&runner, "broken").await, page("one "));
    }
    assert!(store.verify().await.expect("it is looked at").is_sound());
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Notes {
    #[state(append)]
    lines: Vec<String>,
}

/// The list as a whole is large, and none of what is added to it: only snapshots refer to it.
#[tokio::test]
async fn what_only_a_snapshot_refers_to_stays_for_as_long_as_the_snapshot() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    let runner = |store: RedbStore| {
        let note = |s: View<Notes>| async move { Ok(Notes::update().line(format!("{:01000}", s.lines.len()))) };
        let next = |s: &Notes| if s.lines.len() < 300 { "note" } else { END };
        let graph = Graph::<Notes>::new("notes").node("note", note).edge(START, "note").route_to("note", ["note", END], next);
        Runner::new(graph.build().expect("the graph is right"), store)
    };
    let store = RedbStore::open(&path).expect("a store");
    runner(store.clone()).thread("t").keep_last(2).run(Notes::update()).await.expect("it runs").done().expect("it ends");
    store.compact().await.expect("it is compacted");
    drop(store);
    let store = RedbStore::open(&path).expect("a store");
    let verified = store.verify().await.expect("it can be looked at");
    assert!(verified.is_sound() && verified.artifacts > 0, "{verified:?}");
    assert_eq!(runner(store).thread("t").state().await.expect("a state").values.lines.len(), 300);
}

#[tokio::test]
async fn what_the_newer_records_of_a_copy_refer_to_stays_when_the_older_ones_go() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("s.redb");
    let store = RedbStore::open(&path).expect("a store");
    let runner = library(store.clone());
    for word in ["old ", "newer ", "new "] {
        keep(&runner, "first", &page(word)).await;
    }
    runner.thread("first").copy_to("copy").await.expect("it is copied");
    runner.thread("first").delete().await.expect("it is deleted");
    runner.thread("copy").prune(Keep::Last(3)).await.expect("it is pruned");
    store.compact().await.expect("it is compacted");
    assert_eq!(runner.thread("copy").history().await.expect("its history").len(), 3);
    assert_eq!(text(&runner, "copy").await, page("new "));
    let verified = store.verify().await.expect("it can be looked at");
    assert!(verified.is_sound(), "{verified:?}");
    assert!(!files(&path).contains_key(&blake3::hash(&serde_json::to_vec(&page("old ")).expect("JSON")).to_hex().to_string()));
}

/// The deepest value that is allowed, in lists and maps by turns, with something large at its bottom and on its way.
#[tokio::test]
async fn a_large_value_may_be_as_deep_as_any_other() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = dir.path().join("store.redb");
    let mut deep = json!(page("deep"));
    for level in 1..100 {
        deep = match level % 3 {
            0 => Value::Array(vec![deep]),
            1 => Value::Object([("key".to_owned(), deep)].into_iter().collect()),
            _ if level % 20 == 2 => {
                Value::Object([("a".to_owned(), deep), ("b".to_owned(), json!(page("wide")))].into_iter().collect())
            }
            _ => Value::Object([("key".to_owned(), deep)].into_iter().collect()),
        };
    }
    {
        let runner = library(RedbStore::open(&store).expect("it opens"));
        runner.thread("t").run(Book::update().any(deep.clone())).await.expect("it runs").done().expect("it ends");
        let deeper = Value::Array(vec![Value::Array(vec![deep.clone()])]);
        runner.thread("t").run(Book::update().any(deeper)).await.expect_err("it is too deep");
    }
    let runner = library(RedbStore::open(&store).expect("it opens"));
    assert!(runner.thread("t").state().await.expect("it comes back").values.any == deep, "as it was");
    assert!(runner.verify().await.expect("it is read").faults.is_empty());
}
