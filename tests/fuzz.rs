//! What is read was written by somebody else: arbitrary values and records come back as they were, and whatever else is read is refused with an error.
//!
//! How it could break: a number that loses its last digits, a map that is taken for a reference to an artifact, a value so deep that reading it
//! ends the process, a line of an export that makes the reader panic, a graph that makes the engine panic.
//!
//! `PROPTEST_CASES` says how many cases of each, for long runs. What decodes bytes is tried in `src/log/fuzz.rs`.

#[path = "../examples/conformance_cli/mod.rs"]
#[allow(dead_code, reason = "this test uses a part of it")]
mod conformance_cli;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conformance_cli::{Durability, Scenario, StoreKind, run};
use ferrata::clock::Timestamp;
use ferrata::log::{Entry, Record};
use ferrata::store::{Append, Loaded, MemoryStore, Reach, RedbOptions, Restore, Store, ThreadStatus};
use ferrata::testing::FaultyDisk;
use ferrata::{END, Graph, Position, Runner, START, State, ThreadName, View};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a reference to a large value looks like inside the store.
const RESERVED: &str = "\u{0}artifact";

fn cases(cases: u32) -> TestRunner {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(cases);
    TestRunner::new(Config { cases, failure_persistence: None, max_global_rejects: 1_000_000, ..Config::default() })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        Just(RESERVED.to_owned()),
        Just(String::new()),
        (any::<char>(), 1_usize..1_500).prop_map(|(c, times)| c.to_string().repeat(times)),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let float = prop::num::f64::POSITIVE
        | prop::num::f64::NEGATIVE
        | prop::num::f64::SUBNORMAL
        | prop::num::f64::NORMAL
        | prop::num::f64::ZERO;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::sample::select(vec![
            json!(u64::MAX),
            json!(i64::MAX),
            json!(i64::MIN),
            json!(u32::MAX),
            json!(f64::MAX),
            json!(-0.0)
        ]),
        float.prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    let wide = leaf.prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(text(), inner.clone(), 0..5).prop_map(|map| json!(map)),
            inner.prop_map(|inner| json!({ RESERVED: inner })),
        ]
    });
    // As deep as a value may be; the leaf has some depth of its own.
    (wide, 0_usize..80).prop_map(|(value, depth)| {
        let nest = |value, level: usize| if level.is_multiple_of(2) { json!([value]) } else { json!({ "in": value }) };
        if depth < 40 { value } else { (0..depth).fold(value, nest) }
    })
}

/// Every kind of record.
const RECORDS: &str = include_str!("../src/testing/suite/records.jsonl");

fn samples() -> Vec<Value> {
    RECORDS.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

/// All places in a value.
fn places(value: &Value, here: &str, found: &mut Vec<String>) {
    found.push(here.to_owned());
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Array(items) => items.iter().enumerate().for_each(|(i, item)| places(item, &format!("{here}/{i}"), found)),
        Value::Object(map) => map.iter().for_each(|(key, item)| places(item, &format!("{here}/{}", escaped(key)), found)),
        _ => {}
    }
}

fn place(value: &Value, choice: prop::sample::Index) -> String {
    let mut found = Vec::new();
    places(value, "", &mut found);
    choice.get(&found).clone()
}

/// A record of any kind, with other values in some of its places.
/// A value may have a depth of 100, and the record around it has some of its own.
const RECORD_DEPTH_MAX: usize = 110;

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn record() -> impl Strategy<Value = Record> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), value()), 0..4);
    let made = (0..samples().len(), changes).prop_map(|(kind, changes)| {
        let mut record = samples().swap_remove(kind);
        for (choice, value) in changes {
            let mut other = record.clone();
            let at = place(&other, choice);
            *other.pointer_mut(&at).expect("it was found there") = value;
            // Values that are put into values may be deeper than any that is let in.
            if depth(&other) <= RECORD_DEPTH_MAX && serde_json::from_value::<Record>(other.clone()).is_ok() {
                record = other;
            }
        }
        serde_json::from_value(record).expect("it was tried")
    });
    let answered = value().prop_map(|value| {
        let mut record = samples().swap_remove(8);
        record["answered"]["value"] = value;
        serde_json::from_value(record).expect("an answer can be anything")
    });
    prop_oneof![made, answered]
}

fn name() -> ThreadName {
    ThreadName::new("t").expect("a good name")
}

/// As text, in which -0 is not 0.
fn texts(records: impl IntoIterator<Item = Record>) -> Vec<String> {
    records.into_iter().map(|record| serde_json::to_string(&record).expect("it is plain")).collect()
}

#[test]
fn records_come_back_as_they_were() {
    let dir = tempfile::tempdir().expect("a folder");
    let appends = prop::collection::vec(prop::collection::vec(record(), 1..4), 1..4);
    let run = |(appends, above): (Vec<Vec<Record>>, usize)| {
        let disk = FaultyDisk::new();
        let open = || {
            let options = RedbOptions::new().artifacts_above(above).artifacts_in(dir.path());
            options.open_on(Arc::new(disk.clone())).expect("it opens")
        };
        let written = texts(appends.iter().flatten().cloned());
        runtime().block_on(async {
            let (store, mut next) = (open(), 0);
            for records in appends {
                let (expected, at, status) = (Position(next), Timestamp(next), ThreadStatus::Running);
                next += records.len() as u64;
                store
                    .append(Append {
                        thread: name(),
                        expected,
                        records,
                        snapshot: None,
                        status,
                        questions: None,
                        alarms: None,
                        at,
                    })
                    .await
                    .expect("it is appended");
            }
            drop(store);
            let store = open();
            let loaded = store.load(&name(), Reach::Whole).await.expect("it is read");
            prop_assert_eq!(texts(loaded.entries.into_iter().map(|entry| entry.record)), written);
            prop_assert!(store.verify().await.expect("it is read").is_sound());
            Ok(())
        })
    };
    let above = prop_oneof![Just(64_usize), Just(700), Just(64 * 1024)];
    cases(60).run(&(appends, above), run).unwrap_or_else(|error| panic!("{error}"));
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Bag {
    any: Value,
    #[state(append)]
    list: Vec<Value>,
    #[state(merge)]
    map: BTreeMap<String, Value>,
}

fn bag(store: impl Store) -> Runner<Bag> {
    let copy = |s: View<Bag>| async move { Ok(Bag::update().push_list(s.any.clone()).mark("copy", &s.any)) };
    let graph = Graph::<Bag>::new("bag").node("copy", copy).edge(START, "copy").edge("copy", END);
    Runner::new(graph.build().expect("the graph is right"), store)
}

trait Mark {
    fn mark(self, key: &str, value: &Value) -> Self;
}

impl Mark for BagUpdate {
    fn mark(self, key: &str, value: &Value) -> Self {
        self.map(BTreeMap::from([(key.to_owned(), value.clone())]))
    }
}

async fn exported(runner: &Runner<Bag>) -> Vec<u8> {
    let mut lines = Vec::new();
    runner.thread("t").export(&mut lines).await.expect("it is exported");
    lines
}

#[test]
fn values_go_through_runs_stores_and_exports_unchanged() {
    let dir = tempfile::tempdir().expect("a folder");
    let run = |(any, key): (Value, String)| {
        let disk = FaultyDisk::new();
        let open = || RedbOptions::new().artifacts_above(500).artifacts_in(dir.path()).open_on(Arc::new(disk.clone()));
        runtime().block_on(async {
            let input = Bag::update().any(any.clone()).mark(&key, &any);
            let end = bag(open().expect("it opens")).thread("t").run(input).await.expect("it runs").done().expect("it ends");
            prop_assert_eq!(end.list[0].to_string(), any.to_string());
            let again = bag(open().expect("it opens"));
            let read = again.thread("t").state().await.expect("it is read").values;
            prop_assert_eq!(json!(*read).to_string(), json!(*end).to_string());
            let lines = exported(&again).await;
            let other = bag(MemoryStore::new());
            other.thread("t").import(&mut &*lines).await.expect("it is imported");
            prop_assert_eq!(exported(&other).await, lines);
            prop_assert_eq!(
                json!(*other.thread("t").state().await.expect("it is read").values).to_string(),
                json!(*end).to_string()
            );
            Ok(())
        })
    };
    cases(40).run(&(value(), text()), run).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_value_that_is_too_deep_is_refused_and_nothing_is_lost() {
    let runner = bag(MemoryStore::new());
    runtime().block_on(async {
        for depth in [98, 99, 100, 101, 120, 500] {
            let any = (0..depth).fold(json!(1), |value, _| json!([value]));
            let thread = runner.thread(&format!("{depth}"));
            match thread.run(Bag::update().any(any.clone())).await {
                Ok(outcome) => assert!(depth <= 100 && outcome.done().is_some_and(|end| end.any == any), "{depth}"),
                Err(error) => {
                    assert!(depth >= 98, "{depth}: {error}");
                    assert!(error.to_string().contains("deep"), "{depth}: {error}");
                }
            }
        }
    });
}

/// What can be done to a line of text.
#[derive(Clone, Debug)]
enum Edit {
    /// Another value in some place of a line.
    Value(prop::sample::Index, prop::sample::Index, Value),
    /// A place that is not there any more.
    Without(prop::sample::Index, prop::sample::Index),
    Byte(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Double(prop::sample::Index),
    Drop(prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let index = any::<prop::sample::Index>;
    let number = prop_oneof![
        Just(json!(u64::MAX)),
        Just(json!(i64::MAX)),
        Just(json!(i64::MIN)),
        Just(json!(-1)),
        Just(json!(0)),
        Just(json!(u32::MAX)),
        value()
    ];
    prop_oneof![
        6 => (index(), index(), number).prop_map(|(line, place, value)| Edit::Value(line, place, value)),
        2 => (index(), index()).prop_map(|(line, place)| Edit::Without(line, place)),
        1 => (index(), any::<u8>()).prop_map(|(at, byte)| Edit::Byte(at, byte)),
        1 => index().prop_map(Edit::Cut),
        1 => index().prop_map(Edit::Double),
        1 => index().prop_map(Edit::Drop),
        1 => (index(), index()).prop_map(|(one, two)| Edit::Swap(one, two)),
    ]
}

fn remove(value: &mut Value, at: &str) {
    let Some((outer, key)) = at.rsplit_once('/') else { return };
    match value.pointer_mut(outer) {
        Some(Value::Array(items)) => _ = key.parse().ok().filter(|i| *i < items.len()).map(|i: usize| items.remove(i)),
        Some(Value::Object(map)) => _ = map.remove(&key.replace("~1", "/").replace("~0", "~")),
        _ => {}
    }
}

impl Edit {
    fn apply(&self, text: &mut Vec<u8>) {
        let mut lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        match self {
            Self::Byte(at, byte) if !text.is_empty() => {
                let at = at.index(text.len());
                text[at] = *byte;
                return;
            }
            Self::Cut(at) => return text.truncate(at.index(text.len() + 1)),
            Self::Value(line, at, _) | Self::Without(line, at) => {
                let line = line.index(lines.len());
                let Ok(mut value) = serde_json::from_slice::<Value>(&lines[line]) else { return };
                let at = place(&value, *at);
                match self {
                    Self::Value(_, _, other) => *value.pointer_mut(&at).expect("it was found there") = other.clone(),
                    _ => remove(&mut value, &at),
                }
                lines[line] = value.to_string().into_bytes();
            }
            Self::Double(line) => {
                let line = line.index(lines.len());
                lines.insert(line, lines[line].clone());
            }
            Self::Drop(line) => _ = lines.remove(line.index(lines.len())),
            Self::Swap(one, two) => {
                let (one, two) = (one.index(lines.len()), two.index(lines.len()));
                lines.swap(one, two);
            }
            Self::Byte(..) => {}
        }
        *text = lines.join(&b'\n');
    }
}

#[test]
fn an_export_that_was_changed_is_refused_or_can_be_read() {
    let taken = AtomicU64::new(0);
    let (short, forked) = runtime().block_on(async {
        let runner = bag(MemoryStore::new());
        let thread = runner.thread("t");
        let end = thread.run(Bag::update().any(json!([1, "x"]))).await.expect("it runs");
        assert!(end.done().is_some());
        let short = exported(&runner).await;
        let history = thread.history().await.expect("a history");
        thread.clone().at(history[1].position).update(Bag::update().any(json!(2)), None).await.expect("it is edited");
        assert!(thread.resume().await.expect("it runs").done().is_some());
        let forked = exported(&runner).await;
        assert!(thread.prune(ferrata::Keep::Last(2)).await.is_ok());
        (short, [forked, exported(&runner).await])
    });
    let of = prop_oneof![Just(short), Just(forked[0].clone()), Just(forked[1].clone())];
    let run = |(mut text, edits): (Vec<u8>, Vec<Edit>)| {
        edits.iter().for_each(|edit| edit.apply(&mut text));
        runtime().block_on(async {
            let runner = bag(MemoryStore::new());
            let thread = runner.thread("t");
            match thread.import(&mut &*text).await {
                Ok(()) => {
                    taken.fetch_add(1, Ordering::Relaxed);
                    // Whatever it is now, it can be read, and it goes on or says why not.
                    thread.state().await.map_err(|error| TestCaseError::fail(format!("imported, and not read: {error}")))?;
                    let _ = thread.history().await;
                    let _ = thread.report().await;
                    let _ = runner.verify().await;
                    let _ = thread.resume().await;
                    let _ = thread.run(Bag::update().any(json!(3))).await;
                }
                Err(error) => {
                    let nothing = thread.state().await.expect_err("nothing was imported");
                    prop_assert!(nothing.is_unknown_thread(), "{}: {}", error, nothing);
                }
            }
            Ok(())
        })
    };
    cases(400).run(&(of, prop::collection::vec(edit(), 1..4)), run).unwrap_or_else(|error| panic!("{error}"));
    println!("{} were imported", taken.load(Ordering::Relaxed));
}

#[test]
fn records_that_make_no_thread_are_an_error() {
    // They are read by a runner as they would be after somebody else's program wrote them.
    let run = |records: Vec<Record>| {
        runtime().block_on(async {
            let store = Arc::new(MemoryStore::new());
            let numbered = (0..).zip(records);
            let entries =
                numbered.map(|(position, record)| Entry { position: Position(position), at: Timestamp(position), record });
            let entries: Vec<Entry> = entries.collect();
            let restore = Restore {
                thread: name(),
                base: None,
                entries,
                status: ThreadStatus::Running,
                questions: Vec::new(),
                alarms: Vec::new(),
            };
            store.restore(restore).await.expect("a store knows nothing of sense");
            let Loaded { entries, .. } = store.load(&name(), Reach::Whole).await.expect("it is read");
            let runner = bag(Arc::clone(&store));
            let thread = runner.thread("t");
            let read = thread.state().await;
            let is_refused = |code: &str| {
                ["log-damaged", "other-graph", "state-shape", "thread-unknown", "value", "node-gone"].contains(&code)
            };
            if let Err(error) = &read {
                prop_assert!(is_refused(error.code()), "{:?}: {:?}", error, entries);
            }
            let _ = thread.history().await;
            let _ = thread.report().await;
            let _ = thread.resume().await;
            let _ = runner.verify().await;
            Ok(())
        })
    };
    let opened = Just(serde_json::from_value::<Record>(opened()).expect("a record"));
    let records = (opened, prop::collection::vec(record(), 0..12));
    let records = (any::<bool>(), records).prop_map(|(begins, (opened, mut records))| {
        records.splice(0..0, begins.then_some(opened));
        records
    });
    cases(150).run(&records, run).unwrap_or_else(|error| panic!("{error}"));
}

/// How a thread of the bag's graph begins.
fn opened() -> Value {
    runtime().block_on(async {
        let runner = bag(MemoryStore::new());
        assert!(runner.thread("t").run(Bag::update()).await.is_ok());
        serde_json::to_value(&runner.thread("t").log().await.expect("a log")[0].record).expect("it is plain")
    })
}

/// A scenario that one of ours was turned into.
fn scenario() -> impl Strategy<Value = Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/scenarios");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("the folder of scenarios").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let texts: Vec<String> = paths.iter().map(|path| std::fs::read_to_string(path).expect("a scenario")).collect();
    // A body that goes round for ever is not the engine's to stop.
    let all: Vec<Value> =
        texts.iter().filter(|text| !text.contains("\"while\"")).map(|text| serde_json::from_str(text).expect("JSON")).collect();
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..6_u8), 1..5);
    (0..all.len(), 0..all.len(), edits).prop_map(move |(one, two, edits)| {
        let mut scenario = all[one].clone();
        for (here, there, kind) in edits {
            let from = if kind == 0 { &all[two] } else { &all[one] };
            let at = place(&scenario, here);
            let (mut of_its_kind, spot) = (Vec::new(), scenario.pointer(&at).cloned().unwrap_or_default());
            places(from, "", &mut of_its_kind);
            // Most of what is a scenario at all has something of the same kind in the place.
            of_its_kind.retain(|place| kind == 4 || from.pointer(place).is_some_and(|value| is_alike(value, &spot)));
            let other = if of_its_kind.is_empty() {
                spot
            } else {
                from.pointer(there.get::<String>(&of_its_kind)).cloned().unwrap_or_default()
            };
            match (kind, scenario.pointer_mut(&at)) {
                (0..=2 | 4, Some(spot)) => *spot = other,
                (3, Some(Value::Array(items))) => items.push(other),
                _ => remove(&mut scenario, &at),
            }
        }
        scenario
    })
}

fn is_alike(one: &Value, two: &Value) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(two)
}

#[test]
fn scenarios_that_make_no_sense_are_an_error_or_a_trace() {
    let (ran, refused, endless) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let run_it = |(scenario, durability): (Value, u8)| {
        let Ok(parsed) = serde_json::from_value::<Scenario>(scenario.clone()) else {
            refused.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        let durability = [None, Some(Durability::Async), Some(Durability::Exit)][usize::from(durability)];
        let trace = runtime().block_on(async {
            tokio::time::timeout(Duration::from_secs(10), run(&parsed, &StoreKind::Memory, durability)).await
        });
        let Ok(trace) = trace else {
            endless.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        ran.fetch_add(1, Ordering::Relaxed);
        prop_assert!(trace["build"]["status"].is_string() && trace["trace"].is_array(), "{trace}");
        // An engine that fails inside says so with this word.
        prop_assert!(!trace.to_string().contains("before its time"), "{trace}");
        Ok(())
    };
    cases(250).run(&(scenario(), 0..3_u8), run_it).unwrap_or_else(|error| panic!("{error}"));
    println!("{ran:?} ran, {refused:?} were no scenario, {endless:?} did not end");
    assert!(ran.load(Ordering::Relaxed) > refused.load(Ordering::Relaxed) / 10, "hardly any is a scenario");
}
