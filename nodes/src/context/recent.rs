//! Which of the recent messages are shown.

use std::fmt;
use std::sync::Arc;

use ferrata::state::{Message, Role};

use super::pairs::Unit;

/// What a message is worth: its place in the conversation is 0 for the oldest and 1 for the newest one.
type Score = dyn Fn(&Message, f64) -> f64 + Send + Sync;

/// How the recent messages of a context are chosen. No model is asked.
///
/// ```
/// use ferrata::state::{Message, Role};
/// use ferrata_nodes::{ChatRequest, ContextPlan, Recent};
///
/// let said: Vec<_> = (0..100).map(|n| Message::assistant(format!("Remark {n}"))).collect();
/// let messages = [vec![Message::user("What is it?")], said].concat();
///
/// let plan = ContextPlan::new(8_000).recent(Recent::last(3));
/// let context = plan.assemble(&messages, ChatRequest::new([])).unwrap();
/// assert_eq!(context.request.messages.last().unwrap().content, "Remark 99");
/// assert_eq!(context.left_out, 97);
///
/// let sevens = Recent::important(|message, age| f64::from(message.content.contains('7')) + age);
/// let context = ContextPlan::new(100).recent(sevens).assemble(&messages, ChatRequest::new([])).unwrap();
/// assert!(context.request.messages.iter().any(|message| message.content == "Remark 77"));
/// assert!(!context.request.messages.iter().any(|message| message.content == "Remark 98"));
/// ```
#[derive(Clone, Default)]
pub struct Recent(Kind);

#[derive(Clone, Default)]
enum Kind {
    #[default]
    Newest,
    Last(usize),
    Important(Arc<Score>),
}

impl Recent {
    /// The newest ones that fit, without a gap. This is the default.
    #[must_use]
    pub fn newest() -> Self {
        Self(Kind::Newest)
    }

    /// A window: the newest ones that fit, and no more than so many, with what came last. That is shown even if its calls have more results.
    #[must_use]
    pub fn last(messages: usize) -> Self {
        Self(Kind::Last(messages))
    }

    /// The ones with the highest score that fit, wherever they stand. Calls and their results have the best score of them all.
    ///
    /// The score gets the message and its place: 0 for the oldest, 1 for the newest. One that is no number is the lowest.
    #[must_use]
    pub fn important(score: impl Fn(&Message, f64) -> f64 + Send + Sync + 'static) -> Self {
        Self(Kind::Important(Arc::new(score)))
    }

    /// As [`important`](Self::important), by role and age: what is newer, what the user said, and what tools have found.
    ///
    /// ```
    /// let plan = ferrata_nodes::ContextPlan::new(1_000).recent(ferrata_nodes::Recent::by_role_and_age());
    /// assert!(format!("{plan:?}").contains("Important"));
    /// ```
    #[must_use]
    pub fn by_role_and_age() -> Self {
        Self::important(|message, age| {
            let role = match message.role {
                Role::User | Role::System => 0.5,
                Role::Tool => 0.25,
                Role::Assistant => 0.0,
            };
            // What is half as far back counts twice as much as age alone would say.
            role + age * age
        })
    }

    /// The order in which units are taken, where so many messages are shown already.
    pub(super) fn order(&self, messages: &[Message], units: &[Unit], shown: usize) -> Order {
        let newest: Vec<usize> = (0..units.len()).rev().collect();
        match &self.0 {
            Kind::Newest => Order { units: newest, messages_max: usize::MAX, has_gaps: false },
            Kind::Last(most) => Order { units: newest, messages_max: most.saturating_sub(shown), has_gaps: false },
            Kind::Important(score) => {
                let age = |at: usize| at as f64 / (messages.len().max(2) - 1) as f64;
                let number = |score: f64| if score.is_nan() { f64::NEG_INFINITY } else { score };
                let of = |at: usize| number(score(&messages[at], age(at)));
                let best = |unit: &Unit| unit.results.iter().flatten().map(|&at| of(at)).fold(of(unit.first), f64::max);
                let scores: Vec<f64> = units.iter().map(best).collect();
                let mut units = newest;
                units.sort_by(|one, other| scores[*other].total_cmp(&scores[*one]));
                Order { units, messages_max: usize::MAX, has_gaps: true }
            }
        }
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Newest => f.write_str("Newest"),
            Kind::Last(most) => f.debug_tuple("Last").field(most).finish(),
            Kind::Important(_) => f.write_str("Important"),
        }
    }
}

/// In which order units are taken.
pub(super) struct Order {
    units: Vec<usize>,
    messages_max: usize,
    has_gaps: bool,
}

impl Order {
    /// The places of the units that fit, and their tokens.
    pub(super) fn taken(&self, units: &[Unit], room: usize, tokens_of: &dyn Fn(&Unit) -> usize) -> (Vec<usize>, usize) {
        let (mut taken, mut tokens, mut messages) = (Vec::new(), 0, 0);
        for &at in &self.units {
            let more = tokens_of(&units[at]);
            let count = 1 + units[at].results.len();
            if tokens + more <= room && messages + count <= self.messages_max {
                tokens += more;
                messages += count;
                taken.push(at);
            } else if !self.has_gaps || room - tokens < 4 {
                break;
            }
        }
        (taken, tokens)
    }
}
