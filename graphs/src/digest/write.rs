//! Writes the draft, and puts it in its place.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use ferrata::NodeError;
use ferrata::state::Role;
use ferrata_nodes::{SUMMARY_ID, SUMMARY_MARKER};

use super::{Digest, Finding, document};

/// What the findings say together: the running summary, and the messages that were not folded into it.
pub(super) fn gathered(state: &Digest) -> String {
    let said =
        state.messages.iter().filter(|message| message.id == SUMMARY_ID || message.role == Role::User && message.id != "task");
    let texts = said.map(|message| message.content.strip_prefix(SUMMARY_MARKER).unwrap_or(&message.content).trim());
    texts.collect::<Vec<_>>().join("\n\n")
}

pub(super) fn markdown(overview: &str, findings: &[Finding]) -> String {
    let count = match findings.len() {
        1 => "1 document".to_owned(),
        n => format!("{n} documents"),
    };
    let mut text = format!("# Digest of {count}\n\n{overview}\n");
    for finding in findings {
        let _ =
            write!(text, "\n## {}\n\n{}\n\n*{}*\n", document::title(&finding.document), finding.text.trim(), finding.document);
    }
    text
}

/// Writes the file beside its place and moves it there, so that a reader sees the old text or the new one.
pub(super) fn replace(out: &Path, text: &str) -> Result<(), NodeError> {
    let mut beside = out.as_os_str().to_owned();
    beside.push(".part");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, out)
    };
    write().map_err(|error| {
        // What is left of a failed attempt is of no use to anyone.
        let _ = std::fs::remove_file(&beside);
        let text = format!(
            "the digest cannot be written to {} ({error}); make room there or name another file, then run again",
            out.display()
        );
        NodeError::new(text).deterministic()
    })
}
