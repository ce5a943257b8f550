//! An answer from the chunks of a stream, whatever a server that calls itself compatible leaves out or adds.

use serde_json::Value;

use super::wire::{Draft, DraftCall, content_of, read_usage, text_of};
use crate::model::{Delta, Tell};

/// An answer that is being put together.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    pub(super) draft: Draft,
    /// The place of each call that has one.
    places: Vec<Option<u64>>,
}

impl Assembly {
    /// Takes in one chunk, and tells what is new in it.
    pub(super) fn take(&mut self, chunk: &Value, tell: &mut Tell<'_>) {
        if let Some(model) = chunk["model"].as_str().filter(|name| !name.is_empty()) {
            self.draft.model = Some(model.to_owned());
        }
        // Totals may come with each chunk; the last ones count.
        self.draft.usage = read_usage(&chunk["usage"]).or(self.draft.usage);
        let first = |choice: &&Value| choice["index"].as_u64().unwrap_or_default() == 0;
        let Some(choice) = chunk["choices"].as_array().into_iter().flatten().find(first) else { return };
        if let Some(word) = choice["finish_reason"].as_str().filter(|word| !word.is_empty()) {
            self.draft.finish = Some(word.to_owned());
        }
        let delta = if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
        let text = content_of(&delta["content"]);
        if !text.is_empty() {
            tell(Delta::Text(&text));
            self.draft.content.push_str(&text);
        }
        for field in ["reasoning_content", "reasoning"] {
            if let Some(text) = delta[field].as_str().filter(|text| !text.is_empty()) {
                tell(Delta::Reasoning(text));
                self.draft.reasoning.push_str(text);
                break;
            }
        }
        if let Some(text) = delta["refusal"].as_str() {
            self.draft.refusal.push_str(text);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.take_call(call);
        }
        if delta["function_call"].is_object() {
            self.take_call(&serde_json::json!({"index": 0, "function": delta["function_call"]}));
        }
    }

    /// A fragment belongs to the call with its id; without one, to the newest call at its place; without that, to the newest call.
    fn take_call(&mut self, fragment: &Value) {
        let index = fragment["index"].as_u64();
        let id = text_of(&fragment["id"]);
        let (name, arguments) = (fragment["function"]["name"].as_str().unwrap_or_default(), &fragment["function"]["arguments"]);
        let calls = &self.draft.calls;
        let place = match &id {
            Some(id) => calls.iter().rposition(|call| call.id.as_deref() == Some(id)).or_else(|| {
                // The id may come after the call has begun.
                self.places
                    .iter()
                    .rposition(|place| index.is_some() && *place == index)
                    .filter(|place| calls[*place].id.is_none())
            }),
            None if index.is_some() => self.places.iter().rposition(|place| *place == index),
            // Whole calls without ids and places follow one another.
            None if !name.is_empty() && calls.last().is_some_and(|call| !call.name.is_empty()) => None,
            None => calls.len().checked_sub(1),
        };
        let place = place.unwrap_or_else(|| {
            self.draft.calls.push(DraftCall::default());
            self.places.push(index);
            self.draft.calls.len() - 1
        });
        let call = &mut self.draft.calls[place];
        call.id = call.id.take().or(id);
        // A name is mostly repeated, and sometimes spelled out.
        if !name.is_empty() && call.name != name {
            call.name.push_str(name);
        }
        match arguments {
            Value::String(text) => call.arguments.push_str(text),
            Value::Null => {}
            whole => call.arguments = whole.to_string(),
        }
    }
}
