//! A digest of many documents, which a person approves before it is published.
//!
//! ```text
//! list -> read (one task per document) -> summary -> draft -> approve -> publish
//! ```
//!
//! Each document is read once and condensed to a finding; a document larger than a model's window is read in pieces. The findings are
//! messages that [`RollingSummary`] keeps under a token budget. Every model call is an effect: an answer that was recorded is not
//! paid for again, whenever the process dies.
//!
//! ```
//! use ferrata::store::MemoryStore;
//! use ferrata::{Approval, Outcome, Runner};
//! use ferrata_graphs::digest::{Digest, Settings, graph};
//! use ferrata_nodes::Extractive;
//! use std::sync::Arc;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let (document, out) = (dir.path().join("notes.md"), dir.path().join("digest.md"));
//! std::fs::write(&document, "The log keeps what changed. A damaged record is found by its checksum.")?;
//! let runner = Runner::new(graph(Arc::new(Extractive::new()), Settings::new(&out))?, MemoryStore::new());
//!
//! let input = Digest::update().documents(vec![document.display().to_string()]);
//! let Outcome::Waiting(questions) = runner.thread("monday").run(input).await? else { panic!("it asks") };
//! assert!(!out.exists());
//! runner.thread("monday").answer(questions[0].id, Approval::approve().by("dana")).await?.done();
//! assert!(std::fs::read_to_string(&out)?.contains("checksum"));
//! # Ok(()) }
//! ```

mod document;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferrata::state::Message;
use ferrata::{Approval, BuildError, Context, END, Graph, IntoNode, Retry, START, State, View};
use ferrata_nodes::{ChatModel, RollingSummary, Tiktoken, condense};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was found in one document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The document's path.
    pub document: String,
    /// What matters in it.
    pub text: String,
}

/// The state of a digest. Its input is the list of documents.
#[derive(State, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Digest {
    /// Paths of the documents.
    pub documents: Vec<String>,
    /// What was found, in the order of the documents.
    #[state(append)]
    pub findings: Vec<Finding>,
    /// The findings as a conversation, kept under the token budget.
    #[state(messages)]
    pub messages: Vec<Message>,
    /// What a person is asked about, as Markdown.
    pub draft: Option<String>,
    /// Where it was published.
    pub published: Option<String>,
}

/// A document to read: what a task of the fan-out gets.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Document {
    path: String,
}

/// How a digest is made.
#[derive(Clone, Debug)]
pub struct Settings {
    budget: usize,
    parallel: usize,
    out: PathBuf,
}

impl Settings {
    /// Publishes to `out`, with a budget of 2,000 tokens and 8 documents at a time.
    pub fn new(out: impl AsRef<Path>) -> Self {
        Self { budget: 2_000, parallel: 8, out: out.as_ref().to_owned() }
    }

    /// The most tokens that the findings have together, as counted with the o200k vocabulary; at least 500.
    #[must_use]
    pub fn budget(mut self, tokens: usize) -> Self {
        self.budget = tokens.max(500);
        self
    }

    /// How many documents are read at a time, at least 1.
    #[must_use]
    pub fn parallel(mut self, documents: usize) -> Self {
        self.parallel = documents.max(1);
        self
    }

    /// Tokens of one finding.
    fn finding_tokens(&self) -> usize {
        (self.budget / 4).min(400)
    }

    fn summary(&self) -> RollingSummary {
        RollingSummary::new().budget(self.budget).target_percent(70).summary_percent(20).chunk(4_000)
    }
}

/// The graph.
///
/// # Errors
///
/// None in practice: the graph is the same for all settings. The error is that of [`ferrata::GraphBuilder::build`].
pub fn graph(model: Arc<dyn ChatModel>, settings: Settings) -> Result<Graph<Digest>, BuildError> {
    let retry = Retry::transient(4);
    Graph::<Digest>::new("digest")
        .node("list", list)
        .fan_out("list", "read", |s: &Digest| s.documents.iter().map(|path| Document { path: path.clone() }).collect::<Vec<_>>())
        .node("read", read(&model, &settings).retry(retry).concurrency(settings.parallel))
        .node("summary", settings.summary().over(Digest::MESSAGES, Arc::clone(&model)).retry(retry))
        .node("draft", draft(&model, &settings).retry(retry))
        .question("approve", |s: &Digest| Approval::ask("Publish this digest?").show(&s.draft))
        .edited("approve", |_: &Digest, text: String| Digest::update().draft(text))
        .node("publish", publish(settings.out).irreversible())
        .edge(START, "list")
        .edge("read", "summary")
        .edge("summary", "draft")
        .edge("draft", "approve")
        .approved("approve", "publish")
        .rejected("approve", END)
        .edge("publish", END)
        .build()
}

/// What stays word for word at the front of the findings.
async fn list(_: View<Digest>) -> ferrata::Result<DigestUpdate> {
    let instructions = Message::system("You gather what matters in a set of documents.").with_id("instructions");
    Ok(Digest::update().message(instructions).message(Message::user("Write a digest of the documents.").with_id("task")))
}

fn read(model: &Arc<dyn ChatModel>, settings: &Settings) -> impl IntoNode<Digest, (Document, Context)> {
    let (model, summary, tokens) = (Arc::clone(model), settings.summary(), settings.finding_tokens());
    move |document: Document, ctx: Context| {
        let (model, summary) = (Arc::clone(&model), summary.clone());
        async move {
            let path = document.path;
            // The text is recorded: should the file change before a restart, the pieces still belong together.
            let text: String = ctx.effect("read", |_| async { document::read(&path, &ctx) }).repeatable().await?;
            let text = condense(&ctx, &model, &summary, &text, tokens).await?;
            let message = Message::user(format!("{}\n{text}", document::title(&path))).with_id(path.clone());
            Ok(Digest::update().finding(Finding { document: path, text }).message(message))
        }
    }
}

fn draft(model: &Arc<dyn ChatModel>, settings: &Settings) -> impl IntoNode<Digest, (View<Digest>, Context)> {
    let (model, summary, tokens) = (Arc::clone(model), settings.summary(), settings.finding_tokens());
    move |state: View<Digest>, ctx: Context| {
        let (model, summary) = (Arc::clone(&model), summary.clone());
        async move {
            let overview = condense(&ctx, &model, &summary, &write::gathered(&state), tokens).await?;
            Ok(Digest::update().draft(write::markdown(&overview, &state.findings)))
        }
    }
}

fn publish(out: PathBuf) -> impl IntoNode<Digest, (View<Digest>, Context)> {
    move |state: View<Digest>, ctx: Context| {
        let out = out.clone();
        async move {
            let draft = state.draft.clone().unwrap_or_default();
            // Writing the same text to the same place again does no harm.
            ctx.effect("write", |_| async { write::replace(&out, &draft) }).repeatable().await?;
            Ok(Digest::update().published(out.display().to_string()))
        }
    }
}

/// The tokens of the findings, as they are held against the budget.
pub fn tokens(messages: &[Message]) -> usize {
    let counter = Tiktoken::default();
    messages.iter().map(|message| ferrata_nodes::TokenCounter::count_message(&counter, message)).sum()
}
