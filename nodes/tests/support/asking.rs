//! A graph that asks, so that somebody is told.

use std::time::Duration;

use ferrata::store::Store;
use ferrata::{Approval, END, Graph, Outcome, Runner, START, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
pub(crate) struct Case {
    pub(crate) text: String,
}

/// A graph that asks.
pub(crate) fn graph() -> Graph<Case> {
    Graph::<Case>::new("case")
        .question("approve", |case: &Case| Approval::ask(format!("Ship {}?", case.text)))
        .approved("approve", END)
        .rejected("approve", END)
        .edge(START, "approve")
        .build()
        .unwrap()
}

pub(crate) async fn ask(runner: &Runner<Case>, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let outcome = runner.thread(&format!("case-{number}")).run(Case::update().text(number.to_string())).await.unwrap();
        assert!(matches!(outcome, Outcome::Waiting(_)), "{outcome:?}");
    }
}

pub(crate) async fn until_nothing_is_kept(store: &impl Store) {
    while !store.notes("notice/", None, 1).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
