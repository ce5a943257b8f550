//! Answers that are values of a type, and not texts about them.

use ferrata::state::Message;
use ferrata::{Context, NodeError};
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::call::call_checked;
use crate::fits::misfit;
use crate::model::{ChatModel, ChatReply, ChatRequest, Finish};

/// Asks for a value of a type: the endpoint gets its JSON Schema, and the answer is checked against it, whatever the endpoint made of that. An answer that does
/// not fit goes back to the model with what is wrong, `rounds` times in all (at least 1), each an effect of the node. An answer after which nothing is left to try is not
/// kept: when the node is tried again, that one is asked for again, and those before it are not.
///
/// ```
/// use ferrata::store::MemoryStore;
/// use ferrata::{Context, END, Graph, Runner, START, State};
/// use ferrata_nodes::{ChatRequest, Scripted, ask_for};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Ticket { urgency: u8 }
///
/// #[derive(Deserialize, schemars::JsonSchema)]
/// struct Rating {
///     #[schemars(range(min = 1, max = 5))]
///     urgency: u8,
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let model = std::sync::Arc::new(Scripted::new([Ok("Very urgent!"), Ok("```json\n{\"urgency\": 9}\n```"), Ok("{\"urgency\": 4}")]));
/// let asked = model.clone();
/// let rate = move |ctx: Context| {
///     let model = model.clone();
///     async move {
///         let request = ChatRequest::new([ferrata::state::Message::user("The server burns. How urgent is it, from 1 to 5?")]);
///         let rating: Rating = ask_for(&ctx, &*model, request, 3).await?;
///         Ok(Ticket::update().urgency(rating.urgency))
///     }
/// };
/// let graph = Graph::<Ticket>::new("ticket").node("rate", rate).edge(START, "rate").edge("rate", END).build()?;
/// let ticket = Runner::new(graph, MemoryStore::new()).thread("t").run(Ticket::update()).await?.done().unwrap();
/// assert_eq!(ticket.urgency, 4);
/// assert!(asked.requests()[2].messages.last().unwrap().content.contains("9 is greater than the maximum of 5"));
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// As [`call`](crate::call); a violation, with what is wrong, if no answer fits; a deterministic error if the type's schema is none.
pub async fn ask_for<T: DeserializeOwned + JsonSchema>(
    ctx: &Context,
    model: &dyn ChatModel,
    request: ChatRequest,
    rounds: u32,
) -> Result<T, NodeError> {
    let schema = schema_for!(T).to_value();
    let validator = jsonschema::validator_for(&schema);
    let validator = validator.map_err(|error| NodeError::new(format!("the type's schema is none: {error}")).deterministic())?;
    let mut request = request.schema(name_of(&schema), schema);
    let mut round = 1;
    loop {
        // The last one, and a refusal, are no answers: when the thread goes on, they are asked for again.
        let is_last = round >= rounds;
        let check = |reply: &ChatReply| match value_in::<T>(reply, &validator) {
            Err(_) if reply.refused => Err(NodeError::new(format!("the model refuses: {}", reply.content)).violation()),
            Err(wrong) if is_last => Err(NodeError::new(format!("no answer of \"{}\" fits: {wrong}", model.name())).violation()),
            _ => Ok(()),
        };
        let reply = call_checked("chat", ctx, model, &request, check).await?;
        let wrong = match value_in(&reply, &validator) {
            Ok(value) => return Ok(value),
            Err(wrong) => wrong,
        };
        let again = format!("That is not what was asked for: {wrong}. Answer with JSON that fits the schema, and nothing else.");
        request = request.message(Message::assistant(reply.content)).message(Message::user(again));
        round += 1;
    }
}

fn value_in<T: DeserializeOwned>(reply: &ChatReply, validator: &jsonschema::Validator) -> Result<T, String> {
    read(&reply.content, validator).map_err(|wrong| match reply.finish {
        Finish::Length => "it ran into its limit of tokens; be shorter".to_owned(),
        _ if reply.content.is_empty() => "it wants tools called, and only a value is wanted here".to_owned(),
        _ => wrong,
    })
}

/// The value in an answer; else what is wrong with it.
pub(crate) fn read<T: DeserializeOwned>(text: &str, validator: &jsonschema::Validator) -> Result<T, String> {
    let value = json_in(text)?;
    if let Some(wrong) = misfit(validator, &value) {
        return Err(wrong);
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// The JSON in an answer: all of it, or what stands in a fence. Models like to put words around it.
fn json_in(text: &str) -> Result<Value, String> {
    let text = text.trim();
    let whole = serde_json::from_str(text);
    let fenced = || {
        let (_, rest) = text.split_once("```")?;
        // A value may hold a fence in turn.
        let (inside, _) = rest.rsplit_once("```")?;
        let inside = match inside.split_at_checked(4) {
            Some((word, inside)) if word.eq_ignore_ascii_case("json") => inside,
            _ => inside,
        };
        serde_json::from_str(inside).ok().or_else(|| serde_json::from_str(inside.split_once("```")?.0).ok())
    };
    whole.or_else(|error| fenced().ok_or_else(|| format!("it is no JSON ({error})")))
}

/// A name for a schema, of the letters that endpoints allow.
fn name_of(schema: &Value) -> String {
    let title = schema["title"].as_str().unwrap_or("answer");
    let name: String = title.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).take(64).collect();
    if name.is_empty() { "answer".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_found_in_its_fence() {
        let value = json!({ "code": "```\nx\n```" });
        for text in [
            format!(" {value}\n"),
            format!("```json\n{value}\n```"),
            format!("Here it is:\n```JSON\n{value}\n```\nAnything else?"),
            format!("```json {value}```"),
            format!("```{value}```"),
        ] {
            assert_eq!(json_in(&text), Ok(value.clone()), "{text}");
        }
        assert_eq!(json_in("```json\n[1]\n``` or ```json\n[2]\n```"), Ok(json!([1])), "the first of two");
        assert_eq!(json_in("```json\n{\n```").unwrap_err(), "it is no JSON (expected value at line 1 column 1)");
    }
}
