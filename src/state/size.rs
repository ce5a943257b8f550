//! How large values are: about as many bytes as their JSON, found by looking at them, without writing them down.

use serde_json::{Map, Value};

use super::{Change, Op, Schema, StateCell, StateError};

/// What a number counts, however many digits it has.
const NUMBER: u64 = 8;
/// What null, true and false count.
const WORD: u64 = 5;
/// The quotes, colon and comma around a key.
const AROUND: u64 = 4;

/// Of one value. A part never counts more than the whole, and the whole never more than its parts one by one.
pub(crate) fn value_bytes(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => WORD,
        Value::Number(_) => NUMBER,
        Value::String(text) => text_bytes(text),
        Value::Array(items) => items_bytes(items),
        Value::Object(entries) => entries_bytes(entries),
    }
}

fn text_bytes(text: &str) -> u64 {
    text.len() as u64 + 2
}

fn items_bytes(items: &[Value]) -> u64 {
    items.iter().map(|item| value_bytes(item) + 1).sum::<u64>() + 2
}

fn entries_bytes(entries: &Map<String, Value>) -> u64 {
    entries.iter().map(|(key, value)| entry_bytes(key, value_bytes(value))).sum::<u64>() + 2
}

fn entry_bytes(key: &str, value: u64) -> u64 {
    key.len() as u64 + AROUND + value
}

/// Of changes: what a state can grow by through them, at most.
pub(crate) fn changes_bytes(changes: &[Change]) -> u64 {
    let op = |op: &Op| match op {
        Op::Set(value) | Op::Append(value) | Op::Overwrite(value) | Op::Combine(value) => value_bytes(value),
        Op::Patch(entries) => entries_bytes(entries),
        Op::Put(items) => items_bytes(items),
        Op::Remove(keys) => keys.iter().map(|key| text_bytes(key) + 1).sum(),
    };
    changes.iter().map(|change| entry_bytes(&change.field, op(&change.op))).sum()
}

/// Of a whole state. Looks at all of it.
pub(crate) fn state_bytes(schema: &Schema, state: &StateCell) -> Result<u64, StateError> {
    let mut bytes = 0;
    for field in schema.fields() {
        if let Some(value) = state.object().read(&field.name)? {
            bytes += entry_bytes(&field.name, value_bytes(&value));
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Field, Rule, Update, Values};
    use super::*;

    #[test]
    fn a_value_counts_about_what_its_json_takes() {
        for value in
            [json!(null), json!("größe"), json!([1, "x", [], {}]), json!({"a": {"b": [true, false]}, "": "x".repeat(1_000)})]
        {
            let (counted, written) = (value_bytes(&value), value.to_string().len() as u64);
            assert!(counted >= written && counted <= written * 4 + 16, "{value}: {counted} for {written}");
        }
    }

    /// What is added up must never be less than what there is, or the limit would be passed unseen.
    #[test]
    fn a_state_never_grows_by_more_than_its_changes_count() {
        let fields = [("text", Rule::Replace), ("list", Rule::Append), ("map", Rule::Merge), ("said", Rule::Messages)];
        let fields = fields.map(|(name, rule)| Field::new(name, rule)).to_vec();
        let schema = Schema::new("S", fields, json!({"type": "object"}));
        let mut state = StateCell::new(Values::default());
        let updates = [
            Update::new().set("text", "abc").append("list", &[1, 2]),
            Update::new().append("list", &["", "x"]).patch("map", &json!({"k": null, "": [1]})),
            Update::new().patch("map", &json!({"k": {"deep": "er"}})).put("said", &json!([{"id": "1", "text": "hi"}])),
            Update::new().put("said", &json!([{"id": "1", "text": "hi again"}, {"id": "2"}])).remove("map", ["k".to_owned()]),
            Update::new().overwrite("list", &json!([])),
        ];
        let mut bound = state_bytes(&schema, &state).expect("it can be read");
        for update in updates {
            bound += changes_bytes(update.changes());
            state.write(&schema, update.changes()).expect("it fits");
            let exact = state_bytes(&schema, &state).expect("it can be read");
            assert!(exact <= bound, "{exact} is more than {bound} after {update:?}");
        }
    }
}
