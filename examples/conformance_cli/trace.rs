//! What is printed: snapshots, errors, totals, and ids that nobody can foresee.

use serde_json::{Map, Value, json};

use super::engine;
use super::expr::canonical;
use super::runs::{Failure, Shot, ShotTask};
use super::world::Counts;

/// The trace of a scenario whose graphs were not built.
pub(crate) fn not_built(scenario: &str, error: &str, why: &str) -> Value {
    json!({"scenario": scenario, "build": {"status": "error", "error": error}, "trace": [], "_why": why})
}

/// The trace of a scenario that was run.
pub(crate) fn built(scenario: &str, entries: Vec<Value>) -> Value {
    json!({"scenario": scenario, "build": {"status": "done"}, "trace": entries})
}

/// What one operation prints, with the totals after it.
pub(crate) fn entry(op: &str, mut keys: Map<String, Value>, (runs, counts): (Counts, Counts)) -> Value {
    keys.insert("op".to_owned(), op.into());
    keys.insert("runs".to_owned(), json!(runs));
    keys.insert("counts".to_owned(), json!(counts));
    let mut entry = Value::Object(keys);
    hide_ids(&mut entry);
    entry
}

/// Keys for a failure; what begins with `_` is a hint for people.
pub(crate) fn failed(failure: &Failure) -> Map<String, Value> {
    let (name, class, why) = match failure {
        Failure::Engine(error) => {
            let (name, class) = engine::named(error);
            (name, class, format!("{error:?}"))
        }
        Failure::Refused(name) => ((*name).to_owned(), None, String::new()),
        Failure::Unsupported(what) => ("Unsupported".to_owned(), None, (*what).to_owned()),
    };
    let mut keys = Map::new();
    keys.insert("status".to_owned(), "error".into());
    keys.insert("error".to_owned(), name.into());
    keys.insert("_why".to_owned(), why.into());
    if let Some(class) = class {
        keys.insert("class".to_owned(), class.into());
    }
    keys
}

/// A snapshot; of a thread without checkpoints if there is none.
pub(crate) fn snapshot(shot: Option<&Shot>) -> Value {
    let Some(Shot { values, next, step, source, parent, tasks, .. }) = shot else { return snapshot(Some(&Shot::default())) };
    let mut next = next.clone();
    next.sort();
    let mut tasks: Vec<Value> = tasks.iter().map(task).collect();
    tasks.sort_by_cached_key(|task| (task["name"].as_str().map(str::to_owned), canonical(task)));
    json!({"values": values, "next": next, "step": step, "source": source, "parent": parent, "tasks": tasks})
}

fn task(ShotTask { name, interrupts, error, state, .. }: &ShotTask) -> Value {
    let mut task = json!({"name": name, "interrupts": sorted(interrupts.clone()), "error": error});
    if let Some(state) = state {
        task["state"] = state.as_ref().map_or(Value::Null, |state| snapshot(Some(state)));
    }
    task
}

/// Values by their canonical JSON.
pub(crate) fn sorted(mut values: Vec<Value>) -> Vec<Value> {
    values.sort_by_cached_key(canonical);
    values
}

/// Prints every message id that the scenario did not give as `auto`.
fn hide_ids(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(hide_ids),
        Value::Object(object) => {
            let is_message = ["role", "content", "id"].iter().all(|key| object.contains_key(*key));
            if is_message && !object["id"].as_str().is_some_and(is_given) {
                object.insert("id".to_owned(), "auto".into());
            }
            object.values_mut().for_each(hide_ids);
        }
        _ => {}
    }
}

/// Ids in scenarios are `m` and digits.
fn is_given(id: &str) -> bool {
    id.strip_prefix('m').is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::hide_ids;
    use serde_json::json;

    #[test]
    fn only_ids_of_messages_are_hidden() {
        let mut value =
            json!({"id": "x", "list": [{"role": "ai", "content": "", "id": "m"}, {"role": "ai", "content": "", "id": "m7"}]});
        hide_ids(&mut value);
        let list = json!([{"role": "ai", "content": "", "id": "auto"}, {"role": "ai", "content": "", "id": "m7"}]);
        assert_eq!(value, json!({"id": "x", "list": list}));
    }
}
