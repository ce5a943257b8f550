//! Whether a value fits a JSON Schema, and what to tell whoever made it.

use jsonschema::Validator;
use serde_json::Value;

/// How many reasons are told at once.
const REASONS_MAX: usize = 5;

/// What is wrong with the value, and where; nothing if it fits.
pub(crate) fn misfit(validator: &Validator, value: &Value) -> Option<String> {
    let wrong: Vec<String> = validator
        .iter_errors(value)
        .take(REASONS_MAX)
        .map(|error| match error.instance_path().as_str() {
            "" => error.to_string(),
            path => format!("at {path}: {error}"),
        })
        .collect();
    (!wrong.is_empty()).then(|| wrong.join("; "))
}
