//! What a run of the script begins with, and from which checkpoint.

use serde_json::Value;

use super::engine::Thread;
use super::operation::{At, Run};
use super::runs::{self, Begin, Failure, Shot};
use super::scenario::Command;
use super::update::{Fields, changes, plain};

/// What the run begins with.
pub(crate) async fn begins(thread: &Thread, fields: &Fields, run: &Run) -> Result<Begin, Failure> {
    if let Some(answers) = &run.resume_by_value {
        let open = runs::questions(thread).await?;
        let given = |(question, answer): &(Value, Value)| {
            let id = open.iter().find(|(_, asked)| asked == question).map(|(id, _)| *id);
            Ok((id.ok_or(Failure::Refused("UnknownQuestion"))?, answer.clone()))
        };
        return Ok(Begin::Answers(answers.iter().map(given).collect::<Result<_, Failure>>()?));
    }
    if let Some(answer) = &run.resume {
        return resume(thread, answer).await;
    }
    if let Some(command) = &run.command {
        return self::command(thread, fields, command).await;
    }
    match &run.input {
        Some(Value::Object(input)) => Ok(Begin::Input(changes(fields, plain(input)))),
        _ => Ok(Begin::Resume),
    }
}

/// A command as a run's input: the update is an edit of the thread.
async fn command(thread: &Thread, fields: &Fields, command: &Command) -> Result<Begin, Failure> {
    let Command { update, goto, resume: answer, .. } = command;
    if goto.is_some() {
        return Err(Failure::Unsupported("a goto from outside"));
    }
    if let Some(update) = update {
        runs::edit(thread, &[], changes(fields, plain(update)), None).await?;
    }
    match (update, answer) {
        (None, None) => Err(Failure::Refused("EmptyInput")),
        (_, Some(answer)) => resume(thread, answer).await,
        (Some(_), None) => Ok(Begin::Resume),
    }
}

/// A plain answer goes to the one open question. Where none is open the thread just goes on.
async fn resume(thread: &Thread, answer: &Value) -> Result<Begin, Failure> {
    if answer.is_null() {
        return Err(Failure::Refused("EmptyInput"));
    }
    match runs::questions(thread).await?.as_slice() {
        [] => Ok(Begin::Resume),
        [(id, _)] => Ok(Begin::Answers(vec![(*id, answer.clone())])),
        _ => Err(Failure::Refused("AmbiguousResume")),
    }
}

/// The thread as if the checkpoint that `at` picks were the newest.
pub(crate) async fn back(thread: &Thread, at: &At) -> Result<Thread, Failure> {
    let shot = find(runs::history(thread, &[]).await?, at)?;
    match shot.position {
        Some(position) => Ok(runs::at(thread, position)),
        None => Err(Failure::Refused("NoSuchCheckpoint")),
    }
}

pub(crate) fn find(history: Vec<Shot>, at: &At) -> Result<Shot, Failure> {
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort();
        names
    };
    let fits = |shot: &Shot| {
        sorted(&shot.next) == sorted(&at.next) && at.source.as_deref().is_none_or(|source| shot.source == Some(source))
    };
    history.into_iter().filter(fits).nth(at.nth).ok_or(Failure::Refused("NoSuchCheckpoint"))
}
