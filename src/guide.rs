//! Guides: one page for each concept, for those who have read the README.
//!
//! Each page says what is guaranteed and what is not. All programs in them run as tests.
//!
//! - [`state`]: what a thread knows, and how changes are merged.
//! - [`routing`]: what runs next, and what stops it.
//! - [`joins_and_sends`]: many nodes at once, and back together.
//! - [`subgraphs`]: graphs inside a thread.
//! - [`questions`]: where a person decides.
//! - [`effects`]: what is done outside, once, and how it is taken back.
//! - [`failures`]: what is tried again, what is not, and what then.
//! - [`supervisor`]: what happens without a caller: time, signals, recovery.
//! - [`history_and_forks`]: back in time, without losing anything.
//! - [`streams`]: watching a run.
//! - [`durability`]: what survives, and how runs end.
//! - [`stores`]: where threads are kept, and their upkeep.
//! - [`changes`]: the next version of a program, and the threads of the last one.
//! - [`secrets`]: values that no store may see.
//! - [`testing`]: a graph of one's own, crashed at every moment.

#[doc = include_str!("docs/state.md")]
pub mod state {}

#[doc = include_str!("docs/routing.md")]
pub mod routing {}

#[doc = include_str!("docs/joins_and_sends.md")]
pub mod joins_and_sends {}

#[doc = include_str!("docs/subgraphs.md")]
pub mod subgraphs {}

#[doc = include_str!("docs/questions.md")]
pub mod questions {}

#[doc = include_str!("docs/effects.md")]
pub mod effects {}

#[doc = include_str!("docs/failures.md")]
pub mod failures {}

#[doc = include_str!("docs/supervisor.md")]
pub mod supervisor {}

#[doc = include_str!("docs/history_and_forks.md")]
pub mod history_and_forks {}

#[doc = include_str!("docs/streams.md")]
pub mod streams {}

#[doc = include_str!("docs/durability.md")]
pub mod durability {}

#[doc = include_str!("docs/stores.md")]
pub mod stores {}

#[doc = include_str!("docs/changes.md")]
pub mod changes {}

#[doc = include_str!("docs/secrets.md")]
pub mod secrets {}

#[doc = include_str!("docs/testing.md")]
pub mod testing {}
