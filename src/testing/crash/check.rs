//! What is wrong with a course, by itself and beside the undisturbed one.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::course::{End, Ended};
use super::seen::{Inside, name};
use crate::state::Schema;

/// How much of a value is shown.
const SHOWN_MAX: usize = 160;

/// What is wrong with a course whatever the others did. `once`: keys that are performed once, repeatable or not.
pub(super) fn by_itself(seen: &Inside, once: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = seen.breaches.clone();
    for (effect, performed) in seen.performed.iter().filter(|(_, performed)| performed.times > 1) {
        let named = once.contains(&*effect.key);
        let why = match (performed.repeatable, named) {
            (true, false) => continue,
            (true, true) => "; it is declared repeatable, and named with `once`: leave out one of the two",
            (false, _) => "",
        };
        wrong.push(format!("{} was performed {} times{why}", name(effect), performed.times));
    }
    wrong
}

/// What is different from the undisturbed course.
pub(super) fn beside<S>(undisturbed: (&Ended<S>, &Inside), course: (&Ended<S>, &Inside), schema: Option<&Schema>) -> Vec<String> {
    let ((expected, all), (ended, seen)) = (undisturbed, course);
    let mut wrong = Vec::new();
    if !ended.end.is_same(&expected.end) {
        wrong.push(format!("it ended otherwise: undisturbed {}, here {}", at_length(&expected.end), at_length(&ended.end)));
    }
    wrong.extend(fields(&expected.values, &ended.values, schema));
    let lacks = all.performed.keys().filter(|effect| !seen.performed.contains_key(effect));
    wrong.extend(lacks.map(|effect| format!("{} was performed in the undisturbed run, and never here", name(effect))));
    let new = seen.performed.keys().filter(|effect| !all.performed.contains_key(effect));
    wrong.extend(new.map(|effect| {
        let what = name(effect);
        format!("{what} was performed, and never in the undisturbed run; keys and their order may depend on the state and earlier results only")
    }));
    wrong
}

/// The fields that differ.
fn fields(expected: &Map<String, Value>, found: &Map<String, Value>, schema: Option<&Schema>) -> Vec<String> {
    let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let differ = names.into_iter().filter(|name| expected.get(*name) != found.get(*name));
    differ
        .map(|name| match schema.is_some_and(|schema| schema.is_secret(name)) {
            true => format!("the state ended otherwise: `{name}`, which is secret"),
            false => {
                let (before, here) = (shown(expected.get(name)), shown(found.get(name)));
                format!("the state ended otherwise: `{name}` is {before} undisturbed, and {here} here")
            }
        })
        .collect()
}

fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "absent".to_owned() };
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((cut, _)) => format!("{}..", &text[..cut]),
        None => text,
    }
}

/// An end with what it failed of.
pub(super) fn at_length(end: &End) -> String {
    match end {
        End::Failed(code, text) => format!("failed ({code}): {text}"),
        other => other.to_string(),
    }
}
