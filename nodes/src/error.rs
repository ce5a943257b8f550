//! Why a model did not answer, and what that means for trying again.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// What to do about a [`ModelError`].
///
/// A policy decides on this, never on the text of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelErrorClass {
    /// The same request may work later: no connection, a time-out, too many requests, a failure of the server.
    Transient,
    /// The same request will fail again.
    Deterministic,
    /// The request is too long for the model: shorten it and send that.
    ContextLength,
    /// The credit or quota is spent: waiting does not help, a person has to act.
    Quota,
    /// The key is missing, wrong, or not allowed to do this.
    Auth,
}

/// A model did not answer.
///
/// The error below, if there is one, is kept as [`source`](Error::source).
///
/// ```
/// use ferrata_nodes::{ModelError, ModelErrorClass};
/// use std::time::Duration;
///
/// let error = ModelError::new(ModelErrorClass::Transient, "the endpoint is busy; try again later")
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
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ModelError {
    /// An error of that class. The message says what happened and what to do.
    pub fn new(class: ModelErrorClass, message: impl Into<String>) -> Self {
        Self { class, status: None, code: None, retry_after: None, message: message.into(), source: None }
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

    /// The same error with what caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What to do about it.
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

    /// Whether the same request may work later.
    pub fn is_transient(&self) -> bool {
        self.class == ModelErrorClass::Transient
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
        408 | 409 | 425 | 429 | 500..=599 => ModelErrorClass::Transient,
        _ => ModelErrorClass::Deterministic,
    }
}

/// The class of a code or type that endpoints put into an error object; `None` if it says nothing to us.
pub(crate) fn class_of_code(code: &str) -> Option<ModelErrorClass> {
    Some(match code {
        "context_length_exceeded" | "exceed_context_size_error" | "string_above_max_length" => ModelErrorClass::ContextLength,
        "insufficient_quota" | "billing_not_active" | "billing_hard_limit_reached" => ModelErrorClass::Quota,
        "invalid_api_key" | "authentication_error" | "permission_error" | "account_deactivated" => ModelErrorClass::Auth,
        "rate_limit_exceeded"
        | "rate_limit_error"
        | "server_error"
        | "api_error"
        | "internal_server_error"
        | "overloaded"
        | "overloaded_error"
        | "service_unavailable"
        | "unavailable_error"
        | "timeout"
        | "timeout_error" => ModelErrorClass::Transient,
        "content_filter" | "content_policy_violation" | "model_not_found" => ModelErrorClass::Deterministic,
        number => class_of_status(number.parse().ok().filter(|status| (400..600).contains(status))?),
    })
}
