//! The index of alarms, and the notes: by what a supervisor rings, and where it keeps what it has to do.

use std::sync::Arc;

use super::asked::question;
use super::list::names_alike;
use super::sample::{Told, here, is_nowhere, is_refused, records};
use super::{Fault, Found, must};
use crate::clock::Timestamp;
use crate::id::{Position, ThreadName};
use crate::store::{Alarm, AlarmRow, Append, Store};

/// An alarm that is like no other one.
pub(super) fn alarm(number: u64, at: u64) -> Alarm {
    Alarm { at: Timestamp(at), id: question(number, None).id }
}

/// All of them, page by page.
async fn all(store: &dyn Store, most: usize) -> Result<Vec<AlarmRow>, Fault> {
    let mut found: Vec<AlarmRow> = Vec::new();
    loop {
        let page = store.alarms(found.last(), most).await?;
        must!(page.len() <= most, "a page of {most} alarms at most has {}", page.len());
        let is_last = page.len() < most;
        found.extend(page);
        must!(found.is_sorted_by(|a, b| a < b), "the alarms are not in order, or one is there twice: {found:?}");
        if is_last {
            return Ok(found);
        }
    }
}

/// What the index says of a thread.
pub(super) async fn of(store: &dyn Store, name: &ThreadName) -> Result<Vec<Alarm>, Fault> {
    let rows = all(store, 1_000).await?;
    Ok(rows.into_iter().filter(|row| row.thread == *name).map(|row| row.alarm).collect())
}

pub(super) async fn alarms(store: &Arc<dyn Store>) -> Found {
    let store = &**store;
    replaced(store).await?;
    refused(store).await?;
    paged(store).await
}

async fn replaced(store: &dyn Store) -> Found {
    let mut other = Told::new("ring")?;
    other.write(store, Append { alarms: Some(vec![alarm(1, 500), alarm(2, 0)]), ..other.append(records("other", 2)) }).await?;
    let mut told = Told::new("rings")?;
    let says: [Option<Vec<Alarm>>; 9] = [
        None,
        Some(vec![alarm(1, 500)]),
        None,
        Some(vec![alarm(3, 500), alarm(2, u64::MAX - 1), alarm(1, 500)]),
        Some(vec![alarm(3, 500), alarm(2, 7), alarm(1, 900)]),
        Some(vec![alarm(2, 7), alarm(2, 8)]),
        Some(Vec::new()),
        Some(vec![alarm(3, 0)]),
        None,
    ];
    for (number, alarms) in says.into_iter().enumerate() {
        told.write(store, Append { alarms, ..told.append(records(&format!("round {number}"), 1 + number % 2)) }).await?;
        told.is_kept(store).await?;
        other.is_kept(store).await.map_err(|Fault(what)| Fault(format!("another thread's alarms changed: {what}")))?;
    }
    for told in [told, other] {
        must!(store.delete(&told.name).await?, "thread {:?} is there, and delete says that there is no such thread", told.name);
        is_nowhere(store, &told.name).await?;
        must!(of(store, &told.name).await?.is_empty(), "thread {:?} was deleted, and has alarms still", told.name);
    }
    Ok(())
}

async fn refused(store: &dyn Store) -> Found {
    let mut told = Told::new("refused")?;
    told.write(store, Append { alarms: Some(vec![alarm(5, 5)]), ..told.append(records("an alarm", 1)) }).await?;
    for alarms in [Vec::new(), vec![alarm(6, 6)]] {
        for by in [0, 2] {
            let append = || Append { expected: Position(by), alarms: Some(alarms.clone()), ..told.append(records("x", 2)) };
            is_refused(&store.append(append()).await, &told.name, by, 1)?;
            is_refused(&here(store, append()).await, &told.name, by, 1)?;
            told.is_kept(store).await?;
        }
    }
    Ok(())
}

async fn paged(store: &dyn Store) -> Found {
    let mut expected = all(store, 1_000).await?;
    for (number, name) in (100..).zip(names_alike()?) {
        let mut told = Told::new(name.as_str())?;
        // Many ring at one time, and one thread many times.
        let rings = vec![alarm(number, 50), alarm(number + 500, number % 3), alarm(number + 900, u64::MAX - number)];
        expected.extend(rings.iter().map(|alarm| AlarmRow::new(name.clone(), *alarm)));
        told.write(store, Append { alarms: Some(rings), ..told.append(records(name.as_str(), 1)) }).await?;
    }
    expected.sort();
    for most in [1, 2, 7, expected.len(), 1_000] {
        let found = all(store, most).await?;
        must!(found == expected, "in pages of {most} the alarms are {found:?}, and not {expected:?}");
    }
    must!(store.alarms(None, 0).await?.is_empty(), "a page of no lines has some");
    Ok(())
}

pub(super) async fn notes(store: &Arc<dyn Store>) -> Found {
    let store = &**store;
    let keys = ["", "a", "a/", "a/1", "a/10", "a/2", "b", "größe 漢", "größe 漢/1"];
    for round in 0_u8..3 {
        for (number, key) in (0_u8..).zip(keys) {
            let large = if number == 3 { 100_000 } else { usize::from(number) };
            store.keep_note(key, Some(&vec![number.wrapping_add(round); large])).await?;
        }
        for (number, key) in (0_u8..).zip(keys) {
            let large = if number == 3 { 100_000 } else { usize::from(number) };
            let found = store.note(key).await?;
            must!(found == Some(vec![number.wrapping_add(round); large]), "the note {key:?} is not what was kept last");
        }
    }
    for (prefix, expected) in
        [("a/", &["a/", "a/1", "a/10", "a/2"][..]), ("a/1", &["a/1", "a/10"]), ("c", &[]), ("größe 漢/", &["größe 漢/1"])]
    {
        for most in 1..6 {
            let mut found: Vec<String> = Vec::new();
            loop {
                let page = store.notes(prefix, found.last().map(String::as_str), most).await?;
                let is_last = page.len() < most;
                found.extend(page);
                if is_last || found.len() > keys.len() {
                    break;
                }
            }
            must!(
                found == expected,
                "in pages of {most} the notes that begin with {prefix:?} are {found:?}, and not {expected:?}"
            );
        }
    }
    for key in ["a/1", "a/1", "none"] {
        store.keep_note(key, None).await?;
        must!(store.note(key).await?.is_none(), "the note {key:?} was removed, and is there");
    }
    let left = store.notes("a/", Some("a"), 10).await?;
    must!(left == ["a/", "a/10", "a/2"], "after one note was removed, there are {left:?}");
    Ok(())
}
