//! Recorded scenarios of a mature engine of this kind, run over this one and compared with what that one did.
//!
//! How it could break: something stops working, something we do differently is not written down (`deviations.json` says what and why),
//! a store keeps less than memory does, or the outcome depends on when steps are stored.
//!
//! `core` leaves out what engines may well count differently: step, source and parent of checkpoints, checkpoints of inputs that
//! are not applied yet, and checkpoint and debug chunks of streams.

#[path = "../examples/conformance_cli/mod.rs"]
mod conformance_cli;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use conformance_cli::{Durability, Scenario, StoreKind, run};
use serde_json::{Map, Value};

/// At most so many scenarios that nobody contests may be done differently on purpose.
const DEVIATIONS_MAX: usize = 20;

/// A recorded scenario, and what became of it here.
struct Case {
    name: String,
    group: String,
    contested: bool,
    scenario: Value,
    golden: Value,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(folder().join(path)).unwrap_or_else(|error| panic!("{path} cannot be read: {error}"))
}

fn json(path: &str) -> Value {
    serde_json::from_str(&text(path)).unwrap_or_else(|error| panic!("{path} is no JSON: {error}"))
}

fn cases() -> Vec<Case> {
    let entries = std::fs::read_dir(folder().join("scenarios")).expect("the folder of scenarios");
    let names = entries.filter_map(|entry| {
        let name = entry.expect("an entry of the folder").file_name();
        name.to_str()?.strip_suffix(".json").map(str::to_owned)
    });
    let names: BTreeSet<String> = names.collect();
    let case = |name: String| {
        let scenario = json(&format!("scenarios/{name}.json"));
        Case {
            group: scenario["group"].as_str().expect("a group").to_owned(),
            contested: scenario["contested"] == true,
            golden: json(&format!("golden/{name}.json")),
            scenario,
            name,
        }
    };
    names.into_iter().map(case).collect()
}

fn trace(case: &Case, store: &StoreKind) -> Value {
    let scenario: Scenario = serde_json::from_value(case.scenario.clone()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(&scenario, store, None))
}

/// The trace with all runs in this durability.
fn trace_in(case: &Case, durability: Durability) -> Value {
    let scenario: Scenario = serde_json::from_value(case.scenario.clone()).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(&scenario, &StoreKind::Memory, Some(durability)))
}

// ---- comparing ----

/// Where two values differ first, in reading order.
fn difference(want: &Value, got: &Value, path: &str) -> Option<String> {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            let lacking = want.iter().find_map(|(key, value)| match got.get(key) {
                Some(other) => difference(value, other, &format!("{path}.{key}")),
                None => Some(format!("{path}.{key}: expected {value}, got nothing")),
            });
            let surplus = || got.iter().find(|(key, _)| !want.contains_key(*key));
            lacking.or_else(|| surplus().map(|(key, value)| format!("{path}.{key}: expected nothing, got {value}")))
        }
        (Value::Array(want), Value::Array(got)) => {
            let unlike = want.iter().zip(got).enumerate().find_map(|(i, (a, b))| difference(a, b, &format!("{path}[{i}]")));
            let lengths = || format!("{path}: expected {} items, got {}", want.len(), got.len());
            unlike.or_else(|| (want.len() != got.len()).then(lengths))
        }
        _ => (want != got).then(|| format!("{path}: expected {want}, got {got}")),
    }
}

/// A trace without hints, and without what `core` leaves out.
fn prepared(trace: &Value, core: bool) -> Value {
    let mut trace = without_hints(trace);
    trace.remove("recorded_from");
    let entries = trace.get("trace").and_then(Value::as_array).into_iter().flatten();
    let entries = entries.map(|entry| {
        let mut entry = without_hints(entry);
        if core {
            entry.iter_mut().for_each(|(key, value)| reduce(key, value));
        }
        Value::Object(entry)
    });
    let entries = entries.collect();
    trace.insert("trace".to_owned(), entries);
    Value::Object(trace)
}

fn without_hints(object: &Value) -> Map<String, Value> {
    let mut object = object.as_object().cloned().unwrap_or_default();
    object.retain(|key, _| !key.starts_with('_'));
    object
}

fn reduce(key: &str, value: &mut Value) {
    match (key, value) {
        ("state", state) => reduce_snapshot(state),
        ("states", Value::Array(states)) => {
            states.retain(|state| state["next"] != serde_json::json!(["__start__"]));
            states.iter_mut().for_each(reduce_snapshot);
        }
        ("chunks", Value::Array(chunks)) => chunks.retain(|chunk| chunk["mode"] != "checkpoints" && chunk["mode"] != "debug"),
        _ => {}
    }
}

fn reduce_snapshot(state: &mut Value) {
    let Value::Object(state) = state else { return };
    ["step", "source", "parent"].iter().for_each(|key| _ = state.remove(*key));
    let tasks = state.get_mut("tasks").and_then(Value::as_array_mut).into_iter().flatten();
    tasks.filter_map(|task| task.get_mut("state")).for_each(reduce_snapshot);
}

// ---- the promises ----

/// Totals of a group: passed in full, passed in core, all.
type Totals = BTreeMap<String, [usize; 3]>;

fn print(totals: &Totals) {
    println!("{:14}{:>6}{:>6}{:>6}", "group", "full", "core", "of");
    let mut sum = [0; 3];
    for (group, counts) in totals {
        println!("{group:14}{:6}{:6}{:6}", counts[0], counts[1], counts[2]);
        sum = std::array::from_fn(|i| sum[i] + counts[i]);
    }
    println!("{:14}{:6}{:6}{:6}", "all", sum[0], sum[1], sum[2]);
}

#[test]
fn every_scenario_passes_or_is_a_deviation() {
    let deviations = json("deviations.json");
    let mut totals = Totals::new();
    let mut faults = Vec::new();
    for case in cases() {
        let got = trace(&case, &StoreKind::Memory);
        let compare = |core| difference(&prepared(&case.golden, core), &prepared(&got, core), "");
        let (full, core) = (compare(false), compare(true));
        if !case.contested {
            let counts = totals.entry(case.group.clone()).or_default();
            let passed = [full.is_none(), core.is_none(), true];
            *counts = std::array::from_fn(|i| counts[i] + usize::from(passed[i]));
        }
        let (name, listed) = (&case.name, deviations.get(&case.name).is_some());
        match full {
            Some(difference) if !listed => faults.push(format!("{name}{difference}")),
            None if listed => faults.push(format!("{name} passes; remove it from deviations.json")),
            _ => {}
        }
    }
    print(&totals);
    assert!(faults.is_empty(), "\n  {}", faults.join("\n  "));
}

#[test]
fn a_store_on_disk_tells_the_same() {
    for case in cases() {
        let folder = tempfile::tempdir().expect("a folder");
        let got = trace(&case, &StoreKind::Redb(folder.path().to_owned()));
        let difference = difference(&prepared(&trace(&case, &StoreKind::Memory), false), &prepared(&got, false), "");
        assert_eq!(difference, None, "{} over redb", case.name);
    }
}

/// What does not depend on when steps are stored: how runs end, what they give, and how often bodies ran.
fn outcomes(trace: &Value) -> Vec<Value> {
    let entries = trace["trace"].as_array().into_iter().flatten();
    let keys = ["op", "status", "values", "interrupts", "error", "class", "runs", "counts"];
    entries.map(|entry| keys.iter().map(|key| (*key, entry[*key].clone())).collect::<Value>()).collect()
}

#[test]
fn outcomes_do_not_depend_on_durability() {
    let deviations = json("deviations.json");
    let mut compared = 0;
    for case in cases().iter().filter(|case| deviations.get(&case.name).is_none()) {
        // A run that is stored as one checkpoint has none in between to go back to.
        let goes_back = case.scenario["script"].as_array().into_iter().flatten().any(|op| op.get("at").is_some());
        for durability in [Durability::Async, Durability::Sync, Durability::Exit] {
            if goes_back && durability == Durability::Exit {
                continue;
            }
            let got = trace_in(case, durability);
            assert_eq!(outcomes(&got), outcomes(&case.golden), "{} in {durability:?}", case.name);
            compared += 1;
        }
    }
    println!("{compared} traces compared");
    assert!(compared > 500, "only {compared} traces compared");
}

#[test]
fn deviations_are_explained() {
    let cases: BTreeMap<String, bool> = cases().into_iter().map(|case| (case.name, case.contested)).collect();
    let mut uncontested = 0;
    for (name, deviation) in json("deviations.json").as_object().expect("an object") {
        let contested = *cases.get(name).unwrap_or_else(|| panic!("there is no scenario {name}"));
        uncontested += usize::from(!contested);
        for key in ["row", "why"] {
            assert!(deviation[key].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {key}");
        }
    }
    assert!(uncontested <= DEVIATIONS_MAX, "{uncontested} uncontested deviations, {DEVIATIONS_MAX} are allowed");
}

#[test]
fn differences_are_found() {
    use serde_json::json;
    for (want, got, found) in [
        (json!({"a": [1, {"b": null}]}), json!({"a": [1, {"b": null}]}), None),
        (json!({"a": [1, 2]}), json!({"a": [1, 2, 3]}), Some(".a: expected 2 items, got 3")),
        (json!({"a": 1}), json!({"a": true}), Some(".a: expected 1, got true")),
        (json!({"a": 1}), json!({}), Some(".a: expected 1, got nothing")),
        (json!({}), json!({"a": 1}), Some(".a: expected nothing, got 1")),
    ] {
        assert_eq!(difference(&want, &got, "").as_deref(), found);
    }
}

#[test]
fn core_leaves_out_what_engines_count() {
    use serde_json::json;
    let entry = |state: Value| json!({"trace": [{"op": "history", "states": state, "_why": "a hint"}]});
    let full = entry(json!([{"next": ["a"], "step": 1, "source": "loop", "parent": true}, {"next": ["__start__"]}]));
    assert_eq!(prepared(&full, true), prepared(&entry(json!([{"next": ["a"]}])), false));
    assert_ne!(prepared(&full, false), prepared(&entry(json!([{"next": ["a"]}])), false));
}
