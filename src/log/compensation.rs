//! What of the thread's effects can be compensated, and how far that has come.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::effect::Compensating;
use super::fold::Folded;
use super::journal::{EffectStatus, JournalEffect};
use super::record::Fault;
use super::terms::Compensation;
use crate::id::{EffectId, Path};

/// An effect that can be compensated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Compensable {
    pub(crate) effect: EffectId,
    pub(crate) compensation: Compensation,
    /// What it gave; nothing if it is not known whether it was performed.
    pub(crate) result: Option<Value>,
    /// The id of the thread that it was started in, if this one is a copy of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) under: Option<Uuid>,
}

impl Compensable {
    /// `None` if the effect does not say how.
    pub(super) fn of(effect: &EffectId, known: &JournalEffect) -> Option<Self> {
        let compensation = known.terms.compensation.clone()?;
        let result = match &known.status {
            EffectStatus::Done(result) => Some(result.clone()),
            EffectStatus::Started => None,
        };
        Some(Self { effect: effect.clone(), compensation, result, under: known.under })
    }
}

/// A thread whose effects are being compensated, or were.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rollback {
    /// What is still to be compensated, in this order.
    pub(crate) todo: Vec<Compensable>,
    pub(crate) done: Vec<EffectId>,
    /// What the thread failed of, if that is why.
    pub(crate) why: Option<Fault>,
}

impl Folded {
    /// The effects that can be compensated, oldest first: those that were performed, and then those of which that is not known.
    pub(crate) fn compensable(&self) -> Vec<Compensable> {
        let in_doubt = self.facts.journals.iter().flat_map(|(task, journal)| {
            let started = journal.effects.iter().filter(|effect| effect.status == EffectStatus::Started);
            started.filter_map(|known| Compensable::of(&known.id(task), known))
        });
        let mut in_doubt: Vec<_> = in_doubt.collect();
        in_doubt.sort_by(|a, b| a.effect.cmp(&b.effect));
        self.facts.compensable.iter().cloned().chain(in_doubt).collect()
    }

    /// Everything that was due is given up, and these effects are compensated in its place.
    pub(super) fn roll_back(&mut self, compensating: &Compensating) {
        let known = self.compensable();
        let find = |effect: &EffectId| known.iter().find(|known| known.effect == *effect).cloned();
        let todo = compensating.effects.iter().filter_map(find).collect();
        let before = self.facts.rollback.take();
        self.drop_all(&Path::ROOT);
        self.facts.compensable.clear();
        let (done, earlier) = before.map_or_else(Default::default, |before| (before.done, before.why));
        self.facts.rollback = Some(Rollback { todo, done, why: compensating.why.clone().or(earlier) });
    }

    /// So many of the effects were compensated by steps of the outermost graph.
    pub(super) fn rolled_back(&mut self, steps: u64) {
        if let Some(rollback) = &mut self.facts.rollback {
            let count = usize::try_from(steps).unwrap_or(usize::MAX).min(rollback.todo.len());
            rollback.done.extend(rollback.todo.drain(..count).map(|done| done.effect));
        }
    }
}
