//! Results that are too large for a conversation: kept outside of it, with a preview in it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ferrata::NodeError;
use schemars::JsonSchema;
use serde::Deserialize;

use super::context::ToolContext;
use super::tool::{Risk, Tool};
use crate::tokens::{Tiktoken, TokenCounter};

/// The name of [`Tool::recall`].
pub(super) const RECALL: &str = "recall";

/// How much of a result its preview shows at most, in tokens.
const PREVIEW_TOKENS_MAX: usize = 500;

/// What the words around a part of a text take, in tokens.
const AROUND_TOKENS: usize = 80;

/// What a message or an artifact takes beside its text, in bytes, at most.
pub(super) const AROUND_BYTES: usize = 1_000;

/// How many characters are read at once if nobody says.
const CHARACTERS: usize = 8_000;

/// Gives the artifact of an id.
pub(super) type Read = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where large results are, and how large is large.
#[derive(Clone)]
pub(super) struct Kept {
    /// `None`: there is no place for them.
    pub(super) read: Option<Read>,
    pub(super) tokens_max: usize,
    /// Whether the model can read on by itself.
    pub(super) is_recalled: bool,
}

impl Kept {
    pub(super) fn read(&self, id: &str) -> Option<String> {
        self.read.as_ref().and_then(|read| read(id))
    }

    /// What stands in the conversation. What does not fit goes to `artifacts` as a whole, if there is `room` for its bytes.
    pub(super) fn fit(&self, text: String, room: u64, artifacts: &mut BTreeMap<String, String>) -> String {
        let counter = Tiktoken::default();
        if counter.truncate(&text, self.tokens_max).len() == text.len() {
            return text;
        }
        let tokens = self.tokens_max.saturating_sub(AROUND_TOKENS);
        let all = text.chars().count();
        let preview = counter.truncate(&text, tokens.min(PREVIEW_TOKENS_MAX));
        let has_room = (text.len() + preview.len() + AROUND_BYTES) as u64 <= room;
        if self.read.is_none() || !has_room {
            let why = if self.read.is_none() { "." } else { ": there is too much in this turn. Call again, alone or for less." };
            let part = counter.truncate(&text, tokens);
            let shown = part.chars().count();
            return format!("{part}\n[Cut here: these are the first {shown} of {all} characters. The rest is not kept{why}]");
        }
        let (part, shown) = (preview.to_owned(), preview.chars().count());
        let id = blake3::hash(text.as_bytes()).to_hex()[..16].to_owned();
        let how = if self.is_recalled { format!(": read on with {RECALL}, from offset {shown}") } else { String::new() };
        artifacts.insert(id.clone(), text);
        format!(
            "{part}\n[Cut here: these are the first {shown} of {all} characters. The whole is kept as artifact \"{id}\"{how}.]"
        )
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("tokens_max", &self.tokens_max).finish_non_exhaustive()
    }
}

/// Which part of which artifact.
#[derive(Deserialize, JsonSchema)]
struct Part {
    /// The id of the artifact.
    id: String,
    /// How many characters to leave out at the beginning.
    #[serde(default)]
    offset: usize,
    /// How many characters to read at most.
    #[serde(default)]
    characters: Option<usize>,
}

impl Tool {
    /// A tool named `recall` that reads on in a large result: from its artifact, so many characters from an offset, never more than a result may have. It is for a
    /// node made with [`ToolsNode::over_with_artifacts`](crate::ToolsNode::over_with_artifacts).
    ///
    /// ```
    /// let recall = ferrata_nodes::Tool::recall();
    /// assert_eq!(recall.spec().name, "recall");
    /// assert_eq!(recall.spec().arguments["required"], serde_json::json!(["id"]));
    /// ```
    pub fn recall() -> Self {
        let text = "Reads a part of an artifact: of a result that was too large to be shown as a whole.";
        Self::new(RECALL, text, recall).risk(Risk::Read)
    }
}

async fn recall(part: Part, ctx: ToolContext) -> ferrata::Result<String> {
    let Part { id, offset, characters } = part;
    let Some(text) = ctx.artifact(&id) else {
        return Err(NodeError::new(format!("there is no artifact \"{id}\"")).deterministic());
    };
    let all = text.chars().count();
    if offset >= all {
        return Err(NodeError::new(format!("artifact \"{id}\" has {all} characters, and none at {offset}")).deterministic());
    }
    let wanted: String = text.chars().skip(offset).take(characters.unwrap_or(CHARACTERS)).collect();
    let part = Tiktoken::default().truncate(&wanted, ctx.kept.tokens_max.saturating_sub(AROUND_TOKENS));
    let end = offset + part.chars().count();
    Ok(format!("[Characters {offset} to {end} of {all} of artifact \"{id}\".]\n{part}"))
}
