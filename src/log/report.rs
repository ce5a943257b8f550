//! What a thread cost, node by node.

use super::parts::Cost;
use super::record::{Entry, Record};
use crate::id::NodeName;

/// What one node cost over the life of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeCost {
    /// The node.
    pub node: NodeName,
    /// Tasks that have a result.
    pub tasks: u64,
    /// Attempts that ended, with or without a result. One that was cut off by the end of the process left no record and is not in it.
    pub attempts: u64,
    /// Wall time of these attempts in milliseconds, added up over parallel tasks.
    pub ms: u64,
    /// Tokens sent to models.
    pub input_tokens: u64,
    /// Tokens written by models.
    pub output_tokens: u64,
}

/// What a thread cost, by node in the order of their first record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// A row for each node that has run.
    pub nodes: Vec<NodeCost>,
}

impl Report {
    /// Adds up the records of a thread.
    pub fn of(entries: &[Entry]) -> Self {
        let mut report = Self::default();
        for entry in entries {
            match &entry.record {
                Record::TaskDone(done) => report.add(&done.task.node, done.cost, (1, 1)),
                Record::AttemptFailed(failed) => report.add(&failed.task.node, failed.cost, (0, 1)),
                Record::TaskFailed(failed) => report.add(&failed.task.node, failed.cost, (0, 1)),
                // The time of an effect lies within its attempt's; its tokens stand here alone.
                Record::EffectDone(done) => report.add(&done.effect.task.node, Cost { ms: 0, ..done.cost }, (0, 0)),
                _ => {}
            }
        }
        report
    }

    fn add(&mut self, node: &NodeName, cost: Cost, (tasks, attempts): (u64, u64)) {
        let known = self.nodes.iter().position(|row| row.node == *node);
        let index = known.unwrap_or_else(|| {
            let (ms, input_tokens, output_tokens) = (0, 0, 0);
            self.nodes.push(NodeCost { node: node.clone(), tasks: 0, attempts: 0, ms, input_tokens, output_tokens });
            self.nodes.len() - 1
        });
        let row = &mut self.nodes[index];
        row.tasks = row.tasks.saturating_add(tasks);
        row.attempts = row.attempts.saturating_add(attempts);
        row.ms = row.ms.saturating_add(cost.ms);
        row.input_tokens = row.input_tokens.saturating_add(cost.input_tokens);
        row.output_tokens = row.output_tokens.saturating_add(cost.output_tokens);
    }
}
