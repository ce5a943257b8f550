//! Agents as typed state graphs that survive `kill -9`: finished work is never done twice.
//!
//! An agent is a graph of nodes over a state. A [`Runner`] executes it, writes what happened to a [`store`] after every node, stops where
//! a person has to decide, and goes on when they have, also in another process.
//!
//! ```
//! use ferrata::store::RedbStore;
//! use ferrata::{Approval, Context, END, Graph, Outcome, Retry, Runner, START, State, View, IntoNode};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
//! struct Refund {
//!     order: String,
//!     amount_cents: Option<u64>, // not known yet is not zero
//!     #[state(append)]
//!     notes: Vec<String>,
//! }
//!
//! async fn look_up(state: View<Refund>, ctx: Context) -> ferrata::Result<RefundUpdate> {
//!     let amount: u64 = ctx.effect("order service", |_key| async { Ok(4_200) }).repeatable().await?;
//!     Ok(Refund::update().amount_cents(amount).note(format!("order {} costs {amount} cents", state.order)))
//! }
//!
//! async fn pay(state: View<Refund>, ctx: Context) -> ferrata::Result<RefundUpdate> {
//!     // Recorded before and after: never repeated in silence. The key is for the bank.
//!     let receipt: String = ctx.effect("pay", |key| async move { Ok(format!("receipt {key}")) }).await?;
//!     Ok(Refund::update().note(format!("paid {:?} cents, {receipt}", state.amount_cents)))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ferrata::Result<()> {
//! let graph = Graph::<Refund>::new("refund")
//!     .node("look_up", look_up.retry(Retry::transient(3)))
//!     .question("approve", |s: &Refund| Approval::ask(format!("Refund order {}?", s.order)).show(&s.amount_cents))
//!     .node("pay", pay.irreversible())
//!     .edge(START, "look_up")
//!     .edge("look_up", "approve")
//!     .approved("approve", "pay")
//!     .rejected("approve", END)
//!     .edge("pay", END)
//!     .build()?;
//!
//! # let dir = std::env::temp_dir().join(format!("ferrata-front-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! # let path = dir.join("refunds.redb");
//! let runner = Runner::new(graph, RedbStore::open(&path)?);
//! let Outcome::Waiting(questions) = runner.thread("order-42").run(Refund::update().order("42")).await? else { panic!("it asks") };
//! // The process may end here. Another day, another process:
//! let outcome = runner.thread("order-42").answer(questions[0].id, Approval::approve().by("dana")).await?;
//! assert!(outcome.done().is_some_and(|state| state.notes[1].starts_with("paid")));
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is where
//!
//! - [`guide`]: a page for each concept, from state to durability, with what is guaranteed and what is not.
//! - [`State`]: what a thread knows, and how changes are merged. [`Graph`]: how nodes are connected.
//! - [`Runner`], [`Thread`], [`Outcome`]: running, resuming, answering, looking back. [`Context`]: what a node can do.
//! - [`store`]: where threads are kept. [`log`]: what is recorded, and [its format](log::format).
//!
//! # Features
//!
//! `testing` (off by default): what [crashes a graph](guide::testing) at every moment, what holds a [`Store`](store::Store) of one's own to its promises, and
//! disks that fail on purpose.

// The derives speak of `::ferrata`, also in this crate's own tests.
extern crate self as ferrata;

pub mod clock;
mod error;
mod graph;
pub mod guide;
mod id;
pub mod log;
mod machine;
mod policy;
mod runner;
pub mod state;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use error::{Class, Failure, NodeError, Origin, Result};
pub use ferrata_derive::{Route, State};
pub use graph::{
    Answer, Approval, Ask, Asking, BuildError, END, Graph, GraphBuilder, IntoNode, IntoReturn, Mistake, Next, Node, PayloadType,
    Route, START, Starved, Verdict, Wait,
};
pub use id::{
    BranchId, EffectId, Frame, InvalidThreadName, NodeName, Path, Position, QuestionId, RunId, StepNumber, TaskId, ThreadName,
};
pub use log::{Durability, OnExpiry, Progress, Question, QuestionKind, QuestionTerms, Suspension, Target};
pub use policy::{Breaker, Guard, Missed, Retry};
pub use runner::{
    Checked, Checkpoint, Context, Delivery, Dep, Effect, Error, Event, Events, Firing, ForgetSecrets, FromTask, Inbox, InboxItem,
    Inside, Keep, Mode, Notice, NoticeKind, Notifier, NotifyError, Notifying, Outcome, PastEffect, Performed, Recovery, Resource,
    ResourceState, Runner, Schedule, SealSecrets, SecretPlace, Secrets, SecretsError, ShutDown, Signal, Supervise, Supervisor,
    Thread, ThreadState, TracingNotifier,
};
pub use state::{State, StaticState, View};

/// For the derives only.
#[doc(hidden)]
pub mod __private {
    pub use crate::graph::{Need, NodeReturn};
    pub use serde_json::{Map, Value};
}

/// The program in the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
