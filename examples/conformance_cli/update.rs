//! From what a scenario writes to the engine's changes, and back to what a trace shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrata::state::{Change, Op};
use serde_json::{Map, Value};

use super::scenario::{Field, Reducer};

/// A value that is written to a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Written {
    Update(Value),
    Overwrite(Value),
}

/// An update as a body collects it.
pub(crate) type Collected = BTreeMap<String, Written>;

/// The fields of a graph by name.
pub(crate) type Fields = Arc<BTreeMap<String, Field>>;

/// A plain object as an update.
pub(crate) fn plain(object: &Map<String, Value>) -> Collected {
    object.iter().map(|(name, value)| (name.clone(), Written::Update(value.clone()))).collect()
}

/// The operations of the engine that an update stands for. A name that is no field is left for the engine to judge.
pub(crate) fn changes(fields: &Fields, collected: Collected) -> Vec<Change> {
    collected.into_iter().flat_map(|(name, written)| field_changes(fields.get(&name), &name, written)).collect()
}

fn field_changes(field: Option<&Field>, name: &str, written: Written) -> Vec<Change> {
    let change = |op| vec![Change::new(name.to_owned(), op)];
    let value = match written {
        Written::Overwrite(value) => return change(Op::Overwrite(value)),
        Written::Update(value) => value,
    };
    match (field.map_or(Reducer::Last, |field| field.reducer), value) {
        (Reducer::Append | Reducer::Concat, value) => change(Op::Append(value)),
        (Reducer::Add | Reducer::Max, value) => change(Op::Combine(value)),
        (Reducer::Merge, Value::Object(entries)) => change(Op::Patch(entries)),
        (Reducer::Messages, Value::Array(items)) => messages(name, items),
        (Reducer::Messages, one) => messages(name, vec![one]),
        (_, value) => change(Op::Set(value)),
    }
}

/// A list of messages and removals. A removal counts unless a later message has its id; remove-all drops what stands before it.
fn messages(name: &str, items: Vec<Value>) -> Vec<Change> {
    let mut kept: Vec<Value> = Vec::new();
    let mut removed: Vec<String> = Vec::new();
    let mut all = false;
    for item in items {
        match item.get("remove").and_then(Value::as_str) {
            Some("__all__") => (kept, removed, all) = (Vec::new(), Vec::new(), true),
            Some(id) => removed.push(id.to_owned()),
            None => {
                removed.retain(|id| item["id"] != id.as_str());
                kept.push(item);
            }
        }
    }
    let put = if all { Op::Overwrite(Value::Array(kept)) } else { Op::Put(kept) };
    let mut changes = vec![Change::new(name.to_owned(), put)];
    if !removed.is_empty() {
        changes.push(Change::new(name.to_owned(), Op::Remove(removed)));
    }
    changes.retain(|change| !matches!(&change.op, Op::Put(items) if items.is_empty()));
    changes
}

/// What a trace shows of the changes of a task; `None` if there are none.
pub(crate) fn shown(changes: &[Change]) -> Option<Map<String, Value>> {
    let shown = changes.iter().map(|change| {
        let value = match &change.op {
            Op::Set(value) | Op::Append(value) | Op::Overwrite(value) | Op::Combine(value) => value.clone(),
            Op::Patch(entries) => Value::Object(entries.clone()),
            Op::Put(items) => Value::Array(items.clone()),
            Op::Remove(keys) => keys.iter().cloned().collect(),
        };
        (change.field.to_string(), value)
    });
    let shown: Map<String, Value> = shown.collect();
    (!shown.is_empty()).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::messages;
    use ferrata::state::Op;
    use serde_json::{Value, json};

    fn ops(items: Value) -> Vec<Op> {
        messages("messages", items.as_array().cloned().expect("a list")).into_iter().map(|change| change.op).collect()
    }

    #[test]
    fn removals_and_messages() {
        let m = |id: &str| json!({"role": "ai", "content": "x", "id": id});
        assert_eq!(ops(json!([{"remove": "m1"}, m("m1")])), [Op::Put(vec![m("m1")])]);
        assert_eq!(ops(json!([m("m1"), {"remove": "m1"}])), [Op::Put(vec![m("m1")]), Op::Remove(vec!["m1".into()])]);
        assert_eq!(ops(json!([{"remove": "m7"}])), [Op::Remove(vec!["m7".into()])]);
        assert_eq!(ops(json!([m("m1"), {"remove": "__all__"}, m("m2")])), [Op::Overwrite(json!([m("m2")]))]);
    }
}
