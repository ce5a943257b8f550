//! Finding again what was folded away.

use std::collections::HashMap;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::OnceLock;

use bm25::{SearchEngine, SearchEngineBuilder, Tokenizer};
use ferrata::log::{Entry, Record};
use ferrata::state::{Change, Message, Op};
use serde_json::Value;

use crate::error::{ModelError, ModelErrorClass};
use crate::extractive::for_each_feature;
use crate::summary::holds_summary;

/// The messages of a conversation as they were said, folded or not, to be found by id, by words or by meaning.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata::store::MemoryStore;
/// use ferrata::{END, Graph, Runner, START, State};
/// use ferrata_nodes::{Extractive, Originals, RollingSummary};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Chat { #[state(messages)] messages: Vec<Message> }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let summary = RollingSummary::new().budget(300).over(Chat::MESSAGES, Extractive::new());
/// let graph = Graph::<Chat>::new("chat").node("summary", summary).edge(START, "summary").edge("summary", END).build()?;
/// let mut said: Vec<_> = (0..50).map(|n| Message::user(format!("Table {n} is by the door."))).collect();
/// said[20] = Message::user("The code word is PLOVER.").with_id("m20");
/// let runner = Runner::new(graph, MemoryStore::new());
/// let thread = runner.thread("t");
/// let state = thread.run(Chat::update().messages(said)).await?.done().unwrap();
/// assert!(!state.messages.iter().any(|message| message.id == "m20"), "it was folded");
///
/// let originals = Originals::in_log(&thread.log().await?, "messages");
/// assert_eq!(originals.get("m20").unwrap().content, "The code word is PLOVER.");
/// assert_eq!(originals.search("which code word?", 3)[0].message.id, "m20");
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct Originals {
    messages: Vec<Message>,
    by_id: HashMap<String, usize>,
    /// Made at the first search.
    engine: OnceLock<SearchEngine<u32, u64, Words>>,
}

impl Originals {
    /// These messages. Running summaries among them are left out; of two with one id the last counts, in the place of the first.
    ///
    /// ```
    /// use ferrata::state::Message;
    /// let originals = ferrata_nodes::Originals::of(&[Message::user("Hi").with_id("a"), Message::user("Hello").with_id("a")]);
    /// assert_eq!(originals.messages().len(), 1);
    /// assert_eq!(originals.get("a").unwrap().content, "Hello");
    /// ```
    pub fn of(messages: &[Message]) -> Self {
        let mut originals = Self::default();
        messages.iter().cloned().for_each(|message| originals.add(message));
        originals
    }

    /// All messages that were ever written to a field of a thread: by inputs, by nodes, and from outside, in every line of its history and every graph of
    /// it that has a field of that name. `entries` is what [`Thread::log`](ferrata::Thread::log) gives.
    ///
    /// Not found: messages of history that was pruned.
    pub fn in_log(entries: &[Entry], field: &str) -> Self {
        let mut originals = Self::default();
        for entry in entries {
            let changes: &[Change] = match &entry.record {
                Record::Input(input) => &input.changes,
                Record::TaskDone(done) => &done.changes,
                Record::Stepped(stepped) => &stepped.resolved,
                _ => &[],
            };
            for change in changes.iter().filter(|change| *change.field == *field) {
                let items = match &change.op {
                    Op::Put(items) => items,
                    Op::Set(Value::Array(items)) | Op::Append(Value::Array(items)) | Op::Overwrite(Value::Array(items)) => items,
                    _ => continue,
                };
                items
                    .iter()
                    .filter_map(|item| serde_json::from_value(item.clone()).ok())
                    .for_each(|message| originals.add(message));
            }
        }
        originals
    }

    fn add(&mut self, message: Message) {
        if holds_summary(&message) {
            return;
        }
        match self.by_id.get(&message.id) {
            Some(&at) => self.messages[at] = message,
            None => {
                if !message.id.is_empty() {
                    self.by_id.insert(message.id.clone(), self.messages.len());
                }
                self.messages.push(message);
            }
        }
    }

    /// All of them, in the order in which they came.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The message with that id.
    pub fn get(&self, id: &str) -> Option<&Message> {
        self.by_id.get(id).map(|&at| &self.messages[at])
    }

    /// The messages that share words with the query, by BM25, the best first. Where words are not spaced, as in Chinese, pairs of characters stand for them. A
    /// query without either, such as one sign, finds the messages that have it as it is written; an empty one finds nothing.
    ///
    /// ```
    /// use ferrata::state::Message;
    /// let said = ["智能体保存检查点。", "我们等待批准。", "It rained."].map(Message::user);
    /// let originals = ferrata_nodes::Originals::of(&said);
    /// let found = originals.search("检查点", 5);
    /// assert_eq!((found.len(), found[0].message), (1, &said[0]));
    /// assert!(originals.search("snow", 5).is_empty());
    /// assert_eq!(originals.search("批", 5)[0].message, &said[1]);
    /// ```
    pub fn search(&self, query: &str, limit: usize) -> Vec<Found<'_>> {
        let query = query.trim();
        if self.messages.is_empty() || query.is_empty() {
            return Vec::new();
        }
        if Words.tokenize(query).is_empty() {
            return self.with_text(query, limit);
        }
        let engine = self.engine.get_or_init(|| {
            let texts: Vec<String> = self.messages.iter().map(text_of).collect();
            SearchEngineBuilder::<u32, u64, Words>::with_tokenizer_and_corpus(Words, texts).build()
        });
        let mut scores: Vec<(u32, f32)> =
            engine.search(query, self.messages.len()).into_iter().map(|result| (result.document.id, result.score)).collect();
        scores.sort_by_key(|(at, _)| *at);
        let found = scores.into_iter().filter(|(_, score)| *score > 0.0);
        let mut found: Vec<_> =
            found.filter_map(|(at, score)| Some(Found { message: self.messages.get(at as usize)?, score })).collect();
        best(&mut found, limit);
        found
    }

    /// The messages with that text in them, those that have it most often first.
    fn with_text(&self, text: &str, limit: usize) -> Vec<Found<'_>> {
        let score = |message: &Message| text_of(message).matches(text).count() as f32;
        let found = self.messages.iter().map(|message| Found { message, score: score(message) });
        let mut found: Vec<_> = found.filter(|found| found.score > 0.0).collect();
        best(&mut found, limit);
        found
    }

    /// The messages nearest in meaning to the query, as somebody else measures it, the best first. One with a score that is no number is not found.
    ///
    /// # Errors
    ///
    /// What `similarity` says, and a protocol error if it gives another number of scores than there are texts.
    pub async fn similar(&self, query: &str, limit: usize, similarity: &dyn Similarity) -> Result<Vec<Found<'_>>, ModelError> {
        let texts: Vec<String> = self.messages.iter().map(text_of).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let scores = similarity.scores(query, &texts).await?;
        if scores.len() != texts.len() {
            let what = format!("{} scores for {} texts", scores.len(), texts.len());
            return Err(ModelError::new(ModelErrorClass::Protocol, what));
        }
        let scored = self.messages.iter().zip(scores).filter(|(_, score)| !score.is_nan());
        let mut found: Vec<_> = scored.map(|(message, score)| Found { message, score }).collect();
        best(&mut found, limit);
        Ok(found)
    }
}

/// The best first; of two that are as good, the older one.
fn best(found: &mut Vec<Found<'_>>, limit: usize) {
    found.sort_by(|one, other| other.score.total_cmp(&one.score));
    found.truncate(limit);
}

/// What is said in a message, and what it wants called.
fn text_of(message: &Message) -> String {
    let calls = message.tool_calls.iter().map(|call| format!("\n{} {}", call.name, call.arguments));
    [message.content.clone()].into_iter().chain(calls).collect()
}

/// A message that was found, and how well it fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found<'o> {
    /// The message.
    pub message: &'o Message,
    /// How well it fits; more is better, and scores of two searches cannot be compared.
    pub score: f32,
}

/// Scores that are on their way.
pub type SimilarityFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<f32>, ModelError>> + Send + 'a>>;

/// How near texts are in meaning: where embeddings come in.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata_nodes::{Originals, Similarity, SimilarityFuture};
///
/// /// Texts are near if they are as long.
/// #[derive(Debug)]
/// struct Length;
///
/// impl Similarity for Length {
///     fn scores<'a>(&'a self, query: &'a str, texts: &'a [&'a str]) -> SimilarityFuture<'a> {
///         Box::pin(async move { Ok(texts.iter().map(|text| -(text.len().abs_diff(query.len()) as f32)).collect()) })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ferrata_nodes::ModelError> {
/// let originals = Originals::of(&[Message::user("a long text"), Message::user("short")]);
/// assert_eq!(originals.similar("12345", 1, &Length).await?[0].message.content, "short");
/// # Ok(()) }
/// ```
pub trait Similarity: Send + Sync + Debug {
    /// For each text how near it is to the query; more is nearer.
    ///
    /// # Errors
    ///
    /// That of the model that was asked.
    fn scores<'a>(&'a self, query: &'a str, texts: &'a [&'a str]) -> SimilarityFuture<'a>;
}

/// Words as the condenser sees them.
#[derive(Debug)]
struct Words;

impl Tokenizer for Words {
    fn tokenize(&self, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        for_each_feature(text, &mut |word| words.push(word));
        words
    }
}
