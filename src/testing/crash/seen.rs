//! What was seen in a course: what really happened, and what the store has acknowledged. It outlives the lives.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::CrashPoint;
use crate::id::{EffectId, QuestionId, TaskId};
use crate::log::{Question, QuestionKind, Record};
use crate::runner::{Observer, Pulse};
use crate::state::Schema;

/// Task, key and count of a question: the same one is asked once.
type Asker = (TaskId, Arc<str>, u32);

/// An effect, as often as it was performed.
#[derive(Clone, Debug)]
pub(super) struct Performed {
    pub(super) times: u32,
    pub(super) repeatable: bool,
    /// What it gave the last time.
    pub(super) result: Value,
}

#[derive(Debug, Default)]
pub(super) struct Inside {
    /// How long the course has waited for questions to expire, in milliseconds.
    pub(super) waited_ms: u64,
    /// Name and schema of the graph, once it is built.
    pub(super) graph: Option<(String, Arc<Schema>)>,
    pub(super) appends: u64,
    /// Whether anything is stored.
    pub(super) is_begun: bool,
    /// Times that an effect began to be performed.
    pub(super) begun: u64,
    /// What began and has not ended, with its number and whether it is repeatable.
    under_way: BTreeMap<EffectId, (u64, bool)>,
    /// Performed with a result.
    pub(super) performed: BTreeMap<EffectId, Performed>,
    /// Keys of effects that began, and of questions that were asked.
    pub(super) keys: BTreeSet<Arc<str>>,
    pub(super) asked: BTreeSet<Arc<str>>,
    pub(super) doubts: u64,
    /// Tasks, and effects, whose results are recorded.
    results: HashSet<TaskId>,
    /// Open questions by what asks them, and those that were answered.
    open: HashMap<QuestionId, Asker>,
    answered: HashSet<Asker>,
    recorded: HashSet<EffectId>,
    /// Promises of the engine that were broken.
    pub(super) breaches: Vec<String>,
    /// What stood where it crashed.
    pub(super) hit: Option<String>,
}

/// A course as it was seen.
#[derive(Debug)]
pub(super) struct Seen {
    point: Option<CrashPoint>,
    // A plain mutex: nothing is awaited while it is held.
    inside: Mutex<Inside>,
}

impl Seen {
    pub(super) fn new(point: Option<CrashPoint>) -> Self {
        Self { point, inside: Mutex::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an effect gave, if it was performed.
    pub(super) fn result(&self, effect: &EffectId) -> Option<Value> {
        self.lock().performed.get(effect).map(|performed| performed.result.clone())
    }
}

impl Inside {
    fn breach(&mut self, what: String) {
        if !self.breaches.contains(&what) {
            self.breaches.push(what);
        }
    }

    fn asks(&mut self, question: &Question) {
        self.asked.insert(Arc::clone(&question.key));
        let asker = (question.task.clone(), Arc::clone(&question.key), question.occurrence);
        if self.answered.contains(&asker) {
            self.breach(format!(
                "question \"{}\" of task {} was asked again, although its answer was recorded",
                asker.1, asker.0
            ));
        }
        self.open.insert(question.id, asker);
    }

    /// An append is acknowledged.
    pub(super) fn stored(&mut self, records: &[Record]) {
        self.is_begun = true;
        for record in records {
            match record {
                Record::TaskDone(done) => _ = self.results.insert(done.task.clone()),
                Record::EffectDone(done) => _ = self.recorded.insert(done.effect.clone()),
                Record::Asked(question) => match &question.kind {
                    QuestionKind::Doubt(effect) if self.recorded.contains(effect) => {
                        let name = name(effect);
                        self.breach(format!(
                            "it is asked whether {name} was performed, although its result was recorded; can it be read back as it was written?"
                        ));
                    }
                    QuestionKind::Doubt(_) => self.doubts += 1,
                    _ => self.asks(question),
                },
                Record::Answered(answered) => self.answered.extend(self.open.remove(&answered.question)),
                _ => {}
            }
        }
    }
}

/// How an effect is called in a fault.
pub(super) fn name(effect: &EffectId) -> String {
    let again = if effect.occurrence > 0 { format!(", use {}", effect.occurrence + 1) } else { String::new() };
    format!("effect \"{}\"{again} of task {}", effect.key, effect.task)
}

/// One life of a course: what it does is seen, and may be its last.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) seen: Arc<Seen>,
    pub(super) pulse: Arc<Pulse>,
}

impl Life {
    /// Dies if this is the moment. True: it is dead.
    pub(super) fn reaches(&self, point: CrashPoint, what: impl FnOnce() -> String) -> bool {
        if self.seen.point == Some(point) && !self.pulse.is_dead() {
            let mut inside = self.seen.lock();
            inside.hit = Some(what());
            if inside.under_way.is_empty() {
                self.pulse.rest();
            }
            drop(inside);
            self.pulse.stop();
        }
        self.pulse.is_dead()
    }
}

impl Observer for Life {
    fn task_begins(&self, task: &TaskId) {
        let mut inside = self.seen.lock();
        if !self.pulse.is_dead() && inside.results.contains(task) {
            inside.breach(format!("task {task} began again, although its result was recorded"));
        }
    }

    fn effect_begins(&self, effect: &EffectId, _: &str, repeatable: bool) -> bool {
        if self.pulse.is_dead() {
            return false;
        }
        let mut inside = self.seen.lock();
        inside.keys.insert(Arc::clone(&effect.key));
        inside.begun += 1;
        let number = inside.begun;
        if inside.recorded.contains(effect) {
            inside.breach(format!("{} was performed again, although its result was recorded", name(effect)));
        }
        drop(inside);
        let goes_on = !self.reaches(CrashPoint::BeforeEffect(number), || name(effect));
        if goes_on {
            self.seen.lock().under_way.insert(effect.clone(), (number, repeatable));
        }
        goes_on
    }

    fn effect_ended(&self, effect: &EffectId, result: Option<&Value>) -> bool {
        let mut inside = self.seen.lock();
        let Some((number, repeatable)) = inside.under_way.remove(effect) else { return !self.pulse.is_dead() };
        if let Some(result) = result {
            let performed = inside.performed.entry(effect.clone());
            let performed = performed.or_insert(Performed { times: 0, repeatable, result: Value::Null });
            (performed.times, performed.result) = (performed.times + 1, result.clone());
        }
        let is_last = inside.under_way.is_empty();
        drop(inside);
        let is_dead = self.reaches(CrashPoint::AfterEffect(number), || name(effect));
        if is_dead && is_last {
            self.pulse.rest();
        }
        !is_dead
    }
}
