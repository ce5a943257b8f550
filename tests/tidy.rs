//! Style is a test: layers, sizes, words that have no place here, files that nothing names.
//!
//! What a reviewer says twice comes here. Each rule is a function from a file to its faults, a test that holds all files to it,
//! and a planted fault in `every_rule_catches_a_planted_fault`. The rules read text, not syntax trees: they are meant to catch
//! oversights, not tricks.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What each part of `src` may use of the crate. A part that is not listed here is a fault.
const LAYERS: &[(&str, &[&str])] = &[
    ("id", &[]),
    ("clock", &[]),
    ("error", &["id"]),
    ("state", &["id"]),
    ("policy", &["id", "clock", "error"]),
    ("log", &["id", "clock", "error", "state"]),
    ("graph", &["id", "clock::Timestamp", "error", "state", "policy", "log"]),
    ("machine", &["id", "clock::Timestamp", "error", "state", "policy", "log", "graph"]),
    // The macro calls itself.
    ("store", &["id", "clock", "error", "log", "hand_on_store"]),
    ("runner", &["id", "clock", "error", "state", "policy", "log", "graph", "machine", "store"]),
    // Pages, and no code.
    ("guide", &[]),
    ("testing", &["id", "clock", "error", "state", "policy", "log", "graph", "machine", "store", "runner"]),
];

/// The one place below `src` where a crate is named.
const HOMES: &[(&str, &str)] = &[
    ("tokio", "src/runner/"),
    ("redb", "src/store/redb/"),
    ("petgraph", "src/graph/"),
    ("futures_channel", "src/store/"),
    ("flume", "src/store/redb/"),
    ("object_store", "src/store/redb/"),
];

const FILE_LINES_MAX: usize = 500;
/// Files that may be longer, each with the reason.
const LONG_FILES: &[(&str, &str)] = &[];

const FUNCTION_LINES_MAX: usize = 70;
/// Functions that may be longer: file, function, reason.
const LONG_FUNCTIONS: &[(&str, &str, &str)] =
    &[("src/derive/update.rs", "methods", "a table: for each merge rule the text of the code that is made")];

/// Words with no place in any file: the word, what to do instead, and the files that may hold it. Written in two parts, so that
/// this file has none of them.
const BANNED_WORDS: &[(&str, &str, &[&str])] = &[
    (concat!("to", "do!("), "write it, or leave it out and say so in the documentation", &[]),
    (concat!("unimple", "mented!("), "write it, or leave it out and say so in the documentation", &[]),
    (concat!("#[ig", "nore"), "mend the test or remove it", &[]),
    // clippy.toml bans it in the code as well.
    (concat!("thread::", "sleep"), "wait for what has to happen, not for time to pass", &["clippy.toml"]),
];

/// Places on somebody's machine.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/fa", "rm/")];

/// Where the modules of a crate begin.
const CRATE_ROOTS: &[&str] =
    &["src/lib.rs", "src/derive/lib.rs", "nodes/src/lib.rs", "graphs/src/lib.rs", "benches/src/lib.rs", "benches/src/main.rs"];

/// A file, its text, and its code: the text with comments, strings and characters blanked out, line for line.
struct Source {
    path: String,
    text: String,
    code: String,
}

impl Source {
    fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let (path, text) = (path.into(), text.into());
        let code = if path.ends_with(".rs") { code_of(&text) } else { String::new() };
        Self { path, text, code }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_under(&self, folders: &[&str]) -> bool {
        folders.iter().any(|folder| self.path.starts_with(folder))
    }

    /// The modules that lead to this file, for a file of the crate ferrata: `["store", "redb", "worker"]`.
    fn modules(&self) -> Option<Vec<&str>> {
        let inner = self.path.strip_prefix("src/").filter(|inner| !inner.starts_with("derive/"))?;
        let inner = inner.strip_suffix(".rs").filter(|inner| *inner != "lib")?;
        Some(inner.strip_suffix("/mod").unwrap_or(inner).split('/').collect())
    }

    fn fault(&self, line: usize, what: impl Into<String>) -> Fault {
        Fault { path: self.path.clone(), line, what: what.into() }
    }

    /// A fault at that place of the code.
    fn fault_at(&self, offset: usize, what: impl Into<String>) -> Fault {
        self.fault(line_of(&self.code, offset), what)
    }
}

struct Fault {
    path: String,
    line: usize,
    what: String,
}

type Rule = fn(&Source) -> Vec<Fault>;

// ---- the rules ----

fn layering(file: &Source) -> Vec<Fault> {
    let Some(modules) = file.modules() else { return Vec::new() };
    let layer = modules[0];
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
        return vec![file.fault(1, format!("`{layer}` is in no layer; add it to LAYERS in tests/tidy.rs"))];
    };
    let mut faults = Vec::new();
    for (offset, path) in crate_paths(&file.code, modules.len()) {
        let path = path.join("::");
        let within = |whole: &str| path == whole || path.strip_prefix(whole).is_some_and(|rest| rest.starts_with("::"));
        if !within(layer) && !allowed.iter().any(|name| within(name)) {
            let allowed = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") };
            faults
                .push(file.fault_at(offset, format!("`{layer}` may not use `{path}`; it may use {allowed}, by their own paths")));
        }
    }
    for (offset, _) in words(&file.code, "ferrata").filter(|(_, rest)| rest.starts_with("::")) {
        faults.push(file.fault_at(offset, "inside the crate say `crate::` and the module, so that layers can be seen"));
    }
    faults
}

fn homes(file: &Source) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (name, home) in HOMES.iter().filter(|(_, home)| file.is_under(&["src/"]) && !file.path.starts_with(home)) {
        for (offset, rest) in words(&file.code, name) {
            let before = file.code[..offset].trim_end();
            let is_local = before.strip_suffix("::").is_some_and(|path| path.ends_with(is_word));
            if !is_local && (rest.starts_with("::") || before.ends_with("use")) {
                faults.push(file.fault_at(offset, format!("{name} is named only under {home}; wrap what is needed there")));
            }
        }
    }
    faults
}

fn private_doors(file: &Source) -> Vec<Fault> {
    let doors = words(&file.code, "__private").filter(|_| file.is_under(&["nodes/", "graphs/", "examples/"]));
    doors.map(|(offset, _)| file.fault_at(offset, "use the public API; if it is not enough, it is wrong")).collect()
}

fn file_length(file: &Source) -> Vec<Fault> {
    let lines = file.text.lines().count();
    let held = file.is_rust() && file.is_under(&["src/", "nodes/", "graphs/"]);
    if !held || lines <= FILE_LINES_MAX || LONG_FILES.iter().any(|(path, _)| *path == file.path) {
        return Vec::new();
    }
    vec![file.fault(lines, format!("{lines} lines; {FILE_LINES_MAX} are allowed: split the file by what it knows"))]
}

fn function_length(file: &Source) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (name, offset, lines) in functions(&file.code) {
        let allowed = LONG_FUNCTIONS.iter().any(|(path, function, _)| *path == file.path && *function == name);
        if lines > FUNCTION_LINES_MAX && !allowed {
            let what = format!("`{name}` has {lines} lines; {FUNCTION_LINES_MAX} are allowed: let helpers compute");
            faults.push(file.fault_at(offset, what));
        }
    }
    faults
}

fn banned_words(file: &Source) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for (word, instead, _) in BANNED_WORDS.iter().filter(|(_, _, allowed)| !allowed.contains(&&*file.path)) {
            if line.contains(word) {
                faults.push(file.fault(number + 1, format!("`{word}`: {instead}")));
            }
        }
    }
    faults
}

fn machine_paths(file: &Source) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for path in MACHINE_PATHS {
            // With a folder before it, it is a path of ours.
            if line.match_indices(path).any(|(place, _)| !line[..place].ends_with(|c: char| is_word(c) || c == '.')) {
                faults.push(file.fault(number + 1, format!("`{path}` is a place on somebody's machine; say it without")));
            }
        }
    }
    faults
}

fn ignored_fences(file: &Source) -> Vec<Fault> {
    let fences = file.text.lines().enumerate().filter(|(_, line)| {
        let line = line.trim_start().trim_start_matches(['/', '!']).trim_start();
        line.strip_prefix("```").is_some_and(|words| words.split([',', ' ']).any(|word| word.trim() == "ignore"))
    });
    fences.map(|(number, _)| file.fault(number + 1, "an example runs; use `no_run` only where a network is needed")).collect()
}

fn unexplained_allows(file: &Source) -> Vec<Fault> {
    let starts = ["#[allow(", "#![allow(", "#[expect(", "#![expect("];
    let allows = starts.iter().flat_map(|start| file.code.match_indices(start));
    allows
        .filter(|(offset, _)| {
            let attribute = &file.code[*offset..];
            !attribute[..attribute.find(")]").unwrap_or(attribute.len())].contains("reason =")
        })
        .map(|(offset, _)| file.fault_at(offset, "say why with `reason = \"..\"`"))
        .collect()
}

fn trailing_space(file: &Source) -> Vec<Fault> {
    // `split`, since `lines` swallows a carriage return.
    let lines = file.text.split('\n').enumerate().filter(|(_, line)| line.ends_with(char::is_whitespace));
    lines.map(|(number, _)| file.fault(number + 1, "remove the space at the end of the line")).collect()
}

/// A file of a crate that no `mod` names is not compiled, a guide that no file includes is not checked.
fn dead_files(files: &[Source]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let find = |path: &str| files.iter().find(|file| file.path == path);
    let crates = ["src/", "nodes/src/", "graphs/src/", "benches/src/"];
    for file in files.iter().filter(|file| file.is_under(&crates) && !CRATE_ROOTS.contains(&&*file.path)) {
        if file.path.starts_with("src/docs/") {
            let name = file.path.rsplit('/').next().unwrap_or_default();
            if !files.iter().any(|other| other.is_rust() && other.text.contains("include_str!(") && other.text.contains(name)) {
                faults.push(file.fault(1, "no `include_str!` names this guide; include it where it belongs, or remove it"));
            }
        } else if file.is_rust() {
            let parents = parents_of(&file.path);
            let Some((_, name)) = parents.first() else { continue };
            let named =
                |parent: &Source| words(&parent.code, "mod").any(|(_, rest)| rest.trim_start().starts_with(&format!("{name};")));
            if !parents.iter().filter_map(|(parent, _)| find(parent)).any(named) {
                faults.push(
                    file.fault(1, format!("no `mod {name};` names this file; add it to {}, or remove the file", parents[0].0)),
                );
            }
        }
    }
    faults
}

/// Files that may name this one, and the name they would use.
fn parents_of(path: &str) -> Vec<(String, String)> {
    let inner = path.strip_suffix("/mod.rs").or_else(|| path.strip_suffix(".rs")).unwrap_or(path);
    let Some((folder, name)) = inner.rsplit_once('/') else { return Vec::new() };
    let parents = ["mod.rs", "lib.rs", "main.rs"].map(|file| (format!("{folder}/{file}"), name.to_owned()));
    parents.into_iter().chain([(format!("{folder}.rs"), name.to_owned())]).collect()
}

// ---- reading Rust, roughly ----

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// The text with every comment and literal replaced by spaces; lines stay where they are.
fn code_of(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut place = 0;
    while place < chars.len() {
        let end = end_of_blank(&chars, place);
        code.extend(chars[place..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
        if end == place {
            code.push(chars[place]);
        }
        place = end.max(place + 1);
    }
    code
}

/// Where the comment or literal that begins here ends; here, if none does.
fn end_of_blank(chars: &[char], start: usize) -> usize {
    let at = |place: usize| chars.get(place).copied().unwrap_or('\0');
    let find = |from: usize, end: &dyn Fn(usize) -> bool| (from..chars.len()).find(|place| end(*place)).unwrap_or(chars.len());
    let after_word = start > 0 && is_word(at(start - 1)) && !(at(start - 1) == 'b' && (start < 2 || !is_word(at(start - 2))));
    match (at(start), at(start + 1)) {
        ('/', '/') => find(start, &|place| at(place) == '\n'),
        ('/', '*') => end_of_comment(chars, start),
        ('"', _) => end_of_string(chars, start),
        ('r', '"' | '#') if !after_word => {
            let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
            if at(start + 1 + hashes) != '"' {
                return start;
            }
            let closes = |place: usize| at(place) == '"' && (1..=hashes).all(|hash| at(place + hash) == '#');
            (find(start + 2 + hashes, &closes) + 1 + hashes).min(chars.len())
        }
        ('\'', '\\') => (find(start + 3, &|place| at(place) == '\'') + 1).min(chars.len()),
        // Otherwise it is a lifetime.
        ('\'', _) if at(start + 2) == '\'' => start + 3,
        _ => start,
    }
}

fn end_of_comment(chars: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut place = start;
    while place + 1 < chars.len() {
        match (chars[place], chars[place + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') if depth == 1 => return place + 2,
            ('*', '/') => depth -= 1,
            _ => {
                place += 1;
                continue;
            }
        }
        place += 2;
    }
    chars.len()
}

fn end_of_string(chars: &[char], start: usize) -> usize {
    let mut place = start + 1;
    while place < chars.len() {
        match chars[place] {
            '\\' => place += 2,
            '"' => return place + 1,
            _ => place += 1,
        }
    }
    chars.len()
}

/// Where a whole word stands in the code, and what follows it.
fn words<'c>(code: &'c str, word: &'c str) -> impl Iterator<Item = (usize, &'c str)> {
    code.match_indices(word).filter_map(move |(offset, _)| {
        let rest = &code[offset + word.len()..];
        (!code[..offset].ends_with(is_word) && !rest.starts_with(is_word)).then_some((offset, rest))
    })
}

/// Every path of the code that begins at the crate's root, also by way of `super`, with its place.
fn crate_paths(code: &str, depth: usize) -> Vec<(usize, Vec<&str>)> {
    let mut found = Vec::new();
    for (offset, rest) in words(code, "crate") {
        if let Some(rest) = rest.strip_prefix("::") {
            let mut paths = Vec::new();
            expand(rest, &[], &mut paths);
            found.extend(paths.into_iter().map(|path| (offset, path)));
        }
    }
    for (offset, _) in words(code, "super").filter(|(offset, _)| !code[..*offset].ends_with("super::")) {
        let chain = &code[offset..];
        let supers = chain.split("::").take_while(|part| *part == "super").count();
        let is_layer = |path: &Vec<&str>| LAYERS.iter().any(|(name, _)| path[0] == *name);
        if supers >= depth {
            let mut paths = Vec::new();
            expand(&chain[supers * "super::".len()..], &[], &mut paths);
            found.extend(paths.into_iter().filter(is_layer).map(|path| (offset, path)));
        }
    }
    found
}

/// Takes a use tree apart: `a::{b, c::d}` is `a::b` and `a::c::d`. Gives what follows it.
fn expand<'c>(text: &'c str, before: &[&'c str], found: &mut Vec<Vec<&'c str>>) -> &'c str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = expand(rest, before, found).trim_start();
            match rest.strip_prefix(',') {
                Some(after) => rest = after,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let end = text.find(|c: char| !is_word(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    if word.is_empty() {
        if !before.is_empty() {
            found.push(before.to_vec());
        }
        return rest.strip_prefix('*').unwrap_or(rest);
    }
    let path = [before, &[word]].concat();
    match rest.trim_start().strip_prefix("::") {
        Some(after) if !after.trim_start().starts_with('<') => expand(after, &path, found),
        _ => {
            found.push(path);
            let renamed = rest.trim_start().strip_prefix("as ");
            renamed.map_or(rest, |name| name.trim_start().trim_start_matches(is_word))
        }
    }
}

/// Every function with a body: its name, its place, and how many lines it has.
fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    for (offset, rest) in words(code, "fn") {
        let rest = rest.trim_start();
        let name = &rest[..rest.find(|c: char| !is_word(c)).unwrap_or(rest.len())];
        if let (false, Some(length)) = (name.is_empty(), body_end(&code[offset..])) {
            found.push((name, offset, code[offset..offset + length].lines().count()));
        }
    }
    found
}

/// Length of a function up to its closing brace; nothing if it has no body.
fn body_end(function: &str) -> Option<usize> {
    let (mut round, mut curly) = (0_i32, 0_i32);
    for (place, c) in function.char_indices() {
        match c {
            '(' | '[' => round += 1,
            ')' | ']' => round -= 1,
            ';' if round == 0 && curly == 0 => return None,
            '{' => curly += 1,
            '}' if curly == 1 && round == 0 => return Some(place + 1),
            '}' => curly -= 1,
            _ => {}
        }
    }
    None
}

// ---- the files ----

/// All text files of the repository.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = listed(root).unwrap_or_default();
    if paths.is_empty() {
        walk(root, root, &mut paths);
    }
    let sources: Vec<Source> = paths
        .into_iter()
        // Bodies as servers sent them, byte by byte.
        .filter(|path| !path.starts_with("tests/fixtures/wire/"))
        .filter_map(|path| Some(Source::new(path.clone(), std::fs::read_to_string(root.join(path)).ok()?)))
        .collect();
    assert!(sources.iter().filter(|file| file.is_rust()).count() > 40, "too few files were found under {}", root.display());
    sources
}

/// What git knows or would add. Nothing if there is no git, as in an unpacked archive.
fn listed(root: &Path) -> Option<BTreeSet<String>> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(list).current_dir(root).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

fn walk(root: &Path, folder: &Path, paths: &mut BTreeSet<String>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{} cannot be read: {error}", folder.display()));
    for path in entries.map(|entry| entry.expect("an entry of the folder").path()) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            if !["target", ".git"].contains(&&*name) {
                walk(root, &path, paths);
            }
        } else if !name.ends_with(".redb") {
            let inner: PathBuf = path.strip_prefix(root).expect("it is under the root").into();
            paths.insert(inner.to_string_lossy().replace('\\', "/"));
        }
    }
}

#[track_caller]
fn none(faults: &[Fault]) {
    let mut list = String::new();
    for Fault { path, line, what } in faults {
        let _ = write!(list, "\n  {path}:{line}: {what}");
    }
    assert!(faults.is_empty(), "{} faults:{list}", faults.len());
}

#[track_caller]
fn holds(rule: Rule) {
    none(&sources().iter().flat_map(rule).collect::<Vec<_>>());
}

#[test]
fn imports_go_down_the_layers_only() {
    holds(layering);
}

#[test]
fn tokio_redb_petgraph_and_channels_stay_at_home() {
    holds(homes);
}

#[test]
fn nodes_graphs_and_examples_have_no_private_door() {
    holds(private_doors);
}

#[test]
fn files_are_short() {
    holds(file_length);
}

#[test]
fn functions_are_short() {
    holds(function_length);
}

#[test]
fn nothing_is_unfinished_skipped_or_asleep() {
    holds(banned_words);
}

#[test]
fn no_file_speaks_of_a_machine() {
    holds(machine_paths);
}

#[test]
fn every_example_is_compiled() {
    holds(ignored_fences);
}

#[test]
fn every_allowed_lint_has_a_reason() {
    holds(unexplained_allows);
}

#[test]
fn no_line_ends_in_space() {
    holds(trailing_space);
}

#[test]
fn no_file_is_dead() {
    none(&dead_files(&sources()));
}

#[test]
fn exceptions_are_needed() {
    let files = sources();
    let find = |path: &str| files.iter().find(|file| file.path == path);
    for (path, _) in LONG_FILES {
        let lines = find(path).map_or(0, |file| file.text.lines().count());
        assert!(lines > FILE_LINES_MAX, "{path} has {lines} lines; remove it from LONG_FILES");
    }
    for (path, name, _) in LONG_FUNCTIONS {
        let long = |file: &Source| functions(&file.code).iter().any(|(n, _, lines)| n == name && *lines > FUNCTION_LINES_MAX);
        assert!(find(path).is_some_and(long), "`{name}` of {path} is not long; remove it from LONG_FUNCTIONS");
    }
}

// ---- the rules themselves ----

/// A rule, a file with a fault in it, and the line where the rule must see it.
fn planted() -> Vec<(Rule, &'static str, String, usize)> {
    let lines = |count: usize| "let x = 1;\n".repeat(count);
    vec![
        (layering, "src/machine/step.rs", "use crate::log::Record;\nuse crate::store::Store;\n".into(), 2),
        (layering, "src/machine/step.rs", "use crate::clock::{Clock, Timestamp};\n".into(), 1),
        (layering, "src/store/redb/worker.rs", "use crate::{id::Position, runner::Runner};\n".into(), 1),
        (layering, "src/store/mod.rs", "fn f() {}\nfn g(x: &crate::graph::Graph) {}\n".into(), 2),
        (layering, "src/log/fold.rs", "use super::super::machine::Machine;\n".into(), 1),
        (layering, "src/log/fold.rs", "use crate::Failure;\n".into(), 1),
        (layering, "src/log/fold.rs", "use ferrata::Failure;\n".into(), 1),
        (layering, "src/cellar/mod.rs", "\n".into(), 1),
        (homes, "src/machine/mod.rs", "\nuse tokio::sync::mpsc;\n".into(), 2),
        (homes, "src/store/mod.rs", "fn f(e: ::redb::Error) {}\n".into(), 1),
        (homes, "src/log/mod.rs", "use petgraph;\n".into(), 1),
        (homes, "src/runner/mod.rs", "use futures_channel::oneshot;\n".into(), 1),
        (private_doors, "nodes/src/chat.rs", "use ferrata::__private::Value;\n".into(), 1),
        (file_length, "graphs/src/lib.rs", lines(501), 501),
        (function_length, "src/id.rs", format!("fn short() {{}}\nfn long(x: [u8; 3]) {{\n{}}}\n", lines(69)), 2),
        (banned_words, "README.md", format!("\n{}\n", concat!("to", "do!()")), 2),
        (banned_words, "src/id.rs", format!("fn f() {{ {}) }}\n", concat!("unimple", "mented!(")), 1),
        (banned_words, "tests/a.rs", format!("#[test]\n{}]\n", concat!("#[ig", "nore")), 2),
        (banned_words, "tests/a.rs", format!("use std::{};\n", concat!("thread::", "sleep")), 1),
        (machine_paths, "README.md", format!("see {}x\n", concat!("/wo", "rk/")), 1),
        (machine_paths, ".ci/run", format!("cd \"{}x\"\n", concat!("/fa", "rm/")), 1),
        (ignored_fences, "src/id.rs", format!("/// ```{}\n", concat!("ig", "nore")), 1),
        (ignored_fences, "README.md", format!("```rust,{}\n", concat!("ig", "nore")), 1),
        (unexplained_allows, "src/id.rs", "#[allow(dead_code, reason = \"x\")]\n#[allow(\n    dead_code,\n)]\n".into(), 2),
        (trailing_space, "README.md", "a\nb \n".into(), 2),
        (trailing_space, "src/id.rs", "a\r\nb\n".into(), 1),
    ]
}

#[test]
fn every_rule_catches_a_planted_fault() {
    for (rule, path, text, line) in planted() {
        let faults = rule(&Source::new(path, text.clone()));
        let seen: Vec<usize> = faults.iter().map(|fault| fault.line).collect();
        assert_eq!(seen, [line], "in {path}:\n{text}");
    }
}

#[test]
fn dead_files_are_caught() {
    let files = [
        Source::new("src/lib.rs", "mod log;\n// mod gone;\n#[doc = include_str!(\"docs/format.md\")]\nmod clock;"),
        Source::new("src/clock.rs", ""),
        Source::new("src/gone.rs", ""),
        Source::new("src/log/mod.rs", "pub(crate) mod fold;\nmod other_fold;\n"),
        Source::new("src/log/fold.rs", ""),
        Source::new("src/log/unfold.rs", ""),
        Source::new("src/docs/format.md", ""),
        Source::new("src/docs/lost.md", ""),
        Source::new("src/derive/lib.rs", ""),
    ];
    let dead: Vec<String> = dead_files(&files).into_iter().map(|fault| fault.path).collect();
    assert_eq!(dead, ["src/gone.rs", "src/log/unfold.rs", "src/docs/lost.md"]);
}

#[test]
fn rules_leave_good_files_alone() {
    let good: &[(Rule, &str, &str)] = &[
        (layering, "src/machine/mod.rs", "use crate::clock::Timestamp; // not crate::store\nuse crate::machine::x;\n"),
        (
            layering,
            "src/store/redb/mod.rs",
            "/// `crate::graph`\nuse super::{Append, Store as _};\nuse crate::log::{Entry, Record,};\n",
        ),
        (layering, "src/lib.rs", "pub use crate::runner::Runner;\n"),
        (layering, "nodes/src/lib.rs", "use crate::store::x;\n"),
        (homes, "src/store/mod.rs", "mod redb;\npub use self::redb::RedbStore;\nconst A: &str = \"tokio::spawn\";\n"),
        (homes, "src/store/memory.rs", "/// tokio::spawn\nlet r = r#\"tokio::spawn \"\"#;\n"),
        (homes, "examples/steps.rs", "use tokio::time;\n"),
        (private_doors, "src/lib.rs", "pub mod __private {}\n"),
        (
            function_length,
            "src/id.rs",
            "trait T { fn f(&self); }\nconst F: fn(u8) = g;\nfn g(c: char) -> bool { c == '{' || c == '\\'' }\n",
        ),
        (machine_paths, "README.md", concat!("nodes/wo", "rk/x\n")),
        (ignored_fences, "src/id.rs", "/// ```\n/// ```no_run\n// ignore\n"),
    ];
    for (rule, path, text) in good {
        let source = Source::new(*path, *text);
        none(&rule(&source));
    }
}
