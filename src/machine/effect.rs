//! The effect journal: what was started, what came of it, and what is in doubt.

use std::sync::Arc;

use serde_json::Value;

use super::{Env, Machine, Place, Step};
use crate::error::Failure;
use crate::graph::doubt_schema;
use crate::id::{EffectId, QuestionId, TaskId};
use crate::log::{
    Cost, Doubt, EffectDone, EffectDoubted, EffectFailed, EffectStarted, OnExpiry, QuestionKind, QuestionSpec, Record,
};

/// What came of an effect.
#[derive(Debug)]
pub(crate) enum EffectOutcome {
    Done { result: Value, cost: Cost },
    NotPerformed(Failure),
}

impl Machine {
    /// An effect that must not happen twice is about to be performed. False: the attempt is over and may not.
    pub(crate) fn effect_starts(&mut self, place: &Place, effect: EffectId, attempt: u32, env: &Env<'_>) -> Step<bool> {
        if self.current(place).is_none_or(|task| task != effect.task) {
            return Ok(false);
        }
        self.record(Record::EffectStarted(Box::new(EffectStarted { effect, attempt, at: env.now })))?;
        Ok(true)
    }

    /// An effect has a certain outcome. False: the attempt is over, and its late word does not count.
    pub(crate) fn effect_ended(&mut self, place: &Place, effect: EffectId, outcome: EffectOutcome) -> Step<bool> {
        if self.current(place).is_none_or(|task| task != effect.task) {
            return Ok(false);
        }
        self.record(match outcome {
            EffectOutcome::Done { result, cost } => Record::EffectDone(Box::new(EffectDone { effect, result, cost })),
            EffectOutcome::NotPerformed(failure) => Record::EffectFailed(Box::new(EffectFailed { effect, failure })),
        })?;
        Ok(true)
    }

    /// Records the doubt about every effect of the task, or of a graph that it called, that has no certain outcome, and asks a
    /// person. True if there was one.
    pub(super) fn doubt(&mut self, task: &TaskId, why: &Doubt, env: &Env<'_>) -> Step<bool> {
        let mut tasks: Vec<TaskId> = vec![task.clone()];
        // Without graphs to call there is nothing inside, and no need to look at everybody's effects.
        let calls = self.motion(&task.path).is_some_and(|motion| !motion.shape.subgraphs.is_empty());
        tasks.extend(
            self.folded.facts.journals.keys().filter(|_| calls).filter(|known| self.folded.works_for(&known.path, task)).cloned(),
        );
        tasks.sort();
        self.doubt_all(&tasks, why, env)
    }

    pub(super) fn doubt_all(&mut self, tasks: &[TaskId], why: &Doubt, env: &Env<'_>) -> Step<bool> {
        let doubtful: Vec<EffectId> = tasks.iter().flat_map(|task| self.folded.facts.doubtful(task)).collect();
        for effect in &doubtful {
            self.doubt_one(effect, why, env)?;
        }
        Ok(!doubtful.is_empty())
    }

    pub(super) fn doubt_one(&mut self, effect: &EffectId, why: &Doubt, env: &Env<'_>) -> Step {
        let spec = QuestionSpec {
            key: Arc::clone(&effect.key),
            occurrence: effect.occurrence,
            kind: QuestionKind::Doubt(effect.clone()),
            text: format!(
                "Was the effect \"{}\" of node \"{}\" performed? It was started, but {why}.",
                effect.key, effect.task.node
            ),
            show: Some(serde_json::json!({
                "effect": &*effect.key,
                "node": effect.task.node,
                "idempotency_key": effect.idempotency_key(self.folded.facts.id()),
            })),
            schema: doubt_schema(),
            assignee: None,
            deadline_ms: None,
            reminders_ms: Vec::new(),
            on_expiry: OnExpiry::default(),
        };
        let question = spec.ask(QuestionId((env.new_id)()), effect.task.clone(), env.now);
        self.record(Record::EffectDoubted(Box::new(EffectDoubted { effect: effect.clone(), why: why.clone(), at: env.now })))?;
        self.record(Record::Asked(Arc::new(question)))
    }
}
