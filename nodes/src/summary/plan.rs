//! Which messages stay word for word and which are folded. No model is asked here.

use std::collections::HashSet;

use ferrata::state::{Message, Role};

use super::{holds_summary, task_of};
use crate::pinned::is_pinned;

/// Sizes in tokens, all of them with the frames of messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// What the result may have.
    pub(super) budget: usize,
    /// What the result should have, so that not every message after it folds again.
    pub(super) target: usize,
    /// What the summary message may have.
    pub(super) summary: usize,
    /// What must be left beside the fixed part and the summary.
    pub(super) headroom: usize,
}

/// Where each message goes, as places in the list, in the order of the list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Stands before the summary: system messages, what is pinned, the first task, and what is kept of what came before it.
    pub(super) front: Vec<usize>,
    /// The summary so far.
    pub(super) summary: Option<usize>,
    /// Goes into the summary.
    pub(super) folded: Vec<usize>,
    /// Stands after the summary.
    pub(super) kept: Vec<usize>,
}

/// What does not fit and how large it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge {
    pub(super) what: String,
    pub(super) tokens: usize,
    pub(super) room: usize,
}

/// Decides for a list that is over the budget; `counts` has the tokens of each message.
pub(super) fn plan(messages: &[Message], counts: &[usize], limits: Limits) -> Result<Plan, TooLarge> {
    let is_user = |message: &Message| message.role == Role::User && !holds_summary(message) && !message.content.trim().is_empty();
    let summary = messages.iter().position(holds_summary);
    let task = task_of(messages);
    let is_fixed = |at: &usize| {
        Some(*at) == task || is_pinned(&messages[*at]) || messages[*at].role == Role::System && !holds_summary(&messages[*at])
    };

    let fixed: Vec<usize> = (0..messages.len()).filter(is_fixed).collect();
    let last_user = messages.iter().rposition(is_user).filter(|at| !fixed.contains(at));
    let tokens = |places: &[usize]| places.iter().map(|&at| counts[at]).sum::<usize>();
    check_fixed(&fixed, task, tokens(&fixed), counts, limits)?;

    let units = units(messages, &fixed);
    let mut used = tokens(&fixed) + limits.summary;
    // Calls that still wait for their results must stay, or the results would have no call.
    let waiting = units.last().filter(|unit| unit.state == Calls::Open).map(|unit| unit.places.clone()).unwrap_or_default();
    used += tokens(&waiting);
    if used > limits.budget {
        let what = "the calls that wait for their results have".to_owned();
        return Err(TooLarge { what, tokens: tokens(&waiting), room: limits.budget + tokens(&waiting) - used });
    }
    let fits = |at: usize| used + counts[at] <= limits.budget;
    if let Some(at) = last_user.filter(|&at| !fits(at) && !is_answered(&messages[at..])) {
        return Err(TooLarge { what: "the last user message has".to_owned(), tokens: counts[at], room: limits.budget - used });
    }
    let last_user = last_user.filter(|&at| fits(at));
    used += last_user.map_or(0, |at| counts[at]);

    let mut kept: HashSet<usize> = waiting.into_iter().chain(last_user).collect();
    for (at, unit) in units.iter().enumerate().rev().filter(|(_, unit)| unit.state != Calls::Broken) {
        let more: usize = unit.places.iter().filter(|at| !kept.contains(at)).map(|&at| counts[at]).sum();
        // What was said last is worth the head-room.
        let limit = if at + 1 == units.len() { limits.budget } else { limits.target };
        if more > 0 && used + more > limit {
            break;
        }
        used += more;
        kept.extend(&unit.places);
    }
    Ok(sorted_out(messages.len(), summary, &fixed, task, &kept))
}

/// Whether a model has said something to the first of these that calls nothing: it no longer works on it.
fn is_answered(messages: &[Message]) -> bool {
    messages.iter().any(|message| message.role == Role::Assistant && message.tool_calls.is_empty())
}

/// The fixed part must leave room for a conversation: else each new message would fold again and gain nothing.
fn check_fixed(fixed: &[usize], task: Option<usize>, tokens: usize, counts: &[usize], limits: Limits) -> Result<(), TooLarge> {
    let room = limits.budget.saturating_sub(limits.headroom);
    if limits.summary > room {
        return Err(TooLarge { what: "the summary message has up to".to_owned(), tokens: limits.summary, room });
    }
    let room = room - limits.summary;
    if tokens <= room {
        return Ok(());
    }
    let what = match task.map(|at| counts[at]) {
        Some(_) if fixed.len() == 1 => "the first task has".to_owned(),
        Some(of_task) => {
            format!("the system messages ({}, pinned ones among them) and the first task ({of_task}) have", tokens - of_task)
        }
        None => "the system messages and what is pinned have".to_owned(),
    };
    Err(TooLarge { what, tokens, room })
}

fn sorted_out(count: usize, summary: Option<usize>, fixed: &[usize], task: Option<usize>, kept: &HashSet<usize>) -> Plan {
    let folded: Vec<usize> = (0..count).filter(|at| !kept.contains(at) && !fixed.contains(at) && summary != Some(*at)).collect();
    let newest_folded = folded.last().copied().max(summary).max(task);
    // A system message among those that stay keeps its place; one among those that are folded goes to the front.
    let is_front = |at: &usize| task == Some(*at) || newest_folded.is_none_or(|newest| *at < newest);
    // What was said before the task stays before it.
    let is_earlier = |at: &usize| task.is_some_and(|task| *at < task);
    let (mut front, mut rest): (Vec<usize>, Vec<usize>) = fixed.iter().partition(|at| is_front(at));
    let (earlier, later): (Vec<usize>, Vec<usize>) = kept.iter().partition(|at| is_earlier(at));
    front.extend(earlier);
    rest.extend(later);
    front.sort_unstable();
    rest.sort_unstable();
    Plan { front, summary, folded, kept: rest }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    /// Every call has its results here, or there are none.
    Complete,
    /// The newest unit, with calls that have no result yet.
    Open,
    /// A result without its call, or a call without its result: a list with it would be refused, so it is always folded.
    Broken,
}

/// Messages that are kept or folded together.
#[derive(Debug)]
struct Unit {
    places: Vec<usize>,
    /// Ids of calls without a result so far.
    open: Vec<String>,
    state: Calls,
}

/// The messages that are not fixed, calls together with their results.
fn units(messages: &[Message], fixed: &[usize]) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        if fixed.contains(&at) || message.role == Role::System || holds_summary(message) {
            continue;
        }
        let answered = message.tool_call_id.as_deref().filter(|_| message.role == Role::Tool);
        if let Some((unit, call)) = answered.and_then(|id| caller(&mut units, id)) {
            unit.places.push(at);
            unit.open.swap_remove(call);
            continue;
        }
        let may_call = message.role == Role::Assistant;
        let open: Vec<_> = message.tool_calls.iter().filter(|_| may_call).map(|call| call.id.clone()).collect();
        let is_odd = message.role == Role::Tool || !may_call && !message.tool_calls.is_empty();
        let state = if is_odd { Calls::Broken } else { Calls::Complete };
        units.push(Unit { places: vec![at], open, state });
    }
    let count = units.len();
    for (at, unit) in units.iter_mut().enumerate().filter(|(_, unit)| !unit.open.is_empty()) {
        unit.state = if at + 1 == count { Calls::Open } else { Calls::Broken };
    }
    units
}

/// The newest unit with an open call of that id, and which of its calls it is.
fn caller<'u>(units: &'u mut [Unit], id: &str) -> Option<(&'u mut Unit, usize)> {
    units.iter_mut().rev().find_map(|unit| {
        let call = unit.open.iter().position(|open| open == id)?;
        Some((unit, call))
    })
}
