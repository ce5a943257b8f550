//! What is kept of resources: the last word on each of them, under its own name.

use std::sync::Arc;

use super::list::names_alike;
use super::sample::{Told, name, records};
use super::{Fault, Found, must};
use crate::clock::Timestamp;
use crate::store::{BreakerKept, ResourceKept, Store};

/// What is kept of each, in the order of time.
pub(super) fn words() -> [ResourceKept; 5] {
    let (paused_until, open) = (Some(Timestamp(u64::MAX)), BreakerKept::Open { until: Timestamp(0) });
    [
        ResourceKept { breaker: BreakerKept::Open { until: Timestamp(1_700_000_000_123) }, ..ResourceKept::default() },
        ResourceKept { breaker: BreakerKept::HalfOpen, paused_until, gap_ms: 1 },
        ResourceKept { breaker: open, paused_until: Some(Timestamp(0)), gap_ms: u64::MAX },
        ResourceKept::default(),
        ResourceKept { breaker: BreakerKept::Closed, paused_until, gap_ms: 200 },
    ]
}

pub(super) async fn is_known(store: &dyn Store, resource: &str, kept: Option<&ResourceKept>) -> Found {
    let found = store.resource(resource).await?;
    must!(found.as_ref() == kept, "of the resource {resource:?} is kept {found:?}, and not {kept:?}");
    Ok(())
}

pub(super) async fn resources(store: &Arc<dyn Store>) -> Found {
    let store = &**store;
    let mut names: Vec<String> = names_alike()?.iter().map(|name| name.as_str().to_owned()).collect();
    names.push(String::new());
    for resource in &names {
        is_known(store, resource, None).await?;
    }
    // A resource and a thread of one name have nothing to do with each other.
    let mut thread = Told::new(&names[0])?;
    thread.add(store, records("a thread", 2)).await?;
    for round in 0..words().len() {
        let word = |number: usize| words()[(number + round) % words().len()].clone();
        for (number, resource) in names.iter().enumerate() {
            store.keep_resource(resource, &word(number)).await?;
        }
        for (number, resource) in names.iter().enumerate() {
            is_known(store, resource, Some(&word(number))).await?;
        }
    }
    thread.is_kept(store).await.map_err(|Fault(what)| Fault(format!("keeping a resource changed a thread: {what}")))?;
    must!(store.delete(&name(&names[0])?).await?, "a thread that was written cannot be deleted");
    let kept = &words()[words().len() - 1];
    is_known(store, &names[0], Some(kept)).await
}
