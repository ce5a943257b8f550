//! Any endpoint with OpenAI's chat API.

mod answer;
mod assemble;
mod failure;
mod http;
mod sse;
mod wire;

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use async_openai::Client;

use crate::error::{ModelError, ModelErrorClass};
use crate::model::{ChatFuture, ChatModel, ChatReply, ChatRequest, Tell};
use failure::Asked;
use http::Endpoint;

const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(180);

/// A model behind any endpoint with OpenAI's chat API: OpenAI itself, vLLM, llama.cpp, Ollama, a gateway.
///
/// Each request is sent once, to that endpoint and nowhere else: nothing is retried here, and no redirect is followed. Answers are read leniently, since many endpoints that call themselves compatible
/// leave fields out or add their own. The key is in no error and in no debug output, and neither are user, password and query of the URL, even where the
/// endpoint repeats them.
///
/// [`chat`](ChatModel::chat) awaits the whole answer: a model that thinks for longer than [`read_timeout`](Self::read_timeout) ends in a transient error.
/// [`chat_streamed`](ChatModel::chat_streamed) tells of it as it comes. A stream that ends without saying that it does is an error, with what had come by
/// then; what a server sends in place of a stream is read as what it is. A stream is asked for with its usage; for a server that refuses the field,
/// `.setting("stream_options", Value::Null)` leaves it out, and tokens are counted. Proxies are taken from the environment (`HTTPS_PROXY`, `NO_PROXY`).
///
/// ```no_run
/// use ferrata::state::Message;
/// use ferrata_nodes::{ChatModel, ChatRequest, OpenAi};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = OpenAi::new("http://127.0.0.1:8080/v1", "qwen3-8b").api_key("local");
/// let reply = model.chat(&ChatRequest::new([Message::user("What is a log?")])).await?;
/// println!("{}", reply.content);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct OpenAi {
    base_url: String,
    model: String,
    api_key: Option<String>,
    connect_timeout: Duration,
    read_timeout: Duration,
    // Built at the first request, so that the settings above can be given in any order and without a `Result`.
    client: OnceLock<Client<Endpoint>>,
}

impl OpenAi {
    /// A model at an endpoint; the URL is that of the API's root, such as `https://api.openai.com/v1`.
    ///
    /// A URL that is none is an error of the first request.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        let base_url = base_url.into();
        // A slash at the end of a query may be a part of a key.
        let base_url = if base_url.contains('?') { base_url } else { base_url.trim_end_matches('/').to_owned() };
        Self {
            base_url,
            model: model.into(),
            api_key: None,
            connect_timeout: CONNECT_TIMEOUT,
            read_timeout: READ_TIMEOUT,
            client: OnceLock::new(),
        }
    }

    /// The model that the environment names.
    ///
    /// | variable | meaning |
    /// | --- | --- |
    /// | `OPENAI_API_KEY` | the key; may be missing for an endpoint that wants none |
    /// | `OPENAI_BASE_URL` | the API's root; OpenAI's own if missing |
    /// | `OPENAI_MODEL` | the model; required once one of the others is set |
    ///
    /// `None` if neither a key nor a URL is set. A variable that is set to nothing counts as missing.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] names the variable that is missing or malformed.
    pub fn from_env() -> Result<Option<Self>, SettingsError> {
        Self::from_variables(|name| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(SettingsError::malformed(name, "is not UTF-8")),
        })
    }

    /// As [`from_env`](Self::from_env), with the variables from elsewhere.
    ///
    /// # Errors
    ///
    /// As there, and those of the closure.
    ///
    /// ```
    /// use ferrata_nodes::{ChatModel, OpenAi};
    ///
    /// let model = OpenAi::from_variables(|name| {
    ///     Ok(match name {
    ///         "OPENAI_BASE_URL" => Some("http://127.0.0.1:8080/v1".to_owned()),
    ///         "OPENAI_MODEL" => Some("qwen3-8b".to_owned()),
    ///         _ => None,
    ///     })
    /// });
    /// assert_eq!(model?.expect("a URL is set").name(), "qwen3-8b");
    /// assert!(OpenAi::from_variables(|_| Ok(None))?.is_none());
    /// # Ok::<(), ferrata_nodes::SettingsError>(())
    /// ```
    pub fn from_variables(
        read: impl Fn(&'static str) -> Result<Option<String>, SettingsError>,
    ) -> Result<Option<Self>, SettingsError> {
        let value = |name| Ok(read(name)?.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()));
        let (key, url) = (value("OPENAI_API_KEY")?, value("OPENAI_BASE_URL")?);
        if key.is_none() && url.is_none() {
            return Ok(None);
        }
        let model = value("OPENAI_MODEL")?.ok_or(SettingsError::Missing { variable: "OPENAI_MODEL" })?;
        let url = url.unwrap_or_else(|| OPENAI_BASE_URL.to_owned());
        if !http::is_http_url(&url) {
            return Err(SettingsError::malformed("OPENAI_BASE_URL", "is not an http or https URL"));
        }
        let mut found = Self::new(url, model);
        if let Some(key) = key {
            if !http::is_header_text(&key) {
                return Err(SettingsError::malformed("OPENAI_API_KEY", "has characters that no key has"));
            }
            found = found.api_key(key);
        }
        Ok(Some(found))
    }

    /// The same model with that key.
    pub fn api_key(mut self, key: impl Into<String>) -> Self {
        self.api_key = Some(key.into());
        self.client = OnceLock::new();
        self
    }

    /// The same model with another time for connecting; 10 seconds by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self.client = OnceLock::new();
        self
    }

    /// The same model with another time for which the endpoint may stay silent; 180 seconds by default.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self.client = OnceLock::new();
        self
    }

    fn client(&self) -> Result<&Client<Endpoint>, ModelError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let built = http::client(&self.base_url, self.api_key.as_deref(), self.connect_timeout, self.read_timeout)?;
        Ok(self.client.get_or_init(|| built))
    }

    async fn answer(&self, request: &ChatRequest, tell: Option<&mut Tell<'_>>) -> Result<ChatReply, ModelError> {
        let asked = Asked { base_url: &self.base_url, key: self.api_key.as_deref(), model: &self.model };
        let body = wire::request_body(request, &self.model, &self.base_url, tell.is_some());
        let response = http::post(self.client()?, body).await.map_err(|error| asked.of_client(error))?;
        if !response.status().is_success() {
            return Err(asked.of_status(http::refusal(response).await));
        }
        answer::read(response, request, asked, tell).await
    }
}

impl ChatModel for OpenAi {
    fn name(&self) -> &str {
        &self.model
    }

    fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a> {
        Box::pin(self.answer(request, None))
    }

    fn chat_streamed<'a>(&'a self, request: &'a ChatRequest, tell: &'a mut Tell<'_>) -> ChatFuture<'a> {
        Box::pin(self.answer(request, Some(tell)))
    }
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAi")
            .field("base_url", &http::without_secrets(&self.base_url))
            .field("model", &self.model)
            .field("api_key", &self.api_key.as_ref().map(|_| "(set)"))
            .field("connect_timeout", &self.connect_timeout)
            .field("read_timeout", &self.read_timeout)
            .finish_non_exhaustive()
    }
}

/// The environment does not say completely which model to use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A variable is needed and not set.
    #[error("{variable} is not set; set it to the name of the model, or unset OPENAI_API_KEY and OPENAI_BASE_URL")]
    Missing {
        /// Its name.
        variable: &'static str,
    },
    /// A variable is set to something that cannot be used.
    #[error("{variable} {problem}; correct it or unset it")]
    Malformed {
        /// Its name.
        variable: &'static str,
        /// What is wrong with the value, without the value itself.
        problem: &'static str,
    },
}

impl SettingsError {
    fn malformed(variable: &'static str, problem: &'static str) -> Self {
        Self::Malformed { variable, problem }
    }
}

impl From<SettingsError> for ModelError {
    fn from(error: SettingsError) -> Self {
        Self::new(ModelErrorClass::BadRequest, error.to_string()).with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Option<OpenAi>, SettingsError> {
        OpenAi::from_variables(|name| Ok(variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())))
    }

    #[test]
    fn the_environment_names_what_is_wrong() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[("OPENAI_API_KEY", "sk-1")], "OPENAI_MODEL"),
            (&[("OPENAI_BASE_URL", "http://localhost/v1"), ("OPENAI_MODEL", " ")], "OPENAI_MODEL"),
            (&[("OPENAI_BASE_URL", "localhost:8080"), ("OPENAI_MODEL", "m")], "OPENAI_BASE_URL"),
            (&[("OPENAI_BASE_URL", "file:///etc"), ("OPENAI_MODEL", "m")], "OPENAI_BASE_URL"),
            (&[("OPENAI_API_KEY", "sk\n1"), ("OPENAI_MODEL", "m")], "OPENAI_API_KEY"),
        ];
        for (variables, named) in cases {
            let error = from(variables).unwrap_err().to_string();
            assert!(error.starts_with(named) && !error.contains("sk"), "{error}");
        }
    }

    #[test]
    fn nothing_set_is_no_model() {
        assert!(from(&[]).unwrap().is_none());
        assert!(from(&[("OPENAI_MODEL", "m"), ("OPENAI_API_KEY", "")]).unwrap().is_none());
    }

    #[test]
    fn a_key_alone_means_openai() {
        let model = from(&[("OPENAI_API_KEY", "sk-secret"), ("OPENAI_MODEL", "m")]).unwrap().unwrap();
        assert_eq!(model.base_url, OPENAI_BASE_URL);
        assert!(!format!("{model:?}").contains("secret"));
    }
}
