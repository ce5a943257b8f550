//! The ten laws of the design, each as a function from what was observed to the first breach of it.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, HashMap, HashSet};

use ferrata::QuestionKind;
use ferrata::log::{Doubt, Record, RunOutcome, Trigger};
use serde_json::Value;

/// Something that happened, and how many records were stored then.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Moment {
    pub(crate) what: String,
    pub(crate) stored: usize,
}

/// What a caller or a watcher heard.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    Result(String),
    Question(String),
    Outcome(&'static str),
    Failed,
}

/// A world as it was seen from outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// The appends that took place, in order.
    pub(crate) appends: Vec<Vec<Record>>,
    /// So many records were read word by word already.
    pub(crate) read: usize,
    /// Bodies of nodes that began: task and attempt.
    pub(crate) began: Vec<Moment>,
    /// Effects that were really performed, by their identity.
    pub(crate) performed: Vec<Moment>,
    /// Wrong answers that were given, with the question.
    pub(crate) wrong_answers: Vec<Value>,
    /// What was told, and how many records were stored then.
    pub(crate) told: Vec<(Told, usize)>,
    /// A live state, and the same one as a new program folds it.
    pub(crate) states: Vec<(Value, Value)>,
    /// What `Runner::verify` complained of.
    pub(crate) faults: Vec<String>,
    /// How the same graph ended with other timings and failures.
    pub(crate) ends: Vec<Value>,
    /// The most tasks that were at work at once.
    pub(crate) at_work_max: usize,
    pub(crate) tasks_max: usize,
    pub(crate) attempts_max: u32,
    pub(crate) steps_max: u64,
}

impl Observed {
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.appends.iter().flatten()
    }

    fn position_of(&self, found: impl Fn(&Record) -> bool) -> Option<usize> {
        self.records().position(found)
    }
}

pub(crate) type Law = (&'static str, fn(&Observed) -> Result<(), String>);

pub(crate) const LAWS: [Law; 10] = [
    ("law_1_finished_work_is_never_done_twice", law_1_finished_work_is_never_done_twice),
    ("law_2_nothing_is_announced_before_it_is_durable", law_2_nothing_is_announced_before_it_is_durable),
    ("law_3_one_append_is_one_truth", law_3_one_append_is_one_truth),
    ("law_4_state_is_a_fold_of_the_log", law_4_state_is_a_fold_of_the_log),
    ("law_5_cost_follows_the_change", law_5_cost_follows_the_change),
    ("law_6_order_never_depends_on_timing", law_6_order_never_depends_on_timing),
    ("law_7_wrong_data_never_succeeds", law_7_wrong_data_never_succeeds),
    ("law_8_a_pause_is_a_result", law_8_a_pause_is_a_result),
    ("law_9_everything_has_a_bound", law_9_everything_has_a_bound),
    ("law_10_the_log_explains_itself", law_10_the_log_explains_itself),
];

/// No body of a task whose result was stored begins again, no effect is performed twice or after its result was stored, no answered question is asked again.
pub(crate) fn law_1_finished_work_is_never_done_twice(seen: &Observed) -> Result<(), String> {
    let mut done: HashMap<String, usize> = HashMap::new();
    let mut answered: HashSet<(String, String, u32)> = HashSet::new();
    let mut asked = HashMap::new();
    for (at, record) in seen.records().enumerate() {
        match record {
            Record::TaskDone(result) if done.insert(result.task.to_string(), at).is_some() => {
                return Err(format!("{} has two results", result.task));
            }
            Record::EffectDone(result) => _ = done.insert(format!("{} {}", result.effect.task, result.effect.key), at),
            Record::Asked(question) if question.kind == QuestionKind::Free => {
                let key = (question.task.to_string(), question.key.to_string(), question.occurrence);
                if answered.contains(&key) {
                    return Err(format!("{key:?} is asked again"));
                }
                asked.insert(question.id, key);
            }
            Record::Answered(answer) => answered.extend(asked.get(&answer.question).cloned()),
            _ => {}
        }
    }
    for Moment { what, stored } in seen.began.iter().chain(&seen.performed) {
        if done.get(what).is_some_and(|at| at < stored) {
            return Err(format!("{what} is done again after its result was stored"));
        }
    }
    let mut performed = HashSet::new();
    match seen.performed.iter().find(|effect| !performed.insert(&effect.what)) {
        Some(effect) => Err(format!("{} was performed twice", effect.what)),
        None => Ok(()),
    }
}

/// Whatever was told was stored by then: the result of a task, a question, how a run ended.
pub(crate) fn law_2_nothing_is_announced_before_it_is_durable(seen: &Observed) -> Result<(), String> {
    for (told, stored) in &seen.told {
        let stands = match told {
            Told::Result(task) => {
                seen.position_of(|record| matches!(record, Record::TaskDone(done) if done.task.to_string() == *task))
            }
            Told::Question(id) => {
                seen.position_of(|record| matches!(record, Record::Asked(question) if question.id.to_string() == *id))
            }
            Told::Outcome(_) => seen.records().take(*stored).position(|record| matches!(record, Record::RunEnded(_))),
            // A failure may be that of the store.
            Told::Failed => continue,
        };
        if stands.is_none_or(|at| at >= *stored) {
            return Err(format!("{told:?} was told with {stored} records stored"));
        }
    }
    Ok(())
}

/// What belongs together is appended together: a thread's beginning, a doubt and its question. A result and the step that it completes: a step is
/// never behind a further append of its own graph's results.
pub(crate) fn law_3_one_append_is_one_truth(seen: &Observed) -> Result<(), String> {
    for append in &seen.appends {
        let has = |is: fn(&Record) -> bool| append.iter().any(is);
        if has(|r| matches!(r, Record::Opened(_))) && !has(|r| matches!(r, Record::Input(_))) {
            return Err("a thread was opened without its input".to_owned());
        }
        if has(|r| matches!(r, Record::EffectDoubted(_))) && !has(|r| matches!(r, Record::Asked(_))) {
            return Err("an effect was doubted, and nobody is asked".to_owned());
        }
        if has(|r| matches!(r, Record::Answered(_))) && !has(|r| matches!(r, Record::RunStarted(_))) {
            return Err("an answer was stored without the run that it continues".to_owned());
        }
        if append.is_empty() {
            return Err("an append is empty".to_owned());
        }
    }
    // A step that was merged stands in the append of the last result that it waited for, or in one that begins a run.
    let results =
        |append: &[Record]| append.iter().any(|r| matches!(r, Record::TaskDone(_) | Record::RunStarted(_) | Record::Input(_)));
    let merges = |append: &[Record]| append.iter().any(|r| matches!(r, Record::Stepped(stepped) if !stepped.merged.is_empty()));
    match seen.appends.iter().find(|append| merges(append) && !results(append)) {
        Some(append) => Err(format!("a step stands without what it merges: {append:?}")),
        None => Ok(()),
    }
}

/// What a program saw live is what another one folds; and `Runner::verify` finds every snapshot to be the fold of its records.
pub(crate) fn law_4_state_is_a_fold_of_the_log(seen: &Observed) -> Result<(), String> {
    if let Some(fault) = seen.faults.first() {
        return Err(fault.clone());
    }
    match seen.states.iter().find(|(live, folded)| live != folded) {
        Some((live, folded)) => Err(format!("live {live}, folded {folded}")),
        None => Ok(()),
    }
}

/// The bytes of a merged step follow what it merges, not what the state has grown to.
pub(crate) fn law_5_cost_follows_the_change(seen: &Observed) -> Result<(), String> {
    for record in seen.records().skip(seen.read) {
        if let Record::Stepped(stepped) = record {
            let bytes = serde_json::to_string(record).map_err(|e| e.to_string())?.len();
            let parts = stepped.merged.len() + stepped.due.len() + stepped.arrivals.len() + 2 * stepped.resolved.len();
            if bytes > 400 + 200 * parts {
                return Err(format!("a step of {parts} parts takes {bytes} bytes"));
            }
        }
    }
    Ok(())
}

/// Every way to the end gives the same bytes.
pub(crate) fn law_6_order_never_depends_on_timing(seen: &Observed) -> Result<(), String> {
    match seen.ends.iter().find(|end| **end != seen.ends[0]) {
        Some(end) => Err(format!("one end is {}, another {end}", seen.ends[0])),
        None => Ok(()),
    }
}

/// No answer that was refused is in the log, and every task that is merged has a result there.
pub(crate) fn law_7_wrong_data_never_succeeds(seen: &Observed) -> Result<(), String> {
    let mut results = HashSet::new();
    for record in seen.records() {
        match record {
            Record::Answered(answer) if seen.wrong_answers.contains(&answer.value) => {
                return Err(format!("a wrong answer was accepted: {}", answer.value));
            }
            Record::TaskDone(done) => _ = results.insert((done.task.path.clone(), done.task.step, done.task.node.clone())),
            Record::Stepped(stepped) => {
                let lacks = stepped
                    .merged
                    .iter()
                    .find(|task| !results.contains(&(stepped.path.clone(), stepped.step, task.node.clone())));
                if let Some(task) = lacks {
                    return Err(format!("{} was merged without a result", task.node));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A run that ended waiting, suspended or done was told as such, and not as an error.
pub(crate) fn law_8_a_pause_is_a_result(seen: &Observed) -> Result<(), String> {
    for (told, stored) in &seen.told {
        let last = seen.records().take(*stored).filter_map(|record| match record {
            Record::RunEnded(ended) => Some(&ended.outcome),
            _ => None,
        });
        let expected = match last.last() {
            Some(RunOutcome::Done) => "done",
            Some(RunOutcome::Waiting) => "waiting",
            Some(RunOutcome::Suspended) => "suspended",
            _ => continue,
        };
        if let Told::Outcome(outcome) = told
            && *outcome != expected
        {
            return Err(format!("a run that ended {expected} was told as {outcome}"));
        }
    }
    Ok(())
}

/// Steps, attempts and tasks at once keep to their limits.
pub(crate) fn law_9_everything_has_a_bound(seen: &Observed) -> Result<(), String> {
    if seen.at_work_max > seen.tasks_max {
        return Err(format!("{} tasks were at work at once, {} may be", seen.at_work_max, seen.tasks_max));
    }
    let mut steps = 0;
    for record in seen.records() {
        match record {
            Record::RunStarted(_) => steps = 0,
            Record::Stepped(stepped) if stepped.path.is_root() => steps += u64::from(!stepped.merged.is_empty()),
            // After a failure for good they begin anew, once.
            Record::AttemptFailed(failed) if failed.attempt > 2 * seen.attempts_max => {
                return Err(format!("{} was tried {} times", failed.task, failed.attempt));
            }
            _ => {}
        }
        if steps > seen.steps_max {
            return Err(format!("a run made {steps} steps, {} are allowed", seen.steps_max));
        }
    }
    Ok(())
}

/// The log says who did what: runs have beginnings and reasons, answers have authors, doubts a cause, and all of it reads back from JSON.
pub(crate) fn law_10_the_log_explains_itself(seen: &Observed) -> Result<(), String> {
    let mut runs = BTreeMap::new();
    for (at, record) in seen.records().enumerate() {
        if at >= seen.read {
            let json = serde_json::to_value(record).map_err(|e| e.to_string())?;
            if serde_json::from_value::<Record>(json.clone()).ok().as_ref() != Some(record) {
                return Err(format!("this does not read back: {json}"));
            }
        }
        match record {
            Record::RunStarted(started) => _ = runs.insert(started.run, started.trigger),
            Record::RunEnded(ended) if !runs.contains_key(&ended.run) => return Err("a run ended that never began".to_owned()),
            Record::Answered(answer) if answer.by.is_none() => return Err("nobody gave an answer".to_owned()),
            Record::EffectDoubted(doubted) if matches!(&doubted.why, Doubt::Failed(f) if f.message.is_empty()) => {
                return Err("a doubt does not say why".to_owned());
            }
            _ => {}
        }
    }
    let first = runs.values().next();
    if first.is_some_and(|trigger| *trigger != Trigger::Input) && runs.len() == 1 {
        return Err("the first run did not begin with an input".to_owned());
    }
    Ok(())
}
