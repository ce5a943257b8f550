//! A conversation becomes a request.

use std::borrow::Cow;
use std::cell::Cell;

use ferrata::state::{Message, Role};

use super::error::ContextError;
use super::fit::{self, Demand, divide};
use super::pairs::{Unit, sendable};
use super::parts::Parts;
use super::{Assembled, ContextPlan, FEEDBACK_MARKER, Layer};
use crate::model::ChatRequest;
use crate::summary::shortened;
use crate::tokens::TokenCounter;

/// One request on its way.
pub(super) struct Assembly<'a> {
    plan: &'a ContextPlan,
    counter: &'a dyn TokenCounter,
    messages: &'a [Message],
    request: ChatRequest,
    parts: Parts,
    /// What came last, if the user said nothing since.
    newest: Option<Unit>,
    /// What was wrong with the last answer.
    feedback: Option<Message>,
    /// The tokens of units that were counted, by their first places: even a look into a cache has to read the text.
    counted: Vec<Cell<Option<usize>>>,
}

/// Something that must be sent as it is.
struct Fixed {
    what: &'static str,
    layer: Layer,
    /// The message, if it is one of the conversation.
    place: Option<usize>,
    tokens: usize,
}

/// What is sent beside what is fixed.
struct Chosen<'a> {
    summary: Option<Message>,
    note: Option<Message>,
    units: Vec<usize>,
    newest: Vec<Cow<'a, Message>>,
    cut: Vec<usize>,
}

impl<'a> Assembly<'a> {
    pub(super) fn new(plan: &'a ContextPlan, messages: &'a [Message], request: ChatRequest) -> Result<Self, ContextError> {
        let mut parts = Parts::of(messages);
        let newest = parts.take_newest();
        let is_empty = parts.system.is_empty() && parts.summary.is_none() && parts.verbatim().next().is_none();
        if request.messages.is_empty() && is_empty && newest.is_none() && parts.units.is_empty() {
            return Err(ContextError::Nothing);
        }
        let feedback = plan.feedback.as_ref().map(|text| Message::user(format!("{FEEDBACK_MARKER}\n{text}")));
        let counted = vec![Cell::new(None); messages.len()];
        Ok(Self { plan, counter: &*plan.counter, messages, request, parts, newest, feedback, counted })
    }

    pub(super) fn assemble(mut self) -> Result<Assembled, ContextError> {
        let fixed = self.fixed();
        let taken: usize = fixed.iter().map(|part| part.tokens).sum();
        let Some(room) = self.plan.budget.checked_sub(taken) else { return Err(self.too_large(taken, &fixed)) };
        let mut chosen = self.divided(room).and_then(|given| self.chosen(given));
        if chosen.is_none() && self.newest.as_ref().is_some_and(|unit| unit.results.is_empty()) {
            // Without calls it is no more than the most recent message.
            self.parts.units.extend(self.newest.take());
            chosen = self.divided(room).and_then(|given| self.chosen(given));
        }
        let Some(chosen) = chosen else {
            let tokens = fit::least(&self.feedback_messages(), self.counter);
            let what = match self.newest {
                Some(_) => "the newest calls, with their results cut to a few words",
                None => "the note about the last answer, cut to a few words",
            };
            let newest = Fixed { what, layer: Layer::Feedback, place: self.newest.as_ref().map(|unit| unit.first), tokens };
            let fixed: Vec<Fixed> = fixed.into_iter().chain([newest]).collect();
            return Err(self.too_large(taken + tokens, &fixed));
        };
        self.put_together(&fixed, chosen)
    }

    fn fixed(&self) -> Vec<Fixed> {
        let around = self.counter.count_around(&self.request.tools, self.request.schema.as_ref());
        let given = self.request.messages.iter().map(|message| self.counter.count_message(message)).sum();
        let of_request = [("the tools and the schema", around), ("the instructions", given)];
        let of_request = of_request.map(|(what, tokens)| Fixed { what, layer: Layer::Instructions, place: None, tokens });
        let system = self.parts.system.iter().map(|&at| self.fixed_message("a system message", Layer::Instructions, at));
        let task = self.parts.verbatim().map(|at| {
            let what = match at {
                at if self.parts.task == Some(at) => "the first task",
                at if self.parts.last_user == Some(at) => "the last message of the user",
                _ => "a pinned message",
            };
            self.fixed_message(what, Layer::Task, at)
        });
        of_request.into_iter().chain(system).chain(task).collect()
    }

    fn fixed_message(&self, what: &'static str, layer: Layer, at: usize) -> Fixed {
        Fixed { what, layer, place: Some(at), tokens: self.counter.count_message(&sendable(&self.messages[at])) }
    }

    fn too_large(&self, needed: usize, fixed: &[Fixed]) -> ContextError {
        let largest = fixed.iter().max_by_key(|part| part.tokens);
        let (what, tokens) = largest.map_or(("the request", needed), |part| (part.what, part.tokens));
        let id = largest.and_then(|part| part.place).map(|at| self.messages[at].id.clone());
        let budget = self.plan.budget;
        // What is too large can also be all of it together, with nothing over by itself.
        let over = needed.saturating_sub(budget).max(1);
        ContextError::TooLarge { what: what.to_owned(), message: id.filter(|id| !id.is_empty()), tokens, over, budget }
    }

    /// The running summary and its place. It is data, whatever role it has in the conversation.
    fn summary(&self) -> Option<(usize, Message)> {
        let at = self.parts.summary?;
        Some((at, Message { role: Role::User, tool_call_id: None, ..self.messages[at].clone() }))
    }

    fn feedback_messages(&self) -> Vec<Cow<'a, Message>> {
        let newest = self.newest.iter().flat_map(|unit| unit.sent(self.messages));
        newest.chain(self.feedback.clone().map(Cow::Owned)).collect()
    }

    fn tokens_of(&self, unit: &Unit) -> usize {
        if let Some(tokens) = self.counted[unit.first].get() {
            return tokens;
        }
        let tokens = unit.sent(self.messages).iter().map(|message| self.counter.count_message(message)).sum();
        self.counted[unit.first].set(Some(tokens));
        tokens
    }

    /// What feedback, summary and recent messages may have.
    fn divided(&self, room: usize) -> Option<[usize; 3]> {
        let newest = self.feedback_messages();
        let feedback = Demand {
            wants: newest.iter().map(|message| self.counter.count_message(message)).sum(),
            least: fit::least(&newest, self.counter),
            share: self.plan.share_of(Layer::Feedback),
        };
        let summary = self.summary().map_or(0, |(_, message)| self.counter.count_message(&message));
        let summary = Demand { wants: summary, least: 0, share: self.plan.share_of(Layer::Summary) };
        // Counted from the newest, and no further than there is room.
        let mut recent = 0;
        for unit in self.parts.units.iter().rev() {
            recent += self.tokens_of(unit);
            if recent > room {
                break;
            }
        }
        let recent = Demand { wants: recent, least: 0, share: self.plan.share_of(Layer::Recent) };
        divide(room, [feedback, summary, recent])
    }

    fn chosen(&self, [feedback, summary, recent]: [usize; 3]) -> Option<Chosen<'a>> {
        let (newest, places) = fit::cut(&self.feedback_messages(), feedback, self.counter)?;
        let place = |at: usize| match (&self.newest, at) {
            (Some(unit), 0) => Some(unit.first),
            (Some(unit), at) => unit.results.get(at - 1).copied().flatten(),
            (None, _) => None,
        };
        let mut cut: Vec<usize> = places.into_iter().filter_map(place).collect();
        let summary = self.summary().and_then(|(at, message)| {
            let is_whole = self.counter.count_message(&message) <= summary;
            if !is_whole {
                cut.push(at);
            }
            if is_whole { Some(message) } else { shortened(&message, summary, self.counter) }
        });
        let order = self.plan.recent.order(self.messages, &self.parts.units, newest.len() - usize::from(self.feedback.is_some()));
        let tokens_of = |unit: &Unit| self.tokens_of(unit);
        let (mut units, _) = order.taken(&self.parts.units, recent, &tokens_of);
        let mut note = None;
        if units.len() < self.parts.units.len() {
            // As if all were left out, which has the most digits.
            let reserve = self.counter.count_message(&left_out_note(self.messages.len()));
            if let Some(room) = recent.checked_sub(reserve) {
                (units, _) = order.taken(&self.parts.units, room, &tokens_of);
                let text = left_out_note(self.left_out(&units));
                note = Some(text).filter(|text| self.counter.count_message(text) <= reserve);
            }
        }
        Some(Chosen { summary, note, units, newest, cut })
    }

    /// How many messages are not shown when these units are.
    fn left_out(&self, shown: &[usize]) -> usize {
        let count = |unit: &Unit| 1 + unit.results.iter().flatten().count();
        let all: usize = self.parts.units.iter().map(count).sum();
        all - shown.iter().map(|&at| count(&self.parts.units[at])).sum::<usize>()
    }

    fn put_together(self, fixed: &[Fixed], chosen: Chosen<'a>) -> Result<Assembled, ContextError> {
        let count = |messages: &[Cow<'_, Message>]| messages.iter().map(|m| self.counter.count_message(m)).sum::<usize>();
        let of_layer = |layer| fixed.iter().filter(|part| part.layer == layer).map(|part| part.tokens).sum::<usize>();
        let message = |message: &Option<Message>| message.as_ref().map_or(0, |message| self.counter.count_message(message));
        let shown: Vec<&Unit> = chosen.units.iter().map(|&at| &self.parts.units[at]).collect();
        let recent = shown.iter().map(|unit| self.tokens_of(unit)).sum::<usize>() + message(&chosen.note);
        let layers = vec![
            (Layer::Instructions, of_layer(Layer::Instructions)),
            (Layer::Task, of_layer(Layer::Task)),
            (Layer::Summary, message(&chosen.summary)),
            (Layer::Recent, recent),
            (Layer::Feedback, count(&chosen.newest)),
        ];
        let tokens: usize = layers.iter().map(|(_, tokens)| tokens).sum();
        if tokens > self.plan.budget {
            // Only if the counter finds more in a shorter text.
            return Err(self.too_large(tokens, fixed));
        }
        let left_out = self.left_out(&chosen.units);
        let unanswered = shown.into_iter().chain(&self.newest).flat_map(|unit| unit.unanswered(self.messages));
        let unanswered = unanswered.map(Cow::into_owned).collect();
        let (unfit, cut) = (self.parts.unfit.clone(), chosen.cut.clone());
        if !self.shows_something(&chosen) {
            // Not a message fits beside the tools. With what there is of room, it would still be a request of nothing.
            return Err(self.too_large(self.plan.budget + 1, fixed));
        }
        let request = self.request_of(chosen);
        Ok(Assembled { request, tokens, layers, left_out, cut, unfit, unanswered })
    }

    fn shows_something(&self, chosen: &Chosen<'_>) -> bool {
        let is_fixed = !self.parts.system.is_empty() || self.parts.verbatim().next().is_some();
        let is_chosen = chosen.summary.is_some() || !chosen.units.is_empty() || !chosen.newest.is_empty();
        is_fixed || is_chosen || !self.request.messages.is_empty()
    }

    fn request_of(mut self, chosen: Chosen<'a>) -> ChatRequest {
        let (mut list, given): (Vec<Message>, Vec<Message>) =
            std::mem::take(&mut self.request.messages).into_iter().partition(|message| message.role == Role::System);
        let whole = |at: usize| sendable(&self.messages[at]);
        list.extend(self.parts.system.iter().map(|&at| whole(at).into_owned()));
        list.extend(chosen.note.into_iter().chain(given));

        let mut newest = chosen.newest;
        let feedback = newest.split_off(newest.len() - usize::from(self.feedback.is_some()));
        // The summary stands behind the task, or before all else if there is none.
        let summary = chosen.summary.map(|summary| (self.parts.task.unwrap_or_default(), vec![Cow::Owned(summary)]));
        let (first, behind) = if self.parts.task.is_none() { (summary, None) } else { (None, summary) };
        let verbatim = self.parts.verbatim().map(|at| (at, vec![whole(at)]));
        let mut body: Vec<(usize, Vec<Cow<'_, Message>>)> = first.into_iter().chain(verbatim).chain(behind).collect();
        body.extend(chosen.units.iter().map(|&at| &self.parts.units[at]).map(|unit| (unit.first, unit.sent(self.messages))));
        body.extend(self.newest.as_ref().map(|unit| (unit.first, newest)));
        body.sort_by_key(|(at, _)| *at);
        list.extend(body.into_iter().flat_map(|(_, messages)| messages).chain(feedback).map(Cow::into_owned));
        self.request.messages = list;
        self.request
    }
}

fn left_out_note(messages: usize) -> Message {
    Message::system(format!("[{messages} earlier messages are not shown here.]"))
}
