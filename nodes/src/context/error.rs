//! Why a context cannot be made.

/// Nothing was sent.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata_nodes::{ChatRequest, ContextError, ContextPlan};
///
/// let task = [Message::user("word ".repeat(5_000)).with_id("m1")];
/// let error = ContextPlan::new(1_000).assemble(&task, ChatRequest::new([])).unwrap_err();
/// let ContextError::TooLarge { what, message, over, budget, .. } = &error else { unreachable!() };
/// assert_eq!((what.as_str(), message.as_deref(), *budget), ("the first task", Some("m1"), 1_000));
/// assert!(error.to_string().contains(&format!("{over} tokens over")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// What has to be sent as it is has more tokens than the budget.
    #[error(
        "a request with what must be sent as it is would be {over} tokens over its budget of {budget}; the largest part is {what}, with \
         {tokens} tokens{}: shorten it, or raise the budget", .message.as_ref().map_or(String::new(), |id| format!(" (message \"{id}\")"))
    )]
    TooLarge {
        /// The largest part.
        what: String,
        /// The message that it is, if it is one with an id.
        message: Option<String>,
        /// Its tokens.
        tokens: usize,
        /// The tokens that are too many.
        over: usize,
        /// The budget, in tokens.
        budget: usize,
    },
    /// There is no message that could be sent.
    #[error("there is nothing to send: no message has a text or a call with its result")]
    Nothing,
}
