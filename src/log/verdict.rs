//! What people say of results that break a rule, and of nodes that go in circles.

use serde_json::Value;

use super::fold::{FoldError, Folded};
use super::question::{Question, QuestionKind};
use super::record::Answered;
use super::scope::Task;
use crate::error::Failure;
use crate::id::{NodeName, TaskId};

impl Folded {
    pub(super) fn take_answer(&mut self, answered: &Answered) -> Result<(), FoldError> {
        let closed = self.facts.answer(answered.question, &answered.value)?;
        let shown = closed.show.as_ref().and_then(|show| show["fingerprint"].as_str()).map(str::to_owned);
        match &closed.kind {
            // Of a graph whose steps are not stored: it counts when the task comes to that again.
            QuestionKind::Guard(_) if self.find(&closed.task).is_none() && answered.value["verdict"] == "reject" => {
                self.facts.journal(&closed.task).refusal = Some(answered.value.clone());
                Ok(())
            }
            QuestionKind::Violation | QuestionKind::Guard(_) | QuestionKind::Stall if self.find(&closed.task).is_none() => {
                self.facts.journal(&closed.task).verdicts.push((answered.value.clone(), shown));
                Ok(())
            }
            QuestionKind::Violation => self.judge(&closed.task, &answered.value, shown),
            QuestionKind::Guard(nodes) => self.let_go_on(&closed.task, nodes, &answered.value),
            QuestionKind::Stall => self.try_again(&closed.task, &answered.value),
            QuestionKind::Approval
            | QuestionKind::Free
            | QuestionKind::Doubt(_)
            | QuestionKind::Signal(_)
            | QuestionKind::Time
            | QuestionKind::Condition => Ok(()),
        }
    }

    /// What a person said of the result that a task has now, when it came to that in an earlier run whose steps were not stored.
    pub(crate) fn verdict(&self, task: &TaskId) -> Option<(Value, Option<String>)> {
        let (scope, index) = self.find(task)?;
        let judged = usize::try_from(scope.facts.tasks[index].judged).ok()?;
        self.facts.journals.get(task)?.verdicts.get(judged).cloned()
    }

    /// By which word a person does not let a task go on, from an earlier run whose steps were not stored.
    pub(crate) fn refusal(&self, task: &TaskId) -> Option<Value> {
        self.facts.journals.get(task)?.refusal.clone()
    }

    /// Graphs that a task called, and whose steps are not stored, have failed: what was refused there is asked anew.
    pub(super) fn forget_refusals(&mut self, caller: &TaskId) {
        let journals = self.facts.journals.iter_mut().filter(|(task, _)| task.path.is_inside(caller));
        journals.for_each(|(_, journal)| journal.refusal = None);
    }

    /// Whether a task cannot go on before a question is answered: the task that asked, and those of nodes that its guard stops before they begin.
    pub(crate) fn stops(&self, question: &Question, task: &TaskId) -> bool {
        let begins = || self.find(task).is_none_or(|(scope, index)| scope.facts.tasks[index].is_at_its_beginning());
        let is_guarded = |nodes: &[NodeName]| question.task.path == task.path && nodes.contains(&task.node) && begins();
        question.task == *task || matches!(&question.kind, QuestionKind::Guard(nodes) if is_guarded(nodes))
    }

    /// What a person says of a task that goes in circles, together with these nodes.
    pub(crate) fn let_go_on(&mut self, task: &TaskId, nodes: &[NodeName], verdict: &Value) -> Result<(), FoldError> {
        self.task_mut(task, "answered")?.judged += 1;
        let Some(scope) = self.scope_mut(&task.path) else { return Ok(()) };
        let said = |key: &str| verdict[key].as_str().unwrap_or_default().to_owned();
        // It is said of all of them that are about to begin.
        let about_to = |task: &&mut Task| nodes.contains(&task.due.node) && task.is_at_its_beginning();
        let tasks = scope.facts.tasks.iter_mut().filter(about_to);
        match verdict["verdict"].as_str() {
            Some("reject") => tasks.for_each(|task| task.refused = Some(said("reason"))),
            Some("edit") => tasks.for_each(|task| task.feedback.push(Failure::said(said("value")))),
            _ => {}
        }
        if verdict["verdict"] != "reject" {
            scope.begin_anew(nodes);
        }
        Ok(())
    }

    /// What a person says of a task that hung.
    pub(crate) fn try_again(&mut self, task: &TaskId, verdict: &Value) -> Result<(), FoldError> {
        let task = self.task_mut(task, "answered")?;
        task.judged += 1;
        // It has all its attempts again, and the time that the person took is not the task's.
        (task.again, task.spent, task.rounds, task.stalls) = (None, task.attempts, 0, 0);
        let said = |key: &str| verdict[key].as_str().unwrap_or_default().to_owned();
        match verdict["verdict"].as_str() {
            Some("reject") => task.refused = Some(said("reason")),
            Some("edit") => task.feedback.push(Failure::said(said("value"))),
            _ => {}
        }
        Ok(())
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
