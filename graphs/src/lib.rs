//! Ready-made graphs for [`ferrata`], built on its public API and on the nodes of [`ferrata_nodes`].
//!
//! - [`digest`]: reads many documents in parallel, keeps what was found under a token budget, drafts a digest, asks a person, publishes.

pub mod digest;
