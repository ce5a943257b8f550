//! The HTTP client: one request per call, and failures that keep what the server said.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_openai::Client;
use async_openai::config::Config;
use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::error::{ModelError, ModelErrorClass};
use crate::retry_after::retry_after;

/// How much of a failure's body is read; error pages can be of any size.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// How long a failure's body may take: the status says what counts.
const BODY_WAIT: Duration = Duration::from_secs(5);

/// How long a text has to be to be taken for a secret: `2` of a version, and `x` where a server wants no key, stand in many texts.
const SECRET_BYTES_MIN: usize = 4;

/// Where to send requests. The client library's own type would also read the environment, and send an empty key.
#[derive(Clone)]
pub(super) struct Endpoint {
    base_url: String,
    key: SecretString,
    headers: HeaderMap,
}

impl Config for Endpoint {
    fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    fn url(&self, path: &str) -> String {
        match self.base_url.split_once('?') {
            Some((base, query)) => format!("{}{path}?{query}", base.trim_end_matches('/')),
            None => format!("{}{path}", self.base_url),
        }
    }

    fn query(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    fn api_base(&self) -> &str {
        &self.base_url
    }

    fn api_key(&self) -> &SecretString {
        &self.key
    }
}

/// The server answered with a status that is not success.
#[derive(Debug, thiserror::Error)]
#[error("HTTP status {status}")]
pub(super) struct HttpStatus {
    pub(super) status: u16,
    pub(super) retry_after: Option<Duration>,
    pub(super) body: String,
}

/// An answer, whatever its status, on its way past the client library.
struct Answered(Mutex<Option<Response>>);

impl fmt::Debug for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answered")
    }
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an answer")
    }
}

impl std::error::Error for Answered {}

/// Sends one request, and gives the answer as it comes.
pub(super) async fn post(client: &Client<Endpoint>, body: Value) -> Result<Response, OpenAIError> {
    let sent: Result<Value, _> = client.chat().create_byot(body).await;
    match sent {
        Err(OpenAIError::Boxed(error)) => match error.downcast::<Answered>() {
            Ok(answered) => {
                let response = answered.0.lock().unwrap_or_else(PoisonError::into_inner).take();
                response.ok_or_else(|| OpenAIError::InvalidArgument("the answer was taken twice".to_owned()))
            }
            Err(other) => Err(OpenAIError::Boxed(other)),
        },
        Err(error) => Err(error),
        Ok(_) => Err(OpenAIError::InvalidArgument("the client read an answer that it was not given".to_owned())),
    }
}

/// What a server said that has refused.
pub(super) async fn refusal(mut response: Response) -> HttpStatus {
    let (status, wait) = (response.status(), retry_after(response.headers()));
    let body = read_some(&mut response).await;
    HttpStatus { status: StatusCode::as_u16(&status), retry_after: wait, body }
}

/// A client that sends each request once.
pub(super) fn client(
    base_url: &str,
    key: Option<&str>,
    connect: Duration,
    read: Duration,
) -> Result<Client<Endpoint>, ModelError> {
    let wrong = |message: String| ModelError::new(ModelErrorClass::BadRequest, message);
    if !is_http_url(base_url) {
        let shown = without_secrets(base_url);
        return Err(wrong(format!("`{shown}` is not an http or https URL; give the root of the API, such as https://host/v1")));
    }
    let key = SecretString::from(key.unwrap_or_default());
    let mut headers = HeaderMap::new();
    if !key.expose_secret().is_empty() {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret())).map_err(|_| {
            ModelError::new(ModelErrorClass::Auth, "the API key has characters that no key has; check it for line ends")
        })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let http = reqwest::Client::builder().connect_timeout(connect).read_timeout(read).retry(reqwest::retry::never());
    // What is asked goes where it was sent: a server that leads elsewhere would get the conversation there, and the query with its key.
    let http = http.redirect(reqwest::redirect::Policy::none()).referer(false).build();
    let http = http.map_err(|error| wrong("the HTTP client cannot be set up; see the cause".to_owned()).with_source(error))?;
    let endpoint = Endpoint { base_url: base_url.to_owned(), key, headers };
    let service = tower::service_fn({
        let http = http.clone();
        move |request: HttpRequestFactory| send(http.clone(), request)
    });
    // A service of our own replaces the library's retries and its reading of answers.
    Ok(Client::build(http, endpoint).with_http_service(service))
}

/// The library would read the answer too strictly: it loses Retry-After, odd errors, and answers that lack a field. So it is handed on as what it is.
async fn send(http: reqwest::Client, request: HttpRequestFactory) -> Result<Response, OpenAIError> {
    let response = http.execute(request.build().await?).await?;
    Err(OpenAIError::Boxed(Box::new(Answered(Mutex::new(Some(response))))))
}

/// As much of the body as comes in time: the status counts even if the connection breaks within it, or stays open.
async fn read_some(response: &mut Response) -> String {
    let mut body = Vec::new();
    let reading = async {
        while let Ok(Some(part)) = response.chunk().await {
            body.extend_from_slice(&part);
            if body.len() >= BODY_BYTES_MAX {
                break;
            }
        }
    };
    // What has come by then is what there is.
    let _ = tokio::time::timeout(BODY_WAIT, reading).await;
    body.truncate(BODY_BYTES_MAX);
    String::from_utf8_lossy(&body).into_owned()
}

pub(super) fn is_http_url(text: &str) -> bool {
    reqwest::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.host().is_some())
}

/// The host; nothing for what is no URL.
pub(super) fn host_of(url: &str) -> String {
    reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
}

pub(super) fn is_header_text(text: &str) -> bool {
    HeaderValue::from_str(text).is_ok()
}

/// The URL without user, password and query, any of which may be a secret.
pub(super) fn without_secrets(url: &str) -> String {
    let Ok(mut parsed) = reqwest::Url::parse(url) else {
        return "(not a URL)".to_owned();
    };
    parsed.set_query(None);
    parsed.set_fragment(None);
    // Both fail only for URLs that cannot have a user.
    let _ = parsed.set_username("");
    let _ = parsed.set_password(None);
    parsed.as_str().trim_end_matches('/').to_owned()
}

/// What nobody may see of a URL and a key, the longest first: one may be a part of another.
pub(super) fn secrets(url: &str, key: Option<&str>) -> Vec<String> {
    let mut secrets: Vec<String> = Vec::new();
    if let Ok(url) = reqwest::Url::parse(url) {
        let query = url.query().unwrap_or_default();
        let raw = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(_, value)| value.to_owned());
        let read = url.query_pairs().map(|(_, value)| value.into_owned());
        let user = [url.username(), url.password().unwrap_or_default()].map(str::to_owned);
        secrets.extend(raw.chain(read).chain(user));
    }
    secrets.extend(key.map(str::to_owned));
    secrets.retain(|text| text.len() >= SECRET_BYTES_MIN);
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_urls_have_no_secrets() {
        assert_eq!(without_secrets("https://user:word@host:8/v1/?key=secret#x"), "https://host:8/v1");
    }

    #[test]
    fn a_query_stays_behind_the_path() {
        let at = |base_url: &str| Endpoint { base_url: base_url.to_owned(), key: "".into(), headers: HeaderMap::new() };
        assert_eq!(at("http://h/v1/?version=2").url("/chat"), "http://h/v1/chat?version=2");
        assert_eq!(at("http://h/v1").url("/chat"), "http://h/v1/chat");
    }
}
