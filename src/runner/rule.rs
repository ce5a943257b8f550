//! Rules that results of nodes have to keep to.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::error::{Class, Failure, Origin};
use crate::graph::Rule;
use crate::machine::TaskEnd;
use crate::state::{Change, Schema, State, StateCell, fingerprint, give_ids, panic_text};

/// A rule over the states before and after a node, whatever their type.
pub(crate) type Checkable = Arc<dyn Fn(StateCell, &[Change], &str) -> Result<(), Broken> + Send + Sync>;

/// How a result breaks a rule.
pub(crate) struct Broken {
    text: String,
    /// The rule itself is broken.
    panicked: bool,
    /// What the node wrote, without secrets.
    shown: Value,
}

/// Makes a rule checkable, so that the loop need not know the state's type.
pub(crate) fn checkable<S: State>(rule: Rule<S>, schema: &Arc<Schema>) -> Checkable {
    let schema = Arc::clone(schema);
    Arc::new(move |before, changes, origin| {
        let (mut after, mut changes) = (before.clone(), changes.to_vec());
        give_ids(&schema, &mut changes, || origin.to_owned());
        // What cannot be written is told when it is merged.
        if after.write(&schema, &changes).is_err() {
            return Ok(());
        }
        let (before, after) = (before.view::<S>(), after.view::<S>());
        let (text, panicked) = match catch_unwind(AssertUnwindSafe(|| rule(&before, &after))) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(text)) => (text, false),
            Err(panic) => (format!("its rule panicked: {}", panic_text(&*panic)), true),
        };
        let written =
            schema.fields().iter().filter(|field| !field.secret && changes.iter().any(|change| change.field == *field.name));
        let shown: Map<String, Value> =
            written.filter_map(|field| Some((field.name.clone(), after.read(&field.name).ok()??))).collect();
        Err(Broken { text, panicked, shown: Value::Object(shown) })
    })
}

/// The end of an attempt, which is a failure if the result breaks the rule.
/// `origin`: what messages get their ids from. `taken`: the fingerprint of the result that a person has seen and takes as it is.
pub(crate) fn verified(end: TaskEnd, rule: &Checkable, before: StateCell, origin: &str, taken: Option<&str>) -> TaskEnd {
    let TaskEnd::Done { changes, .. } = &end else { return end };
    let Err(Broken { text, panicked, shown }) = rule(before, changes, origin) else { return end };
    if !panicked && taken.is_some_and(|taken| fingerprint(&shown) == taken) {
        return end;
    }
    let (origin, class) = if panicked { (Origin::Panic, Class::Deterministic) } else { (Origin::Rule, Class::Violation) };
    let failure = Failure { origin, class, message: text, causes: Vec::new(), tried: false };
    TaskEnd::Failed { failure, retry_after: None, timed_out: false, result: Some(shown) }
}
