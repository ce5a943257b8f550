//! The compiler, asked about a file that is to be wrong.
//!
//! The file is compiled against the crates that this test was built with, so nothing is built twice, and what is compared is what
//! we say, not how a version of the compiler draws it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates that a case may use.
const CRATES: [&str; 3] = ["ferrata", "schemars", "serde"];

pub(crate) struct Compiler {
    arguments: Vec<OsString>,
    out: tempfile::TempDir,
}

/// An error as the compiler tells it.
pub(crate) struct Told {
    /// Where it points at, from 1; 0 if it points at no line of the file.
    pub(crate) line: usize,
    /// Message, labels, notes and helps, each on a line of its own.
    pub(crate) text: String,
    /// As it looks in a terminal.
    pub(crate) rendered: String,
}

impl Compiler {
    /// Asks cargo where the crates are; they are built already.
    pub(crate) fn new() -> Self {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--example", "steps", "--message-format=json"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let built: Vec<Value> = json_lines(&built.stdout);
        let mut arguments = Vec::new();
        for name in CRATES {
            let files: Vec<&str> = built
                .iter()
                .filter(|message| message["reason"] == "compiler-artifact" && message["target"]["name"] == name)
                .flat_map(|artifact| artifact["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str))
                .filter(|file| file.ends_with(".rlib"))
                .collect();
            assert_eq!(files.len(), 1, "one {name} is part of the build: {files:?}");
            arguments.extend(["--extern".into(), format!("{name}={}", files[0]).into()]);
            let folder = Path::new(files[0]).parent().expect("a file is in a folder");
            arguments.extend(["-L".into(), format!("dependency={}", folder.display()).into()]);
        }
        Self { arguments, out: tempfile::tempdir().expect("a folder") }
    }

    /// The errors in a program, in the compiler's order.
    pub(crate) fn errors(&self, file: &Path) -> Vec<Told> {
        let compiler = PathBuf::from(env!("CARGO")).with_file_name("rustc");
        let output = Command::new(if compiler.exists() { compiler } else { "rustc".into() })
            .args(["--edition=2024", "--crate-type=bin", "--crate-name=case", "--emit=metadata", "--error-format=json"])
            .args(["--cap-lints=allow", "--out-dir"])
            .arg(self.out.path())
            .args(&self.arguments)
            .arg(file)
            .output()
            .expect("the compiler runs");
        let told = json_lines(&output.stderr);
        let errors =
            told.iter().filter(|told| told["level"] == "error" && told["spans"].as_array().is_some_and(|s| !s.is_empty()));
        errors.map(|error| told_of(error, file)).collect()
    }
}

fn json_lines(bytes: &[u8]) -> Vec<Value> {
    bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

fn told_of(error: &Value, file: &Path) -> Told {
    let spans = error["spans"].as_array().into_iter().flatten();
    let points_here = |span: &&Value| span["is_primary"] == true && span["file_name"].as_str().map(Path::new) == Some(file);
    let line = spans.clone().find(points_here).and_then(|span| span["line_start"].as_u64()).unwrap_or(0);
    let labels = spans.filter_map(|span| span["label"].as_str());
    let notes = error["children"].as_array().into_iter().flatten().filter_map(|note| note["message"].as_str());
    let text: Vec<&str> = error["message"].as_str().into_iter().chain(labels).chain(notes).collect();
    Told {
        line: usize::try_from(line).expect("files are not that long"),
        text: text.join("\n"),
        rendered: error["rendered"].as_str().unwrap_or_default().to_owned(),
    }
}
