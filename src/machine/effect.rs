//! The effect journal: what was started, what came of it, and what is in doubt.

use std::sync::Arc;

use serde_json::Value;

use super::{Env, Machine, Place, Step};
use crate::error::Failure;
use crate::graph::doubt_schema;
use crate::id::{EffectId, TaskId};
use crate::log::{
    Cost, Doubt, EffectDone, EffectDoubted, EffectFailed, EffectStarted, EffectTerms, InDoubt, Marked, OnExpiry, QuestionKind,
    QuestionSpec, Record,
};

/// What a task wants recorded before it goes on.
#[derive(Debug)]
pub(crate) enum Note {
    /// An effect that must not happen twice is about to be performed.
    Starts {
        effect: EffectId,
        attempt: u32,
        terms: EffectTerms,
    },
    Done {
        effect: EffectId,
        result: Value,
        cost: Cost,
        terms: Option<EffectTerms>,
        found: bool,
    },
    NotPerformed {
        effect: EffectId,
        failure: Failure,
    },
    /// How far the node has come.
    Mark {
        key: Arc<str>,
        value: Value,
    },
}

impl Machine {
    /// Records what a task says while it runs. False: the attempt is over, and its late word does not count.
    pub(crate) fn note(&mut self, place: &Place, note: Note, env: &Env<'_>) -> Step<bool> {
        let Some(task) = self.current(place) else { return Ok(false) };
        let is_own = |effect: &EffectId| effect.task == task;
        let record = match note {
            Note::Starts { effect, attempt, terms } if is_own(&effect) => {
                Record::EffectStarted(Box::new(EffectStarted { effect, attempt, terms, at: env.now }))
            }
            Note::Done { effect, result, cost, terms, found } if is_own(&effect) => {
                Record::EffectDone(Box::new(EffectDone { effect, result, cost, terms, found }))
            }
            Note::NotPerformed { effect, failure } if is_own(&effect) => {
                Record::EffectFailed(Box::new(EffectFailed { effect, failure }))
            }
            Note::Mark { key, value } => Record::Marked(Box::new(Marked { task, key, value, at: env.now })),
            Note::Starts { .. } | Note::Done { .. } | Note::NotPerformed { .. } => return Ok(false),
        };
        self.record(record)?;
        Ok(true)
    }

    /// Records the doubt about every effect of the task, or of a graph that it called, that has no certain outcome, and asks a
    /// person. `again`: the node will run again, and asks nobody about what it can find out itself. True if a person was asked.
    pub(super) fn doubt(&mut self, task: &TaskId, why: &Doubt, again: bool, env: &Env<'_>) -> Step<bool> {
        let mut tasks: Vec<TaskId> = vec![task.clone()];
        // Without graphs to call there is nothing inside, and no need to look at everybody's effects.
        let calls = self.motion(&task.path).is_some_and(|motion| !motion.shape.subgraphs.is_empty());
        tasks.extend(
            self.folded.facts.journals.keys().filter(|_| calls).filter(|known| self.folded.works_for(&known.path, task)).cloned(),
        );
        tasks.sort();
        self.doubt_all(&tasks, why, again, env)
    }

    pub(super) fn doubt_all(&mut self, tasks: &[TaskId], why: &Doubt, again: bool, env: &Env<'_>) -> Step<bool> {
        let doubtful = tasks.iter().flat_map(|task| self.folded.facts.doubtful(task)).collect();
        self.doubt_each(doubtful, why, again, env)
    }

    pub(super) fn doubt_each(
        &mut self,
        doubtful: Vec<(EffectId, InDoubt)>,
        why: &Doubt,
        again: bool,
        env: &Env<'_>,
    ) -> Step<bool> {
        let mut asked = false;
        for (effect, in_doubt) in doubtful {
            if again && in_doubt == InDoubt::Check {
                let doubted = EffectDoubted { effect, why: why.clone(), at: env.now };
                self.record(Record::EffectDoubted(Box::new(doubted)))?;
            } else {
                self.doubt_one(&effect, why, env)?;
                asked = true;
            }
        }
        Ok(asked)
    }

    pub(super) fn doubt_one(&mut self, effect: &EffectId, why: &Doubt, env: &Env<'_>) -> Step {
        let journal = self.folded.facts.journals.get(&effect.task);
        let known = journal.and_then(|journal| journal.effect(&effect.key, effect.occurrence));
        let under = known.and_then(|known| known.under);
        let mut show = serde_json::json!({
            "effect": &*effect.key,
            "node": effect.task.node,
            "idempotency_key": effect.idempotency_key(under.unwrap_or(self.folded.facts.id())),
        });
        if let Some(arguments) = known.and_then(|known| known.terms.arguments.as_ref()) {
            show["arguments"] = arguments.shown.as_str().into();
        }
        let spec = QuestionSpec {
            key: Arc::clone(&effect.key),
            occurrence: effect.occurrence,
            kind: QuestionKind::Doubt(effect.clone()),
            text: format!(
                "Was the effect \"{}\" of node \"{}\" performed? It was started, but {why}.",
                effect.key, effect.task.node
            ),
            show: Some(show),
            schema: doubt_schema(),
            assignee: None,
            deadline_ms: None,
            until: None,
            reminders_ms: Vec::new(),
            on_expiry: OnExpiry::default(),
        };
        self.record(Record::EffectDoubted(Box::new(EffectDoubted { effect: effect.clone(), why: why.clone(), at: env.now })))?;
        self.ask(spec, &effect.task, env).map(|_| ())
    }
}
