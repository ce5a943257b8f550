//! How effects are performed: recorded before and after, so that they happen once.

use std::future::pending;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::context::{Context, InFlight};
use super::effect::{Effect, Performed};
use crate::error::{Class, Failure, NodeError};
use crate::id::EffectId;
use crate::log::{Cost, EffectStatus};
use crate::machine::Note;
use crate::state::{to_value, value_bytes};

/// An effect that is being performed, or looked into.
struct Performing<'f, T> {
    effect: Effect<'f, T>,
    id: EffectId,
    /// Holds the node's pause back.
    in_flight: InFlight,
}

pub(super) async fn perform<T: Serialize + DeserializeOwned>(
    mut effect: Effect<'_, T>,
    mut id: EffectId,
) -> Result<T, NodeError> {
    if let Some(refused) = effect.refused.take() {
        return Err(refused);
    }
    if let Some(compensation) = &effect.terms.compensation
        && !effect.attempt.run.root.compensates(&compensation.by)
    {
        let text = format!(
            "effect \"{}\" is to be compensated by \"{}\", which the outermost graph does not declare; add `.undo(..)` or `.reconcile(..)` to it",
            id.key, compensation.by
        );
        return Err(NodeError::new(text).deterministic());
    }
    let start = &effect.attempt.start;
    let mut known = start.journal.effect(&id.key, id.occurrence);
    if let Some((then, now)) = known.and_then(|known| known.terms.arguments.as_ref()).zip(effect.terms.arguments.as_ref())
        && then.fingerprint != now.fingerprint
    {
        if !effect.repeatable || start.feedback.is_none() {
            return Err(NodeError::other_arguments(&id, &then.shown, &now.shown));
        }
        // A later round asks again with what was wrong in the last one: that is an effect of its own, with a key of its own.
        id.key = format!("{} {}", id.key, now.fingerprint).into();
        known = start.journal.effect(&id.key, id.occurrence);
    }
    let status = known.map(|known| known.status.clone());
    let recorded = match &status {
        Some(EffectStatus::Done(result)) => Some(recorded(&id, result)),
        _ => None,
    };
    if let Some(Ok(value)) = recorded {
        tracing::debug!("result taken from the log");
        return Ok(value);
    }
    let Some(in_flight) = effect.attempt.enter() else { return pending().await };
    let performing = Performing { effect, id, in_flight };
    match recorded {
        // It was performed, and must not be again: a person can give a result that fits.
        Some(Err(error)) => performing.unknown(error).await,
        _ => performing.go(status.is_some()).await,
    }
}

impl<T: Serialize + DeserializeOwned> Performing<'_, T> {
    /// `unsure`: it was started before.
    async fn go(mut self, unsure: bool) -> Result<T, NodeError> {
        if unsure && !self.effect.repeatable {
            let error = NodeError::new("it was started before, and what came of it was never recorded");
            let start = &self.effect.attempt.start;
            let under = start.journal.effect(&self.id.key, self.id.occurrence).and_then(|known| known.under);
            let key = self.id.idempotency_key(under.unwrap_or(start.thread_id));
            match self.find_out(key).await? {
                Performed::Yes(value) => return self.performed(value, 0, true).await,
                Performed::No => {}
                Performed::Unknown => return self.unknown(error).await,
            }
        }
        if !self.effect.repeatable {
            let (effect, attempt, terms) = (self.id.clone(), self.effect.attempt.start.attempt, self.effect.terms.clone());
            self.note(Note::Starts { effect, attempt, terms }).await;
        }
        let attempt = &self.effect.attempt;
        let (key, started) = (self.id.idempotency_key(attempt.start.thread_id), attempt.run.clock.now());
        let begins = attempt.effect_begins(&self.id, &key, self.effect.repeatable);
        let Some(perform) = self.effect.perform.take().filter(|_| begins) else { return pending().await };
        let result = Context::without_questions(perform(key.clone())).await;
        if !self.effect.attempt.effect_ended(&self.id, &result) {
            return pending().await;
        }
        let ms = self.effect.attempt.run.clock.now().ms_since(started);
        match result {
            Ok(value) => self.performed(value, ms, false).await,
            Err(error) if self.effect.repeatable => Err(error),
            Err(error) if error.is_not_performed() => {
                self.not_performed(error.failure()).await;
                Err(error)
            }
            Err(error) => match self.find_out(key).await? {
                Performed::Yes(value) => self.performed(value, 0, true).await,
                Performed::No => Err(error.not_performed()),
                Performed::Unknown => self.unknown(error).await,
            },
        }
    }

    /// It was performed. Gives its result once that is durable.
    async fn performed(mut self, value: T, ms: u64, found: bool) -> Result<T, NodeError> {
        let result = match to_value(&value) {
            Ok(result) => {
                let what = || format!("it was performed, and its result (effect \"{}\")", self.id.key);
                match self.effect.attempt.run.check_bytes(what, value_bytes(&result)) {
                    Ok(()) => result,
                    Err(error) => return self.unknown(error).await,
                }
            }
            Err(error) => {
                let text = format!("it was performed, but its result cannot be recorded: {error}");
                return self.unknown(NodeError::new(text).deterministic()).await;
            }
        };
        let (input_tokens, output_tokens) = self.effect.tokens.map_or((0, 0), |count| count(&value));
        let cost = Cost { ms, input_tokens, output_tokens };
        // One that was started on record said there what there is to say.
        let terms = Some(self.effect.terms.clone()).filter(|terms| self.effect.repeatable && !terms.is_plain());
        self.note(Note::Done { effect: self.id.clone(), result, cost, terms, found }).await;
        Ok(value)
    }

    async fn not_performed(&mut self, failure: Failure) {
        self.note(Note::NotPerformed { effect: self.id.clone(), failure }).await;
    }

    /// Comes back when it is durable, and not at all if the attempt is over.
    async fn note(&mut self, note: Note) {
        if !self.effect.attempt.note(note).await {
            pending().await
        }
    }

    /// Asks the effect's check. That it was not performed is recorded; what it does not know a person has to say.
    async fn find_out(&mut self, key: String) -> Result<Performed<T>, NodeError> {
        let Some(check) = &self.effect.check else { return Ok(Performed::Unknown) };
        tracing::debug!("it is not known whether it was performed; its check is asked");
        let name = self.id.key.clone();
        let attempt = &self.effect.attempt;
        let found = Context::without_questions(check(key)).await;
        match found.map_err(|error| error.classified(attempt.run.root.classifiers_at(&attempt.start.place.path))) {
            Ok(Performed::No) => {
                let failure = NodeError::new("its check found that it was not performed").failure();
                self.not_performed(failure).await;
                Ok(Performed::No)
            }
            Ok(found) => Ok(found),
            Err(error) if error.class() == Class::Transient => {
                Err(error.context(format!("finding out whether effect \"{name}\" was performed")))
            }
            Err(error) => {
                tracing::warn!(%error, "the check of effect \"{name}\" failed");
                Ok(Performed::Unknown)
            }
        }
    }

    /// It is not known what happened: the node stops here, unless the effect may simply be repeated.
    async fn unknown(self, error: NodeError) -> Result<T, NodeError> {
        if self.effect.repeatable {
            return Err(error);
        }
        let Self { effect, id, in_flight } = self;
        effect.attempt.seal_in_doubt(id, error.failure());
        drop(in_flight);
        pending().await
    }
}

fn recorded<T: DeserializeOwned>(id: &EffectId, result: &Value) -> Result<T, NodeError> {
    T::deserialize(result).map_err(|error| {
        let text = format!("the recorded result of effect \"{}\" does not fit what the node expects now: {error}", id.key);
        NodeError::new(text).deterministic()
    })
}
