//! What it costs to keep a context under its budget.

use ferrata::state::Message;
use ferrata_nodes::{ChatRequest, ContextPlan, Tally, Tiktoken};

use crate::workloads::Problem;
use crate::{Measured, now, seconds_since};

const MESSAGES: usize = 10_000;

/// A message of some 100 tokens, no two the same.
fn message(number: usize) -> Message {
    let text =
        format!("Remark {number}: the Heron has no table for {} at this hour, and the Plover has one at {number}. ", number % 9);
    let text = text.repeat(4);
    let message = if number.is_multiple_of(2) { Message::user(text) } else { Message::assistant(text) };
    message.with_id(format!("m{number}"))
}

/// N checks of the tokens with one more message, each of them a new one.
pub(crate) fn checks(n: u64) -> Measured {
    let mut tally = Tally::new(Tiktoken::default());
    (0..MESSAGES).for_each(|number| tally.put(&message(number)));
    let next: Vec<Message> = (0..n as usize).map(|number| message(MESSAGES + number)).collect();
    let start = now();
    let fits = next.iter().filter(|message| tally.total_with(message) <= 2_000_000).count();
    let wall_s = seconds_since(start);
    assert_eq!(fits, next.len());
    Measured { steps: n, wall_s, first100_us: None, last100_us: None }
}

/// N contexts of 128k tokens, of messages that are counted.
pub(crate) fn contexts(n: u64) -> Result<Measured, Problem> {
    let messages: Vec<Message> = (0..MESSAGES).map(message).collect();
    let plan = ContextPlan::new(128_000);
    let request = || ChatRequest::new([Message::system("You book tables.")]);
    let context = plan.assemble(&messages, request())?;
    eprintln!("{} messages, {} tokens", context.request.messages.len(), context.tokens);
    let start = now();
    for _ in 0..n {
        let context = plan.assemble(&messages, request())?;
        assert!(context.tokens > 127_000);
    }
    Ok(Measured { steps: n, wall_s: seconds_since(start), first100_us: None, last100_us: None })
}
