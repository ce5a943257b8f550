//! One turn: the calls of one message of the model, and a result for each.

use std::collections::BTreeMap;

use ferrata::state::{Message, ToolCall, to_value};
use ferrata::{Approval, Class, Context, NodeError, Verdict};
use serde_json::{Value, json};

use super::history::result;
use super::join::{Going, join};
use super::kept::{AROUND_BYTES, Kept};
use super::perform::{Recorded, Told};
use super::tool::Risk;
use super::{Ready, ToolsNode};
use crate::fits::misfit;

/// How much of the arguments stands in the text of a question. All of them are shown with it.
const ARGUMENTS_SHOWN: usize = 200;

/// What comes of one turn.
pub(super) struct Results {
    /// One for each call, in their order.
    pub(super) messages: Vec<Message>,
    /// Results that are too large for a message, by their ids.
    pub(super) artifacts: BTreeMap<String, String>,
}

pub(super) struct Turn<'t> {
    pub(super) node: &'t ToolsNode,
    pub(super) ctx: &'t Context,
    pub(super) kept: Kept,
}

/// How far a call has come.
enum Stage<'t> {
    Told(Told),
    /// It is to be performed.
    Runs(Run<'t>),
    /// A person has to approve it first.
    Asks(Run<'t>),
}

struct Run<'t> {
    ready: &'t Ready,
    arguments: Value,
    edited: bool,
}

/// What is waited for at a call.
enum Ended {
    Performed(Result<Recorded, NodeError>),
    Answered(Result<Verdict, NodeError>),
}

impl Results {
    /// About what they take as an update.
    fn bytes(&self) -> u64 {
        let messages = self.messages.iter().map(|message| message.content.len() + AROUND_BYTES);
        let artifacts = self.artifacts.values().map(|text| text.len() + AROUND_BYTES);
        messages.chain(artifacts).sum::<usize>() as u64
    }
}

impl<'t> Turn<'t> {
    /// Answers the calls. What needs no approval is performed while people are asked. All questions are asked at once, and what they approve begins when all are
    /// answered: so the n-th use of a tool's name is the same call in every attempt.
    pub(super) async fn run(&self, calls: &[ToolCall]) -> Result<Results, NodeError> {
        let mut stages = Vec::new();
        for call in calls {
            let stage = self.planned(call, calls, &stages);
            stages.push(stage);
        }
        self.doubt_refusals(calls, &mut stages);
        self.settle(calls, &mut stages).await?;
        self.settle(calls, &mut stages).await?;
        let mut results = Results { messages: Vec::new(), artifacts: BTreeMap::new() };
        for (call, stage) in calls.iter().zip(stages) {
            let Stage::Told(told) = stage else {
                return Err(NodeError::new(format!("the call \"{}\" came to no end", call.id)).deterministic());
            };
            let room = self.ctx.update_bytes_max().saturating_sub(results.bytes());
            let text = self.kept.fit(told.text, room, &mut results.artifacts);
            if let Some(class) = told.failed {
                self.ctx.note_failure(&NodeError::new(text.clone()).with_class(class));
            }
            results.messages.push(result(call, text));
        }
        Ok(results)
    }

    /// Performs what is to be performed, and asks what is to be asked. An approved call is to be performed after this.
    async fn settle(&self, calls: &[ToolCall], stages: &mut [Stage<'t>]) -> Result<(), NodeError> {
        let (mut performed, mut asked): (Vec<Going<'_, _>>, Vec<Going<'_, _>>) = (Vec::new(), Vec::new());
        for (nth, (call, stage)) in calls.iter().zip(&*stages).enumerate() {
            match stage {
                Stage::Told(_) => {}
                Stage::Runs(run) => {
                    let effect = run.ready.tool.effect(self.ctx, call, run.arguments.clone(), &self.kept);
                    performed.push(Box::pin(async move { (nth, Ended::Performed(effect.await)) }));
                }
                Stage::Asks(run) => {
                    let question = self.question(call, run);
                    let asks = async move { (nth, Ended::Answered(self.ctx.ask(&question_key(call), question).await)) };
                    asked.push(Box::pin(asks));
                }
            }
        }
        // Once a question is asked nothing new may begin, so that the questions come last.
        performed.append(&mut asked);
        let mut failure = Ok(());
        for (nth, ended) in join(performed).await {
            let stage = &mut stages[nth];
            match stage.next(ended) {
                Ok(next) => *stage = next,
                Err(error) => failure = failure.and(Err(error)),
            }
        }
        failure
    }

    /// What becomes of a call before anything happens; `before` are those of the calls before it.
    fn planned(&self, call: &ToolCall, calls: &[ToolCall], before: &[Stage<'t>]) -> Stage<'t> {
        let calls_max = self.node.calls_max;
        if before.len() >= calls_max {
            let text =
                format!("Nothing was done: there are more than {calls_max} calls in one turn. Call again, with fewer at once.");
            return Stage::Told(Told::failed(Class::Deterministic, text));
        }
        match self.node.allowed(&call.name).and_then(|ready| Ok((ready, ready.arguments(call)?))) {
            Ok((ready, arguments)) => {
                let run = Run { ready, arguments, edited: false };
                // What a person said, and what was begun, counts also if the tool has become another risk since.
                let was_begun = || uses(&call.name, calls, before) < self.ctx.effects_known(&call.name);
                let asks = self.ctx.is_answered(&question_key(call)) || (ready.tool.risk == Risk::Irreversible && !was_begun());
                if asks { Stage::Asks(run) } else { Stage::Runs(run) }
            }
            Err(wrong) => Stage::Told(Told::failed(Class::Deterministic, wrong)),
        }
    }

    /// A tool that was taken away or changed after it was called may have been at work before: then nobody says that nothing was done.
    fn doubt_refusals(&self, calls: &[ToolCall], stages: &mut [Stage<'t>]) {
        for (nth, call) in calls.iter().enumerate().filter(|(_, call)| self.ctx.effects_known(&call.name) > 0) {
            if matches!(stages[nth], Stage::Told(_)) && self.ctx.effects_known(&call.name) > uses(&call.name, calls, stages) {
                let text = format!(
                    "There is no result: the tool \"{}\" was taken away or changed after this call was made, and may have performed it before.",
                    call.name
                );
                stages[nth] = Stage::Told(Told::failed(Class::Deterministic, text));
            }
        }
    }

    fn question(&self, call: &ToolCall, run: &Run<'_>) -> Approval {
        let (name, arguments) = (&run.ready.tool.name, run.arguments.to_string());
        let cut: String = arguments.chars().take(ARGUMENTS_SHOWN).collect();
        let dots = if cut.len() < arguments.len() { "..." } else { "" };
        // With an id of its own, what it refers to stays inside of it.
        let mut schema = run.ready.tool.arguments.clone();
        if let Some(schema) = schema.as_object_mut() {
            schema.entry("$id").or_insert_with(|| format!("urn:ferrata:tool:{name}").into());
        }
        let approval = Approval::ask(format!("May the tool \"{name}\" be called with {cut}{dots}?"))
            .show(&json!({"tool": name, "call": call.id, "arguments": run.arguments}))
            .edits::<Value>()
            .edit_within(schema);
        (self.node.approvals)(approval)
    }
}

/// How many of these calls a tool is to perform.
fn uses(name: &str, calls: &[ToolCall], stages: &[Stage<'_>]) -> usize {
    calls.iter().zip(stages).filter(|(call, stage)| call.name == name && !matches!(stage, Stage::Told(_))).count()
}

fn question_key(call: &ToolCall) -> String {
    format!("approve {}", call.id)
}

impl<'t> Stage<'t> {
    fn next(&self, ended: Ended) -> Result<Self, NodeError> {
        let (Stage::Runs(run) | Stage::Asks(run)) = self else {
            return Err(NodeError::new("a call was performed that has a result").deterministic());
        };
        let refused = |text: String| Ok(Stage::Told(Told::failed(Class::Deterministic, text)));
        match ended {
            Ended::Performed(recorded) => {
                let mut told = run.ready.tool.told(&run.arguments, recorded?);
                if run.edited {
                    told.text = format!("[A person changed the arguments to {}.]\n{}", run.arguments, told.text);
                }
                Ok(Stage::Told(told))
            }
            Ended::Answered(Ok(Verdict::Approve)) => {
                Ok(Stage::Runs(Run { ready: run.ready, arguments: run.arguments.clone(), edited: false }))
            }
            Ended::Answered(Ok(Verdict::Edit { value })) => match run.ready.fits(&value) {
                Ok(()) => Ok(Stage::Runs(Run { ready: run.ready, arguments: value, edited: true })),
                Err(wrong) => {
                    refused(format!("Nothing was done: a person changed the arguments to some that do not fit: {wrong}"))
                }
            },
            Ended::Answered(Ok(Verdict::Reject { reason })) if reason.is_empty() => {
                refused("Nothing was done: a person refused this call.".to_owned())
            }
            Ended::Answered(Ok(Verdict::Reject { reason })) => {
                refused(format!("Nothing was done: a person refused this call, and says why: {reason}"))
            }
            Ended::Answered(Err(error)) if error.is_expired() => {
                refused("Nothing was done: nobody approved this call in time.".to_owned())
            }
            Ended::Answered(Err(error)) => Err(error),
        }
    }
}

impl ToolsNode {
    /// The tool of that name, or what to tell the model.
    fn allowed(&self, name: &str) -> Result<&Ready, String> {
        let known = self.tools.iter().find(|ready| *ready.tool.name == *name);
        if let Some(ready) = known.filter(|ready| ready.is_allowed) {
            return Ok(ready);
        }
        let allowed: Vec<&str> = self.tools.iter().filter(|ready| ready.is_allowed).map(|ready| &*ready.tool.name).collect();
        let others = match allowed.as_slice() {
            [] => "There are no tools here.".to_owned(),
            allowed => format!("The tools are: {}.", allowed.join(", ")),
        };
        let name: String = name.chars().take(64).collect();
        let what = if known.is_some() { "may not be used here" } else { "does not exist" };
        Err(format!("Nothing was done: the tool \"{name}\" {what}. {others}"))
    }
}

impl Ready {
    /// The arguments of a call, or what to tell the model.
    fn arguments(&self, call: &ToolCall) -> Result<Value, String> {
        let wrong = |wrong: String| format!("Nothing was done: the arguments of \"{}\" do not fit: {wrong}", call.name);
        // Some models send nothing where there is nothing to say.
        let text = match call.arguments.trim() {
            "" | "null" => "{}",
            text => text,
        };
        let arguments = serde_json::from_str(text).map_err(|error| wrong(format!("they are no JSON: {error}")))?;
        self.fits(&arguments).map_err(wrong)?;
        Ok(arguments)
    }

    /// What is wrong with the arguments, if anything is: they have to be recorded, to fit the schema, and to be of the type that the function takes.
    fn fits(&self, arguments: &Value) -> Result<(), String> {
        to_value(arguments).map_err(|error| error.to_string())?;
        misfit(&self.validator, arguments).map_or(Ok(()), Err)?;
        (self.tool.read)(arguments)
    }
}
