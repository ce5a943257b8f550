//! Finds the documents of a digest.

use std::error::Error;
use std::path::{Path, PathBuf};

use ferrata::state::{Change, Op};

const ENDINGS: [&str; 4] = ["md", "markdown", "txt", "text"];

/// Absolute paths of the files, and of the text and Markdown files in the folders, in order and each once. Without paths, the repository's own.
pub(crate) fn find(paths: &[PathBuf]) -> Result<Vec<String>, Box<dyn Error>> {
    let own: Vec<PathBuf>;
    let paths = if paths.is_empty() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        own = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "src/docs"].iter().map(|name| root.join(name)).collect();
        &own
    } else {
        paths
    };
    let mut found = Vec::new();
    for path in paths {
        collect(path, &mut found)?;
    }
    if found.is_empty() {
        return Err(format!("there is no document in {}; name files, or folders with .md or .txt files", list(paths)).into());
    }
    let mut documents: Vec<String> = Vec::new();
    for path in found {
        let text = path.to_str().ok_or_else(|| format!("{} is no path in UTF-8; rename it", path.display()))?;
        if !documents.iter().any(|known| known == text) {
            documents.push(text.to_owned());
        }
    }
    Ok(documents)
}

fn collect(path: &Path, found: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    let named =
        |error: std::io::Error| format!("{} cannot be read ({error}); name a file or folder that is there", path.display());
    let path = path.canonicalize().map_err(named)?;
    if !path.is_dir() {
        found.push(path);
        return Ok(());
    }
    let mut inside: Vec<PathBuf> =
        std::fs::read_dir(&path).map_err(named)?.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    inside.sort();
    for path in inside {
        let is_document = path.extension().and_then(|e| e.to_str()).is_some_and(|e| ENDINGS.contains(&e.to_lowercase().as_str()));
        if path.is_dir() || is_document {
            collect(&path, found)?;
        }
    }
    Ok(())
}

fn list<P: AsRef<Path>>(paths: &[P]) -> String {
    paths.iter().map(|path| path.as_ref().display().to_string()).collect::<Vec<_>>().join(", ")
}

/// A thread goes on with the documents that it began with.
pub(crate) fn must_be_the_same(thread: &str, began: &[String], now: &[String]) -> Result<(), Box<dyn Error>> {
    if began == now {
        return Ok(());
    }
    let (began, now) = (list(began), list(now));
    Err(format!(
        "thread \"{thread}\" began with other documents.\n  then: {began}\n  now:  {now}\n\
         Go on with those it began with, start over with --new, or use another --thread."
    )
    .into())
}

/// The document that an update of the state holds a finding of.
pub(crate) fn of_finding(changes: &[Change]) -> Option<String> {
    let finding = changes.iter().find(|change| change.field == "findings")?;
    match &finding.op {
        Op::Append(items) => Some(items.get(0)?.get("document")?.as_str()?.to_owned()),
        _ => None,
    }
}
