//! Why a conversation or a document could not be shortened.

/// Nothing was changed, and nothing of what failed was kept.
///
/// `E` is the error of whoever calls the model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SummaryError<E> {
    /// What has to stay word for word leaves no room. No model was asked.
    #[error(
        "{what} {tokens} tokens, {over} more than a budget of {budget} has room for; raise the budget, or shorten what has to stay"
    )]
    CannotFit {
        /// What is too large, with a verb: `the system messages and the first task have`.
        what: String,
        /// How large it is, in tokens.
        tokens: usize,
        /// How much of it is too much, in tokens.
        over: usize,
        /// The budget, in tokens.
        budget: usize,
    },
    /// The call of the model failed.
    #[error("piece {piece} of {pieces} could not be condensed; what was there before is unchanged")]
    Call {
        /// Which piece it was, from 1.
        piece: usize,
        /// How many there were.
        pieces: usize,
        /// What the call said.
        source: E,
    },
    /// The model answered, but not with a summary.
    #[error("the model answered piece {piece} of {pieces} with {what} instead of a summary; what was there before is unchanged")]
    NoSummary {
        /// Which piece it was, from 1.
        piece: usize,
        /// How many there were.
        pieces: usize,
        /// What it answered with.
        what: &'static str,
    },
}
