//! Notices, sent to a URL.

mod answer;
mod secret;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ferrata::clock::{Clock, SystemClock};
use ferrata::{Notice, Notifier, NotifyError, Notifying};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Url};

use answer::Answer;
pub use secret::{VerifyError, WebhookSecret};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Headers that are not a caller's to set.
const OWN_HEADERS: [&str; 6] =
    ["content-type", "content-length", "transfer-encoding", "webhook-id", "webhook-timestamp", "webhook-signature"];

/// Sends each [notice](ferrata::Notice) of a supervisor to a URL, as JSON, in one POST request.
///
/// Requests are those of the [Standard Webhooks](https://www.standardwebhooks.com) specification. `webhook-id` is the id of the notice: the same whenever it is sent again, so that a receiver that gets
/// it twice can act once. `webhook-timestamp` has the seconds of this attempt, and `webhook-signature` is there if there is a [secret](Self::secret); a receiver verifies both with
/// [`WebhookSecret::verify`]. Without a secret whoever knows the URL can send such requests, too.
///
/// One call sends one request. Whether there is another one is said by the answer, and the supervisor does it:
///
/// | answer | means |
/// | --- | --- |
/// | 2xx | it got through; the body does not matter |
/// | 408, 409, 425, 429, 5xx, no connection, no answer in time | later, and not before the time that `Retry-After` asks for |
/// | 3xx | never: redirects are not followed, since what is signed for one receiver is not another one's |
/// | 410 and everything else | never |
///
/// Of the URL only host and path are shown in debug output, errors and logs, and of other headers the names: keys belong into these, or into user, password and query of the URL, and not into
/// its path. What the receiver writes into its answer is not shown, as it may repeat them. Proxies are taken from the environment (`HTTPS_PROXY`, `NO_PROXY`).
///
/// ```
/// use ferrata_nodes::Webhook;
/// use std::time::Duration;
///
/// let pager = Webhook::new("https://pager.example/hooks/ferrata?key=do-not-show")?
///     .secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?
///     .header("authorization", "Bearer do-not-show")?
///     .timeout(Duration::from_secs(5))
///     .name("pager");
/// assert!(!format!("{pager:?}").contains("do-not-show"));
/// // runner.supervise().notify(pager).start().await?;
///
/// let error = Webhook::new("pager.example/hooks").expect_err("it has no scheme");
/// assert!(error.to_string().contains("https://"));
/// # Ok::<(), ferrata_nodes::WebhookError>(())
/// ```
#[must_use = "a webhook is given to a supervisor with `notify`"]
pub struct Webhook {
    client: Client,
    url: Url,
    /// What may be shown of the URL.
    shown: String,
    name: String,
    secret: Option<WebhookSecret>,
    headers: HeaderMap,
    timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl Webhook {
    /// A webhook at an http or https URL.
    ///
    /// # Errors
    ///
    /// Anything else in place of a URL; a system whose certificates cannot be read.
    pub fn new(url: &str) -> Result<Self, WebhookError> {
        let url = Url::parse(url.trim()).map_err(|error| WebhookError::Url(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(WebhookError::Url(format!("the scheme `{}` is not known", url.scheme())));
        }
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let place = format!("{}{port}{}", url.host_str().unwrap_or_default(), url.path());
        // What is signed for one receiver goes nowhere else, and the supervisor alone says what is sent again.
        let client = Client::builder().redirect(reqwest::redirect::Policy::none()).retry(reqwest::retry::never()).referer(false);
        let client = client.build().map_err(|error| WebhookError::Client(answer::cause(&error)))?;
        Ok(Self {
            client,
            shown: format!("{}://{place}", url.scheme()),
            name: format!("webhook:{place}"),
            url,
            secret: None,
            headers: HeaderMap::new(),
            timeout: TIMEOUT,
            clock: Arc::new(SystemClock),
        })
    }

    /// Signs requests with a secret as it is handed out: `whsec_` and then base64.
    ///
    /// # Errors
    ///
    /// As [`WebhookSecret::new`].
    pub fn secret(mut self, secret: &str) -> Result<Self, WebhookError> {
        self.secret = Some(WebhookSecret::new(secret)?);
        Ok(self)
    }

    /// Signs requests with a secret of any bytes.
    ///
    /// # Errors
    ///
    /// As [`WebhookSecret::from_bytes`].
    pub fn secret_bytes(mut self, secret: &[u8]) -> Result<Self, WebhookError> {
        self.secret = Some(WebhookSecret::from_bytes(secret)?);
        Ok(self)
    }

    /// Sends one more header, in place of one of the same name. Its value is never shown.
    ///
    /// # Errors
    ///
    /// What is no header, and those that are set here: `content-type`, `webhook-id` and the like.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, WebhookError> {
        let wrong = |problem| WebhookError::Header { name: name.to_owned(), problem };
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("has a name that no header has"))?;
        if OWN_HEADERS.contains(&key.as_str()) {
            return Err(wrong("is set by the webhook itself; leave it out"));
        }
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| wrong("has a value with characters that no header has; check it for line ends"))?;
        value.set_sensitive(true);
        self.headers.insert(key, value);
        Ok(self)
    }

    /// How long one attempt may take, from the connection to the end of the answer; 10 seconds if not set. A supervisor waits no longer than a minute.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The [name](Notifier::name) by which a supervisor keeps its notices: made of host and path if not set. Two webhooks of one supervisor have two names, and with
    /// another name what was kept under the first one is not sent any more.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Where the times of the attempts come from; from the operating system if not set.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    fn request(&self, notice: &Notice) -> Result<RequestBuilder, NotifyError> {
        let body = serde_json::to_vec(notice).map_err(|error| NotifyError::never(format!("the notice is no JSON: {error}")))?;
        let (id, at) = (notice.id.to_string(), self.clock.now());
        let mut request = self.client.post(self.url.clone()).headers(self.headers.clone());
        request = request.header(CONTENT_TYPE, "application/json").header("webhook-timestamp", at.0 / 1_000);
        if let Some(secret) = &self.secret {
            request = request.header("webhook-signature", secret.sign(&id, at, &body));
        }
        Ok(request.header("webhook-id", id).body(body))
    }

    async fn send(&self, notice: &Notice) -> Result<(), NotifyError> {
        let request = self.request(notice)?;
        let mut answer = None;
        let sending = async {
            let mut response = request.send().await?;
            // From here on the status counts, whatever becomes of the body.
            answer = Some(Answer::of(&response));
            answer::read_to_end(&mut response).await;
            Ok::<_, reqwest::Error>(())
        };
        let sent = tokio::time::timeout(self.timeout, sending).await;
        match (answer, sent) {
            (Some(answer), _) => answer.judge(&self.shown),
            (None, Ok(Err(error))) => {
                Err(NotifyError::later(format!("{} gave no answer: {}", self.shown, answer::cause(&error))))
            }
            (None, _) => Err(NotifyError::later(format!("{} gave no answer within {:?}", self.shown, self.timeout))),
        }
    }
}

impl Notifier for Webhook {
    fn name(&self) -> &str {
        &self.name
    }

    fn notify<'n>(&'n self, notice: &'n Notice) -> Notifying<'n> {
        Box::pin(self.send(notice))
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.keys().map(HeaderName::as_str).collect();
        f.debug_struct("Webhook")
            .field("url", &self.shown)
            .field("name", &self.name)
            .field("is_signed", &self.secret.is_some())
            .field("headers", &headers)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A webhook cannot be made like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// What is given is no URL of a webhook. It is not shown, since it may hold secrets.
    #[error("this is no URL of a webhook: {0}; give a whole one, such as https://host/path")]
    Url(String),
    /// What is given is no secret. It is not shown.
    #[error("the secret of the webhook {0}")]
    Secret(&'static str),
    /// A header cannot be sent. Its value is not shown.
    #[error("the header `{name}` of the webhook {problem}")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong, and what to do.
        problem: &'static str,
    },
    /// There can be no connections.
    #[error("the HTTP client of the webhook cannot be set up: {0}; look for the system's certificates")]
    Client(String),
}
