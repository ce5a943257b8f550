//! What a node that runs again must not do again: effects, answers, and how far it had come.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::terms::EffectTerms;
use crate::id::{EffectId, TaskId};

/// How an effect of an open task stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EffectStatus {
    /// Started, without a certain outcome.
    Started,
    /// Performed, with this result.
    Done(Value),
}

/// An effect of an open task.
// Older snapshots hold a list of the first three, which reads as one of these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JournalEffect {
    pub(crate) key: Arc<str>,
    pub(crate) occurrence: u32,
    pub(crate) status: EffectStatus,
    #[serde(default, skip_serializing_if = "EffectTerms::is_plain")]
    pub(crate) terms: EffectTerms,
    /// The id of the thread that it was started in, if this one is a copy of it: its idempotency key is made from that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) under: Option<Uuid>,
}

impl JournalEffect {
    pub(crate) fn id(&self, task: &TaskId) -> EffectId {
        EffectId { task: task.clone(), key: self.key.clone(), occurrence: self.occurrence }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(crate) effects: Vec<JournalEffect>,
    pub(crate) answers: Vec<(Arc<str>, u32, Value)>,
    /// Questions that expired, and that the node goes on without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) expired: Vec<(Arc<str>, u32)>,
    /// How far the node had come, by its own words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) marks: Vec<(Arc<str>, Value)>,
    /// What people said of results of a task that is on no record itself, and the fingerprints of these results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) verdicts: Vec<(Value, Option<String>)>,
    /// The word by which a person does not let such a task go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<Value>,
}

impl Journal {
    pub(crate) fn effect(&self, key: &str, occurrence: u32) -> Option<&JournalEffect> {
        self.effects.iter().find(|effect| &*effect.key == key && effect.occurrence == occurrence)
    }

    pub(crate) fn answer(&self, key: &str, occurrence: u32) -> Option<&Value> {
        self.answers.iter().find(|(k, n, _)| &**k == key && *n == occurrence).map(|(_, _, value)| value)
    }

    pub(crate) fn is_expired(&self, key: &str, occurrence: u32) -> bool {
        self.expired.iter().any(|(k, n)| &**k == key && *n == occurrence)
    }

    pub(crate) fn mark(&self, key: &str) -> Option<&Value> {
        self.marks.iter().find(|(k, _)| &**k == key).map(|(_, value)| value)
    }

    pub(super) fn set_mark(&mut self, key: &Arc<str>, value: &Value) {
        match self.marks.iter_mut().find(|(k, _)| k == key) {
            Some((_, known)) => known.clone_from(value),
            None => self.marks.push((key.clone(), value.clone())),
        }
    }

    /// How an effect stands from now on. What it was started with stays known.
    pub(super) fn set_effect(&mut self, key: &Arc<str>, occurrence: u32, status: EffectStatus) -> &mut JournalEffect {
        let known = self.effects.iter().position(|effect| effect.key == *key && effect.occurrence == occurrence);
        let index = known.unwrap_or_else(|| {
            let terms = EffectTerms::default();
            self.effects.push(JournalEffect { key: key.clone(), occurrence, status: EffectStatus::Started, terms, under: None });
            self.effects.len() - 1
        });
        self.effects[index].status = status;
        &mut self.effects[index]
    }

    pub(super) fn drop_effect(&mut self, key: &Arc<str>, occurrence: u32) {
        self.effects.retain(|effect| effect.key != *key || effect.occurrence != occurrence);
    }
}

/// Maps whose keys are no texts are stored as lists of pairs.
pub(super) mod list {
    use std::collections::HashMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::Journal;
    use crate::id::TaskId;

    pub(crate) fn serialize<S: Serializer>(map: &HashMap<TaskId, Journal>, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pairs: Vec<_> = map.iter().collect();
        pairs.sort_by(|a, b| a.0.cmp(b.0));
        serializer.collect_seq(pairs)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HashMap<TaskId, Journal>, D::Error> {
        Ok(Vec::<(TaskId, Journal)>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_of_an_older_snapshot_reads_as_one_without_terms() {
        let old = serde_json::json!({"effects": [["pay", 1, {"done": 7}], ["mail", 0, "started"]], "answers": []});
        let effect = |key: &str, occurrence, status| JournalEffect {
            key: key.into(),
            occurrence,
            status,
            terms: EffectTerms::default(),
            under: None,
        };
        let effects = vec![effect("pay", 1, EffectStatus::Done(7.into())), effect("mail", 0, EffectStatus::Started)];
        let journal = Journal { effects, ..Journal::default() };
        assert_eq!(serde_json::from_value::<Journal>(old.clone()).expect("it is read"), journal);
        let packed = rmp_serde::to_vec_named(&old).expect("it is packed");
        assert_eq!(rmp_serde::from_slice::<Journal>(&packed).expect("it is read"), journal);
    }
}
