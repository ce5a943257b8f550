//! Whether a value fits a JSON Schema, and what to tell whoever made it.

use jsonschema::Validator;
use serde_json::Value;

/// How many reasons are told at once.
const REASONS_MAX: usize = 5;

/// How long a reason may be that quotes the value.
const REASON_BYTES_MAX: usize = 500;

/// What is wrong with the value, and where; nothing if it fits.
pub(crate) fn misfit(validator: &Validator, value: &Value) -> Option<String> {
    let wrong: Vec<String> = validator
        .iter_errors(value)
        .take(REASONS_MAX)
        .map(|error| {
            let whole = error.to_string();
            // It quotes the value, whatever its size.
            let reason = if whole.len() > REASON_BYTES_MAX { error.masked().to_string() } else { whole };
            match error.instance_path().as_str() {
                "" => reason,
                path => format!("at {path}: {reason}"),
            }
        })
        .collect();
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reason_does_not_repeat_a_large_value() {
        let validator = jsonschema::validator_for(&json!({ "properties": { "n": { "type": "integer" } } })).unwrap();
        assert_eq!(misfit(&validator, &json!({ "n": 1 })), None);
        assert_eq!(misfit(&validator, &json!({ "n": "x" })).unwrap(), "at /n: \"x\" is not of type \"integer\"");
        let wrong = misfit(&validator, &json!({ "n": "x".repeat(100_000) })).unwrap();
        assert!(wrong.len() < 100 && wrong.contains("is not of type \"integer\""), "{wrong}");
    }
}
