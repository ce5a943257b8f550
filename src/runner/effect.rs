//! Effects: recorded before and after, so that they happen once.

use std::fmt;
use std::future::{Future, IntoFuture, pending};
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::Instrument;

use super::context::{Attempt, Use};
use crate::error::NodeError;
use crate::id::EffectId;
use crate::log::{Cost, EffectStatus};
use crate::machine::EffectOutcome;
use crate::state::to_value;

/// An effect that is performed when it is awaited. Made by [`Context::effect`](crate::Context::effect).
#[must_use = "an effect is performed when it is awaited"]
pub struct Effect<'f, T> {
    attempt: Arc<Attempt>,
    key: Arc<str>,
    perform: Perform<'f, T>,
    repeatable: bool,
    tokens: Option<Count<T>>,
}

type Count<T> = fn(&T) -> (u64, u64);

type Performing<'f, T> = Pin<Box<dyn Future<Output = Result<T, NodeError>> + Send + 'f>>;
type Perform<'f, T> = Box<dyn FnOnce(String) -> Performing<'f, T> + Send + 'f>;

impl<'f, T> Effect<'f, T> {
    pub(crate) fn new<F, Fut>(attempt: Arc<Attempt>, key: Arc<str>, perform: F) -> Self
    where
        F: FnOnce(String) -> Fut + Send + 'f,
        Fut: Future<Output = Result<T, NodeError>> + Send + 'f,
    {
        let perform: Perform<'f, T> = Box::new(move |key| Box::pin(perform(key)));
        Self { attempt, key, perform, repeatable: false, tokens: None }
    }

    /// Says that it may simply be done again if its result was not recorded: a read, a model call, or a call that is safe by its key.
    ///
    /// It is never in doubt, and costs one append in place of two.
    pub fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// Says how many tokens it took, as (sent, written), for the report.
    pub fn tokens(mut self, count: fn(&T) -> (u64, u64)) -> Self {
        self.tokens = Some(count);
        self
    }
}

impl<T> fmt::Debug for Effect<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effect").field("key", &self.key).field("repeatable", &self.repeatable).finish_non_exhaustive()
    }
}

impl<'f, T> IntoFuture for Effect<'f, T>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'f,
{
    type Output = Result<T, NodeError>;
    type IntoFuture = Performing<'f, T>;

    fn into_future(self) -> Self::IntoFuture {
        let occurrence = self.attempt.next_use(Use::Effect, &self.key);
        let id = EffectId { task: self.attempt.start.task.clone(), key: Arc::clone(&self.key), occurrence };
        let span = tracing::info_span!("effect", key = &*self.key, occurrence);
        Box::pin(perform(self, id).instrument(span))
    }
}

async fn perform<T: Serialize + DeserializeOwned>(effect: Effect<'_, T>, id: EffectId) -> Result<T, NodeError> {
    let attempt = &effect.attempt;
    let known = attempt.start.journal.effect(&id.key, id.occurrence);
    let recorded = if let Some(EffectStatus::Done(result)) = known { Some(recorded(&id, result)) } else { None };
    if let Some(Ok(value)) = recorded {
        tracing::debug!("result taken from the log");
        return Ok(value);
    }
    let unsure = known == Some(&EffectStatus::Started);
    let Some(in_flight) = attempt.enter() else { return pending().await };
    if unsure && !effect.repeatable {
        let error = NodeError::new("it was started before, and what came of it was never recorded");
        return unknown(attempt, false, id, error, in_flight).await;
    }
    if let Some(Err(error)) = recorded {
        // It was performed, and must not be again: a person can give a result that fits.
        return unknown(attempt, effect.repeatable, id, error, in_flight).await;
    }
    if !effect.repeatable && !attempt.request(id.clone(), None).await {
        return pending().await;
    }
    let started = attempt.run.clock.now();
    let key = id.idempotency_key(attempt.start.thread_id);
    if !attempt.effect_begins(&id, &key, effect.repeatable) {
        return pending().await;
    }
    let result = (effect.perform)(key).await;
    if !attempt.effect_ended(&id, &result) {
        return pending().await;
    }
    let ms = attempt.run.clock.now().ms_since(started);
    let (value, result) = match result {
        Ok(value) => match to_value(&value) {
            Ok(stored) => (value, stored),
            Err(error) => {
                let text = format!("it was performed, but its result cannot be recorded: {error}");
                return unknown(attempt, effect.repeatable, id, NodeError::new(text).deterministic(), in_flight).await;
            }
        },
        Err(error) if effect.repeatable => return Err(error),
        Err(error) if error.is_not_performed() => {
            let outcome = EffectOutcome::NotPerformed(error.failure());
            return if attempt.request(id, Some(outcome)).await { Err(error) } else { pending().await };
        }
        Err(error) => return unknown(attempt, false, id, error, in_flight).await,
    };
    let (input_tokens, output_tokens) = effect.tokens.map_or((0, 0), |count| count(&value));
    let outcome = EffectOutcome::Done { result, cost: Cost { ms, input_tokens, output_tokens } };
    let allowed = attempt.request(id, Some(outcome)).await;
    drop(in_flight);
    if allowed { Ok(value) } else { pending().await }
}

/// It is not known what happened: the node stops here, unless the effect may simply be repeated.
async fn unknown<T>(
    attempt: &Arc<Attempt>,
    repeatable: bool,
    id: EffectId,
    error: NodeError,
    in_flight: super::context::InFlight,
) -> Result<T, NodeError> {
    if repeatable {
        return Err(error);
    }
    attempt.seal_in_doubt(id, error.failure());
    drop(in_flight);
    pending().await
}

fn recorded<T: DeserializeOwned>(id: &EffectId, result: &Value) -> Result<T, NodeError> {
    T::deserialize(result).map_err(|error| {
        let text = format!("the recorded result of effect \"{}\" does not fit what the node expects now: {error}", id.key);
        NodeError::new(text).deterministic()
    })
}
