//! What a store gets of secret values: the hook that a program hands in.

use std::error::Error as StdError;
use std::fmt;

use serde_json::Value;

use crate::id::{Path, ThreadName};

/// Where a secret value belongs: the same when it is sealed and when it is opened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SecretPlace<'p> {
    /// The thread.
    pub thread: &'p ThreadName,
    /// The graph; empty for the outermost one.
    pub path: &'p Path,
    /// The field that is marked secret.
    pub field: &'p str,
}

/// What goes wrong in a [`Secrets`]. Its text is told to whoever runs the thread: it should not hold the value.
pub type SecretsError = Box<dyn StdError + Send + Sync>;

/// Says what a store gets of the values of secret fields, and gives them back. Handed in with [`Runner::secrets`](crate::Runner::secrets).
///
/// A value is a whole field, or what the field's merge rule takes one by one: an item, a message, what a key holds, an operand. Null, the empty
/// text, the empty list and the empty object tell nothing, and are stored as they are.
///
/// Both functions are called where the records are appended and read, and hold the run up: whatever takes long belongs into a node, or into a cache.
pub trait Secrets: Send + Sync + 'static {
    /// What is stored instead of the value: a reference, an encrypted text.
    ///
    /// # Errors
    ///
    /// The run ends with the code `secret`; nothing of the append is stored.
    fn seal(&self, place: SecretPlace<'_>, value: Value) -> Result<Value, SecretsError>;

    /// The value again, from what [`seal`](Self::seal) gave. `None` if it is not there any more: then the program has to hand it in.
    ///
    /// # Errors
    ///
    /// The thread cannot be read now (code `secret`). Nothing is changed.
    fn open(&self, place: SecretPlace<'_>, stored: Value) -> Result<Option<Value>, SecretsError>;
}

/// Secrets that are kept in memory only. The store learns that there was a value, and nothing of it.
///
/// A process that reads the thread has to be given the values again, with [`Thread::secret`](crate::Thread::secret), with an input or with an edit.
///
/// ```
/// use ferrata::{END, ForgetSecrets, Graph, Runner, START, State, View, store::MemoryStore};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Sync { #[state(secret)] token: String, done: bool }
///
/// async fn sync(s: View<Sync>) -> ferrata::Result<SyncUpdate> {
///     Ok(Sync::update().done(s.token == "key-to-the-hut"))
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let graph = Graph::<Sync>::new("sync").node("sync", sync).edge(START, "sync").edge("sync", END).build()?;
/// let runner = Runner::new(graph, MemoryStore::new()).secrets(ForgetSecrets);
/// let thread = runner.thread("t");
/// assert!(thread.run(Sync::update().token("key-to-the-hut")).await?.done().unwrap().done);
/// let log = serde_json::to_string(&thread.log().await?)?;
/// assert!(!log.contains("key-to-the-hut") && log.contains(r#""op":{"set":{"$secret":null}}"#));
///
/// // What is read from the store does not have it any more, and says so.
/// assert_eq!(thread.state().await?.missing, ["token"]);
/// assert_eq!(thread.resume().await.unwrap_err().code(), "secret-missing");
/// assert!(thread.secret("token", "key-to-the-hut").resume().await?.done().unwrap().done);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ForgetSecrets;

impl Secrets for ForgetSecrets {
    fn seal(&self, _: SecretPlace<'_>, _: Value) -> Result<Value, SecretsError> {
        Ok(Value::Null)
    }

    fn open(&self, _: SecretPlace<'_>, _: Value) -> Result<Option<Value>, SecretsError> {
        Ok(None)
    }
}

/// Secrets by two functions of one's own: an encryption, or a vault that gives a reference for a value and the value for the reference.
///
/// The functions are those of [`Secrets`], and their errors anything that converts into a boxed error.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
/// use ferrata::{END, Graph, Runner, SealSecrets, SecretPlace, START, State, View, store::MemoryStore};
/// use serde::{Deserialize, Serialize};
/// use serde_json::Value;
///
/// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// # struct Sync { #[state(secret)] token: String }
/// # async fn sync(_: View<Sync>) -> ferrata::Result<SyncUpdate> { Ok(Sync::update()) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// # let graph = Graph::<Sync>::new("sync").node("sync", sync).edge(START, "sync").edge("sync", END).build()?;
/// let vault: Arc<Mutex<HashMap<String, Value>>> = Arc::default();
/// let (kept, found) = (Arc::clone(&vault), vault);
/// let secrets = SealSecrets::new(
///     move |place: SecretPlace<'_>, value| {
///         let name = format!("{}/{}{}", place.thread, place.path, place.field);
///         kept.lock().map_err(|_| "the vault is shut")?.insert(name.clone(), value);
///         Ok::<_, &str>(Value::from(name))
///     },
///     move |_: SecretPlace<'_>, stored: Value| {
///         let found = found.lock().map_err(|_| "the vault is shut")?;
///         Ok::<_, &str>(stored.as_str().and_then(|name| found.get(name)).cloned())
///     },
/// );
/// let thread = Runner::new(graph, MemoryStore::new()).secrets(secrets).thread("t");
/// thread.run(Sync::update().token("key-to-the-hut")).await?;
/// assert_eq!(thread.state().await?.values.token, "key-to-the-hut");
/// assert!(serde_json::to_string(&thread.log().await?)?.contains(r#"{"$secret":"t/token"}"#));
/// # Ok(()) }
/// ```
pub struct SealSecrets<A, B> {
    seal: A,
    open: B,
}

impl<A, B, E, F> SealSecrets<A, B>
where
    A: Fn(SecretPlace<'_>, Value) -> Result<Value, E> + Send + Sync + 'static,
    B: Fn(SecretPlace<'_>, Value) -> Result<Option<Value>, F> + Send + Sync + 'static,
    E: Into<SecretsError>,
    F: Into<SecretsError>,
{
    /// Secrets that `seal` makes storable, and that `open` gives back.
    pub fn new(seal: A, open: B) -> Self {
        Self { seal, open }
    }
}

impl<A, B, E, F> Secrets for SealSecrets<A, B>
where
    A: Fn(SecretPlace<'_>, Value) -> Result<Value, E> + Send + Sync + 'static,
    B: Fn(SecretPlace<'_>, Value) -> Result<Option<Value>, F> + Send + Sync + 'static,
    E: Into<SecretsError>,
    F: Into<SecretsError>,
{
    fn seal(&self, place: SecretPlace<'_>, value: Value) -> Result<Value, SecretsError> {
        (self.seal)(place, value).map_err(Into::into)
    }

    fn open(&self, place: SecretPlace<'_>, stored: Value) -> Result<Option<Value>, SecretsError> {
        (self.open)(place, stored).map_err(Into::into)
    }
}

impl<A, B> fmt::Debug for SealSecrets<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealSecrets").finish_non_exhaustive()
    }
}
