//! What the messages of a conversation are to a context.

use ferrata::state::{Message, Role};

use super::pairs::{Unit, is_blank, units};
use crate::pinned::is_pinned;
use crate::summary::{holds_summary, task_of};

/// The places of a conversation's messages, by what they are.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// System messages, which go to the front.
    pub(super) system: Vec<usize>,
    /// The running summary.
    pub(super) summary: Option<usize>,
    /// The first user message, and rather one that is not pinned.
    pub(super) task: Option<usize>,
    /// The last one, if it is another.
    pub(super) last_user: Option<usize>,
    /// What else is pinned.
    pub(super) pinned: Vec<usize>,
    /// All others, calls with their results.
    pub(super) units: Vec<Unit>,
    /// What no request can have: results without a call, messages without a text, summaries that are not the last one.
    pub(super) unfit: Vec<usize>,
}

impl Parts {
    pub(super) fn of(messages: &[Message]) -> Self {
        let mut parts = Self::default();
        let mut rest = Vec::with_capacity(messages.len());
        let mut users = Vec::new();
        for (at, message) in messages.iter().enumerate() {
            if is_blank(message) {
                parts.unfit.push(at);
            } else if holds_summary(message) {
                parts.unfit.extend(parts.summary.replace(at));
            } else if message.role == Role::System {
                parts.system.push(at);
            } else if message.role == Role::User {
                users.push(at);
                rest.push(at);
            } else if is_pinned(message) {
                parts.pinned.push(at);
            } else {
                rest.push(at);
            }
        }
        parts.task = task_of(messages);
        parts.last_user = users.last().copied().filter(|at| Some(*at) != parts.task);
        let (task, last_user) = (parts.task, parts.last_user);
        let is_fixed = |at: usize| Some(at) == task || Some(at) == last_user;
        parts.pinned.extend(users.iter().filter(|&&at| is_pinned(&messages[at]) && !is_fixed(at)));
        let free = |at: &usize| !is_fixed(*at) && (messages[*at].role != Role::User || !is_pinned(&messages[*at]));
        let (units, stray) = units(messages, rest.into_iter().filter(free));
        parts.units = units;
        parts.unfit.extend(stray);
        parts
    }

    /// The messages beside system ones that stay word for word.
    pub(super) fn verbatim(&self) -> impl Iterator<Item = usize> {
        self.task.into_iter().chain(self.last_user).chain(self.pinned.iter().copied())
    }

    /// Takes out the unit that came last, if nothing was said by the user since.
    pub(super) fn take_newest(&mut self) -> Option<Unit> {
        let said = self.last_user.max(self.task);
        self.units.pop_if(|unit| said.is_none_or(|said| unit.last > said))
    }
}
