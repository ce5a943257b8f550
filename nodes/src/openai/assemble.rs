//! An answer from the chunks of a stream, whatever a server that calls itself compatible leaves out or adds.

use serde::de::IgnoredAny;
use serde_json::Value;

use super::wire::{Draft, DraftCall, content_of, read_usage, refusal_of, text_of};
use crate::model::{Delta, Tell};

/// An answer that is being put together.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    pub(super) draft: Draft,
    /// The place of each call that has one.
    places: Vec<Option<u64>>,
    has_deltas: bool,
}

/// A part of a call, or all of it.
struct Part<'v> {
    index: Option<u64>,
    id: Option<String>,
    name: &'v str,
    arguments: &'v Value,
}

impl<'v> Part<'v> {
    fn of(call: &'v Value) -> Self {
        let function = &call["function"];
        let name = function["name"].as_str().unwrap_or_default();
        Self { index: call["index"].as_u64(), id: text_of(&call["id"]), name, arguments: &function["arguments"] }
    }

    fn of_old(function: &'v Value) -> Self {
        let name = function["name"].as_str().unwrap_or_default();
        Self { index: Some(0), id: None, name, arguments: &function["arguments"] }
    }
}

impl Assembly {
    /// Takes in one chunk, and tells what is new in it.
    pub(super) fn take(&mut self, chunk: &Value, tell: &mut Tell<'_>) {
        let Some(choice) = self.take_head(chunk) else { return };
        let is_delta = choice["delta"].is_object();
        self.has_deltas |= is_delta;
        let said = if is_delta { &choice["delta"] } else { &choice["message"] };
        if is_delta || !self.has_deltas {
            self.take_texts(said, tell);
            self.take_calls(said, Self::place_of);
            return;
        }
        // A whole message behind its parts: only what it adds is new.
        let text = content_of(&said["content"]);
        self.take_content(text.strip_prefix(self.draft.content.as_str()).unwrap_or_default(), tell);
        if self.draft.calls.is_empty() {
            self.take_calls(said, Self::place_of);
        }
    }

    /// Takes in a whole answer, in which each call stands once.
    pub(super) fn take_whole(&mut self, body: &Value, tell: &mut Tell<'_>) {
        let Some(choice) = self.take_head(body) else { return };
        self.take_texts(&choice["message"], tell);
        self.take_calls(&choice["message"], |_, _| None);
    }

    /// What stands around the choices, why it ended, and the choice that counts.
    fn take_head<'v>(&mut self, chunk: &'v Value) -> Option<&'v Value> {
        self.draft.model = text_of(&chunk["model"]).or(self.draft.model.take());
        // Totals may come with each chunk; the last ones count.
        self.draft.usage = read_usage(chunk).or(self.draft.usage);
        let first = |choice: &&Value| choice["index"].as_u64().unwrap_or_default() == 0;
        let choice = chunk["choices"].as_array().into_iter().flatten().find(first)?;
        // The first word counts: some servers say "stop" behind each answer, those that were cut among them.
        let word = text_of(&choice["finish_reason"]).filter(|word| word != "null");
        self.draft.finish = self.draft.finish.take().or(word);
        Some(choice)
    }

    fn take_texts(&mut self, said: &Value, tell: &mut Tell<'_>) {
        if let Some(text) = ["reasoning_content", "reasoning"].iter().find_map(|field| text_of(&said[*field])) {
            tell(Delta::Reasoning(&text));
            self.draft.reasoning.push_str(&text);
        }
        self.take_content(&content_of(&said["content"]), tell);
        let refusal = refusal_of(said);
        self.draft.refused |= !refusal.is_empty() || said["refusal"].as_str().is_some_and(|text| !text.is_empty());
        // A refusal is what the model says, too.
        self.take_content(&refusal, tell);
    }

    fn take_content(&mut self, text: &str, tell: &mut Tell<'_>) {
        if !text.is_empty() {
            tell(Delta::Text(text));
            self.draft.content.push_str(text);
        }
    }

    fn take_calls(&mut self, said: &Value, place_of: fn(&Self, &Part<'_>) -> Option<usize>) {
        let calls = said["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        for call in calls {
            let part = Part::of(call);
            self.take_call(place_of(self, &part), part);
        }
        // The old way of a call. Where both are there, they are the same call.
        let is_old = calls.is_empty() && said["function_call"].is_object();
        if is_old && self.draft.calls.iter().all(|call| call.id.is_none()) {
            let part = Part::of_old(&said["function_call"]);
            self.take_call(place_of(self, &part), part);
        }
    }

    /// The call that a part goes on with: that with its id; without one, the newest at its place; without that, the newest.
    fn place_of(&self, part: &Part<'_>) -> Option<usize> {
        let calls = &self.draft.calls;
        let at = |index: u64| self.places.iter().rposition(|place| *place == Some(index));
        let place = match (&part.id, part.index) {
            (Some(id), index) => calls.iter().rposition(|call| call.id.as_ref() == Some(id)).or_else(|| {
                // The id may come after the call has begun.
                index.and_then(at).filter(|place| calls[*place].id.is_none())
            }),
            (None, Some(index)) => at(index),
            (None, None) => calls.len().checked_sub(1),
        };
        place.filter(|place| !self.is_another(&calls[*place], self.places[*place], part))
    }

    /// Whether a part begins a call of its own, although its id or its place is taken: some servers give all calls the same.
    fn is_another(&self, call: &DraftCall, place: Option<u64>, part: &Part<'_>) -> bool {
        if part.name.is_empty() || call.name.is_empty() {
            return false;
        }
        if part.id.is_none() && part.index.is_none() {
            // Whole calls without ids and places follow one another.
            return call.name != part.name || is_whole(&call.arguments);
        }
        let has_more = match part.arguments {
            Value::String(text) => !text.trim().is_empty() && *text != call.arguments,
            other => !other.is_null(),
        };
        let is_elsewhere = part.index.is_some() && place.is_some() && part.index != place;
        is_elsewhere || (has_more && call.arguments.trim() != "{}" && is_whole(&call.arguments))
    }

    fn take_call(&mut self, place: Option<usize>, part: Part<'_>) {
        let place = place.unwrap_or_else(|| {
            self.draft.calls.push(DraftCall::default());
            self.places.push(part.index);
            self.draft.calls.len() - 1
        });
        let call = &mut self.draft.calls[place];
        call.id = call.id.take().or(part.id);
        // A name is mostly repeated, and sometimes spelled out.
        if call.name != part.name {
            call.name.push_str(part.name);
        }
        match part.arguments {
            // Said again at the end.
            Value::String(text) if *text == call.arguments && is_whole(text) => {}
            Value::String(text) => {
                // No arguments at first, and then some: the first were a placeholder.
                if call.arguments.trim() == "{}" && !text.trim().is_empty() {
                    call.arguments.clear();
                }
                call.arguments.push_str(text);
            }
            Value::Null => {}
            whole => call.arguments = whole.to_string(),
        }
    }
}

/// Whether these are all arguments of a call: nothing can follow them.
fn is_whole(arguments: &str) -> bool {
    arguments.trim_end().ends_with('}') && serde_json::from_str::<IgnoredAny>(arguments).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn calls_of(parts: &[Value]) -> Vec<(String, String)> {
        let mut assembly = Assembly::default();
        for part in parts {
            assembly.take(&json!({ "choices": [{ "delta": { "tool_calls": [part] } }] }), &mut |_| {});
        }
        assembly.draft.calls.into_iter().map(|call| (call.name, call.arguments)).collect()
    }

    #[test]
    fn parts_find_their_call_whatever_is_missing_or_repeated() {
        let part = |index: Option<u64>, id: &str, name: &str, arguments: &str| {
            let mut part = json!({ "function": { "name": name, "arguments": arguments } });
            index.into_iter().for_each(|index| part["index"] = index.into());
            if !id.is_empty() {
                part["id"] = id.into();
            }
            part
        };
        let (a, b) = (r#"{"x":1}"#, r#"{"x":2}"#);
        let two: &[(&str, &str)] = &[("pay", a), ("pay", b)];
        let one: &[(&str, &str)] = &[("pay", a)];
        type Case<'c> = (&'c str, Vec<Value>, &'c [(&'c str, &'c str)]);
        let cases: &[Case<'_>] = &[
            ("one id for two places", vec![part(Some(0), "c", "pay", a), part(Some(1), "c", "pay", b)], two),
            ("one id and one place", vec![part(Some(0), "c", "pay", a), part(Some(0), "c", "pay", b)], two),
            ("one id and no place", vec![part(None, "c", "pay", a), part(None, "c", "pay", b)], two),
            ("one place and no id", vec![part(Some(0), "", "pay", a), part(Some(0), "", "pay", b)], two),
            ("no place and no id", vec![part(None, "", "pay", a), part(None, "", "pay", b)], two),
            (
                "all said again",
                vec![part(Some(0), "c", "pay", "{\"x\":"), part(Some(0), "", "", "1}"), part(Some(0), "c", "pay", a)],
                one,
            ),
            ("said again without a name", vec![part(Some(0), "c", "pay", a), part(Some(0), "", "", a)], one),
            ("the name on each part", vec![part(None, "", "pay", "{\"x\":"), part(None, "", "pay", "1}")], one),
            ("the name first", vec![part(None, "", "pay", ""), part(None, "", "", "{\"x\":"), part(None, "", "", "1}")], one),
            (
                "an empty object first",
                vec![part(Some(0), "c", "pay", "{}"), part(Some(0), "", "", "{\"x\":1"), part(Some(0), "", "", "}")],
                one,
            ),
            (
                "the name spelled out",
                vec![part(Some(0), "c", "p", ""), part(Some(0), "", "ay", ""), part(Some(0), "", "", a)],
                one,
            ),
            ("the id late", vec![part(Some(0), "", "pay", "{\"x\":"), part(Some(0), "c", "", "1}")], one),
        ];
        for (case, parts, expected) in cases {
            let expected: Vec<_> =
                expected.iter().map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned())).collect();
            assert_eq!(calls_of(parts), expected, "{case}");
        }
    }

    #[test]
    fn what_is_said_both_ways_is_called_once() {
        let function = json!({ "name": "pay", "arguments": "{\"x\":1}" });
        let said = json!({ "function_call": function, "tool_calls": [{ "id": "c", "function": function }] });
        let mut whole = Assembly::default();
        whole.take_whole(&json!({ "choices": [{ "message": said }] }), &mut |_| {});
        assert_eq!(whole.draft.calls.len(), 1);
        let mut parts = Assembly::default();
        for choice in [
            json!({ "delta": { "tool_calls": said["tool_calls"] } }),
            json!({ "delta": { "function_call": function } }),
            json!({ "message": said }),
        ] {
            parts.take(&json!({ "choices": [choice] }), &mut |_| {});
        }
        assert_eq!(parts.draft.calls.len(), 1);
        let mut old = Assembly::default();
        for arguments in ["{\"x\"", ":1}"] {
            let call = json!({ "name": "pay", "arguments": arguments });
            old.take(&json!({ "choices": [{ "delta": { "function_call": call } }] }), &mut |_| {});
        }
        assert_eq!((old.draft.calls.len(), old.draft.calls[0].arguments.as_str()), (1, "{\"x\":1}"));
    }

    #[test]
    fn a_whole_message_behind_its_parts_is_not_said_twice() {
        let (mut assembly, mut told) = (Assembly::default(), String::new());
        for choice in [
            json!({ "delta": { "content": "one " } }),
            json!({ "delta": { "content": "two" } }),
            json!({ "message": { "content": "one two." }, "finish_reason": "length" }),
            json!({ "delta": {}, "finish_reason": "stop" }),
        ] {
            assembly.take(&json!({ "choices": [choice] }), &mut |delta| {
                if let Delta::Text(text) = delta {
                    told.push_str(text);
                }
            });
        }
        assert_eq!((assembly.draft.content.as_str(), told.as_str()), ("one two.", "one two."));
        assert_eq!(assembly.draft.finish.as_deref(), Some("length"), "it was cut, whatever is said behind it");
    }
}
