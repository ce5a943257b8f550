//! Appends: all or nothing, in order, at one position only, many at once.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use serde_json::json;

use super::alarms::alarm;
use super::asked::question;
use super::sample::{Told, every_kind, here, is_nowhere, is_refused, line, name, record, records};
use super::{Fault, Found, must};
use crate::clock::Timestamp;
use crate::id::{Position, ThreadName};
use crate::log::{Entry, Record};
use crate::runner::at_once;
use crate::store::{Append, Reach, Store, StoreError, ThreadQuery, ThreadStatus};

type Work = Pin<Box<dyn Future<Output = Found> + Send>>;

/// All of them, each on a thread of its own; the first fault, if there is one.
async fn all(works: Vec<Work>) -> Found {
    at_once(works).await.into_iter().collect()
}

// ---- atomicity ----

pub(super) async fn atomicity(store: &Arc<dyn Store>) -> Found {
    refused_appends(&**store).await?;
    readers_see_whole_appends(store).await?;
    dropped_appends(&**store).await
}

async fn refused_appends(store: &dyn Store) -> Found {
    let mut told = Told::new("atomic")?;
    let ahead = |told: &Told, by: u64| {
        let mut append = told.append_with_snapshot(records("refused", 3));
        append.expected.0 += by;
        let questions = Some(vec![question(1, None)]);
        let alarms = Some(vec![alarm(1, 5)]);
        Append { status: ThreadStatus::Waiting, at: Timestamp(9_999), questions, alarms, ..append }
    };
    is_refused(&store.append(ahead(&told, 1)).await, &told.name, 1, 0)?;
    is_nowhere(store, &told.name).await?;
    told.add(store, records("kept", 3)).await?;
    for expected in [0, 2, 4, 1_000] {
        let append = Append { expected: Position(expected), ..ahead(&told, 0) };
        is_refused(&store.append(append).await, &told.name, expected, 3)?;
        let append = Append { expected: Position(expected), ..ahead(&told, 0) };
        is_refused(&here(store, append).await, &told.name, expected, 3)?;
        told.is_kept(store).await?;
        let newest = store.load(&told.name, Reach::Newest).await?;
        must!(newest.snapshot.is_none(), "an append was refused, and its snapshot was kept");
    }
    told.add(store, records("kept too", 1)).await?;
    told.is_kept(store).await
}

async fn readers_see_whole_appends(store: &Arc<dyn Store>) -> Found {
    const UNIT: usize = 7;
    const UNITS: usize = 40;
    let ended = Arc::new(AtomicBool::new(false));
    let writer = {
        let (store, ended) = (Arc::clone(store), Arc::clone(&ended));
        async move {
            let written = units(&*store, UNITS, UNIT).await;
            ended.store(true, Ordering::Release);
            written
        }
    };
    let reader = {
        let store = Arc::clone(store);
        async move {
            let whole = name("units")?;
            let mut seen = 0;
            loop {
                let was_ended = ended.load(Ordering::Acquire);
                let found = store.load(&whole, Reach::Whole).await?.entries.len();
                must!(found % UNIT == 0, "an append of {UNIT} records was seen half way: the thread had {found} records");
                must!(found >= seen, "a thread had {seen} records, and then {found}");
                seen = found;
                let listed = line(&*store, &whole).await?.map_or(0, |line| line.records);
                must!(
                    listed % UNIT as u64 == 0,
                    "an append of {UNIT} records was seen half way: the thread is listed with {listed}"
                );
                if was_ended {
                    return Ok(());
                }
            }
        }
    };
    all(vec![Box::pin(writer), Box::pin(reader)]).await
}

async fn units(store: &dyn Store, units: usize, records_each: usize) -> Found {
    let mut told = Told::new("units")?;
    for unit in 0..units {
        told.add(store, records(&format!("unit {unit}"), records_each)).await?;
    }
    told.is_kept(store).await
}

/// Whoever waits for an append may go away.
async fn dropped_appends(store: &dyn Store) -> Found {
    for number in 0..20 {
        let told = Told::new(&format!("dropped {number}"))?;
        drop(begun(store.append(told.append(records("dropped", 5)))));
    }
    Told::new("behind what was dropped")?.add(store, records("kept", 1)).await?;
    for number in 0..20 {
        let found = store.load(&name(&format!("dropped {number}"))?, Reach::Whole).await?.entries.len();
        must!(found == 0 || found == 5, "nobody waited for an append of 5 records any more, and {found} of them are there");
    }
    Ok(())
}

/// An append that was looked at once.
pub(super) fn begun<T, F: Future<Output = T> + Unpin>(mut append: F) -> Option<F> {
    let is_done = pin!(&mut append).poll(&mut Context::from_waker(Waker::noop())).is_ready();
    (!is_done).then_some(append)
}

// ---- order ----

pub(super) async fn order(store: &Arc<dyn Store>) -> Found {
    let store = &**store;
    let mut told = Told::new("order")?;
    let kinds = every_kind()?;
    // Each kind of record at each place of an append, and the clock now ahead, now set back.
    let times = [5_000, 5_001, 1, 1, 7_000, 0, u64::from(u32::MAX), 300];
    for (number, at) in times.into_iter().enumerate() {
        let mut some: Vec<Record> =
            kinds.iter().cloned().cycle().skip(number * 3).take(kinds.len().min(1 + number * 4)).collect();
        some.push(record(format!("append {number}")));
        told.write(store, Append { at: Timestamp(at), ..told.append(some) }).await?;
        told.is_kept(store).await?;
    }
    told.write(store, told.append(kinds)).await?;
    told.is_kept(store).await?;
    let newest = store.load(&told.name, Reach::Newest).await?;
    told.are_kept(&newest.entries, Position(0))
}

// ---- fencing ----

pub(super) async fn fencing(store: &Arc<dyn Store>) -> Found {
    race(store, "race for a new thread", 0).await?;
    race(store, "race", 5).await?;
    crowd(store).await
}

/// Fifty who all believe that the log ends there.
async fn race(store: &Arc<dyn Store>, thread: &str, before: usize) -> Found {
    const WRITERS: usize = 50;
    let mut told = Told::new(thread)?;
    if before > 0 {
        told.add(&**store, records("before", before)).await?;
    }
    let append = |writer: usize| told.append(vec![record(writer)]);
    let write = |writer: usize| {
        let (store, append) = (Arc::clone(store), append(writer));
        async move { if writer % 2 == 1 { here(&*store, append).await } else { store.append(append).await } }
    };
    let results = at_once((0..WRITERS).map(write)).await;
    let winners: Vec<usize> = (0..WRITERS).filter(|writer| results[*writer].is_ok()).collect();
    let [winner] = winners[..] else {
        return Err(Fault(format!("{WRITERS} appends at one position of a thread: {} were accepted", winners.len())));
    };
    let told = told.noted(&append(winner));
    for result in results.iter().filter(|result| result.is_err()) {
        is_refused(result, &told.name, before as u64, told.next().0)?;
    }
    told.is_kept(&**store).await
}

/// Eight who write to one thread, and try again where it ends when somebody else was faster.
async fn crowd(store: &Arc<dyn Store>) -> Found {
    const WRITERS: usize = 8;
    const EACH: usize = 15;
    let thread = name("crowd")?;
    let writers = (0..WRITERS).map(|writer| push(Arc::clone(store), thread.clone(), writer, EACH));
    all(writers.map(|work| Box::pin(work) as Work).collect()).await?;
    let entries = store.load(&thread, Reach::Whole).await?.entries;
    must!(
        entries.len() == WRITERS * EACH,
        "{} appends of one record were accepted, and {} are there",
        WRITERS * EACH,
        entries.len()
    );
    for (position, entry) in (0..).zip(&entries) {
        must!(entry.position == Position(position), "record {position} has the position {}", entry.position.0);
    }
    for writer in 0..WRITERS {
        let of = |entry: &&Entry| (0..EACH).any(|number| entry.record == record(json!([writer, number])));
        let own: Vec<&Record> = entries.iter().filter(of).map(|entry| &entry.record).collect();
        let wanted: Vec<Record> = (0..EACH).map(|number| record(json!([writer, number]))).collect();
        must!(own.len() == EACH, "{EACH} appends of a writer were accepted, and {} of them are there", own.len());
        must!(own.into_iter().eq(&wanted), "the appends of one writer stand in another order than it made them in");
    }
    Ok(())
}

async fn push(store: Arc<dyn Store>, thread: ThreadName, writer: usize, count: usize) -> Found {
    let mut expected = Position(0);
    for number in 0..count {
        loop {
            let records = vec![record(json!([writer, number]))];
            let (thread, status, at) = (thread.clone(), ThreadStatus::Running, Timestamp(1));
            let append = Append { thread, expected, records, snapshot: None, status, questions: None, alarms: None, at };
            match here(&*store, append).await {
                Ok(_) => break expected.0 += 1,
                Err(StoreError::Moved { found, .. }) => {
                    must!(
                        found > expected,
                        "an append at {} is refused, and the thread is said to end at {}",
                        expected.0,
                        found.0
                    );
                    expected = found;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

// ---- concurrency ----

pub(super) async fn concurrency(store: &Arc<dyn Store>) -> Found {
    const THREADS: usize = 24;
    let keep = |number: usize| Box::pin(keeps(Arc::clone(store), number)) as Work;
    let come_and_go = |number: usize| Box::pin(comes_and_goes(Arc::clone(store), number)) as Work;
    all((0..THREADS).map(keep).chain((0..4).map(come_and_go)).collect()).await?;
    let listed = store.threads(&ThreadQuery::new().limit(1_000)).await?;
    must!(listed.len() == THREADS, "{THREADS} threads were written at once, and {} are listed", listed.len());
    for number in 0..THREADS {
        written(number)?.1.is_kept(&**store).await?;
    }
    Ok(())
}

/// The appends of a thread, and what they lead to.
fn written(number: usize) -> Result<(Vec<Append>, Told), Fault> {
    // Names that begin alike.
    let mut told = Told::new(&format!("worker {}", "1".repeat(number + 1)))?;
    let mut appends = Vec::new();
    for round in 0..20 {
        let append = told.append(records(&format!("worker {number} round {round}"), 1 + (number + round) % 3));
        told = told.noted(&append);
        appends.push(append);
    }
    Ok((appends, told))
}

async fn keeps(store: Arc<dyn Store>, number: usize) -> Found {
    let (appends, whole) = written(number)?;
    let mut told = Told::new(whole.name.as_str())?;
    for (round, append) in appends.into_iter().enumerate() {
        told.write(&*store, append).await?;
        if round % 5 == 0 {
            told.is_kept(&*store).await?;
        }
    }
    Ok(())
}

async fn comes_and_goes(store: Arc<dyn Store>, number: usize) -> Found {
    for round in 0..10 {
        let mut told = Told::new(&format!("worker {number} comes and goes"))?;
        told.write(&*store, told.append_with_snapshot(records(&format!("round {round}"), 3))).await?;
        told.add(&*store, records("more", 2)).await?;
        told.is_kept(&*store).await?;
        must!(store.delete(&told.name).await?, "thread {:?} was written, and cannot be deleted", told.name);
        is_nowhere(&*store, &told.name).await?;
    }
    Ok(())
}
