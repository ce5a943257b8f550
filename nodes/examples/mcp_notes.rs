//! A server of notes that speaks the Model Context Protocol over its standard input and output, for `McpServer::child`.
//!
//! ```sh
//! cargo run -p ferrata-nodes --example mcp_notes
//! ```
//!
//! It keeps notes until its input ends. Tools: `add`, `list`, `variable` (what the process sees of its environment), `die`.

use std::io::{BufRead, Write};

#[path = "../tests/support/notes.rs"]
mod notes;

fn main() -> std::io::Result<()> {
    let mut notes = notes::Notes::default();
    for line in std::io::stdin().lock().lines() {
        // A line that is no JSON is nobody's message.
        let Ok(message) = serde_json::from_str(&line?) else { continue };
        if let Some(answer) = notes.answer(&message) {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{answer}")?;
            out.flush()?;
        }
    }
    Ok(())
}
