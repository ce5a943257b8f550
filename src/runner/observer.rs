//! Who is told what tasks do, and may stop it: for what tests graphs. Nobody, in a program.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::context::Attempt;
use crate::error::NodeError;
use crate::id::{EffectId, TaskId};
use crate::state::to_value;

/// Is told of every attempt of a task, and of every effect that is really performed.
pub(crate) trait Observer: Send + Sync + fmt::Debug {
    /// An attempt of a task begins.
    fn task_begins(&self, task: &TaskId);

    /// An effect is about to be performed; if it is not repeatable, its start is on record. False: nothing may happen any more.
    fn effect_begins(&self, effect: &EffectId, idempotency_key: &str, repeatable: bool) -> bool;

    /// An effect was performed and gave this, or failed. Nothing of it is on record yet. False: nothing may happen any more.
    fn effect_ended(&self, effect: &EffectId, result: Option<&Value>) -> bool;
}

impl Attempt {
    pub(crate) fn effect_begins(&self, effect: &EffectId, idempotency_key: &str, repeatable: bool) -> bool {
        self.beat();
        self.run.observer.as_ref().is_none_or(|observer| observer.effect_begins(effect, idempotency_key, repeatable))
    }

    pub(crate) fn effect_ended<T: Serialize>(&self, effect: &EffectId, result: &Result<T, NodeError>) -> bool {
        self.beat();
        self.run.observer.as_ref().is_none_or(|observer| {
            // What cannot be stored was performed all the same.
            let result = result.as_ref().ok().map(|value| to_value(value).unwrap_or_default());
            observer.effect_ended(effect, result.as_ref())
        })
    }
}
