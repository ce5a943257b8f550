//! Compile errors are a part of the API: they point at what is wrong, and say what to do.
//!
//! How it could break: a mistake that compiles; an error that points into code that nobody has written, or speaks of traits that
//! nobody knows; a list of the types of other crates in place of a hint.
//!
//! The cases are the programs in `tests/compile_errors`. A comment `//~ text` says what an error at its line contains, and
//! further lines of such comments what else it does. Every error has to be at a line with such a comment.

#[path = "support"]
mod support {
    pub(crate) mod compiler;
}

use std::path::{Path, PathBuf};

use support::compiler::{Compiler, Told};

/// What an error at a line contains.
struct Expected {
    line: usize,
    texts: Vec<String>,
}

fn expected(source: &str) -> Vec<Expected> {
    let mut all: Vec<Expected> = Vec::new();
    for (index, line) in source.lines().enumerate() {
        let Some((code, text)) = line.split_once("//~ ") else { continue };
        match all.last_mut() {
            Some(last) if code.trim().is_empty() => last.texts.push(text.to_owned()),
            _ => all.push(Expected { line: index + 1, texts: vec![text.to_owned()] }),
        }
    }
    all
}

/// What is not as expected.
fn faults(source: &str, errors: &[Told]) -> Vec<String> {
    let expected = expected(source);
    let mut faults = Vec::new();
    if expected.is_empty() {
        faults.push("the program says nowhere what is wrong with it".to_owned());
    }
    for Expected { line, texts } in &expected {
        if !errors.iter().any(|error| error.line == *line && texts.iter().all(|text| error.text.contains(text))) {
            faults.push(format!("line {line}: no error says: {}", texts.join(" ... ")));
        }
    }
    for error in errors.iter().filter(|error| expected.iter().all(|expected| expected.line != error.line)) {
        faults.push(format!("line {}: an error that nobody expects: {}", error.line, error.text));
    }
    faults
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile_errors");
    let files = std::fs::read_dir(folder).expect("the folder is there").map(|file| file.expect("it can be read").path());
    let mut cases: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "rs")).collect();
    cases.sort();
    cases
}

#[test]
fn mistakes_are_told_where_they_are_and_with_what_to_do() {
    let compiler = Compiler::new();
    let mut report = String::new();
    for case in cases() {
        let source = std::fs::read_to_string(&case).expect("the case can be read");
        let errors = compiler.errors(&case);
        let faults = faults(&source, &errors);
        if !faults.is_empty() {
            let said: String = errors.iter().map(|error| error.rendered.as_str()).collect();
            report += &format!("{}:\n  {}\n\n{said}\n", case.display(), faults.join("\n  "));
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn what_is_expected_is_compared() {
    let source = "a(); //~ one\n     //~ two\nb(); //~ three\nc();\n";
    let told = |line: usize, text: &str| Told { line, text: text.to_owned(), rendered: String::new() };
    let cases: [(&[Told], usize); 5] = [
        (&[told(1, "one and two"), told(3, "one two three")], 0),
        (&[told(1, "one"), told(1, "two"), told(3, "three")], 1),
        (&[told(1, "one\ntwo"), told(1, "a second one"), told(3, "three")], 0),
        (&[told(1, "one\ntwo"), told(3, "three"), told(4, "four")], 1),
        (&[], 2),
    ];
    for (errors, count) in cases {
        assert_eq!(faults(source, errors).len(), count);
    }
    assert_eq!(faults("fn main() {}", &[]).len(), 1);
}
