//! The stored form of a secret value, and errors that do not tell one.

use serde_json::{Map, Value};

use super::{FunctionError, Op, Schema, StateError, ValueError};

/// An object with this key stands for a secret value, as a unit of what an operation holds: a value, an item, what a key holds.
const SEALED: &str = "$secret";

/// What is stored instead of a value: what the program made of it.
pub(crate) fn sealed(stored: Value) -> Value {
    Value::Object(Map::from_iter([(SEALED.to_owned(), stored)]))
}

/// Whether it is such a form. The state of this program never holds one in a secret field: `check` refuses it.
pub(crate) fn is_sealed(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.contains_key(SEALED))
}

/// What the program made of the value; `None` if it is a plain one.
pub(crate) fn take_sealed(value: &mut Value) -> Option<Value> {
    value.as_object_mut()?.get_mut(SEALED).map(Value::take)
}

/// Whether a value tells nothing: there is nothing to hide, and nothing that could be missed.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

impl Op {
    /// The units that are sealed and opened one by one, so that a reader can still tell items and keys apart.
    pub(crate) fn units(&self) -> Box<dyn Iterator<Item = &Value> + '_> {
        match self {
            Self::Append(Value::Array(items)) | Self::Put(items) => Box::new(items.iter()),
            Self::Set(value) | Self::Append(value) | Self::Overwrite(value) | Self::Combine(value) => {
                Box::new(std::iter::once(value))
            }
            Self::Patch(entries) => Box::new(entries.values()),
            // Keys and ids are told to everybody.
            Self::Remove(_) => Box::new(std::iter::empty()),
        }
    }

    /// The same units, to be changed.
    pub(crate) fn units_mut(&mut self) -> Box<dyn Iterator<Item = &mut Value> + '_> {
        match self {
            Self::Append(Value::Array(items)) | Self::Put(items) => Box::new(items.iter_mut()),
            Self::Set(value) | Self::Append(value) | Self::Overwrite(value) | Self::Combine(value) => {
                Box::new(std::iter::once(value))
            }
            Self::Patch(entries) => Box::new(entries.values_mut()),
            Self::Remove(_) => Box::new(std::iter::empty()),
        }
    }

    /// Whether something of it is a secret value that is not there.
    pub(crate) fn is_sealed(&self) -> bool {
        self.units().any(is_sealed)
    }
}

/// What errors say instead of a text that may quote a secret value.
const HIDDEN: &str = "(not told: the field is secret)";

impl StateError {
    /// The same error without a text that may quote the value of a secret field.
    #[must_use]
    pub(crate) fn hiding(self, schema: &Schema) -> Self {
        match self {
            Self::Decode { field, .. } if schema.is_secret(&field) => Self::Decode { field, source: HIDDEN.into() },
            Self::Function { field, function, source } if schema.is_secret(&field) => {
                Self::Function { field, function, source: hidden(source) }
            }
            told => told,
        }
    }
}

fn hidden(error: FunctionError) -> FunctionError {
    match error {
        FunctionError::Missing => FunctionError::Missing,
        FunctionError::Operand(_) => FunctionError::Operand(HIDDEN.into()),
        FunctionError::Value(_) => FunctionError::Value(HIDDEN.into()),
        FunctionError::Panicked(_) => FunctionError::Panicked(HIDDEN.to_owned()),
        FunctionError::Failed(_) => FunctionError::Failed(HIDDEN.into()),
        FunctionError::Outcome(_) => FunctionError::Outcome(ValueError::new(HIDDEN)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Change, Field, MergeFunction, Rule, Update, Values, check, resolve};
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_tells_nothing_is_empty() {
        let empty = [json!(null), json!(""), json!([]), json!({})];
        assert!(empty.iter().all(is_empty));
        let full = [json!(0), json!(false), json!("0"), json!([null]), json!({"a": null})];
        assert!(!full.iter().any(is_empty));
    }

    #[test]
    fn a_value_that_looks_sealed_is_refused() {
        let schema = Schema::new("S", vec![Field::new("x", Rule::Replace).secret(), Field::new("y", Rule::Replace)], json!({}));
        let looks = json!({"$secret": 1});
        let error = check(&schema, Update::new().set("x", &looks).changes()).expect_err("it looks sealed").to_string();
        assert!(error.contains("`x`") && error.contains("$secret"), "{error}");
        check(&schema, Update::new().set("y", &looks).changes()).expect("that one is no secret");
        check(&schema, Update::new().set("x", &json!({"deep": looks})).changes()).expect("only the whole unit counts");
    }

    #[test]
    fn no_error_quotes_the_value_of_a_secret_field() {
        let fail =
            || MergeFunction::new("fail", |old: u64, new: u64| if new > 7 { Err(format!("{new}!")) } else { Ok(old / new) });
        let schema = |field: Field| Schema::new("S", vec![field], json!({}));
        let open = Field::with("x", fail()).initial(json!(1));
        let texts = |schema: &Schema, operand: &Value| {
            let change = [Change::new("x", Op::Combine(operand.clone()))];
            let checked = check(schema, &change).err();
            let empty = <Values as super::super::State>::empty(schema);
            let error = checked.or_else(|| resolve(schema, &empty, &[("a", &change)]).err());
            error.expect("it fails").to_string()
        };
        for (operand, quoted) in [(json!("s3cret"), "s3cret"), (json!(8471), "8471"), (json!(0), "divide by zero")] {
            assert!(texts(&schema(open.clone()), &operand).contains(quoted), "told of other fields");
            let error = texts(&schema(open.clone().secret()), &operand);
            assert!(!error.contains(quoted) && error.contains("`x`") && error.contains("secret"), "{error}");
        }
    }
}
