//! Tests an agent by crashing it at every moment of its run, and shows what that finds: first on a careless agent, then on a careful one.
//!
//! ```sh
//! cargo run --example crash_test
//! ```
//!
//! The agent books seats: it reserves them, asks a person, charges the card, and mails the ticket. In a project of your own this is a
//! `#[tokio::test]` that ends in `.await.unwrap()`. The careless agent sends the mail itself, without an effect. Exit code 0 if each did as is said here.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use ferrata::testing::{CrashTest, crash_everywhere_in};
use ferrata::{Approval, BuildError, Context, END, Graph, IntoNode, NodeError, Retry, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Booking {
    seats: u64,
    reservation: Option<String>,
    receipt: Option<String>,
    mailed: bool,
}

/// What was done outside, in order. It is there whatever happens to the process.
#[derive(Clone, Default)]
struct Outside(Arc<Mutex<Vec<String>>>);

impl Outside {
    fn perform(&self, what: impl Into<String>) -> usize {
        let mut done = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        done.push(what.into());
        done.len()
    }

    fn count(&self, what: &str) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|done| done.starts_with(what)).count()
    }
}

fn reserve(theatre: Outside) -> impl IntoNode<Booking, (View<Booking>, Context)> {
    move |booking: View<Booking>, ctx: Context| {
        let theatre = theatre.clone();
        async move {
            let reserve = |key: String| async move {
                // It is busy the first time. The same key reserves the same seats, so that it may be called again.
                if theatre.perform("call") == 1 {
                    Err(NodeError::new("busy").transient())
                } else {
                    Ok(format!("reservation {key}"))
                }
            };
            let reservation: String = ctx.effect("reserve", reserve).repeatable().await?;
            Ok(Booking::update().seats(booking.seats).reservation(reservation))
        }
    }
}

fn charge(card: Outside) -> impl IntoNode<Booking, (View<Booking>, Context)> {
    move |booking: View<Booking>, ctx: Context| {
        let card = card.clone();
        async move {
            let charge = |_key| async move {
                card.perform(format!("charged {} seats", booking.seats));
                Ok("receipt 1".to_owned())
            };
            Ok(Booking::update().receipt(ctx.effect("charge", charge).await?))
        }
    }
}

fn mail(careful: bool, post: Outside) -> impl IntoNode<Booking, (View<Booking>, Context)> {
    move |booking: View<Booking>, ctx: Context| {
        let post = post.clone();
        async move {
            let text = format!("mail: {:?}", booking.receipt);
            if careful {
                ctx.effect("mail", |_key| async { Ok(post.perform(text)) }).await?;
            } else {
                post.perform(text);
            }
            Ok(Booking::update().mailed(true))
        }
    }
}

fn booking(careful: bool, outside: &Outside) -> Result<Graph<Booking>, BuildError> {
    Graph::<Booking>::new(if careful { "careful" } else { "careless" })
        .node("reserve", reserve(outside.clone()).retry(Retry::transient(3)))
        .question("approve", |s: &Booking| Approval::ask(format!("Book {} seats?", s.seats)))
        .node("charge", charge(outside.clone()).irreversible())
        .node("mail", mail(careful, outside.clone()))
        .edge(START, "reserve")
        .edge("reserve", "approve")
        .approved("approve", "charge")
        .rejected("approve", END)
        .edge("charge", "mail")
        .edge("mail", END)
        .build()
}

fn crash_test(careful: bool) -> CrashTest<Booking, Outside> {
    crash_everywhere_in(Outside::default, move |outside| booking(careful, outside), Booking::update().seats(2))
        .answer("approve", Approval::approve().by("dana"))
        .after_each(|outside, state| match (outside.count("charged"), outside.count("mail"), state.mailed) {
            (1, 1, true) => Ok(()),
            (charged, mails, _) => Err(format!("the card was charged {charged} times, and {mails} mails were sent")),
        })
}

#[tokio::main]
async fn main() -> ExitCode {
    let careless = crash_test(false).await;
    match &careless {
        Ok(report) => println!("the careless agent: {report}"),
        Err(faults) => println!("{faults}\n"),
    }
    let careful = crash_test(true).await;
    match &careful {
        Ok(report) => println!("the careful agent: {report}"),
        Err(faults) => println!("{faults}"),
    }
    if careless.is_err() && careful.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
