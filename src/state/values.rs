//! A state whose fields are known only at run time.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Change, Op, Schema, State, StateError, Update};

/// A state made of JSON values: the fields are those of the [`Schema`] that the graph is built with, and may be absent.
///
/// ```
/// use ferrata::state::{Field, Rule, Schema, Update, Values};
/// use ferrata::{END, GraphBuilder, Runner, START, View, store::MemoryStore};
/// use serde_json::json;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let fields = vec![Field::new("x", Rule::Replace), Field::new("log", Rule::Append).initial(json!([]))];
/// let schema = Schema::new("Counter", fields, json!({"type": "object"}));
/// let graph = GraphBuilder::<Values>::with_schema("counter", schema)
///     .node("a", |s: View<Values>| async move { Ok(Update::new().append("log", &[json!({"x": s.get("x")})])) })
///     .edge(START, "a")
///     .edge("a", END)
///     .build()?;
/// let state = Runner::new(graph, MemoryStore::new()).thread("t").run(Update::new().set("x", &7)).await?.done().unwrap();
/// assert_eq!(state.get("log"), Some(&json!([{"x": 7}])));
/// assert_eq!(state.get("y"), None);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    // Shared values: a view of some fields copies pointers.
    fields: std::collections::BTreeMap<String, Arc<Value>>,
}

impl Values {
    /// The field's value; `None` if it is absent.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).map(|value| &**value)
    }

    /// The fields that are not absent, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), &**value))
    }

    /// The fields that are not absent, as one JSON object.
    pub fn to_object(&self) -> Map<String, Value> {
        self.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect()
    }
}

impl FromIterator<(String, Value)> for Values {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(fields: I) -> Self {
        Self { fields: fields.into_iter().map(|(name, value)| (name, Arc::new(value))).collect() }
    }
}

impl State for Values {
    type Update = Update;

    fn empty(schema: &Schema) -> Self {
        let initial = schema.fields().iter().filter_map(|field| Some((field.name.clone(), field.initial.clone()?)));
        initial.collect()
    }

    fn decode(_: &Schema, values: Map<String, Value>) -> Result<Self, StateError> {
        Ok(values.into_iter().collect())
    }

    fn apply(&mut self, change: &Change) -> Result<(), StateError> {
        let misfit = || StateError::Misfit { field: change.field.to_string(), verb: change.op.verb() };
        let slot = self.fields.entry(change.field.to_string()).or_insert_with(|| Arc::new(Value::Null));
        match (&change.op, Arc::make_mut(slot)) {
            (Op::Set(value), slot) => *slot = value.clone(),
            (Op::Append(Value::Array(items)), Value::Array(list)) => list.extend(items.iter().cloned()),
            (Op::Append(Value::String(more)), Value::String(text)) => text.push_str(more),
            (Op::Append(items), slot @ Value::Null) => *slot = items.clone(),
            (Op::Patch(entries), Value::Object(map)) => map.extend(entries.clone()),
            (Op::Patch(entries), slot @ Value::Null) => *slot = Value::Object(entries.clone()),
            (Op::Put(items), Value::Array(list)) => items.iter().for_each(|item| put(list, item)),
            (Op::Put(items), slot @ Value::Null) => *slot = Value::Array(items.clone()),
            (Op::Remove(keys), Value::Object(map)) => keys.iter().for_each(|key| _ = map.remove(key)),
            (Op::Remove(ids), Value::Array(list)) => list.retain(|item| !ids.iter().any(|id| item["id"] == id.as_str())),
            _ => return Err(misfit()),
        }
        Ok(())
    }

    fn read(&self, field: &str) -> Result<Option<Value>, StateError> {
        Ok(self.get(field).cloned())
    }

    fn only(&self, keep: &dyn Fn(&str) -> bool) -> Self {
        let kept = self.fields.iter().filter(|(name, _)| keep(name));
        Self { fields: kept.map(|(name, value)| (name.clone(), Arc::clone(value))).collect() }
    }
}

fn put(list: &mut Vec<Value>, item: &Value) {
    match list.iter_mut().find(|old| old["id"] == item["id"]) {
        Some(old) => *old = item.clone(),
        None => list.push(item.clone()),
    }
}
