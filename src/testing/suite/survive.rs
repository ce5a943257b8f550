//! What is left when everything stops at once.

use std::sync::Arc;

use super::alarms::alarm;
use super::asked::question;
use super::resources::{is_known, words};
use super::sample::{Told, here, is_nowhere, is_refused, name, records, snapshot};
use super::write::begun;
use super::{Fault, Found, Reopen, must};
use crate::clock::Timestamp;
use crate::id::Position;
use crate::runner::at_once;
use crate::store::{Append, Prune, Reach, Restore, Store, ThreadStatus};

/// Threads that are written to when it happens, with nobody left who waits for an answer.
const UNSURE: usize = 20;
const UNSURE_RECORDS: usize = 3;

pub(super) async fn crash<S: Store>(mut store: Arc<S>, reopen: &Reopen<S>) -> Found {
    let mut threads = written(&(Arc::clone(&store) as Arc<dyn Store>)).await?;
    for time in ["the first crash", "the second one", "the third one"] {
        for number in 0..UNSURE {
            let unsure = Told::new(&format!("{time} {number}"))?;
            drop(begun(store.append(unsure.append(records("unsure", UNSURE_RECORDS)))));
        }
        let crashed = Arc::into_inner(store).ok_or_else(|| Fault("the suite itself still holds the store".to_owned()))?;
        let opened = reopen(crashed).await.map_err(|error| Fault(format!("after {time} the store cannot be opened: {error}")))?;
        store = Arc::new(opened);
        is_left(&*store, &threads).await.map_err(|Fault(what)| Fault(format!("after {time}: {what}")))?;
        for number in 0..UNSURE {
            let found = store.load(&name(&format!("{time} {number}"))?, Reach::Whole).await?.entries.len();
            must!(
                found == 0 || found == UNSURE_RECORDS,
                "{found} records of an append of {UNSURE_RECORDS} are there after {time}"
            );
        }
        for told in &mut threads {
            let behind = Append { expected: Position(told.next().0 - 1), ..told.append(records("late", 1)) };
            is_refused(&store.append(behind).await, &told.name, told.next().0 - 1, told.next().0)?;
            told.add(&*store, records(&format!("after {time}"), 2)).await?;
        }
    }
    Ok(())
}

/// What was written, changed and deleted, all of it acknowledged.
async fn written(store: &Arc<dyn Store>) -> Result<Vec<Told>, Fault> {
    let write = |number: usize| {
        let store = Arc::clone(store);
        async move {
            let mut told = Told::new(&format!("thread {number}"))?;
            for round in 0..10 {
                let some = records(&format!("thread {number} round {round}"), 1 + round % 3);
                let append = if round == 5 { told.append_with_snapshot(some) } else { told.append(some) };
                told.write(&*store, append).await?;
            }
            Ok::<_, Fault>(told)
        }
    };
    let mut threads: Vec<Told> = at_once((0..8).map(write)).await.into_iter().collect::<Result<_, _>>()?;
    must!(store.delete(&name("thread 7")?).await?, "a thread that was written cannot be deleted");
    threads.pop();
    // Pruned, put in whole, and waiting for an answer.
    let pruned = &mut threads[0];
    let (thread, base) = (pruned.name.clone(), snapshot(4, "a new base"));
    store.prune(Prune { thread, before: Position(4), base: Some(Box::new(base.clone())), expected: pruned.next() }).await?;
    pruned.entries.drain(..4);
    pruned.base = Some(base);
    let restored = Told::new("restored")?;
    let restored = restored.noted(&Append { at: Timestamp(77), ..restored.append(records("restored", 4)) });
    let (thread, entries, status) = (restored.name.clone(), restored.entries.clone(), restored.status);
    store.restore(Restore { thread, base: None, entries, status, questions: Vec::new(), alarms: Vec::new() }).await?;
    threads.push(restored);
    let questions = Some(vec![question(1, Some(5)), question(2, None)]);
    let alarms = Some(vec![alarm(1, 5), alarm(2, 6)]);
    let waiting = Append { status: ThreadStatus::Waiting, questions, alarms, ..threads[1].append(records("a question", 1)) };
    let noted = threads[1].noted(&waiting);
    here(&**store, waiting).await?;
    threads[1] = noted;
    store.keep_resource("service", &words()[0]).await?;
    store.keep_resource("service", &words()[1]).await?;
    Ok(threads)
}

async fn is_left(store: &dyn Store, threads: &[Told]) -> Found {
    for told in threads {
        told.is_kept(store).await?;
        let newest = store.load(&told.name, Reach::Newest).await?;
        let from = newest.snapshot.map_or(Position(0), |snapshot| snapshot.position());
        told.are_kept(&newest.entries, from)?;
    }
    is_known(store, "service", Some(&words()[1])).await?;
    is_nowhere(store, &name("thread 7")?).await
}
