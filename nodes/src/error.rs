//! Why a model did not answer, and what that means for trying again.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::Usage;

/// What went wrong with a request to a model.
///
/// A policy decides on this, never on the text of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelErrorClass {
    /// No connection, or it broke before there was an answer.
    Connection,
    /// No answer in time.
    Timeout,
    /// Too many requests.
    RateLimit,
    /// The server failed, or is overloaded.
    Server,
    /// The answer broke off in the middle.
    Truncated,
    /// The answer says nothing.
    EmptyResponse,
    /// The answer is none of a chat API: a page of a proxy, another API.
    Protocol,
    /// The request cannot be served as it is.
    BadRequest,
    /// The request is too long for the model: shorten it and send that.
    ContextLength,
    /// The answer ran into its limit of tokens before there was anything that can be used.
    OutputLimit,
    /// The endpoint holds the answer back.
    ContentFilter,
    /// The credit or quota is spent: waiting does not help, a person has to act.
    Quota,
    /// The key is missing, wrong, or not allowed to do this.
    Auth,
}

impl ModelErrorClass {
    /// Whether the same request may work later.
    pub fn is_transient(self) -> bool {
        match self {
            Self::Connection | Self::Timeout | Self::RateLimit | Self::Server | Self::Truncated | Self::EmptyResponse => true,
            Self::Protocol
            | Self::BadRequest
            | Self::ContextLength
            | Self::OutputLimit
            | Self::ContentFilter
            | Self::Quota
            | Self::Auth => false,
        }
    }

    /// Whether the same request, or any other one with this key, fails until a person has acted.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Quota | Self::Auth)
    }

    /// A word for it that stays the same.
    pub fn code(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Timeout => "timeout",
            Self::RateLimit => "rate_limit",
            Self::Server => "server",
            Self::Truncated => "truncated",
            Self::EmptyResponse => "empty_response",
            Self::Protocol => "protocol",
            Self::BadRequest => "bad_request",
            Self::ContextLength => "context_length",
            Self::OutputLimit => "output_limit",
            Self::ContentFilter => "content_filter",
            Self::Quota => "quota",
            Self::Auth => "auth",
        }
    }
}

/// A model did not answer.
///
/// The error below, if there is one, is kept as [`source`](Error::source).
///
/// ```
/// use ferrata_nodes::{ModelError, ModelErrorClass};
/// use std::time::Duration;
///
/// let error = ModelError::new(ModelErrorClass::RateLimit, "the endpoint is busy; try again later")
///     .with_status(429)
///     .with_retry_after(Duration::from_secs(2));
/// assert!(error.is_transient());
/// assert_eq!((error.status(), error.retry_after()), (Some(429), Some(Duration::from_secs(2))));
/// ```
pub struct ModelError {
    class: ModelErrorClass,
    status: Option<u16>,
    code: Option<String>,
    retry_after: Option<Duration>,
    partial_text: Option<String>,
    // Boxed, since an error is a part of every result.
    usage: Option<Box<Usage>>,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ModelError {
    /// An error of that class. The message says what happened and what to do.
    pub fn new(class: ModelErrorClass, message: impl Into<String>) -> Self {
        let (message, retry_after, partial_text) = (message.into(), None, None);
        Self { class, status: None, code: None, retry_after, partial_text, usage: None, message, source: None }
    }

    /// The same error in another class.
    pub(crate) fn with_class(mut self, class: ModelErrorClass) -> Self {
        self.class = class;
        self
    }

    /// The same error with the HTTP status it came with.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// The same error with the endpoint's code for it.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// The same error with the time that the endpoint asks to wait.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The same error with the text that had come before it.
    #[must_use]
    pub fn with_partial_text(mut self, text: impl Into<String>) -> Self {
        self.partial_text = Some(text.into());
        self
    }

    /// The same error with the tokens that were paid for all the same.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = Some(Box::new(usage));
        self
    }

    /// The same error with another message.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// The same error with what caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What went wrong.
    pub fn class(&self) -> ModelErrorClass {
        self.class
    }

    /// The HTTP status, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// The endpoint's own code, such as `context_length_exceeded`.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// How long the endpoint asks to wait. It is not limited here: a policy should.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// What had come of the answer before the error. It may be shown; it is never an answer.
    pub fn partial_text(&self) -> Option<&str> {
        self.partial_text.as_deref()
    }

    /// What it cost all the same, if the endpoint said so: an answer that ran into its limit, or that was empty.
    pub fn usage(&self) -> Option<Usage> {
        self.usage.as_deref().copied()
    }

    /// Whether the same request may work later.
    pub fn is_transient(&self) -> bool {
        self.class.is_transient()
    }

    /// Whether a shorter request may work.
    pub fn is_context_length(&self) -> bool {
        self.class == ModelErrorClass::ContextLength
    }

    /// Whether the credit or quota is spent.
    pub fn is_quota(&self) -> bool {
        self.class == ModelErrorClass::Quota
    }

    /// Whether the key is missing, wrong, or not allowed to do this.
    pub fn is_auth(&self) -> bool {
        self.class == ModelErrorClass::Auth
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelError")
            .field("class", &self.class)
            .field("status", &self.status)
            .field("code", &self.code)
            .field("retry_after", &self.retry_after)
            .field("partial_text", &self.partial_text)
            .field("usage", &self.usage)
            .field("message", &self.message)
            .field("source", &self.source)
            .finish()
    }
}

impl Error for ModelError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}

/// The class of an HTTP status; a code in the body may say more.
pub(crate) fn class_of_status(status: u16) -> ModelErrorClass {
    match status {
        401 | 403 => ModelErrorClass::Auth,
        402 => ModelErrorClass::Quota,
        408 => ModelErrorClass::Timeout,
        429 => ModelErrorClass::RateLimit,
        409 | 425 | 500..=599 => ModelErrorClass::Server,
        300..=399 => ModelErrorClass::Protocol,
        _ => ModelErrorClass::BadRequest,
    }
}

/// The class of a code or type that endpoints put into an error object; `None` if it says nothing to us.
pub(crate) fn class_of_code(code: &str) -> Option<ModelErrorClass> {
    Some(match code {
        "context_length_exceeded" | "exceed_context_size_error" | "string_above_max_length" => ModelErrorClass::ContextLength,
        "insufficient_quota" | "billing_not_active" | "billing_hard_limit_reached" => ModelErrorClass::Quota,
        "invalid_api_key" | "authentication_error" | "permission_error" | "account_deactivated" => ModelErrorClass::Auth,
        "rate_limit_exceeded" | "rate_limit_error" | "rate_limit_reached_error" => ModelErrorClass::RateLimit,
        "timeout" | "timeout_error" => ModelErrorClass::Timeout,
        "server_error"
        | "api_error"
        | "internal_server_error"
        | "overloaded"
        | "overloaded_error"
        | "service_unavailable"
        | "unavailable_error"
        | "engine_overloaded_error" => ModelErrorClass::Server,
        "content_filter" | "content_policy_violation" => ModelErrorClass::ContentFilter,
        "model_not_found" => ModelErrorClass::BadRequest,
        number => class_of_status(number.parse().ok().filter(|status| (400..600).contains(status))?),
    })
}
