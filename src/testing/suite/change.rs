//! What changes a thread as a whole: it is deleted, put in, or its beginning forgotten.

use std::sync::Arc;

use super::alarms::alarm;
use super::asked::question;
use super::list::names_alike;
use super::sample::{Told, here, is_nowhere, is_refused, records, snapshot};
use super::{Fault, Found, must};
use crate::clock::Timestamp;
use crate::id::Position;
use crate::log::Snapshot;
use crate::runner::at_once;
use crate::store::{Append, Prune, Pruned, Reach, Restore, Store, StoreError, ThreadStatus};

// ---- deletion ----

pub(super) async fn deletion(store: &Arc<dyn Store>) -> Found {
    let store = &**store;
    let nobody = Told::new("nobody")?;
    must!(!store.delete(&nobody.name).await?, "a thread that was never written was deleted");
    let mut threads = Vec::new();
    for name in names_alike()? {
        let mut told = Told::new(name.as_str())?;
        told.write(store, told.append_with_snapshot(records(name.as_str(), 3))).await?;
        told.add(store, records("more", 1)).await?;
        threads.push(told);
    }
    // Every other one goes.
    for number in (0..threads.len()).step_by(2) {
        let name = &threads[number].name;
        must!(store.delete(name).await?, "thread {name:?} is there, and delete says that there is no such thread");
        is_nowhere(store, name).await?;
        must!(!store.delete(name).await?, "thread {name:?} was deleted, and delete says again that it was there");
    }
    for (number, told) in threads.iter().enumerate() {
        match number % 2 {
            0 => is_nowhere(store, &told.name).await?,
            _ => told.is_kept(store).await.map_err(|Fault(what)| Fault(format!("another thread was deleted: {what}")))?,
        }
    }
    let gone = threads[0].append(records("late", 1));
    let (name, expected) = (gone.thread.clone(), gone.expected.0);
    is_refused(&store.append(gone).await, &name, expected, 0)?;
    is_nowhere(store, &name).await?;
    // A new thread of the name has nothing of the old one.
    let mut anew = Told::new(name.as_str())?;
    anew.add(store, records("anew", 5)).await?;
    anew.is_kept(store).await?;
    let newest = store.load(&name, Reach::Newest).await?;
    must!(newest.snapshot.is_none(), "a thread that was deleted and begun anew has the snapshot of the old one");
    anew.are_kept(&newest.entries, Position(0))
}

// ---- restore ----

pub(super) async fn restore(store: &Arc<dyn Store>) -> Found {
    let mut other = Told::new("other")?;
    other.add(&**store, records("other", 4)).await?;
    for from in [0, 12] {
        let mut told = whole(&format!("restored from {from}"), from)?;
        store.restore(put(&told)).await.map_err(|error| Fault(format!("a whole thread from {from} on was refused: {error}")))?;
        told.is_kept(&**store).await?;
        let newest = store.load(&told.name, Reach::Newest).await?;
        must!(newest.snapshot == told.base, "a thread was put in whole, and its newest snapshot is not the one it came with");
        told.are_kept(&newest.entries, told.first())?;
        is_refused(
            &store.append(Append { expected: Position(0), ..told.append(records("x", 1)) }).await,
            &told.name,
            0,
            from + 9,
        )?;
        told.add(&**store, records("it goes on", 2)).await?;
        told.is_kept(&**store).await?;
        // There is one of that name now.
        let again = whole(told.name.as_str(), 12 - from)?;
        is_refused(&store.restore(put(&again)).await, &told.name, 0, told.next().0)?;
        told.is_kept(&**store).await?;
    }
    one_of_many(store).await?;
    other.is_kept(&**store).await
}

/// Two threads of one name are never both put in.
async fn one_of_many(store: &Arc<dyn Store>) -> Found {
    const MANY: u64 = 8;
    let put_in = |number: u64| {
        let store = Arc::clone(store);
        async move {
            let told = whole("one of many", number)?;
            Ok::<_, Fault>((store.restore(put(&told)).await, told))
        }
    };
    let mut there = Vec::new();
    for result in at_once((0..MANY).map(put_in)).await {
        match result? {
            (Ok(()), told) => there.push(told),
            (Err(StoreError::Moved { .. }), _) => {}
            (Err(error), _) => return Err(error.into()),
        }
    }
    let [told] = &there[..] else {
        return Err(Fault(format!("{MANY} threads of one name were put in at once: {} were accepted", there.len())));
    };
    told.is_kept(&**store).await
}

/// A thread that was never in this store, with nine records from there on.
fn whole(name: &str, from: u64) -> Result<Told, Fault> {
    let mut told = Told::new(name)?;
    told.base = (from > 0).then(|| snapshot(from, name));
    told.questions = vec![question(from, None), question(from + 1, Some(from))];
    told.alarms = vec![alarm(from + 1, from)];
    for (number, at) in [(0_usize, 500), (1, 700), (2, 600)] {
        let some = records(&format!("{name} {number}"), number + 2);
        told = told.noted(&Append { status: ThreadStatus::Waiting, at: Timestamp(at), ..told.append(some) });
    }
    Ok(told)
}

fn put(told: &Told) -> Restore {
    let (thread, base) = (told.name.clone(), told.base.clone().map(Box::new));
    Restore {
        thread,
        base,
        entries: told.entries.clone(),
        status: told.status,
        questions: told.questions.clone(),
        alarms: told.alarms.clone(),
    }
}

// ---- prune ----

pub(super) async fn prune(store: &Arc<dyn Store>) -> Found {
    let store = &**store;
    let mut others = [Told::new("prun")?, Told::new("pruned")?, Told::new("prune:")?];
    for other in &mut others {
        other.write(store, other.append_with_snapshot(records("other", 12))).await?;
    }
    let mut told = Told::new("prune")?;
    // Twenty records in appends of four, with snapshots behind 8 and 16.
    for number in 1..=5 {
        let some = records(&format!("append {number}"), 4);
        let append = if number % 2 == 0 { told.append_with_snapshot(some) } else { told.append(some) };
        told.write(store, append).await?;
    }
    told.write(store, Append { status: ThreadStatus::Waiting, ..told.append(records("the question", 1)) }).await?;
    refused_prunes(store, &told).await?;
    // In the middle of an append.
    told = forget(store, told, 10, true, Pruned { records: 10, snapshots: 1 }).await?;
    reach_after(store, &told, &[(0, 10), (10, 10), (15, 10), (16, 16), (21, 16)]).await?;
    told = forget(store, told, 16, false, Pruned { records: 6, snapshots: 1 }).await?;
    here(store, told.append(records("it goes on", 3))).await?;
    told = told.noted(&told.append(records("it goes on", 3)));
    told.is_kept(store).await?;
    // All that there is.
    let end = told.next().0;
    told = forget(store, told, end, true, Pruned { records: end - 16, snapshots: 1 }).await?;
    told.add(store, records("and on", 2)).await?;
    told.is_kept(store).await?;
    for other in &others {
        other.is_kept(store).await.map_err(|Fault(what)| Fault(format!("another thread was pruned: {what}")))?;
    }
    must!(store.delete(&told.name).await?, "a thread that was pruned cannot be deleted");
    is_nowhere(store, &told.name).await
}

async fn refused_prunes(store: &dyn Store, told: &Told) -> Found {
    let end = told.next().0;
    let thread = || told.name.clone();
    let base = |position: u64| Some(Box::new(snapshot(position, "a new base")));
    let wrong = [
        ("the log ends elsewhere", Prune { thread: thread(), before: Position(10), base: base(10), expected: Position(end - 1) }),
        ("the log ends elsewhere", Prune { thread: thread(), before: Position(8), base: None, expected: Position(end + 1) }),
        ("no snapshot stands there", Prune { thread: thread(), before: Position(10), base: None, expected: Position(end) }),
        (
            "it is behind the end",
            Prune { thread: thread(), before: Position(end + 1), base: base(end + 1), expected: Position(end) },
        ),
    ];
    for (why, prune) in wrong {
        must!(store.prune(prune).await.is_err(), "a prune was accepted, although {why}");
        told.is_kept(store).await?;
        reach_after(store, told, &[(7, 0), (8, 8), (15, 8), (16, 16)]).await?;
    }
    let nobody = Told::new("nobody")?;
    let prune = Prune { thread: nobody.name.clone(), before: Position(0), base: base(0), expected: Position(3) };
    must!(store.prune(prune).await.is_err(), "a thread that is not there was pruned");
    is_nowhere(store, &nobody.name).await
}

/// Prunes, with a snapshot that comes along or that is there. Gives what must be left.
async fn forget(store: &dyn Store, mut told: Told, before: u64, comes_along: bool, wanted: Pruned) -> Result<Told, Fault> {
    let base = if comes_along { snapshot(before, "a new base") } else { snapshot(before, told.name.as_str()) };
    let (thread, expected) = (told.name.clone(), told.next());
    let prune = Prune { thread, before: Position(before), base: comes_along.then(|| Box::new(base.clone())), expected };
    let pruned = store.prune(prune).await.map_err(|error| Fault(format!("a prune before {before} was refused: {error}")))?;
    must!(pruned == wanted, "a prune before {before} says that it removed {pruned:?}, and had to remove {wanted:?}");
    told.entries.retain(|entry| entry.position.0 >= before);
    told.base = Some(base);
    told.is_kept(store).await?;
    Ok(told)
}

/// `Before` the first position of each pair begins with the snapshot at the second.
async fn reach_after(store: &dyn Store, told: &Told, pairs: &[(u64, u64)]) -> Found {
    for (position, wanted) in pairs {
        let loaded = store.load(&told.name, Reach::Before(Position(*position))).await?;
        let found = loaded.snapshot.as_ref().map_or(0, |snapshot: &Snapshot| snapshot.position().0);
        must!(found == *wanted, "the thread before {position} begins with the snapshot at {found}, not with that at {wanted}");
        told.are_kept(&loaded.entries, Position(found))?;
    }
    Ok(())
}
