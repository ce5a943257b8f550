//! Expressions: a pure function from an expression and what it sees to a value.

use std::fmt;

use serde_json::{Map, Value, json};

/// What an expression sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// The fields of the body's input, or of the state that a route sees.
    pub(crate) fields: Map<String, Value>,
    pub(crate) variables: Map<String, Value>,
}

/// An expression that makes no sense: a mistake in the scenario.
#[derive(Debug)]
pub(crate) struct BadExpression(String);

impl fmt::Display for BadExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad expression: {}", self.0)
    }
}

impl std::error::Error for BadExpression {}

type Evaluated = Result<Value, BadExpression>;

/// Evaluates an expression. A send becomes `{"send": [NODE, PAYLOAD]}` with both evaluated.
pub(crate) fn evaluate(expression: &Value, scope: &Scope) -> Evaluated {
    match expression {
        Value::Array(items) => Ok(Value::Array(all(items, scope)?)),
        Value::Object(object) => match object.iter().next() {
            Some((word, argument)) if object.len() == 1 => operate(word, argument, scope),
            _ => Err(BadExpression(expression.to_string())),
        },
        constant => Ok(constant.clone()),
    }
}

fn operate(word: &str, argument: &Value, scope: &Scope) -> Evaluated {
    Ok(match word {
        "const" => argument.clone(),
        "get" => scope.fields.get(name(argument)?).cloned().unwrap_or_default(),
        "var" => scope.variables.get(name(argument)?).cloned().unwrap_or_default(),
        "fields" => scope.fields.keys().cloned().collect(),
        "obj" => Value::Object(object(argument, scope)?),
        "if" => {
            let [condition, then, otherwise] = arguments(argument)?;
            evaluate(if is_true(&evaluate(condition, scope)?) { then } else { otherwise }, scope)?
        }
        "and" => all(list(argument)?, scope)?.iter().all(is_true).into(),
        "not" => (!is_true(&evaluate(argument, scope)?)).into(),
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" => compare(word, argument, scope)?.into(),
        "add" | "mul" | "sub" => arithmetic(word, &all(list(argument)?, scope)?)?.into(),
        "concat" => all(list(argument)?, scope)?.iter().map(text).collect::<String>().into(),
        "len" => length(&evaluate(argument, scope)?)?.into(),
        "range" => (0..integer(&evaluate(argument, scope)?)?).collect(),
        "at" => {
            let [whole, key] = arguments(argument)?;
            item(&evaluate(whole, scope)?, &evaluate(key, scope)?)
        }
        "last" => evaluate(argument, scope)?.as_array().and_then(|items| items.last().cloned()).unwrap_or_default(),
        "map" => map(argument, scope)?,
        "send" => {
            let [node, payload] = arguments(argument)?;
            json!({"send": [evaluate(node, scope)?, evaluate(payload, scope)?]})
        }
        _ => return Err(BadExpression(format!("there is no operator {word}"))),
    })
}

fn all(items: &[Value], scope: &Scope) -> Result<Vec<Value>, BadExpression> {
    items.iter().map(|item| evaluate(item, scope)).collect()
}

fn object(argument: &Value, scope: &Scope) -> Result<Map<String, Value>, BadExpression> {
    let entries = argument.as_object().ok_or_else(|| BadExpression(format!("{argument} is no object")))?;
    entries.iter().map(|(key, value)| Ok((key.clone(), evaluate(value, scope)?))).collect()
}

fn map(argument: &Value, scope: &Scope) -> Evaluated {
    let [items, variable, each] = arguments(argument)?;
    let items = evaluate(items, scope)?;
    let mut inner = scope.clone();
    let mapped = list(&items)?.iter().map(|item| {
        inner.variables.insert(name(variable)?.to_owned(), item.clone());
        evaluate(each, &inner)
    });
    Ok(Value::Array(mapped.collect::<Result<_, _>>()?))
}

fn compare(word: &str, argument: &Value, scope: &Scope) -> Result<bool, BadExpression> {
    let [a, b] = arguments(argument)?;
    let (a, b) = (evaluate(a, scope)?, evaluate(b, scope)?);
    Ok(match word {
        "eq" => a == b,
        "ne" => a != b,
        "lt" => integer(&a)? < integer(&b)?,
        "le" => integer(&a)? <= integer(&b)?,
        "gt" => integer(&a)? > integer(&b)?,
        _ => integer(&a)? >= integer(&b)?,
    })
}

fn arithmetic(word: &str, operands: &[Value]) -> Result<i64, BadExpression> {
    let numbers = operands.iter().map(integer).collect::<Result<Vec<_>, _>>()?;
    Ok(match (word, &*numbers) {
        ("add", numbers) => numbers.iter().sum(),
        ("mul", numbers) => numbers.iter().product(),
        (_, [a, b]) => a - b,
        _ => return Err(BadExpression(format!("{word} takes two numbers"))),
    })
}

fn arguments<const N: usize>(argument: &Value) -> Result<&[Value; N], BadExpression> {
    list(argument)?.try_into().map_err(|_| BadExpression(format!("{argument} should have {N} items")))
}

fn list(value: &Value) -> Result<&[Value], BadExpression> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| BadExpression(format!("{value} is no list")))
}

fn name(value: &Value) -> Result<&str, BadExpression> {
    value.as_str().ok_or_else(|| BadExpression(format!("{value} is no name")))
}

fn integer(value: &Value) -> Result<i64, BadExpression> {
    value.as_i64().ok_or_else(|| BadExpression(format!("{value} is no integer")))
}

fn length(value: &Value) -> Result<usize, BadExpression> {
    match value {
        Value::Null => Ok(0),
        Value::String(text) => Ok(text.chars().count()),
        Value::Array(items) => Ok(items.len()),
        Value::Object(object) => Ok(object.len()),
        _ => Err(BadExpression(format!("{value} has no length"))),
    }
}

fn item(whole: &Value, key: &Value) -> Value {
    let found = match (whole, key) {
        (Value::Array(items), key) => key.as_u64().and_then(|index| items.get(usize::try_from(index).ok()?)),
        (Value::Object(object), Value::String(key)) => object.get(key),
        _ => None,
    };
    found.cloned().unwrap_or_default()
}

/// False are null, false, 0, and what is empty.
pub(crate) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_i64() != Some(0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(object) => !object.is_empty(),
    }
}

/// Canonical JSON: compact, keys sorted. The objects of `serde_json` are sorted maps.
pub(crate) fn canonical(value: &Value) -> String {
    value.to_string()
}

/// A text as it is, anything else as canonical JSON.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| canonical(value), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{Scope, evaluate, is_true};
    use serde_json::json;

    #[test]
    fn expressions() {
        let fields = json!({"x": 4, "log": ["a"], "o": {"k": null}}).as_object().cloned().expect("an object");
        let scope = Scope { fields, ..Scope::default() };
        for (expression, value) in [
            (json!({"get": "x"}), json!(4)),
            (json!({"get": "nothing"}), json!(null)),
            (json!({"fields": true}), json!(["log", "o", "x"])),
            (json!({"concat": ["x=", {"get": "x"}, " ", {"get": "o"}, true]}), json!("x=4 {\"k\":null}true")),
            (json!({"if": [{"get": "log"}, [{"get": "x"}], 0]}), json!([4])),
            (json!({"and": [{"ge": [{"get": "x"}, 4]}, {"not": ""}]}), json!(true)),
            (json!({"sub": [{"add": [1, 2, 3]}, {"mul": [2, 5]}]}), json!(-4)),
            (json!({"map": [{"range": 2}, "i", {"obj": {"i": {"var": "i"}}}]}), json!([{"i": 0}, {"i": 1}])),
            (json!({"range": -1}), json!([])),
            (json!({"at": [{"get": "log"}, 1]}), json!(null)),
            (json!({"last": {"get": "log"}}), json!("a")),
            (json!({"len": "\u{e4}"}), json!(1)),
            (json!({"send": ["w", {"obj": {"x": {"get": "x"}}}]}), json!({"send": ["w", {"x": 4}]})),
        ] {
            assert_eq!(evaluate(&expression, &scope).expect("a good expression"), value, "{expression}");
        }
        for expression in [json!({"no": 1}), json!({"lt": [1, "2"]}), json!({"if": [1, 2]}), json!({})] {
            assert!(evaluate(&expression, &scope).is_err(), "{expression}");
        }
    }

    #[test]
    fn truth() {
        for nothing in [json!(null), json!(false), json!(0), json!(""), json!([]), json!({})] {
            assert!(!is_true(&nothing), "{nothing}");
        }
        for something in [json!(true), json!(-1), json!("0"), json!([null]), json!({"a": null})] {
            assert!(is_true(&something), "{something}");
        }
    }
}
