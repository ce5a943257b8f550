//! Tools of servers that speak the Model Context Protocol (MCP), under the same policy as one's own.

mod connection;
mod said;

use std::fmt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::NodeError;
use reqwest::Url;
use rmcp::model::CallToolRequestParams;
use serde_json::{Map, Value};

use crate::names::{NAME_MAX, as_name};
use crate::tools::{Credentials, Risk, Said, Tool};
use connection::{Connection, Way, keep_keys_back, program};
use said::{node_error, said};

/// How long a server may take to answer before it is used.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The name of the token among the credentials.
const TOKEN: &str = "token";

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
/// // The server says what only reads, and what destroys. What else cannot be taken back is for you to say.
/// let tools = notes.tools().await?.into_iter().chain(wiki.tools().await?);
/// let tools = tools.map(|tool| if tool.spec().name == "notes_delete" { tool.risk(Risk::Irreversible) } else { tool });
/// let node = ToolsNode::new(tools)?.allow(["notes_add", "notes_delete", "search"])?;
/// # Ok(()) }
/// ```
#[must_use]
pub struct McpServer {
    way: Way,
    credentials: Credentials,
    prefix: String,
    timeout: Duration,
}

impl McpServer {
    /// A server that is started as a child process, and spoken to over its standard input and output.
    ///
    /// It sees the variables that the command sets, and of this process's environment the path, the home and the language only: no keys. A server that has
    /// ended is started again, by the same command, for the next call.
    pub fn child(mut command: Command) -> Self {
        keep_keys_back(&mut command);
        Self::new(Way::Child(Mutex::new(command.into())), Credentials::default())
    }

    /// A server at that URL, by the protocol's streamable HTTP. Its query and its password count as keys: no error and no record shows them.
    pub fn http(url: impl Into<String>) -> Self {
        let url = url.into();
        let keys = Url::parse(&url).map(|url| (url.password().map(str::to_owned), url.query().map(str::to_owned)));
        let (password, query) = keys.unwrap_or_default();
        let keys = [("password of the URL", password), ("query of the URL", query)];
        let credentials = keys.into_iter().filter_map(|(name, key)| Some((name.to_owned(), key?))).collect();
        Self::new(Way::Http { url }, credentials)
    }

    fn new(way: Way, credentials: Credentials) -> Self {
        Self { way, credentials, prefix: String::new(), timeout: CONNECT_TIMEOUT }
    }

    /// The bearer token that goes to a server over HTTP. A child process gets its keys by its command.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        if matches!(self.way, Way::Http { .. }) {
            self.credentials.add(TOKEN.to_owned(), token.into());
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
        let Self { way, credentials, prefix, timeout } = self;
        let connection = Connection::open(way, credentials, timeout).await?;
        Ok(McpClient { connection: Arc::new(connection), prefix })
    }
}

/// Where a server is, without keys.
fn shown(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else { return "an address that is no URL".to_owned() };
    url.set_query(None);
    url.set_fragment(None);
    // Where there can be neither, there is none.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    url.into()
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, place) = match &self.way {
            Way::Child(command) => ("program", program(command)),
            Way::Http { url } => ("url", shown(url)),
        };
        f.debug_struct("McpServer").field(kind, &place).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// A connection to an [`McpServer`]. It ends, and its child process with it, when it and all tools that came of it are dropped.
///
/// A server that has ended is started, or connected to, again for the next call, with what it had in memory lost. The call in which it ended is a failure of a tool
/// that reads, and in doubt for one that writes. Where it cannot be started again, nothing was done, and the model is told so.
#[derive(Clone)]
pub struct McpClient {
    connection: Arc<Connection>,
    prefix: String,
}

impl McpClient {
    /// The tools of the server, as they are now.
    ///
    /// Names, descriptions and schemas are the server's words, which a model reads: connect to servers you trust, and allow the tools you know
    /// ([`ToolsNode::allow`](crate::ToolsNode::allow)). In a name, what endpoints do not take becomes `_`, and one that is too long ends in a hash. A tool that says
    /// it only reads is a [`Risk::Read`], one that says it destroys a [`Risk::Irreversible`], any other one a [`Risk::Write`].
    ///
    /// A failure that the server reports is the result of the call, and a failure to a [`Guard`](ferrata::Guard): it is known what came of it. A call that the
    /// server refuses was not performed. Where there is no answer, a call that writes is in doubt.
    ///
    /// # Errors
    ///
    /// The server does not say, or takes too long.
    pub async fn tools(&self) -> Result<Vec<Tool>, McpError> {
        let service = self.connection.service().await?;
        let timeout = self.connection.timeout;
        let late = |_| McpError::new(format!("the server did not list its tools within {timeout:?}"));
        let listed = tokio::time::timeout(timeout, service.list_all_tools()).await.map_err(late)?;
        self.connection.look_at(&service, &listed).await;
        let none = |error| self.connection.error(format!("the server does not list its tools: {error}"));
        Ok(listed.map_err(none)?.into_iter().map(|tool| self.tool(tool)).collect())
    }

    fn tool(&self, listed: rmcp::model::Tool) -> Tool {
        let (connection, inner) = (Arc::clone(&self.connection), listed.name.to_string());
        let (reads, destroys) = listed
            .annotations
            .as_ref()
            .map_or((false, false), |said| (said.read_only_hint == Some(true), said.destructive_hint == Some(true)));
        let risk = match (reads, destroys) {
            (_, true) => Risk::Irreversible,
            (true, false) => Risk::Read,
            (false, false) => Risk::Write,
        };
        let run = move |arguments: Value| {
            let (connection, inner) = (Arc::clone(&connection), inner.clone());
            async move { call(&connection, inner, arguments).await }
        };
        let (name, description) = (name_of(&self.prefix, &listed.name), listed.description.unwrap_or_default());
        let schema = Value::Object(listed.input_schema.as_ref().clone());
        let tool = Tool::of_server(name, description.into_owned(), schema, self.connection.credentials.clone(), run);
        tool.risk(risk)
    }
}

async fn call(connection: &Connection, name: String, arguments: Value) -> Result<Said, NodeError> {
    let service = connection.service().await.map_err(|error| {
        NodeError::new(format!("the MCP server has ended, and cannot be used again: {error}")).transient().not_performed()
    })?;
    let arguments: Map<String, Value> = if let Value::Object(arguments) = arguments { arguments } else { Map::new() };
    let answer = service.call_tool(CallToolRequestParams::new(name).with_arguments(arguments)).await;
    connection.look_at(&service, &answer).await;
    answer.map(said).map_err(node_error)
}

/// A name that endpoints take.
fn name_of(prefix: &str, name: &str) -> String {
    let whole = format!("{prefix}{name}");
    let mut taken = as_name(&whole);
    if taken.len() > NAME_MAX {
        let hash = blake3::hash(whole.as_bytes()).to_hex();
        taken.truncate(NAME_MAX - 9);
        taken = format!("{taken}_{}", &hash[..8]);
    }
    taken
}

impl fmt::Debug for McpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpClient").field("prefix", &self.prefix).finish_non_exhaustive()
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
