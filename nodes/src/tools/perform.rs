//! One call as an effect: what is recorded of it, and what the model is told.

use std::future::{Future, IntoFuture};
use std::sync::Arc;

use ferrata::state::ToolCall;
use ferrata::{Class, Context, NodeError, Performed};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::context::ToolContext;
use super::join::{Going, calmly, caught};
use super::kept::Kept;
use super::tool::{Risk, Said, Tool};

/// What is recorded of a call. A person who says what came of a call in doubt writes a text, or any other JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Recorded {
    Failed(Failed),
    Gave(Value),
}

/// A failure that goes to the model, after which nothing is in doubt.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Failed {
    failed: String,
    #[serde(default)]
    class: Class,
    /// The other side was reached and says so: it may have done something.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    reported: bool,
}

/// What the model is told of a call.
pub(super) struct Told {
    pub(super) text: String,
    /// `None`: it went well.
    pub(super) failed: Option<Class>,
}

impl Told {
    pub(super) fn failed(class: Class, text: impl Into<String>) -> Self {
        Self { text: text.into(), failed: Some(class) }
    }
}

impl Tool {
    /// The call as an effect under the tool's name. The id of the call is no part of the arguments: two calls of the same are the same action to a guard. The use
    /// of the key is counted here, and not when it is awaited.
    pub(super) fn effect<'f>(
        &'f self,
        ctx: &Context,
        call: &ToolCall,
        arguments: Value,
        kept: &Kept,
    ) -> impl Future<Output = Result<Recorded, NodeError>> + Send + use<'f> {
        let (outer, kept, call_id): (_, _, Arc<str>) = (ctx.clone(), kept.clone(), call.id.as_str().into());
        let context = move |key: String| ToolContext {
            ctx: outer.clone(),
            tool: Arc::clone(&self.name),
            call_id: Arc::clone(&call_id),
            key,
            credentials: self.credentials.clone(),
            kept: kept.clone(),
        };
        let (shown, given, context_of) = (arguments.clone(), arguments.clone(), context.clone());
        let perform = move |key: String| self.perform(given, context_of(key));
        let mut effect = ctx.effect(&self.name, perform).arguments(&shown);
        if self.risk == Risk::Read {
            effect = effect.repeatable();
        }
        if let Some(check) = &self.check {
            effect = effect.check(move |key| {
                let (arguments, context) = (arguments.clone(), context(key));
                self.find_out(move || check(arguments, context))
            });
        }
        let going = effect.into_future();
        async move {
            match going.await {
                // Only of one that reads, which leaves no doubt: its result is on no record.
                Err(error) if error.is_too_large() => {
                    let failed = format!("{error}; ask it for less");
                    Ok(Recorded::Failed(Failed { failed, class: error.class(), reported: false }))
                }
                ended => ended,
            }
        }
    }

    async fn perform(&self, arguments: Value, ctx: ToolContext) -> Result<Recorded, NodeError> {
        match self.in_time(|| (self.run)(arguments, ctx)).await {
            Ok(Said::Result(text)) => Ok(self.gave(text)),
            Ok(Said::Failure(text)) => {
                let failed = self.censored(text);
                Ok(Recorded::Failed(Failed { failed, class: Class::Unclassified, reported: true }))
            }
            Err(error) if error.class() != Class::Terminal && (self.risk == Risk::Read || error.is_not_performed()) => {
                let error = self.without_credentials(error);
                Ok(Recorded::Failed(Failed { failed: error.to_string(), class: error.class(), reported: false }))
            }
            Err(error) => Err(self.without_credentials(error)),
        }
    }

    /// What comes of it in the time that a call has. A panic is an error.
    async fn in_time<'f, T>(&self, make: impl FnOnce() -> Going<'f, Result<T, NodeError>>) -> Result<T, NodeError> {
        match tokio::time::timeout(self.timeout, caught(make)).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(NodeError::new(format!("it panicked: {panic}")).deterministic()),
            Err(_) => Err(NodeError::new(format!("it took longer than {:?} and was given up", self.timeout)).transient()),
        }
    }

    async fn find_out<'f>(
        &self,
        make: impl FnOnce() -> Going<'f, Result<Performed<String>, NodeError>>,
    ) -> Result<Performed<Recorded>, NodeError> {
        match self.in_time(make).await {
            Ok(Performed::Yes(text)) => Ok(Performed::Yes(self.gave(text))),
            Ok(Performed::No) => Ok(Performed::No),
            Ok(Performed::Unknown) => Ok(Performed::Unknown),
            Err(error) => Err(self.without_credentials(error)),
        }
    }

    fn gave(&self, text: String) -> Recorded {
        Recorded::Gave(Value::String(self.censored(text)))
    }

    fn censored(&self, text: String) -> String {
        self.credentials.censored(&text).unwrap_or(text)
    }

    fn without_credentials(&self, error: NodeError) -> NodeError {
        let Some(text) = self.credentials.censored(&error.to_string()) else { return error };
        let censored = NodeError::new(text).with_class(error.class());
        let censored = error.delay().into_iter().fold(censored, NodeError::retry_after);
        if error.is_not_performed() { censored.not_performed() } else { censored }
    }

    /// What the model is told, once the result has been held against the tool's rule.
    pub(super) fn told(&self, arguments: &Value, recorded: Recorded) -> Told {
        let (name, writes) = (&self.name, self.risk != Risk::Read);
        let text = match recorded {
            Recorded::Failed(Failed { failed, class, reported: true }) => return Told::failed(class, failed),
            Recorded::Failed(Failed { failed, class, .. }) => {
                let done = if writes { ", and nothing was done" } else { "" };
                return Told::failed(class, format!("The tool \"{name}\" failed{done}: {failed}"));
            }
            Recorded::Gave(Value::String(text)) => text,
            Recorded::Gave(value) => value.to_string(),
        };
        let held = self.verify.as_ref().map_or(Ok(()), |rule| {
            calmly(|| rule(arguments, &text)).unwrap_or_else(|panic| Err(format!("the rule itself panicked: {panic}")))
        });
        match held {
            Ok(()) => Told { text, failed: None },
            Err(wrong) => {
                let done = if writes { "was performed, but its" } else { "gave a result, but the" };
                Told::failed(
                    Class::Violation,
                    format!("The tool \"{name}\" {done} result breaks its rule and is left out: {wrong}"),
                )
            }
        }
    }
}
