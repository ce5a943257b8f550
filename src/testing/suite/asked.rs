//! The index of open questions: what it says of each thread, in which order, in pages.

use std::sync::Arc;

use uuid::Uuid;

use super::list::names_alike;
use super::sample::{Told, here, is_nowhere, is_refused, records, snapshot};
use super::{Fault, Found, must};
use crate::clock::Timestamp;
use crate::id::{Position, QuestionId, ThreadName};
use crate::store::{Append, InboxQuery, InboxRow, OpenQuestion, Prune, Restore, Store};

/// A question that is like no other one's.
pub(super) fn question(number: u64, deadline: Option<u64>) -> OpenQuestion {
    // Ids in another order than the numbers.
    let id = u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(number);
    OpenQuestion::new(QuestionId(Uuid::from_u128(id)), deadline.map(Timestamp))
}

/// What the index says of a thread.
pub(super) async fn rows(store: &dyn Store, name: &ThreadName) -> Result<Vec<InboxRow>, Fault> {
    let rows = store.questions(&InboxQuery::new().prefix(name.as_str()).limit(1_000)).await?;
    Ok(rows.into_iter().filter(|row| row.thread == *name).collect())
}

pub(super) async fn questions(store: &Arc<dyn Store>) -> Found {
    let store = &**store;
    replaced(store).await?;
    refused(store).await?;
    changed_as_a_whole(store).await?;
    paged(store).await
}

// ---- what is said of one thread ----

async fn replaced(store: &dyn Store) -> Found {
    let (one, two, three) = (question(1, Some(500)), question(2, None), question(3, Some(500)));
    let mut other = Told::new("ask")?;
    other.write(store, Append { questions: Some(vec![one, two]), ..other.append(records("other", 2)) }).await?;
    let mut told = Told::new("asks")?;
    let later = question(1, Some(900));
    let says: [Option<Vec<OpenQuestion>>; 9] = [
        None,
        Some(vec![one]),
        None,
        Some(vec![three, two, one]),
        Some(vec![three, two, later]),
        Some(vec![two]),
        Some(Vec::new()),
        Some(vec![three]),
        None,
    ];
    for (number, questions) in says.into_iter().enumerate() {
        told.write(store, Append { questions, ..told.append(records(&format!("round {number}"), 1 + number % 2)) }).await?;
        told.is_kept(store).await?;
        other.is_kept(store).await.map_err(|Fault(what)| Fault(format!("another thread's questions changed: {what}")))?;
    }
    Ok(())
}

async fn refused(store: &dyn Store) -> Found {
    let mut told = Told::new("refused")?;
    let asks = |told: &Told, number: u64| Append {
        questions: Some(vec![question(number, Some(7))]),
        ..told.append(records("a question", 1))
    };
    is_refused(&store.append(Append { expected: Position(3), ..asks(&told, 50) }).await, &told.name, 3, 0)?;
    is_nowhere(store, &told.name).await?;
    told.write(store, asks(&told, 51)).await?;
    for questions in [Vec::new(), vec![question(52, None)]] {
        for by in [0, 2] {
            let append = || Append { expected: Position(by), questions: Some(questions.clone()), ..told.append(records("x", 2)) };
            is_refused(&store.append(append()).await, &told.name, by, 1)?;
            is_refused(&here(store, append()).await, &told.name, by, 1)?;
            told.is_kept(store).await?;
        }
    }
    Ok(())
}

async fn changed_as_a_whole(store: &dyn Store) -> Found {
    let mut threads = Vec::new();
    for (number, name) in (100..).zip(names_alike()?) {
        let mut told = Told::new(name.as_str())?;
        let questions = Some(vec![question(number, Some(number % 3)), question(number + 100, None)]);
        told.write(store, Append { questions, ..told.append_with_snapshot(records(name.as_str(), 3)) }).await?;
        threads.push(told);
    }
    for told in threads.iter().step_by(2) {
        must!(store.delete(&told.name).await?, "thread {:?} is there, and delete says that there is no such thread", told.name);
        is_nowhere(store, &told.name).await?;
    }
    for told in threads.iter_mut().skip(1).step_by(2) {
        let kept = told.is_kept(store).await;
        kept.map_err(|Fault(what)| Fault(format!("another thread was deleted: {what}")))?;
        // What was asked is asked still, however much is forgotten.
        let (thread, before) = (told.name.clone(), Position(2));
        let base = snapshot(2, "a new base");
        store.prune(Prune { thread, before, base: Some(Box::new(base.clone())), expected: told.next() }).await?;
        told.entries.drain(..2);
        told.base = Some(base);
        told.is_kept(store).await?;
    }
    for told in threads.iter_mut().step_by(2) {
        told.questions = vec![question(7, None)];
        let (thread, entries, status, questions) = (told.name.clone(), told.entries.clone(), told.status, told.questions.clone());
        store.restore(Restore { thread, base: None, entries, status, questions, alarms: Vec::new() }).await?;
        let (name, rows) = (&told.name, rows(store, &told.name).await?);
        must!(rows == told.rows(), "thread {name:?} was put in with one open question, and the index says {rows:?}");
    }
    for told in &threads {
        must!(store.delete(&told.name).await?, "a thread that was put in or pruned cannot be deleted");
        is_nowhere(store, &told.name).await?;
    }
    Ok(())
}

// ---- pages ----

const PREFIXES: [&str; 4] = ["", "order-", "ö", "nobody"];

async fn paged(store: &dyn Store) -> Found {
    for name in ["ask", "asks", "refused"] {
        store.delete(&super::sample::name(name)?).await?;
    }
    let mut all = Vec::new();
    for number in 0..40_u64 {
        let prefix = PREFIXES[usize::try_from(number % 3).unwrap_or(0)];
        let mut told = Told::new(&format!("{prefix}{:02}", number * 7 % 40))?;
        // Many have one deadline, and some the last moment but one.
        let deadline = |n: u64| [None, Some(0), Some(10), Some(20), Some(u64::MAX - 1)][usize::try_from(n % 5).unwrap_or(0)];
        let asks = (0..number % 4).map(|n| question(1_000 + number * 4 + n, deadline(number * n)));
        told.write(store, Append { questions: Some(asks.collect()), ..told.append(records("q", 1)) }).await?;
        all.extend(told.rows());
    }
    for prefix in PREFIXES {
        for before in [None, Some(0), Some(10), Some(15), Some(u64::MAX - 1), Some(u64::MAX)] {
            let query = InboxQuery::new().prefix(prefix);
            let query = before.map_or(query.clone(), |time| query.clone().due_before(Timestamp(time)));
            let wanted = wanted(&all, prefix, before);
            for limit in [1, 3, 1_000] {
                pages(store, &query.clone().limit(limit), &wanted).await?;
            }
        }
    }
    must!(store.questions(&InboxQuery::new().limit(0)).await?.is_empty(), "a page of no lines has some");
    Ok(())
}

/// The whole list, made in another way than a store would.
fn wanted(all: &[InboxRow], prefix: &str, before: Option<u64>) -> Vec<InboxRow> {
    let due = |row: &&InboxRow| before.is_none_or(|time| row.question.deadline.is_some_and(|deadline| deadline.0 < time));
    let named = |row: &&InboxRow| row.thread.as_str().as_bytes().starts_with(prefix.as_bytes());
    let mut wanted: Vec<InboxRow> = all.iter().filter(due).filter(named).cloned().collect();
    wanted.sort_by_key(|row| row.question.id.0.into_bytes());
    wanted.sort_by(|a, b| a.thread.as_str().as_bytes().cmp(b.thread.as_str().as_bytes()));
    wanted.sort_by_key(|row| (row.question.deadline.is_none(), row.question.deadline));
    wanted
}

async fn pages(store: &dyn Store, query: &InboxQuery, wanted: &[InboxRow]) -> Found {
    let (mut found, mut page): (Vec<InboxRow>, InboxQuery) = (Vec::new(), query.clone());
    loop {
        let next = store.questions(&page).await?;
        let left = wanted.len().saturating_sub(found.len());
        must!(
            next.len() == left.min(query.most()),
            "a page of {} open questions at most has {}, and {left} are left: {query:?}",
            query.most(),
            next.len()
        );
        let Some(last) = next.last() else { break };
        page = query.clone().after(last);
        found.extend(next);
    }
    let list_of = |rows: &[InboxRow]| {
        let line = |row: &InboxRow| format!("{:?} ({:?})", row.thread.as_str(), row.question.deadline.map(|time| time.0));
        rows.iter().map(line).collect::<Vec<_>>().join(", ")
    };
    must!(found == wanted, "the pages of {query:?} list {}, and not {}", list_of(&found), list_of(wanted));
    Ok(())
}
