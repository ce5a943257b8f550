//! Tools of servers that speak the Model Context Protocol (MCP), under the same policy as one's own.

use std::ffi::OsString;
use std::fmt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ferrata::NodeError;
use rmcp::model::{CallToolRequestParams, CallToolResult, ContentBlock, ErrorCode, ResourceContents};
use rmcp::service::{RunningService, ServiceError};
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use rmcp::transport::{ConfigureCommandExt, TokioChildProcess};
use rmcp::{RoleClient, ServiceExt};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::tools::{Risk, Tool, ToolContext};

/// How long a server may take to answer before it is used.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// What a child process gets of this one's environment: where things are, and nothing that could be a key.
const ENVIRONMENT: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "TZ",
    // Windows
    "APPDATA",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATHEXT",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
];

/// A server of tools that speaks the Model Context Protocol: a child process, or an endpoint over HTTP.
///
/// ```no_run
/// use ferrata_nodes::{McpServer, Risk, Tool, ToolsNode};
/// use std::process::Command;
///
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// let mut command = Command::new("notes-server");
/// command.arg("--read-write").env("NOTES_TOKEN", "only this server sees it");
/// let notes = McpServer::child(command).prefix("notes_").connect().await?;
/// let wiki = McpServer::http("https://wiki.example/mcp").token("another one").connect().await?;
///
/// // The server says what only reads. What cannot be taken back is for you to say.
/// let tools = notes.tools().await?.into_iter().chain(wiki.tools().await?);
/// let tools = tools.map(|tool| if tool.spec().name == "notes_delete" { tool.risk(Risk::Irreversible) } else { tool });
/// let node = ToolsNode::new(tools)?.allow(["notes_add", "notes_delete", "search"])?;
/// # Ok(()) }
/// ```
#[must_use]
pub struct McpServer {
    way: Way,
    prefix: String,
    timeout: Duration,
}

enum Way {
    Child(Command),
    Http { url: String, token: Option<SecretString> },
}

impl McpServer {
    /// A server that is started as a child process, and spoken to over its standard input and output.
    ///
    /// It sees the variables that the command sets, and of this process's environment the path, the home and the language only: no keys.
    pub fn child(command: Command) -> Self {
        Self { way: Way::Child(command), prefix: String::new(), timeout: CONNECT_TIMEOUT }
    }

    /// A server at that URL, by the protocol's streamable HTTP.
    pub fn http(url: impl Into<String>) -> Self {
        Self { way: Way::Http { url: url.into(), token: None }, prefix: String::new(), timeout: CONNECT_TIMEOUT }
    }

    /// The bearer token that goes to a server over HTTP. A child process gets its keys by its command.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        if let Way::Http { token: known, .. } = &mut self.way {
            *known = Some(SecretString::from(token.into()));
        }
        self
    }

    /// What goes before the names of its tools, so that those of two servers differ.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long it may take to answer when it is connected to, and when it is asked for its tools: 30 seconds if nothing is said.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Starts it, or connects to it.
    ///
    /// # Errors
    ///
    /// It cannot be started or reached, does not speak the protocol, or takes too long.
    pub async fn connect(self) -> Result<McpClient, McpError> {
        let Self { way, prefix, timeout } = self;
        let connecting = async {
            match way {
                Way::Child(command) => {
                    let program = command.get_program().display().to_string();
                    let child = TokioChildProcess::new(tokio::process::Command::from(command).configure(keep_keys_back));
                    let child = child.map_err(|error| McpError::new(format!("\"{program}\" cannot be started: {error}")))?;
                    ().serve(child).await.map_err(|error| McpError::new(format!("\"{program}\" is no MCP server: {error}")))
                }
                Way::Http { url, token } => {
                    let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
                    if let Some(token) = &token {
                        config = config.auth_header(token.expose_secret());
                    }
                    let transport = StreamableHttpClientTransport::from_config(config);
                    ().serve(transport).await.map_err(|error| McpError::new(format!("no MCP server at {url}: {error}")))
                }
            }
        };
        let late = |_| McpError::new(format!("the server did not answer within {timeout:?}"));
        let service = tokio::time::timeout(timeout, connecting).await.map_err(late)??;
        Ok(McpClient { service: Arc::new(service), prefix, timeout })
    }
}

/// Leaves the child what the command sets, and what is no key.
fn keep_keys_back(command: &mut tokio::process::Command) {
    let command = command.as_std_mut();
    let owned = |(name, value): (&std::ffi::OsStr, Option<&std::ffi::OsStr>)| Some((name.to_owned(), value?.to_owned()));
    let set: Vec<(OsString, OsString)> = command.get_envs().filter_map(owned).collect();
    let kept = ENVIRONMENT.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    let all: Vec<_> = kept.chain(set).collect();
    command.env_clear().envs(all);
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, place) = match &self.way {
            Way::Child(command) => ("program", command.get_program().display().to_string()),
            Way::Http { url, .. } => ("url", url.clone()),
        };
        f.debug_struct("McpServer").field(kind, &place).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// A connection to an [`McpServer`]. It ends, and its child process with it, when it and all tools that came of it are dropped.
///
/// A server that has ended is not started again: its tools fail from then on, and a new connection has new ones.
#[derive(Clone)]
pub struct McpClient {
    service: Arc<RunningService<RoleClient, ()>>,
    prefix: String,
    timeout: Duration,
}

impl McpClient {
    /// The tools of the server, as they are now.
    ///
    /// Names, descriptions and schemas are the server's words, which a model reads: connect to servers you trust, and allow the tools you know
    /// ([`ToolsNode::allow`](crate::ToolsNode::allow)). A tool that says it only reads is a [`Risk::Read`], any other one a [`Risk::Write`].
    ///
    /// A failure that the server reports is the result of the call: it is known what came of it. A call that the server refuses was not performed. Where there
    /// is no answer, a call that writes is in doubt.
    ///
    /// # Errors
    ///
    /// The server does not say, or takes too long.
    pub async fn tools(&self) -> Result<Vec<Tool>, McpError> {
        let late = |_| McpError::new(format!("the server did not list its tools within {:?}", self.timeout));
        let listed = tokio::time::timeout(self.timeout, self.service.list_all_tools()).await.map_err(late)?;
        let listed = listed.map_err(|error| McpError::new(format!("the server does not list its tools: {error}")))?;
        Ok(listed.into_iter().map(|tool| self.tool(tool)).collect())
    }

    fn tool(&self, listed: rmcp::model::Tool) -> Tool {
        let (service, inner) = (Arc::clone(&self.service), listed.name.to_string());
        let reads = listed.annotations.as_ref().is_some_and(|said| said.read_only_hint == Some(true));
        let call = move |arguments: Value, _: ToolContext| {
            let service = Arc::clone(&service);
            let mut request = CallToolRequestParams::new(inner.clone());
            if let Value::Object(arguments) = arguments {
                request = request.with_arguments(arguments);
            }
            async move { service.peer().call_tool(request).await.map(text_of).map_err(node_error) }
        };
        let (name, description) = (format!("{}{}", self.prefix, listed.name), listed.description.unwrap_or_default());
        let schema = Value::Object(listed.input_schema.as_ref().clone());
        Tool::with_schema(name, description, schema, call).risk(if reads { Risk::Read } else { Risk::Write })
    }
}

impl fmt::Debug for McpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpClient").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// What a model can read of a result.
fn text_of(result: CallToolResult) -> String {
    let parts: Vec<String> = result.content.into_iter().map(part).collect();
    let text = match result.structured_content {
        Some(value) if parts.is_empty() => value.to_string(),
        _ => parts.join("\n"),
    };
    if result.is_error == Some(true) { format!("The server says that the call failed: {text}") } else { text }
}

fn part(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Resource(inside) => match inside.resource {
            ResourceContents::TextResourceContents { text, .. } => text,
            ResourceContents::BlobResourceContents { uri, .. } => format!("[Left out: the data of {uri}.]"),
            _ => "[Left out: something that is no text.]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}: {}]", link.name, link.uri),
        ContentBlock::Image(image) => format!("[Left out: an image, {}.]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[Left out: a recording, {}.]", audio.mime_type),
        _ => "[Left out: something that is no text.]".to_owned(),
    }
}

fn node_error(error: ServiceError) -> NodeError {
    let unauthorised = error.auth_challenge().is_some();
    match &error {
        _ if unauthorised => NodeError::new(format!("the MCP server wants another token: {error}")).terminal().not_performed(),
        ServiceError::McpError(said) => {
            let refused =
                [ErrorCode::INVALID_PARAMS, ErrorCode::METHOD_NOT_FOUND, ErrorCode::INVALID_REQUEST, ErrorCode::PARSE_ERROR];
            let told = NodeError::new(said.message.to_string()).deterministic();
            if refused.contains(&said.code) { told.not_performed() } else { told }
        }
        _ => NodeError::new(format!("the MCP server gave no answer: {error}")).transient(),
    }
}

/// An MCP server that cannot be used.
///
/// ```
/// use ferrata_nodes::McpServer;
/// use std::process::Command;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let error = McpServer::child(Command::new("no-such-program")).connect().await.unwrap_err();
/// assert!(error.to_string().starts_with("\"no-such-program\" cannot be started: "));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct McpError {
    message: String,
}

impl McpError {
    fn new(message: String) -> Self {
        Self { message }
    }
}
