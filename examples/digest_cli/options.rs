//! The options of the digest.

use std::path::PathBuf;

use ferrata::{Answer, Approval};

/// What was asked for on the command line.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) budget: usize,
    pub(crate) parallel: usize,
    pub(crate) answer: Option<Answer>,
    pub(crate) store: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) thread: String,
    pub(crate) new: bool,
}

/// Options that make no sense.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\nusage: digest [--budget TOKENS] [--parallel N] [--answer approve|reject|edit=TEXT] ", self.0)?;
        f.write_str("[--store FILE] [--out FILE] [--thread NAME] [--new] [PATH...]")
    }
}

impl std::error::Error for Usage {}

impl Options {
    pub(crate) fn read(arguments: impl Iterator<Item = String>) -> Result<Self, Usage> {
        let mut options = Self {
            paths: Vec::new(),
            budget: 2_000,
            parallel: 8,
            answer: None,
            store: "ferrata.redb".into(),
            out: "digest.md".into(),
            thread: "digest".to_owned(),
            new: false,
        };
        let mut arguments = arguments.peekable();
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| Usage(format!("{name} needs a value")));
            match name.as_str() {
                "--budget" => options.budget = number(&name, &value()?, 500)?,
                "--parallel" => options.parallel = number(&name, &value()?, 1)?,
                "--answer" => options.answer = Some(answer(&value()?)?),
                "--store" => options.store = value()?.into(),
                "--out" => options.out = value()?.into(),
                "--thread" => options.thread = value()?,
                "--new" => options.new = true,
                option if option.starts_with("--") => return Err(Usage(format!("there is no option {option}"))),
                path => options.paths.push(path.into()),
            }
        }
        Ok(options)
    }
}

fn number(name: &str, text: &str, least: usize) -> Result<usize, Usage> {
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| Usage(format!("{name} takes a whole number from {least} on, not {text:?}")))
}

fn answer(text: &str) -> Result<Answer, Usage> {
    let answer = match text.split_once('=') {
        Some(("edit", edited)) if !edited.trim().is_empty() => Approval::edit(edited),
        None if text == "approve" => Approval::approve(),
        None if text == "reject" => Approval::reject("--answer reject"),
        _ => return Err(Usage(format!("--answer takes approve, reject or edit=TEXT, not {text:?}"))),
    };
    Ok(answer.by("--answer"))
}
