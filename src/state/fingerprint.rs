//! Fingerprints: short texts that tell whether two shapes are the same.

use serde_json::{Map, Value, json};
use uuid::Uuid;

/// What a JSON Schema says for people, and what it says twice: no part of a shape.
const REMARKS: [&str; 6] = ["$schema", "title", "description", "default", "examples", "deprecated"];

/// 16 hexadecimal digits that are the same for the same JSON, in whichever order the keys stand.
pub(crate) fn fingerprint(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value);
    let mut digits = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).simple().to_string();
    digits.truncate(16);
    digits
}

/// The JSON as text with its keys in order: how maps are kept depends on what else is compiled into a program.
fn write(text: &mut String, value: &Value) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            text.push('{');
            for key in keys {
                text.push_str(&json!(key).to_string());
                text.push(':');
                write(text, &map[key]);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write(text, item);
                text.push(',');
            }
            text.push(']');
        }
        plain => text.push_str(&plain.to_string()),
    }
}

/// A JSON Schema without the remarks in it, and with the names it requires in order.
pub(super) fn bare(schema: &Value) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    let mut kept = Map::new();
    for (key, value) in map.iter().filter(|(key, _)| !REMARKS.contains(&key.as_str())) {
        let value = match (key.as_str(), value) {
            // What stands in here are names of the user's, and not words of JSON Schema.
            ("properties" | "$defs" | "definitions" | "patternProperties", Value::Object(named)) => {
                Value::Object(named.iter().map(|(name, inner)| (name.clone(), bare(inner))).collect())
            }
            ("required", Value::Array(names)) => {
                let mut names = names.clone();
                names.sort_by_key(ToString::to_string);
                Value::Array(names)
            }
            ("const" | "enum", value) => value.clone(),
            (_, Value::Array(items)) => Value::Array(items.iter().map(bare).collect()),
            (_, value) => bare(value),
        };
        kept.insert(key.clone(), value);
    }
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_counts_is_in_it() {
        let schema =
            json!({"title": "A", "properties": {"title": {"type": "string", "description": "x"}}, "required": ["b", "a"]});
        let same = json!({"required": ["a", "b"], "properties": {"title": {"type": "string"}}});
        assert_eq!(fingerprint(&bare(&schema)), fingerprint(&bare(&same)));
        let other = json!({"required": ["a", "b"], "properties": {"title": {"type": "number"}}});
        assert_ne!(fingerprint(&bare(&schema)), fingerprint(&bare(&other)));
        assert_eq!(fingerprint(&schema).len(), 16);
    }
}
