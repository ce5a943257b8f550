//! What the derived code calls: applies one change to one Rust field.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Change, HasId, Op, StateError};

fn decode<T: DeserializeOwned>(change: &Change, value: &Value) -> Result<T, StateError> {
    T::deserialize(value).map_err(|source| StateError::Decode { field: change.field.to_string(), source: source.into() })
}

fn misfit(change: &Change) -> StateError {
    StateError::Misfit { field: change.field.to_string(), verb: change.op.verb() }
}

/// Reads a field as JSON.
pub fn read<T: Serialize>(field: &str, value: &T) -> Result<Option<Value>, StateError> {
    super::value::to_value(value).map(Some).map_err(|e| StateError::Value(e.at_field(field)))
}

/// Applies a change to a field under the rule `replace`.
pub fn replace<T: DeserializeOwned>(slot: &mut T, change: &Change) -> Result<(), StateError> {
    match &change.op {
        Op::Set(value) => *slot = decode(change, value)?,
        _ => return Err(misfit(change)),
    }
    Ok(())
}

/// A field type that the rule `append` works on.
#[diagnostic::on_unimplemented(
    message = "`#[state(append)]` does not work on a field of type `{Self}`",
    note = "it works on `Vec`, `VecDeque` and `String`"
)]
pub trait AppendField: DeserializeOwned {
    /// What one item is.
    type Item: Serialize;
    /// Adds at the end.
    fn append(&mut self, items: Self);
}

impl<T: Serialize + DeserializeOwned> AppendField for Vec<T> {
    type Item = T;
    fn append(&mut self, items: Self) {
        self.extend(items);
    }
}

impl<T: Serialize + DeserializeOwned> AppendField for VecDeque<T> {
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
        Op::Append(items) => slot.append(decode(change, items)?),
        Op::Set(value) => *slot = decode(change, value)?,
        _ => return Err(misfit(change)),
    }
    Ok(())
}

/// A field type that the rule `merge` works on: maps with text keys.
#[diagnostic::on_unimplemented(
    message = "`#[state(merge)]` does not work on a field of type `{Self}`",
    note = "it works on `BTreeMap<String, _>`, `HashMap<String, _>` and `serde_json::Map`"
)]
pub trait MergeField: DeserializeOwned {
    /// What one key holds.
    type Item: Serialize + DeserializeOwned;
    /// Sets a key.
    fn put(&mut self, key: String, item: Self::Item);
    /// Removes a key.
    fn remove(&mut self, key: &str);
}

impl<V: Serialize + DeserializeOwned> MergeField for BTreeMap<String, V> {
    type Item = V;
    fn put(&mut self, key: String, item: V) {
        self.insert(key, item);
    }
    fn remove(&mut self, key: &str) {
        Self::remove(self, key);
    }
}

impl<V: Serialize + DeserializeOwned, H: BuildHasher + Default> MergeField for HashMap<String, V, H> {
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
                slot.put(key.clone(), decode(change, value)?);
            }
        }
        Op::Remove(keys) => keys.iter().for_each(|key| slot.remove(key)),
        Op::Set(value) => *slot = decode(change, value)?,
        _ => return Err(misfit(change)),
    }
    Ok(())
}

/// Applies a change to a field under the rule `messages`.
pub fn messages<M: HasId + DeserializeOwned>(slot: &mut Vec<M>, change: &Change) -> Result<(), StateError> {
    match &change.op {
        Op::Put(items) => {
            for item in items {
                let new: M = decode(change, item)?;
                match slot.iter_mut().find(|old| old.id() == new.id()) {
                    Some(old) => *old = new,
                    None => slot.push(new),
                }
            }
        }
        Op::Remove(ids) => slot.retain(|m| !ids.iter().any(|id| id == m.id())),
        Op::Set(value) => *slot = decode(change, value)?,
        _ => return Err(misfit(change)),
    }
    Ok(())
}
