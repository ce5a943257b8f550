//! Reads documents, and says what is wrong with those that cannot be read.

use std::io::ErrorKind;
use std::path::Path;

use ferrata::{Class, Context, NodeError};

/// Documents are kept in the log; beyond this size they should be split.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The text of a document. Tells whoever watches that it is being read.
pub(super) fn read(path: &str, ctx: &Context) -> Result<String, NodeError> {
    ctx.emit(&format!("reading {path}"))?;
    let refuse = |what: String| NodeError::new(format!("document {path} {what}, then run again")).deterministic();
    let size = std::fs::metadata(path).map_err(|error| cannot_read(path, &error))?.len();
    if size > BYTES_MAX {
        return Err(refuse(format!("has {size} bytes, more than {BYTES_MAX}; split it")));
    }
    let bytes = std::fs::read(path).map_err(|error| cannot_read(path, &error))?;
    let text = match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => text,
        _ => return Err(refuse("is no text in UTF-8; convert it".to_owned())),
    };
    if text.trim().is_empty() {
        return Err(refuse("is empty; fill it".to_owned()));
    }
    Ok(text)
}

fn cannot_read(path: &str, error: &std::io::Error) -> NodeError {
    let class = if error.kind() == ErrorKind::Interrupted { Class::Transient } else { Class::Deterministic };
    NodeError::new(format!("document {path} cannot be read ({error}); make it readable, then run again")).with_class(class)
}

/// The document's name without its folders.
pub(super) fn title(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}
