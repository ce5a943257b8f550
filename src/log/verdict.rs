//! What people say of results that break a rule.

use serde_json::Value;

use super::fold::{FoldError, Folded};
use super::question::QuestionKind;
use super::record::Answered;
use crate::error::Failure;
use crate::id::TaskId;

impl Folded {
    pub(super) fn take_answer(&mut self, answered: &Answered) -> Result<(), FoldError> {
        let closed = self.facts.answer(answered.question, &answered.value)?;
        if closed.kind == QuestionKind::Violation {
            let shown = closed.show.as_ref().and_then(|show| show["fingerprint"].as_str()).map(str::to_owned);
            if self.find(&closed.task).is_some() {
                self.judge(&closed.task, &answered.value, shown)?;
            } else {
                // Of a graph whose steps are not stored: it counts when the task comes to that again.
                self.facts.journal(&closed.task).verdicts.push((answered.value.clone(), shown));
            }
        }
        Ok(())
    }

    /// What a person said of the result that a task has now, when it came to that in an earlier run whose steps were not stored.
    pub(crate) fn verdict(&self, task: &TaskId) -> Option<(Value, Option<String>)> {
        let (scope, index) = self.find(task)?;
        let judged = usize::try_from(scope.facts.tasks[index].judged).ok()?;
        self.facts.journals.get(task)?.verdicts.get(judged).cloned()
    }

    /// What a person says of a result that breaks a rule. `shown`: the fingerprint of that result.
    pub(crate) fn judge(&mut self, task: &TaskId, verdict: &Value, shown: Option<String>) -> Result<(), FoldError> {
        let task = self.task_mut(task, "answered")?;
        task.judged += 1;
        // The time that a person took is not the task's.
        (task.again, task.spent, task.rounds) = (None, task.attempts, 0);
        if verdict["verdict"] == "approve" {
            // It runs once more as it did, and finds what it did.
            task.taken = shown;
            task.feedback.pop();
        } else {
            let said = verdict["reason"].as_str().unwrap_or_default().to_owned();
            task.feedback.push(Failure::said(said));
        }
        Ok(())
    }
}
