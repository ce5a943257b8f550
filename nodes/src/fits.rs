//! Whether a value fits a JSON Schema, and what to tell whoever made it.

use jsonschema::Validator;
use serde_json::Value;

use crate::cut::CUT_MARK;
use crate::tokens::boundary_below;

/// How many reasons are told at once.
const REASONS_MAX: usize = 5;

/// A reason begins with the value that it is about; this much of its beginning and of its end is told.
const REASON_BYTES: usize = 200;

/// What is wrong with the value, and where; nothing if it fits.
pub(crate) fn misfit(validator: &Validator, value: &Value) -> Option<String> {
    let wrong: Vec<String> = validator
        .iter_errors(value)
        .take(REASONS_MAX)
        .map(|error| match error.instance_path().as_str() {
            "" => shortened(&error.to_string()),
            path => shortened(&format!("at {path}: {error}")),
        })
        .collect();
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

/// The reason without the middle of a value that is large: it goes to a model, or into an error.
fn shortened(reason: &str) -> String {
    if reason.len() <= 2 * REASON_BYTES {
        return reason.to_owned();
    }
    let end = (reason.len() - REASON_BYTES..reason.len()).find(|&at| reason.is_char_boundary(at)).unwrap_or(reason.len());
    format!("{} {CUT_MARK} {}", &reason[..boundary_below(reason, REASON_BYTES)], &reason[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_about_a_large_value_is_short_and_still_a_reason() {
        let validator = jsonschema::validator_for(&serde_json::json!({"type": "array"})).unwrap();
        let wrong = misfit(&validator, &Value::String("检查".repeat(10_000))).unwrap();
        assert!(wrong.len() < 500 && wrong.contains(CUT_MARK) && wrong.ends_with("is not of type \"array\""), "{wrong}");
    }
}
