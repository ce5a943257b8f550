//! What the derived code calls: applies one change to one Rust field.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Change, HasId, Op, Schema, StateError, Update};

// These traits stand for serde's and schemars' own, so that the compiler says what to write, and not which types of other crates
// have them.

/// A state that can be read: every type that can be deserialized.
#[diagnostic::on_unimplemented(
    message = "the state `{Self}` cannot be read from a store",
    label = "not `Deserialize`",
    note = "put `#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]` on the struct"
)]
pub trait StoredState: DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> StoredState for T {}

/// A state that can be described: every type that has a JSON Schema.
#[diagnostic::on_unimplemented(
    message = "the state `{Self}` has no JSON Schema",
    label = "not `JsonSchema`",
    note = "put `#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]` on the struct"
)]
pub trait DescribedState: JsonSchema {}

#[diagnostic::do_not_recommend]
impl<T: JsonSchema> DescribedState for T {}

/// A type that a field can have: every type that can be serialized and deserialized.
#[diagnostic::on_unimplemented(
    message = "a field of a state cannot be a `{Self}`: it cannot be stored",
    label = "not `Serialize` and `Deserialize`",
    note = "put `#[derive(Serialize, Deserialize, JsonSchema, Clone)]` on the type of the field"
)]
pub trait StoredField: Serialize + DeserializeOwned {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned> StoredField for T {}

/// The JSON Schema of a state.
pub fn json_schema<S: DescribedState>() -> Value {
    schemars::schema_for!(S).to_value()
}

/// Reads a whole state.
pub fn decode<S: StoredState>(schema: &Schema, values: Map<String, Value>) -> Result<S, StateError> {
    let stored: Vec<String> = values.keys().cloned().collect();
    if schema.has_secrets() {
        return decode_unseen(schema, values).map_err(|source| StateError::shape(schema, &stored, source));
    }
    serde_json::from_value(Value::Object(values)).map_err(|source| StateError::shape(schema, &stored, source))
}

/// What is wrong with a state, as far as it can be told by its names.
fn unseen(schema: &Schema, open: &Value) -> String {
    let required = schema.json()["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut missing = required.filter(|name| !schema.is_secret(name) && open.get(name).is_none());
    match missing.next() {
        Some(name) => format!("missing field `{name}`"),
        None => "the value of a secret field is missing, or does not fit (not told: the field is secret)".to_owned(),
    }
}

/// Reads a whole state, with an error that quotes no secret value.
fn decode_unseen<S: StoredState>(schema: &Schema, values: Map<String, Value>) -> Result<S, serde_json::Error> {
    let values = Value::Object(values);
    S::deserialize(&values).map_err(|source| {
        let mut open = values;
        open.as_object_mut().into_iter().for_each(|values| values.retain(|name, _| !schema.is_secret(name)));
        // What is told without having seen a secret can be told.
        match S::deserialize(&open) {
            Err(told) if told.to_string() == source.to_string() => source,
            _ => serde::de::Error::custom(unseen(schema, &open)),
        }
    })
}

fn decoded<T: DeserializeOwned>(change: &Change, value: &Value) -> Result<T, StateError> {
    T::deserialize(value).map_err(|source| StateError::Decode { field: change.field.to_string(), source: source.into() })
}

fn misfit(change: &Change) -> StateError {
    StateError::Misfit { field: change.field.to_string(), verb: change.op.verb() }
}

/// Reads a field as JSON.
pub fn read<T: StoredField>(field: &str, value: &T) -> Result<Option<Value>, StateError> {
    super::value::to_value(value).map(Some).map_err(|e| StateError::Value(e.at_field(field)))
}

/// Applies a change to a field under the rule `replace`.
pub fn replace<T: StoredField>(slot: &mut T, change: &Change) -> Result<(), StateError> {
    match &change.op {
        Op::Set(value) => *slot = decoded(change, value)?,
        _ => return Err(misfit(change)),
    }
    Ok(())
}

/// A field type that the rule `append` works on.
#[diagnostic::on_unimplemented(
    message = "`#[state(append)]` does not work on a field of type `{Self}`",
    note = "it works on `Vec`, `VecDeque` and `String`"
)]
pub trait AppendField: StoredField {
    /// What one item is.
    type Item: StoredField;
    /// Adds at the end.
    fn append(&mut self, items: Self);
}

impl<T: StoredField> AppendField for Vec<T> {
    type Item = T;
    fn append(&mut self, items: Self) {
        self.extend(items);
    }
}

impl<T: StoredField> AppendField for VecDeque<T> {
    type Item = T;
    fn append(&mut self, items: Self) {
        self.extend(items);
    }
}

impl AppendField for String {
    type Item = char;
    fn append(&mut self, items: Self) {
        self.push_str(&items);
    }
}

/// Applies a change to a field under the rule `append`.
pub fn append<T: AppendField>(slot: &mut T, change: &Change) -> Result<(), StateError> {
    match &change.op {
        Op::Append(items) => slot.append(decoded(change, items)?),
        Op::Set(value) => *slot = decoded(change, value)?,
        _ => return Err(misfit(change)),
    }
    Ok(())
}

/// An update that also adds one item.
pub fn append_one<T: Serialize>(update: Update, field: &'static str, item: impl Into<T>) -> Update {
    update.append(field, &[item.into()])
}

/// A field type that the rule `merge` works on: maps with text keys.
#[diagnostic::on_unimplemented(
    message = "`#[state(merge)]` does not work on a field of type `{Self}`",
    note = "it works on `BTreeMap<String, _>`, `HashMap<String, _>` and `serde_json::Map`"
)]
pub trait MergeField: StoredField {
    /// What one key holds.
    type Item: StoredField;
    /// Sets a key.
    fn put(&mut self, key: String, item: Self::Item);
    /// Removes a key.
    fn remove(&mut self, key: &str);
}

impl<V: StoredField> MergeField for BTreeMap<String, V> {
    type Item = V;
    fn put(&mut self, key: String, item: V) {
        self.insert(key, item);
    }
    fn remove(&mut self, key: &str) {
        Self::remove(self, key);
    }
}

impl<V: StoredField, H: BuildHasher + Default> MergeField for HashMap<String, V, H> {
    type Item = V;
    fn put(&mut self, key: String, item: V) {
        self.insert(key, item);
    }
    fn remove(&mut self, key: &str) {
        Self::remove(self, key);
    }
}

impl MergeField for Map<String, Value> {
    type Item = Value;
    fn put(&mut self, key: String, item: Value) {
        self.insert(key, item);
    }
    fn remove(&mut self, key: &str) {
        Self::remove(self, key);
    }
}

/// Applies a change to a field under the rule `merge`.
pub fn merge<T: MergeField>(slot: &mut T, change: &Change) -> Result<(), StateError> {
    match &change.op {
        Op::Patch(entries) => {
            for (key, value) in entries {
                slot.put(key.clone(), decoded(change, value)?);
            }
        }
        Op::Remove(keys) => keys.iter().for_each(|key| slot.remove(key)),
        Op::Set(value) => *slot = decoded(change, value)?,
        _ => return Err(misfit(change)),
    }
    Ok(())
}

/// An update that also sets one key.
pub fn patch_one<T: Serialize>(update: Update, field: &'static str, key: String, item: impl Into<T>) -> Update {
    update.patch(field, &BTreeMap::from([(key, item.into())]))
}

/// A field type that the rule `messages` works on.
#[diagnostic::on_unimplemented(
    message = "`#[state(messages)]` does not work on a field of type `{Self}`",
    note = "it works on `Vec<Message>`, and on a `Vec` of another type that is `HasId`"
)]
pub trait MessagesField: StoredField {
    /// What one message is.
    type Item: HasId + StoredField;
    /// The messages.
    fn messages(&mut self) -> &mut Vec<Self::Item>;
}

impl<M: HasId + StoredField> MessagesField for Vec<M> {
    type Item = M;
    fn messages(&mut self) -> &mut Self {
        self
    }
}

/// Applies a change to a field under the rule `messages`.
pub fn messages<T: MessagesField>(slot: &mut T, change: &Change) -> Result<(), StateError> {
    match &change.op {
        Op::Put(items) => {
            let messages = slot.messages();
            for item in items {
                let new: T::Item = decoded(change, item)?;
                match messages.iter_mut().find(|old| old.id() == new.id()) {
                    Some(old) => *old = new,
                    None => messages.push(new),
                }
            }
        }
        Op::Remove(ids) => slot.messages().retain(|m| !ids.iter().any(|id| id == m.id())),
        Op::Set(value) => *slot = decoded(change, value)?,
        _ => return Err(misfit(change)),
    }
    Ok(())
}

/// An update that also adds or replaces one message.
pub fn put_one<T: Serialize>(update: Update, field: &'static str, message: impl Into<T>) -> Update {
    update.put(field, &[message.into()])
}

/// A field type that the rules `sum`, `max` and `min` work on: one that is stored as a number, or as null for no number yet.
///
/// ```
/// use ferrata::{State, state::typed::NumberField};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Cents(u64); // stored as a number
///
/// impl NumberField for Cents {}
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Bill { #[state(sum)] total: Cents }
///
/// assert_eq!(Bill::update().total(Cents(250)).into_changes().unwrap().len(), 1);
/// ```
#[diagnostic::on_unimplemented(
    message = "`#[state(sum)]`, `max` and `min` do not work on a field of type `{Self}`",
    note = "they work on whole numbers and floats, on an `Option` of one, and on a type of your own that is stored as a number: \
            `impl ferrata::state::typed::NumberField for {Self} {{}}`",
    note = "for any other type use a function: `#[state(with = \"path::to::function\")]`"
)]
pub trait NumberField: StoredField {}

macro_rules! number_field {
    ($($number:ty),*) => {$(impl NumberField for $number {})*};
}
number_field!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64);

impl<T: NumberField> NumberField for Option<T> {}

/// Applies a change to a field under the rules `sum`, `max` and `min`: the engine works the outcome out, and sets it.
pub fn number<T: NumberField>(slot: &mut T, change: &Change) -> Result<(), StateError> {
    replace(slot, change)
}
