//! A server that is spoken to: how it is started, and started again when it has ended.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::service::{RunningService, RxJsonRpcMessage, ServiceError, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use rmcp::{RoleClient, ServiceExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::McpError;
use crate::tools::Credentials;

/// How long a child process may go on once its input has ended.
const ENDS_WITHIN: Duration = Duration::from_secs(3);

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

pub(super) type Service = RunningService<RoleClient, ()>;

/// How a server is reached.
pub(super) enum Way {
    /// Each start is one of the same command, with all that it sets.
    Child(Mutex<Command>),
    Http {
        url: String,
    },
}

/// A server, and the connection to it that there is now.
pub(super) struct Connection {
    pub(super) way: Way,
    /// What is in no record and no error: the token, and the keys of the URL.
    pub(super) credentials: Credentials,
    pub(super) timeout: Duration,
    now: tokio::sync::Mutex<Result<Arc<Service>, McpError>>,
    /// How many starts have failed.
    failed: AtomicU64,
}

impl Connection {
    pub(super) async fn open(way: Way, credentials: Credentials, timeout: Duration) -> Result<Self, McpError> {
        let now = tokio::sync::Mutex::new(Err(McpError::new("it was never connected to".to_owned())));
        let connection = Self { way, credentials, timeout, now, failed: AtomicU64::new(0) };
        connection.service().await?;
        Ok(connection)
    }

    /// The connection; a new one if there was none, or the server has ended. Whoever holds it keeps it open.
    pub(super) async fn service(&self) -> Result<Arc<Service>, McpError> {
        let before = self.failed.load(Ordering::Relaxed);
        let mut now = self.now.lock().await;
        match &*now {
            Ok(service) if !service.is_transport_closed() => return Ok(Arc::clone(service)),
            // Calls that waited for the same start do not start it once more each.
            Err(error) if self.failed.load(Ordering::Relaxed) > before => return Err(error.clone()),
            _ => {}
        }
        *now = self.start().await.map(Arc::new);
        if now.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        now.clone()
    }

    /// Looks at what came of a request: after the end of the connection the next one has a new one.
    pub(super) async fn look_at<T>(&self, used: &Arc<Service>, said: &Result<T, ServiceError>) {
        if matches!(said, Err(ServiceError::TransportClosed)) {
            let mut now = self.now.lock().await;
            if now.as_ref().is_ok_and(|service| Arc::ptr_eq(service, used)) {
                *now = Err(McpError::new("it has ended".to_owned()));
            }
        }
    }

    /// What is told of it: without keys.
    pub(super) fn error(&self, text: String) -> McpError {
        McpError::new(self.credentials.censored(&text).unwrap_or(text))
    }

    async fn start(&self) -> Result<Service, McpError> {
        let starting = async {
            match &self.way {
                Way::Child(command) => {
                    let program = program(command);
                    let child = Process::start(&mut command.lock().unwrap_or_else(PoisonError::into_inner));
                    let child = child.map_err(|error| self.error(format!("\"{program}\" cannot be started: {error}")))?;
                    ().serve(child).await.map_err(|error| self.error(format!("\"{program}\" is no MCP server: {error}")))
                }
                Way::Http { url } => {
                    let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
                    if let Some(token) = self.credentials.get(super::TOKEN) {
                        config = config.auth_header(token);
                    }
                    let transport = StreamableHttpClientTransport::from_config(config);
                    let none = |error| self.error(format!("no MCP server at {}: {error}", super::shown(url)));
                    ().serve(transport).await.map_err(none)
                }
            }
        };
        let late = |_| McpError::new(format!("the server did not answer within {:?}", self.timeout));
        tokio::time::timeout(self.timeout, starting).await.map_err(late)?
    }
}

pub(super) fn program(command: &Mutex<Command>) -> String {
    command.lock().unwrap_or_else(PoisonError::into_inner).as_std().get_program().display().to_string()
}

/// Leaves the child what the command sets, and what is no key. What the command takes out stays out.
pub(super) fn keep_keys_back(command: &mut std::process::Command) {
    let owned = |(name, value): (&OsStr, Option<&OsStr>)| (name.to_owned(), value.map(OsStr::to_owned));
    let said: Vec<(OsString, Option<OsString>)> = command.get_envs().map(owned).collect();
    let of_ours = ENVIRONMENT.iter().filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)));
    let kept: Vec<_> = of_ours.filter(|(name, _)| !said.iter().any(|(other, _)| other == name)).collect();
    let set = said.into_iter().filter_map(|(name, value)| Some((name, value?)));
    command.env_clear().envs(kept).envs(set);
}

/// A child process that is spoken to over its standard input and output.
struct Process {
    child: Child,
    pipe: AsyncRwTransport<RoleClient, ChildStdout, ChildStdin>,
}

impl Process {
    fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let none = || io::Error::other("it has no standard input and output");
        let (input, output) = child.stdin.take().zip(child.stdout.take()).ok_or_else(none)?;
        Ok(Self { child, pipe: AsyncRwTransport::new(output, input) })
    }
}

impl Transport<RoleClient> for Process {
    type Error = io::Error;

    fn send(&mut self, item: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.pipe.send(item)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.pipe.receive()
    }

    /// Ends its input, and the process itself if it does not end then.
    async fn close(&mut self) -> io::Result<()> {
        self.pipe.close().await?;
        match tokio::time::timeout(ENDS_WITHIN, self.child.wait()).await {
            Ok(ended) => ended.map(drop),
            Err(_) => self.child.kill().await,
        }
    }
}
