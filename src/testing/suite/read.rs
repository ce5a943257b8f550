//! What is read: as far as it is asked for, and however large it is.

use std::sync::Arc;

use serde_json::{Value, json};

use super::sample::{Told, name, record, records, short, snapshot};
use super::{Found, must};
use crate::id::Position;
use crate::log::{Record, Snapshot};
use crate::store::{Append, Loaded, Reach, Store};

// ---- reach ----

pub(super) async fn reach(store: &Arc<dyn Store>) -> Found {
    let store = &**store;
    let nobody = store.load(&name("nobody")?, Reach::Newest).await?;
    must!(nobody.snapshot.is_none() && nobody.entries.is_empty(), "a thread that was never written has {}", short(&nobody));
    let mut told = Told::new("reach")?;
    // Snapshots behind 8, 16 and 24 of 30 records, and appends of one to three.
    for (number, end) in [3, 5, 8, 9, 12, 14, 16, 18, 19, 22, 24, 25, 28, 30].into_iter().enumerate() {
        let count = end - told.entries.len();
        let some = records(&format!("append {number}"), count);
        let append = if end % 8 == 0 { told.append_with_snapshot(some) } else { told.append(some) };
        told.write(store, append).await?;
    }
    told.is_kept(store).await?;
    reaches(store, &told, Reach::Newest, 24).await?;
    for position in 0..=30_u64 {
        reaches(store, &told, Reach::Before(Position(position)), position / 8 * 8).await?;
    }
    reaches(store, &told, Reach::Whole, 0).await?;
    // A snapshot may also stand before the append that it comes with.
    let late = Append { snapshot: Some(Box::new(snapshot(30, told.name.as_str()))), ..told.append(records("late", 2)) };
    told.write(store, late).await?;
    reaches(store, &told, Reach::Newest, 30).await?;
    reaches(store, &told, Reach::Before(Position(29)), 24).await
}

/// That reach begins with the snapshot at that position; with none, at 0.
async fn reaches(store: &dyn Store, told: &Told, reach: Reach, from: u64) -> Found {
    let Loaded { snapshot: found, snapshot_bytes, entries, record_bytes } = store.load(&told.name, reach).await?;
    let wanted = (from > 0).then(|| snapshot(from, told.name.as_str()));
    let at = |snapshot: Option<&Snapshot>| snapshot.map(|snapshot| snapshot.position().0);
    must!(
        found == wanted,
        "{reach:?} of a log with snapshots at 8, 16 and 24 gives the one at {:?}, or another content, and not that at {:?}",
        at(found.as_ref()),
        at(wanted.as_ref())
    );
    told.are_kept(&entries, Position(from))?;
    must!((snapshot_bytes > 0) == (from > 0), "the snapshot at {from} is said to have {snapshot_bytes} bytes ({reach:?})");
    must!(record_bytes > 0, "{} records are said to have no bytes ({reach:?})", entries.len());
    Ok(())
}

// ---- size ----

const LARGE: usize = 5 << 20;

pub(super) async fn size(store: &Arc<dyn Store>) -> Found {
    let store = &**store;
    let mut told = Told::new("large values")?;
    told.add(store, values()).await?;
    told.is_kept(store).await?;
    let mut told = Told::new("many records")?;
    told.add(store, records("many", 10_000)).await?;
    told.is_kept(store).await?;
    let mut told = Told::new("a large snapshot")?;
    let large = snapshot(1, &large_text());
    told.write(store, Append { snapshot: Some(Box::new(large.clone())), ..told.append(records("before", 1)) }).await?;
    told.add(store, records("behind", 2)).await?;
    let newest = store.load(&told.name, Reach::Newest).await?;
    must!(newest.snapshot == Some(large), "a snapshot of {LARGE} bytes is not read back as it was: {}", short(&newest.snapshot));
    told.are_kept(&newest.entries, Position(1))?;
    told.is_kept(store).await
}

fn large_text() -> String {
    let line = "a line of text, ünd nöt önly ASCII\n";
    line.repeat(LARGE / line.len() + 1)
}

/// One large text, many small ones, nesting, and what is easily taken for nothing.
fn values() -> Vec<Record> {
    let deep =
        (0..90).fold(json!("the bottom"), |inner, level| if level % 2 == 0 { json!([inner]) } else { json!({ "k": inner }) });
    let wide: Vec<Value> = (0..100_000).map(|number| json!(number)).collect();
    let empty = [json!(""), json!([]), json!({}), Value::Null, json!(false), json!(0), json!("\u{0}"), json!({ "": "" })];
    let large = [json!(large_text()), json!({ "a": "x".repeat(70_000), "b": ["y".repeat(70_000)] }), Value::Array(wide), deep];
    large.into_iter().chain(empty).map(record).collect()
}
