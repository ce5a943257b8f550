//! The index of threads: what it says, in which order, in pages, and of which name.

use std::sync::Arc;

use super::sample::{Told, name, record, records};
use super::{Fault, Found, must};
use crate::clock::Timestamp;
use crate::id::ThreadName;
use crate::store::{Append, Order, Reach, Store, ThreadInfo, ThreadQuery, ThreadStatus};

// ---- listing ----

pub(super) async fn listing(store: &Arc<dyn Store>) -> Found {
    use ThreadStatus::{Done, Failed, Running, Suspended, Waiting};
    let store = &**store;
    let mut other = Told::new("other")?;
    other.add(store, records("other", 2)).await?;
    let mut told = Told::new("status")?;
    // A run begins, goes on, waits; the clock is set back at the end.
    let says = [
        (Running, 100),
        (Running, 110),
        (Waiting, 120),
        (Waiting, 130),
        (Running, 140),
        (Running, 150),
        (Failed, 160),
        (Suspended, 170),
        (Running, 180),
        (Done, 190),
        (Done, 50),
        (Running, 40),
        (Running, 30),
    ];
    for (status, at) in says {
        let some = vec![record(format!("{status:?} at {at}"))];
        told.write(store, Append { status, at: Timestamp(at), ..told.append(some) }).await?;
        told.is_kept(store).await?;
        for asked in ThreadStatus::ALL {
            for order in [Order::Name, Order::OldestFirst, Order::NewestFirst] {
                let listed = store.threads(&ThreadQuery::new().status(asked).order(order)).await?;
                let listed: Vec<&ThreadInfo> = listed.iter().filter(|thread| thread.name == told.name).collect();
                let wanted = told.info();
                let wanted = if asked == status { vec![&wanted] } else { Vec::new() };
                must!(listed == wanted, "a thread is {status:?}, and among those that are {asked:?} ({order:?}) is {listed:?}");
            }
        }
    }
    other.is_kept(store).await
}

// ---- paging ----

const PREFIXES: [&str; 5] = ["", "order-", "order-1", "ö", "nobody"];

pub(super) async fn paging(store: &Arc<dyn Store>) -> Found {
    let store = &**store;
    let mut all = Vec::new();
    for number in 0..45_u64 {
        let prefix = PREFIXES[usize::try_from(number % 4).unwrap_or(0)];
        let mut told = Told::new(&format!("{prefix}{:02}", number * 7 % 45))?;
        // Many threads have one time.
        let (status, at) = (ThreadStatus::ALL[usize::try_from(number % 5).unwrap_or(0)], Timestamp(1_000 + number % 7 * 10));
        told.write(store, Append { status, at, ..told.append(vec![record(number)]) }).await?;
        all.push(told.info());
    }
    let statuses: [&[ThreadStatus]; 4] = [
        &[],
        &[ThreadStatus::Done],
        &[ThreadStatus::Waiting, ThreadStatus::Failed],
        &[ThreadStatus::Running, ThreadStatus::Suspended, ThreadStatus::Waiting],
    ];
    for order in [Order::Name, Order::OldestFirst, Order::NewestFirst] {
        for (prefix, statuses) in PREFIXES.iter().flat_map(|prefix| statuses.iter().map(move |statuses| (prefix, statuses))) {
            for before in [None, Some(Timestamp(1_030))] {
                let query = statuses.iter().fold(ThreadQuery::new(), |query, status| query.status(*status));
                let query = query.prefix(*prefix).order(order);
                let query = before.map_or(query.clone(), |time| query.clone().unchanged_since(time));
                let wanted = wanted(&all, statuses, prefix, before, order);
                for limit in [1, 4, 100] {
                    pages(store, &query.clone().limit(limit), &wanted).await?;
                }
            }
        }
    }
    must!(store.threads(&ThreadQuery::new().limit(0)).await?.is_empty(), "a page of no lines has some");
    Ok(())
}

/// The whole list, made in another way than a store would.
fn wanted(
    all: &[ThreadInfo],
    statuses: &[ThreadStatus],
    prefix: &str,
    before: Option<Timestamp>,
    order: Order,
) -> Vec<ThreadInfo> {
    let of_status = |thread: &&ThreadInfo| statuses.is_empty() || statuses.contains(&thread.status);
    let mut wanted: Vec<ThreadInfo> = all
        .iter()
        .filter(of_status)
        .filter(|thread| thread.name.as_str().as_bytes().starts_with(prefix.as_bytes()))
        .filter(|thread| before.is_none_or(|time| thread.since.0 < time.0))
        .cloned()
        .collect();
    wanted.sort_by(|a, b| a.name.as_str().as_bytes().cmp(b.name.as_str().as_bytes()));
    if order != Order::Name {
        wanted.sort_by_key(|thread| thread.since.0);
    }
    if order == Order::NewestFirst {
        wanted.reverse();
    }
    wanted
}

async fn pages(store: &dyn Store, query: &ThreadQuery, wanted: &[ThreadInfo]) -> Found {
    let (mut found, mut page): (Vec<ThreadInfo>, ThreadQuery) = (Vec::new(), query.clone());
    loop {
        let next = store.threads(&page).await?;
        must!(next.len() <= query.most(), "a page of {} lines at most has {}: {query:?}", query.most(), next.len());
        let Some(last) = next.last() else { break };
        page = query.clone().after(last);
        found.extend(next);
        must!(
            found.len() <= wanted.len(),
            "pages that should list {} threads list more: {query:?}: {}",
            wanted.len(),
            list_of(&found)
        );
    }
    let (listed, all) = (list_of(&found), list_of(wanted));
    must!(found == wanted, "the pages of {query:?} list {listed}, and not {all}");
    Ok(())
}

fn list_of(threads: &[ThreadInfo]) -> String {
    let line = |thread: &ThreadInfo| format!("{:?} ({:?} since {})", thread.name.as_str(), thread.status, thread.since.0);
    threads.iter().map(line).collect::<Vec<_>>().join(", ")
}

// ---- names ----

/// Names that a store could take for each other, or for something else.
pub(super) fn names_alike() -> Result<Vec<ThreadName>, Fault> {
    let long = "n".repeat(512);
    let names = [
        "t",
        "t1",
        "t10",
        "t1 ",
        "T1",
        "t_",
        "t%",
        "a",
        "a:b",
        "a/b",
        "a\\b",
        "a b",
        "a:",
        ":b",
        "a'b",
        "a\"b",
        "a;--",
        "..",
        "../x",
        "/",
        "%",
        "_",
        "*",
        "null",
        "0",
        "00",
        "-1",
        "é",
        "e\u{301}",
        "É",
        "ß",
        "ss",
        "ı",
        "i",
        "İ",
        "🔥",
        "👩\u{200d}💻",
        "👩",
        "检查点",
        "\u{feff}a",
        "\u{10ffff}",
        "a\u{10ffff}",
        "~",
        " ",
        &long,
        &long[..511],
        &"漢".repeat(170),
    ];
    names.into_iter().map(name).collect()
}

pub(super) async fn names(store: &Arc<dyn Store>) -> Found {
    let store = &**store;
    let mut threads = Vec::new();
    for name in names_alike()? {
        let mut told = Told::new(name.as_str())?;
        told.write(store, told.append_with_snapshot(records(name.as_str(), 2))).await?;
        threads.push(told);
    }
    for told in &mut threads {
        told.add(store, records(&format!("{} again", told.name), 1)).await?;
    }
    let mut all: Vec<ThreadInfo> = threads.iter().map(Told::info).collect();
    all.sort_by(|a, b| a.name.as_str().as_bytes().cmp(b.name.as_str().as_bytes()));
    for told in &threads {
        told.is_kept(store).await?;
        let newest = store.load(&told.name, Reach::Newest).await?.snapshot;
        let own = super::sample::snapshot(2, told.name.as_str());
        must!(newest.as_ref() == Some(&own), "thread {:?} has the snapshot of another thread: {newest:?}", told.name);
        let prefix = told.name.as_str();
        let begin_so: Vec<ThreadInfo> = all.iter().filter(|thread| thread.name.as_str().starts_with(prefix)).cloned().collect();
        pages(store, &ThreadQuery::new().prefix(prefix).limit(3), &begin_so).await?;
    }
    pages(store, &ThreadQuery::new().limit(10), &all).await
}
