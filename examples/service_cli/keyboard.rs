//! Somebody at the keyboard, who answers questions.

use std::io::BufRead;

use ferrata::{Answer, Approval, Runner, State};
use serde_json::Value;
use tokio::sync::mpsc;

/// Answers as somebody at the keyboard says.
pub(crate) async fn answer<S: State>(runner: Runner<S>, line: String) {
    let (word, name) = line.split_once(' ').unwrap_or((&line, ""));
    let thread = runner.thread(name);
    let key =
        |show: &Option<Value>| show.as_ref().and_then(|show| show["idempotency_key"].as_str()).unwrap_or_default().to_owned();
    let outcome = match (word, thread.questions().await.as_deref()) {
        ("approve", _) => thread.reply(Approval::approve()).await,
        ("reject", _) => thread.reply(Approval::reject("nobody wants it any more")).await,
        ("performed", Ok([doubt])) => thread.reply(Answer::performed(format!("receipt for {}", key(&doubt.show)))).await,
        ("missing", _) => thread.reply(Answer::not_performed()).await,
        _ => return eprintln!("{line:?} is not understood"),
    };
    if let Err(error) = outcome {
        eprintln!("{name}: {}: {error}", error.code());
    }
}

/// Lines from the keyboard. A thread of its own waits for them, which does not keep the program from ending.
pub(crate) fn lines() -> mpsc::Receiver<String> {
    let (say, said) = mpsc::channel(16);
    std::thread::spawn(move || std::io::stdin().lock().lines().map_while(Result::ok).all(|line| say.blocking_send(line).is_ok()));
    said
}
