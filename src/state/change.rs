//! Changes and updates: what an input, a node, a record and a stream have in common.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::value::{DEPTH_MAX, ValueError, is_within_depth, to_value};

/// Name of a field of the state.
pub type FieldName = Cow<'static, str>;

/// One operation on one field.
///
/// ```
/// use ferrata::state::{Change, Op};
/// let change = Change::new("notes", Op::Append(serde_json::json!(["paid"])));
/// assert_eq!(serde_json::to_string(&change).unwrap(), r#"{"field":"notes","op":{"append":["paid"]}}"#);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The field.
    pub field: FieldName,
    /// What happens to it.
    pub op: Op,
}

impl Change {
    /// A change of `field`.
    pub fn new(field: impl Into<FieldName>, op: Op) -> Self {
        Self { field: field.into(), op }
    }
}

/// What can happen to a field.
///
/// Exhaustive: whoever folds records must handle all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// The field becomes the value.
    Set(Value),
    /// The items are added at the end of a list, or the text at the end of a text.
    Append(Value),
    /// The keys of a map are set.
    Patch(Map<String, Value>),
    /// Messages: one with a known id replaces the old one in its place, another is added at the end.
    Put(Vec<Value>),
    /// Keys of a map, or messages by id, are removed.
    Remove(Vec<String>),
    /// As `Set`, and every other change of the field in the same step is ignored.
    Overwrite(Value),
    /// An operand for a field whose merge rule is a function: sum, max, min, or one of the user's.
    Combine(Value),
}

impl Op {
    fn is_within_depth(&self) -> bool {
        match self {
            Self::Set(value) | Self::Append(value) | Self::Overwrite(value) | Self::Combine(value) => is_within_depth(value),
            Self::Patch(entries) => entries.values().all(is_within_depth),
            Self::Put(items) => items.iter().all(is_within_depth),
            Self::Remove(_) => true,
        }
    }

    /// The word for it in errors.
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Self::Set(_) => "set",
            Self::Append(_) => "append",
            Self::Patch(_) => "patch",
            Self::Put(_) => "put",
            Self::Remove(_) => "remove",
            Self::Overwrite(_) => "overwrite",
            Self::Combine(_) => "combine",
        }
    }
}

/// Changes that belong together: a run's input, or what a node returns.
///
/// The derived update types (`Refund::update()`) wrap one and give it typed methods. A value that cannot be stored (a float
/// that is not finite, nesting that is too deep) is remembered and refused when the update is handed to the engine.
#[derive(Clone, Debug, Default)]
#[must_use = "an update does nothing until a node returns it or a run takes it as input"]
pub struct Update {
    changes: Vec<Change>,
    refused: Option<ValueError>,
}

impl Update {
    /// An update that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// An update of these changes, as they are.
    pub fn from_changes(changes: Vec<Change>) -> Self {
        let deep = changes.iter().find(|change| !change.op.is_within_depth());
        let refused = deep.map(|change| {
            ValueError::new(format!("nested deeper than {DEPTH_MAX} levels; keep such data as text")).at_field(&change.field)
        });
        Self { changes, refused }
    }

    /// The field becomes `value`.
    pub fn set<T: Serialize + ?Sized>(self, field: impl Into<FieldName>, value: &T) -> Self {
        self.with(field.into(), value, |slot, value| *slot = Op::Set(value))
    }

    /// The field becomes `value`, whatever else the step does to it.
    pub fn overwrite<T: Serialize + ?Sized>(self, field: impl Into<FieldName>, value: &T) -> Self {
        self.with(field.into(), value, |slot, value| *slot = Op::Overwrite(value))
    }

    /// `operand` goes into the field's function: it is added up, compared, or handed to the function that the field is declared
    /// with. A second operand goes in after the first.
    ///
    /// ```
    /// use ferrata::state::{Op, Update};
    /// use serde_json::json;
    ///
    /// let update = Update::new().combine("total", &2).combine("total", &3);
    /// let operands: Vec<_> = update.changes().iter().map(|change| &change.op).collect();
    /// assert_eq!(operands, [&Op::Combine(json!(2)), &Op::Combine(json!(3))]);
    /// ```
    pub fn combine<T: Serialize + ?Sized>(mut self, field: impl Into<FieldName>, operand: &T) -> Self {
        let field = field.into();
        match to_value(operand) {
            Err(error) => self.refuse(error, &field),
            Ok(value) => {
                self.changes.retain(|c| c.field != field || matches!(c.op, Op::Combine(_)));
                self.changes.push(Change { field, op: Op::Combine(value) });
            }
        }
        self
    }

    /// `items`, a list or a text, is added at the end.
    pub fn append<T: Serialize + ?Sized>(self, field: impl Into<FieldName>, items: &T) -> Self {
        self.with(field.into(), items, |slot, value| match (slot, value) {
            (Op::Append(Value::Array(old)), Value::Array(mut new)) => old.append(&mut new),
            (Op::Append(Value::String(old)), Value::String(new)) => old.push_str(&new),
            (slot, value) => *slot = Op::Append(value),
        })
    }

    /// The keys of `entries` are set.
    pub fn patch<T: Serialize + ?Sized>(self, field: impl Into<FieldName>, entries: &T) -> Self {
        self.with(field.into(), entries, |slot, value| match (slot, value) {
            (Op::Patch(old), Value::Object(new)) => old.extend(new),
            (slot, Value::Object(new)) => *slot = Op::Patch(new),
            (slot, other) => *slot = Op::Set(other),
        })
    }

    /// The messages are added, or replace those with the same id.
    pub fn put<T: Serialize + ?Sized>(self, field: impl Into<FieldName>, messages: &T) -> Self {
        self.with(field.into(), messages, |slot, value| match (slot, value) {
            (Op::Put(old), Value::Array(mut new)) => old.append(&mut new),
            (slot, Value::Array(new)) => *slot = Op::Put(new),
            (slot, other) => *slot = Op::Put(vec![other]),
        })
    }

    /// Keys of a map, or messages by id, are removed. May stand beside a `patch` or `put` of the field.
    pub fn remove(mut self, field: impl Into<FieldName>, keys: impl IntoIterator<Item = String>) -> Self {
        self.changes.push(Change::new(field, Op::Remove(keys.into_iter().collect())));
        self
    }

    /// What it changes, in the order of the fields' first mention.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The changes, unless a value was refused.
    pub fn into_changes(self) -> Result<Vec<Change>, ValueError> {
        self.refused.map_or(Ok(self.changes), Err)
    }

    fn refuse(&mut self, error: ValueError, field: &str) {
        self.refused.get_or_insert_with(|| error.at_field(field));
    }

    /// One operation per field: a second one is folded into the first by `fold`.
    fn with<T: Serialize + ?Sized>(mut self, field: FieldName, value: &T, fold: impl FnOnce(&mut Op, Value)) -> Self {
        match to_value(value) {
            Err(error) => self.refuse(error, &field),
            Ok(value) => {
                self.changes.retain(|c| c.field != field || !matches!(c.op, Op::Combine(_)));
                match self.changes.iter_mut().rfind(|c| c.field == field) {
                    Some(change) if !matches!(change.op, Op::Remove(_)) => fold(&mut change.op, value),
                    _ => {
                        let mut op = Op::Set(Value::Null);
                        fold(&mut op, value);
                        self.changes.push(Change { field, op });
                    }
                }
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operands_add_up_and_anything_else_takes_their_place() {
        let combine = |operand: u64| Op::Combine(json!(operand));
        let cases = [
            (Update::new().combine("x", &1).combine("y", &9).combine("x", &2), vec![combine(1), combine(9), combine(2)]),
            (Update::new().combine("x", &1).combine("x", &2).overwrite("x", &3), vec![Op::Overwrite(json!(3))]),
            (Update::new().combine("x", &1).overwrite("x", &3).combine("x", &4), vec![combine(4)]),
            (Update::new().overwrite("x", &3).combine("y", &1), vec![Op::Overwrite(json!(3)), combine(1)]),
        ];
        for (update, expected) in cases {
            let ops: Vec<Op> = update.into_changes().expect("all can be stored").into_iter().map(|change| change.op).collect();
            assert_eq!(ops, expected);
        }
        let refused = Update::new().combine("x", &f64::NAN).combine("y", &f64::INFINITY).into_changes();
        assert_eq!(refused.expect_err("no number").path(), "x");
    }
}
