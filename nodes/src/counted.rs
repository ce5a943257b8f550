//! Token counts that are made once for each message.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrata::state::Message;

use crate::model::{AnswerSchema, ToolSpec};
use crate::tokens::{Tiktoken, TokenCounter};

/// How many messages a cache knows at least.
const KNOWN_MIN: usize = 32_768;

/// A counter that counts each message once. Clones share what they know. A request is counted as the sum of its messages and of what is around them, whatever
/// the counter says of whole requests.
///
/// A message is known by its id and a hash of all that counts, so one that was changed under its id is counted again. At most 65,536 counts are kept, of the
/// messages that were asked for last.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use ferrata::state::Message;
/// use ferrata_nodes::{TokenCache, TokenCounter};
///
/// #[derive(Debug, Default)]
/// struct Chars(AtomicUsize);
///
/// impl TokenCounter for Chars {
///     fn count(&self, text: &str) -> usize {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         text.chars().count()
///     }
/// }
///
/// let counter = std::sync::Arc::new(Chars::default());
/// let cache = TokenCache::new(counter.clone());
/// let message = Message::user("Hello").with_id("m1");
/// assert_eq!((cache.count_message(&message), cache.count_message(&message)), (9, 9));
/// assert_eq!(counter.0.load(Ordering::Relaxed), 1);
/// assert_eq!(cache.count_message(&Message::user("Hello!").with_id("m1")), 10);
/// ```
#[derive(Clone)]
pub struct TokenCache {
    counter: Arc<dyn TokenCounter>,
    known: Arc<Mutex<Known>>,
    hasher: RandomState,
}

/// Two generations: what is asked for again moves to the young one, and the old one goes when the young one is full.
#[derive(Default)]
struct Known {
    young: HashMap<Key, usize>,
    old: HashMap<Key, usize>,
}

/// Hash and length: two messages of one thread with the same are not to be expected in the life of a program.
type Key = (u64, usize);

impl TokenCache {
    /// A cache around that counter.
    pub fn new(counter: impl TokenCounter + 'static) -> Self {
        Self { counter: Arc::new(counter), known: Arc::default(), hasher: RandomState::new() }
    }

    fn key(&self, message: &Message) -> Key {
        let Message { id, role, content, tool_calls, tool_call_id } = message;
        let mut hasher = self.hasher.build_hasher();
        (id, std::mem::discriminant(role), content, tool_call_id).hash(&mut hasher);
        for call in tool_calls {
            (&call.id, &call.name, &call.arguments).hash(&mut hasher);
        }
        (hasher.finish(), content.len())
    }

    // A count that a panic has kept from being stored is made again.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn get(&mut self, key: Key) -> Option<usize> {
        if let Some(&tokens) = self.young.get(&key) {
            return Some(tokens);
        }
        let tokens = self.old.remove(&key)?;
        self.put(key, tokens);
        Some(tokens)
    }

    fn put(&mut self, key: Key, tokens: usize) {
        if self.young.len() >= KNOWN_MIN {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, tokens);
    }
}

impl TokenCounter for TokenCache {
    fn count(&self, text: &str) -> usize {
        self.counter.count(text)
    }

    fn count_message(&self, message: &Message) -> usize {
        let key = self.key(message);
        if let Some(tokens) = self.known().get(key) {
            return tokens;
        }
        let tokens = self.counter.count_message(message);
        self.known().put(key, tokens);
        tokens
    }

    fn count_around(&self, tools: &[ToolSpec], schema: Option<&AnswerSchema>) -> usize {
        self.counter.count_around(tools, schema)
    }

    fn truncate<'t>(&self, text: &'t str, tokens_max: usize) -> &'t str {
        self.counter.truncate(text, tokens_max)
    }
}

impl Default for TokenCache {
    fn default() -> Self {
        Self::new(Tiktoken::default())
    }
}

impl fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenCache").field(&self.counter).finish()
    }
}

/// The tokens of a conversation that grows: what one more message costs is known without a look at the others.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata_nodes::{Tally, Tiktoken};
///
/// let mut tally = Tally::new(Tiktoken::default());
/// tally.put(&Message::user("Hello").with_id("m1"));
/// tally.put(&Message::assistant("Hello, what can I do?").with_id("m2"));
/// assert_eq!(tally.total(), 5 + 11);
///
/// let next = Message::user("Book a table.").with_id("m3");
/// assert_eq!(tally.total_with(&next), 16 + 8);
/// assert_eq!(tally.total(), 16, "it was only asked");
///
/// tally.put(&Message::assistant("Hello.").with_id("m2"));
/// tally.remove("m1");
/// assert_eq!(tally.total(), 6);
/// ```
#[derive(Clone, Debug)]
pub struct Tally {
    counter: Arc<dyn TokenCounter>,
    by_id: HashMap<String, usize>,
    total: usize,
}

impl Tally {
    /// The tally of no message.
    pub fn new(counter: impl TokenCounter + 'static) -> Self {
        Self { counter: Arc::new(counter), by_id: HashMap::new(), total: 0 }
    }

    /// The tokens of all messages, the sum of [`count_message`](TokenCounter::count_message).
    pub fn total(&self) -> usize {
        self.total
    }

    /// What the total would be with this message, which takes the place of one with its id.
    pub fn total_with(&self, message: &Message) -> usize {
        self.total - self.by_id.get(&message.id).copied().unwrap_or(0) + self.counter.count_message(message)
    }

    /// Counts a message in, in the place of one with its id. One without an id is new each time.
    pub fn put(&mut self, message: &Message) {
        let total = self.total_with(message);
        if !message.id.is_empty() {
            let before = self.by_id.get(&message.id).copied().unwrap_or(0);
            self.by_id.insert(message.id.clone(), total + before - self.total);
        }
        self.total = total;
    }

    /// Counts the message with that id out.
    pub fn remove(&mut self, id: &str) {
        self.total -= self.by_id.remove(id).unwrap_or(0);
    }
}
