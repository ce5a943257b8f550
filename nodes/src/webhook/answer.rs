//! What a receiver's answer means for a notice.

use std::error::Error;
use std::time::Duration;

use ferrata::NotifyError;
use reqwest::{Response, StatusCode};

use crate::retry_after::retry_after;

/// How much of an answer is read. It says nothing here; a connection whose answer was read can be used again.
const BODY_BYTES_MAX: usize = 16 * 1024;
/// How long it is read: who is slow with it holds up no other notice.
const BODY_WAIT: Duration = Duration::from_secs(1);

/// What counts of an answer.
pub(super) struct Answer {
    status: StatusCode,
    wait: Option<Duration>,
}

impl Answer {
    pub(super) fn of(response: &Response) -> Self {
        Self { status: response.status(), wait: retry_after(response.headers()) }
    }

    /// `place`: what may be shown of the URL.
    pub(super) fn judge(self, place: &str) -> Result<(), NotifyError> {
        let Self { status, wait } = self;
        let answered = format!("{place} answered with status {}", status.as_u16());
        let never = |what: &str| Err(NotifyError::never(format!("{answered}: {what}")));
        match status.as_u16() {
            200..=299 => Ok(()),
            408 | 409 | 425 | 429 | 500..=599 => {
                let error = NotifyError::later(answered);
                Err(wait.map_or(error.clone(), |wait| error.after(wait)))
            }
            300..=399 => never("redirects are not followed; give the webhook the URL that it leads to"),
            401 | 403 => never("it does not let us in; check the secret and the headers of the webhook"),
            404 | 405 => never("it takes no webhooks there; check the URL of the webhook"),
            410 => never("it is gone for good; remove the webhook, or give it another URL"),
            _ => never("it refuses the notice; look there for the reason"),
        }
    }
}

/// Reads what is left of an answer, up to a bound.
pub(super) async fn read_to_end(response: &mut Response) {
    let reading = async {
        let mut bytes = 0;
        while let Ok(Some(part)) = response.chunk().await {
            bytes += part.len();
            if bytes > BODY_BYTES_MAX {
                return;
            }
        }
    };
    _ = tokio::time::timeout(BODY_WAIT, reading).await;
}

/// What is at the bottom of an error: the system's words, or those of TLS, which know nothing of the URL.
pub(super) fn cause(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    while let Some(below) = cause.and_then(Error::source) {
        cause = Some(below);
    }
    cause.map_or_else(|| "the connection failed".to_owned(), ToString::to_string)
}
