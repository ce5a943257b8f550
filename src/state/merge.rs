//! Checks changes against a schema, and resolves what the tasks of one step did to the same fields.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;

use serde_json::Value;
use uuid::Uuid;

use super::{Change, FieldName, FunctionError, MergeFunction, Op, Rule, Schema, StateError, StateObject, ValueError};

/// Checks that every change names a field and fits its rule. Done once, when a task or an input hands its changes over.
pub(crate) fn check(schema: &Schema, changes: &[Change]) -> Result<(), StateError> {
    for change in changes {
        let Some(field) = schema.field(&change.field) else {
            return Err(StateError::UnknownField { field: change.field.to_string(), known: schema.field_names() });
        };
        let fits = match (&field.rule, &change.op) {
            (_, Op::Overwrite(_)) => true,
            (Rule::Replace, op) => matches!(op, Op::Set(_)),
            (Rule::Append, op) => matches!(op, Op::Append(Value::Array(_) | Value::String(_))),
            (Rule::Merge, op) => matches!(op, Op::Patch(_) | Op::Remove(_)),
            (Rule::Messages, Op::Put(items)) => check_messages(&change.field, items).map(|()| true)?,
            (Rule::Messages, op) => matches!(op, Op::Remove(_)),
            (Rule::Sum | Rule::Max | Rule::Min, op) => matches!(op, Op::Combine(Value::Number(_))),
            (Rule::Function(function), Op::Combine(operand)) => {
                let error = |source| function_error(&change.field, function, source).hiding(schema);
                function.accepts(operand).map_err(error)?;
                true
            }
            (Rule::Function(_), _) => false,
        };
        if !fits {
            return Err(StateError::Misfit { field: change.field.to_string(), verb: change.op.verb() });
        }
        if field.secret && change.op.is_sealed() {
            let what = "an object with the key `$secret` stands for a value that was sealed; give the key another name";
            return Err(ValueError::new(what).at_field(&change.field).into());
        }
    }
    Ok(())
}

fn check_messages(field: &str, items: &[Value]) -> Result<(), StateError> {
    let no_message = |item: &Value| !item.is_object() || item.get("id").is_some_and(|id| !id.is_string() && !id.is_null());
    match items.iter().position(no_message) {
        Some(index) => {
            Err(StateError::Misfit { field: format!("{field}[{index}]"), verb: "put of what is no object with a text as id" })
        }
        None => Ok(()),
    }
}

/// Gives an id to every message that has none, made from `origin` and its place, so that the same task always gives the same ids.
pub(crate) fn give_ids(schema: &Schema, changes: &mut [Change], origin: impl Fn() -> String) {
    let mut count = 0;
    for change in changes {
        let (Op::Put(items) | Op::Overwrite(Value::Array(items))) = &mut change.op else { continue };
        if schema.field(&change.field).is_none_or(|f| f.rule != Rule::Messages) {
            continue;
        }
        for item in items {
            count += 1;
            let Value::Object(message) = item else { continue };
            if message.get("id").and_then(Value::as_str).is_none_or(str::is_empty) {
                let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{}:{count}", origin()).as_bytes());
                message.insert("id".to_owned(), Value::String(id.to_string()));
            }
        }
    }
}

/// What one writer of a step does: who it is, and its changes.
pub(crate) type Write<'a, W> = (W, &'a [Change]);

/// Resolves one step's changes, given in merge order.
///
/// Returns the fields whose outcome is not simply the changes one after the other; these stand instead of every
/// change of that field in the step. Reads `state` and changes nothing: an error leaves the thread as it was.
pub(crate) fn resolve<W: Display>(
    schema: &Schema,
    state: &dyn StateObject,
    writes: &[Write<'_, W>],
) -> Result<Vec<Change>, StateError> {
    let mut resolved = overwrites(writes)?;
    combine(schema, state, writes, &mut resolved)?;
    let mut replaced: HashMap<&str, &W> = HashMap::new();
    let mut put: HashSet<(&str, &str)> = HashSet::new();
    for (who, changes) in writes {
        for change in changes.iter().filter(|c| resolved.iter().all(|o| o.field != c.field)) {
            let field: &str = &change.field;
            match &change.op {
                // A single writer cannot be in conflict with itself: an update has one operation per field.
                Op::Set(_) if writes.len() > 1 => {
                    if let Some(first) = replaced.insert(field, who) {
                        return Err(conflict(field, first, who));
                    }
                }
                Op::Put(items) => put.extend(items.iter().filter_map(message_id).map(|id| (field, id))),
                Op::Remove(ids) if schema.field(field).is_some_and(|f| f.rule == Rule::Messages) => {
                    check_removal(state, field, ids, &put)?;
                }
                _ => {}
            }
        }
    }
    Ok(resolved)
}

/// Works out the fields whose changes are operands, but for those that are overwritten.
fn combine<W>(
    schema: &Schema,
    state: &dyn StateObject,
    writes: &[Write<'_, W>],
    resolved: &mut Vec<Change>,
) -> Result<(), StateError> {
    let mut fields: Vec<(&FieldName, Vec<&Value>)> = Vec::new();
    for change in writes.iter().flat_map(|(_, changes)| *changes) {
        let Op::Combine(operand) = &change.op else { continue };
        match fields.iter_mut().find(|(field, _)| *field == &change.field) {
            Some((_, operands)) => operands.push(operand),
            None if resolved.iter().any(|done| done.field == change.field) => {}
            None => fields.push((&change.field, vec![operand])),
        }
    }
    for (name, operands) in fields {
        let Some(field) = schema.field(name) else {
            return Err(StateError::UnknownField { field: name.to_string(), known: schema.field_names() });
        };
        let stored = state.read(name)?;
        let initial = || field.initial.clone().unwrap_or(Value::Null);
        let value = match &field.rule {
            Rule::Function(function) => {
                let merged = function.merge(stored.unwrap_or_else(initial), &operands);
                merged.map_err(|source| function_error(name, function, source).hiding(schema))?
            }
            rule => {
                let before = stored.filter(|value| !value.is_null()).unwrap_or_else(initial);
                numbers(rule, before, &operands).ok_or_else(|| misfit_operand(name))?
            }
        };
        resolved.push(Change::new(name.clone(), Op::Set(value)));
    }
    Ok(())
}

fn function_error(field: &str, function: &MergeFunction, source: FunctionError) -> StateError {
    StateError::Function { field: field.to_owned(), function: function.name().to_owned(), source }
}

fn misfit_operand(field: &str) -> StateError {
    StateError::Misfit { field: field.to_owned(), verb: "combine of numbers that do not fit together" }
}

/// What numbers make of a number under one of the rules that have a name.
fn numbers(rule: &Rule, before: Value, operands: &[&Value]) -> Option<Value> {
    // The operands are older than the rule if a program has changed it.
    let known = matches!(rule, Rule::Sum | Rule::Max | Rule::Min);
    operands.iter().try_fold(before, |before, operand| if known { outcome(rule, &before, operand) } else { None })
}

/// The outcome of one operand; the first one stands for itself. Whole numbers stay whole, and one that is too large is refused.
fn outcome(rule: &Rule, before: &Value, operand: &Value) -> Option<Value> {
    if before.is_null() {
        return Some(operand.clone());
    }
    let larger = match (whole(before), whole(operand)) {
        (Some(a), Some(b)) if *rule == Rule::Sum => {
            let sum = a.checked_add(b)?;
            return i64::try_from(sum).map(Value::from).or_else(|_| u64::try_from(sum).map(Value::from)).ok();
        }
        (Some(a), Some(b)) => a >= b,
        _ => {
            let (a, b) = (before.as_f64()?, operand.as_f64()?);
            if *rule == Rule::Sum {
                return serde_json::Number::from_f64(a + b).map(Value::Number);
            }
            a >= b
        }
    };
    Some(if larger == (*rule == Rule::Max) { before.clone() } else { operand.clone() })
}

/// A whole number, whichever of the two kinds that JSON has in Rust it is.
fn whole(value: &Value) -> Option<i128> {
    value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from))
}

/// The fields that are overwritten, as `set`.
fn overwrites<W: Display>(writes: &[Write<'_, W>]) -> Result<Vec<Change>, StateError> {
    let mut resolved: Vec<(Change, &W)> = Vec::new();
    for (who, changes) in writes {
        for change in *changes {
            let Op::Overwrite(value) = &change.op else { continue };
            if let Some((_, first)) = resolved.iter().find(|(c, _)| c.field == change.field) {
                return Err(conflict(&change.field, first, who));
            }
            resolved.push((Change::new(change.field.clone(), Op::Set(value.clone())), who));
        }
    }
    Ok(resolved.into_iter().map(|(change, _)| change).collect())
}

fn check_removal(state: &dyn StateObject, field: &str, ids: &[String], put: &HashSet<(&str, &str)>) -> Result<(), StateError> {
    let stored = state.read(field)?;
    let known: HashSet<&str> = stored.iter().filter_map(Value::as_array).flatten().filter_map(message_id).collect();
    match ids.iter().find(|id| !known.contains(id.as_str()) && !put.contains(&(field, id.as_str()))) {
        Some(id) => Err(StateError::UnknownMessage { field: field.to_owned(), id: id.clone() }),
        None => Ok(()),
    }
}

fn message_id(message: &Value) -> Option<&str> {
    message.get("id").and_then(Value::as_str)
}

fn conflict(field: &str, first: &impl Display, second: &impl Display) -> StateError {
    StateError::Conflict { field: field.to_owned(), first: first.to_string(), second: second.to_string() }
}

#[cfg(test)]
mod tests {
    use super::super::{Field, Update, Values};
    use super::*;
    use serde_json::json;

    fn schema(rule: Rule) -> Schema {
        Schema::new("S", vec![Field::new("x", rule).initial(json!(1))], json!({"type": "object"}))
    }

    fn outcome_of(rule: Rule, state: &Values, updates: &[Update]) -> Result<Vec<Change>, String> {
        let writes: Vec<_> = updates.iter().enumerate().map(|(task, update)| (task, update.changes())).collect();
        resolve(&schema(rule), state, &writes).map_err(|error| error.to_string())
    }

    #[test]
    fn operands_start_from_the_value_or_from_the_initial_one() {
        let list = || Rule::Function(MergeFunction::new("list", |old: Value, new: Value| json!([old, new])));
        let two = [Update::new().combine("x", &2), Update::new().combine("x", &3).combine("x", &4)];
        let holds = |value: Value| Values::from_iter([("x".to_owned(), value)]);
        let absent = Values::default();
        let cases = [
            (list(), &absent, json!([[[1, 2], 3], 4])),
            // A function sees null where it was written; numbers have nothing to begin with then.
            (list(), &holds(Value::Null), json!([[[null, 2], 3], 4])),
            (list(), &holds(json!(0)), json!([[[0, 2], 3], 4])),
            (Rule::Sum, &absent, json!(10)),
            (Rule::Sum, &holds(Value::Null), json!(10)),
            (Rule::Max, &holds(json!(3)), json!(4)),
            (Rule::Min, &holds(json!(3)), json!(2)),
        ];
        for (rule, state, expected) in cases {
            assert_eq!(outcome_of(rule.clone(), state, &two), Ok(vec![Change::new("x", Op::Set(expected))]), "{rule}");
        }
        let with_overwrite = [two[0].clone(), Update::new().overwrite("x", &7), two[1].clone()];
        assert_eq!(outcome_of(list(), &absent, &with_overwrite), Ok(vec![Change::new("x", Op::Set(json!(7)))]));
    }

    #[test]
    fn operands_that_are_older_than_the_rule_are_refused() {
        let operand = [Update::new().combine("x", &2)];
        for rule in [Rule::Replace, Rule::Append, Rule::Merge] {
            let error = outcome_of(rule, &Values::default(), &operand).expect_err("no rule for operands");
            assert!(error.contains("does not fit field `x`"), "{error}");
        }
        let renamed = Schema::new("S", Vec::new(), json!({}));
        let error = resolve(&renamed, &Values::default(), &[("a", operand[0].changes())]).expect_err("no such field");
        assert!(matches!(error, StateError::UnknownField { .. }), "{error}");
    }

    #[test]
    fn a_function_takes_operands_and_nothing_else() {
        let text = || Rule::Function(MergeFunction::new("text", |old: String, new: String| old + &new));
        let cases = [
            (Update::new().combine("x", "a"), None),
            (Update::new().overwrite("x", "a"), None),
            (Update::new().set("x", "a"), Some("`set` does not fit field `x`")),
            (Update::new().append("x", "a"), Some("`append` does not fit field `x`")),
            (Update::new().combine("x", &1), Some("function `text` of field `x` cannot take the operand: invalid type")),
        ];
        for (update, expected) in cases {
            let error = check(&schema(text()), update.changes()).err().map(|error| error.to_string());
            assert!(error.as_deref().unwrap_or_default().starts_with(expected.unwrap_or_default()), "{error:?}");
            assert_eq!(error.is_some(), expected.is_some(), "{error:?}");
        }
    }
}
