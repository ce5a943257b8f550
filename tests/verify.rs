//! What is damaged is told, with the thread and the place, and told by the store as far as it is a matter of bytes.
//!
//! How it could break: a row that is gone, or stands in for another one, and nobody sees it; a checksum that is right over the wrong content. So damage is
//! planted in the file with the database itself, also with checksums that are right.

mod support {
    pub(crate) mod desk;
}

use std::path::{Path, PathBuf};

use ferrata::store::{RedbStore, ThreadQuery, ThreadStatus, Verified};
use ferrata::{Approval, Checked};
use redb::{Database, ReadableTable, TableDefinition};
use support::desk::{Desk, copied, counting};
use tempfile::TempDir;

const LOG: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("log");
const SNAPSHOTS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("snapshots");
const BY_STATUS: TableDefinition<'_, (u8, u64, &str), ()> = TableDefinition::new("by_status");
const QUESTIONS: TableDefinition<'_, (&str, u128), u64> = TableDefinition::new("questions");
const BY_DEADLINE: TableDefinition<'_, (u64, &str, u128), ()> = TableDefinition::new("by_deadline");
/// Where a thread's head stands.
const HEAD: u64 = u64::MAX;

/// A store with the threads `t` and `other`, each with a snapshot, made as a file that copies are damaged of.
struct Sound {
    dir: TempDir,
    file: PathBuf,
}

impl Sound {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("s.redb");
        let runner = counting(RedbStore::open(&file).expect("a store"), 100);
        for thread in ["t", "other"] {
            runner.thread(thread).run(support::desk::Case::update()).await.expect("it runs").done().expect("it ends");
        }
        Self { dir, file }
    }

    /// A copy that this was done to.
    fn damaged(&self, name: &str, act: impl FnOnce(&redb::WriteTransaction)) -> PathBuf {
        let folder = self.dir.path().join(name.replace(' ', "_"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = copied(&self.file, &folder);
        let database = Database::open(&path).expect("it opens");
        let transaction = database.begin_write().expect("a transaction");
        act(&transaction);
        transaction.commit().expect("it is stored");
        path
    }
}

async fn looked_at(path: &Path) -> (Verified, Checked) {
    let store = RedbStore::open(path).expect("a store");
    let runner = counting(store.clone(), 100);
    (store.verify().await.expect("it is looked at"), runner.verify().await.expect("it is looked at"))
}

fn row(table: TableDefinition<'_, (&'static str, u64), &'static [u8]>, of: &Path, key: (&str, u64)) -> Vec<u8> {
    let database = Database::open(of).expect("it opens");
    let transaction = database.begin_write().expect("a transaction");
    let bytes =
        transaction.open_table(table).expect("the table").get(key).expect("it is read").expect("it is there").value().to_vec();
    transaction.abort().expect("nothing was done");
    bytes
}

/// The position of the newest snapshot.
fn newest(of: &Path) -> u64 {
    let database = Database::open(of).expect("it opens");
    let transaction = database.begin_write().expect("a transaction");
    let position = {
        let table = transaction.open_table(SNAPSHOTS).expect("the table");
        table.range(("t", 0)..("t", HEAD)).expect("rows").next_back().expect("a snapshot").expect("it is read").0.value().1
    };
    transaction.abort().expect("nothing was done");
    position
}

#[tokio::test]
async fn a_sound_store_has_no_faults() {
    let sound = Sound::new().await;
    let (verified, checked) = looked_at(&sound.file).await;
    assert!(verified.is_sound(), "{verified:?}");
    assert_eq!((verified.threads, verified.records, verified.artifacts), (2, checked.records, 0));
    assert!(verified.snapshots >= 2);
    assert_eq!((checked.threads, checked.others, checked.faults.len()), (2, 0, 0));
    // Threads of another graph are counted, and their bytes are looked at all the same.
    let desk = Desk::new();
    let store = RedbStore::open(&sound.file).expect("a store");
    let checked = desk.over(store.clone()).verify().await.expect("it is looked at");
    assert_eq!((checked.threads, checked.others, checked.faults.len()), (0, 2, 0));
}

/// What is done to the file, and what the store must say of it.
type Damage = (&'static str, Box<dyn Fn(&redb::WriteTransaction)>, &'static str);

fn damages(snapshot: u64) -> Vec<Damage> {
    let change = |table: TableDefinition<'static, (&'static str, u64), &'static [u8]>, position: u64, act: fn(&mut Vec<u8>)| {
        move |transaction: &redb::WriteTransaction| {
            let mut table = transaction.open_table(table).expect("the table");
            let mut bytes = table.get(("t", position)).expect("it is read").expect("it is there").value().to_vec();
            act(&mut bytes);
            table.insert(("t", position), &*bytes).expect("it is written");
        }
    };
    let remove = |table: TableDefinition<'static, (&'static str, u64), &'static [u8]>, position: u64| {
        move |transaction: &redb::WriteTransaction| {
            transaction.open_table(table).expect("the table").remove(("t", position)).expect("it is read").expect("it was there");
        }
    };
    let move_row = |from: (&'static str, u64), to: (&'static str, u64)| {
        move |transaction: &redb::WriteTransaction| {
            let mut log = transaction.open_table(LOG).expect("the table");
            let bytes = log.get(from).expect("it is read").expect("it is there").value().to_vec();
            log.insert(to, &*bytes).expect("it is written");
        }
    };
    let flip = |bytes: &mut Vec<u8>| bytes[20] ^= 1;
    let cut = |bytes: &mut Vec<u8>| bytes.truncate(30);
    let index = |transaction: &redb::WriteTransaction| {
        let mut table = transaction.open_table(BY_STATUS).expect("the table");
        table.retain(|(_, _, name), ()| name != "t").expect("it is written");
    };
    let stray = |transaction: &redb::WriteTransaction| {
        transaction.open_table(BY_STATUS).expect("the table").insert((2, 9, "nobody"), ()).expect("it is written");
    };
    let question = |of: &'static str| {
        move |transaction: &redb::WriteTransaction| {
            transaction.open_table(QUESTIONS).expect("the table").insert((of, 5), 7).expect("it is written");
        }
    };
    let due = |of: &'static str| {
        move |transaction: &redb::WriteTransaction| {
            transaction.open_table(BY_DEADLINE).expect("the table").insert((7, of, 5), ()).expect("it is written");
        }
    };
    let asks = move |transaction: &redb::WriteTransaction| {
        question("nobody")(transaction);
        due("nobody")(transaction);
    };
    vec![
        ("a question that is not due", Box::new(question("t")), "the index of open questions does not fit thread \"t\""),
        ("due and no question", Box::new(due("t")), "the index of open questions does not fit thread \"t\""),
        ("nobody asks", Box::new(asks), "the index of open questions does not fit thread \"nobody\""),
        ("a flipped record", Box::new(change(LOG, 8, flip)), "record 8 of thread \"t\" is damaged"),
        ("a cut record", Box::new(change(LOG, 8, cut)), "record 8 of thread \"t\" is damaged"),
        ("a record that is gone", Box::new(remove(LOG, 8)), "of thread \"t\" is damaged: it is missing"),
        ("the first one is gone", Box::new(remove(LOG, 0)), "record 0 of thread \"t\" is damaged: it is missing"),
        ("a record of another place", Box::new(move_row(("t", 6), ("t", 8))), "record 8 of thread \"t\" is damaged"),
        ("a record of another thread", Box::new(move_row(("other", 8), ("t", 8))), "record 8 of thread \"t\" is damaged"),
        ("a flipped snapshot", Box::new(change(SNAPSHOTS, snapshot, flip)), "the snapshot"),
        ("a flipped head", Box::new(change(LOG, HEAD, flip)), "the checksum of the thread's head is wrong"),
        ("a cut head", Box::new(change(LOG, HEAD, cut)), "its head is cut"),
        ("no head", Box::new(remove(LOG, HEAD)), "the thread's head is missing"),
        ("another thread's head", Box::new(move_row(("other", HEAD), ("t", HEAD))), "the checksum of the thread's head is wrong"),
        ("not in the index", Box::new(index), "the index by status does not fit thread \"t\""),
        ("nobody in the index", Box::new(stray), "the index by status does not fit thread \"nobody\""),
    ]
}

#[tokio::test]
async fn planted_damage_is_told_by_the_store() {
    let sound = Sound::new().await;
    for (name, act, wanted) in damages(newest(&sound.file)) {
        let path = sound.damaged(name, act);
        let store = RedbStore::open(&path).expect("a store");
        let verified = store.verify().await.expect("it is looked at");
        assert!(!verified.is_sound() && verified.faults.iter().any(|fault| fault.contains(wanted)), "{name}: {verified:?}");
        assert!(verified.faults.iter().all(|fault| !fault.contains("\"other\"")), "{name}: {verified:?}");
        // It is told again: nothing was mended behind one's back.
        assert_eq!(store.verify().await.expect("it is looked at").faults, verified.faults, "{name}");
        let runner = counting(store.clone(), 100);
        assert_eq!(runner.thread("other").state().await.expect("it is not touched").values.n, 100, "{name}");
        // A thread with damaged bytes can always be deleted.
        if !name.contains("nobody") {
            assert!(runner.thread("t").delete().await.expect("it is deleted"), "{name}");
            assert!(runner.threads(ThreadQuery::new()).await.expect("a list").iter().all(|thread| thread.name.as_str() != "t"));
            assert!(store.verify().await.expect("it is looked at").is_sound(), "{name}: nothing of it is left");
        }
    }
}

#[tokio::test]
async fn content_that_is_not_what_the_records_yield_is_told_by_the_runner() {
    let sound = Sound::new().await;
    let snapshot = newest(&sound.file);
    // The same thread with other content, of which the checksums are right.
    let other = tempfile::tempdir().expect("a folder");
    let other_file = other.path().join("s.redb");
    let runner = counting(RedbStore::open(&other_file).expect("a store"), 100);
    let topic = support::desk::Case::update().topic("another content");
    runner.thread("t").run(topic).await.expect("it runs").done().expect("it ends");
    drop(runner);
    let bytes = row(SNAPSHOTS, &other_file, ("t", newest(&other_file)));
    assert_eq!(newest(&other_file), snapshot, "both have it in the same place");
    let swap = |transaction: &redb::WriteTransaction| {
        transaction.open_table(SNAPSHOTS).expect("the table").insert(("t", snapshot), &*bytes).expect("it is written");
    };
    let (verified, checked) = looked_at(&sound.damaged("another snapshot", swap)).await;
    assert!(verified.is_sound(), "its bytes are right: {verified:?}");
    let [(thread, fault)] = &checked.faults[..] else { panic!("{checked:?}") };
    assert_eq!(thread.as_str(), "t");
    assert!(fault.contains(&format!("the snapshot at {snapshot} is not what its records yield")), "{fault}");
    assert_eq!(checked.threads, 1);
}

#[tokio::test]
async fn a_status_that_the_records_do_not_tell_is_told_by_the_runner() {
    let desk = Desk::new();
    let runner = desk.open();
    let question = runner.thread("t").run(support::desk::Case::update()).await.expect("it runs").questions()[0].id;
    assert_eq!(runner.verify().await.expect("it is looked at").faults, []);
    drop(runner);
    // The head says that it is done, with the right checksum, and so does the index.
    {
        let database = Database::open(desk.path()).expect("it opens");
        let transaction = database.begin_write().expect("a transaction");
        let mut log = transaction.open_table(LOG).expect("the table");
        let mut head = log.get(("t", HEAD)).expect("it is read").expect("it is there").value().to_vec();
        let since = u64::from_le_bytes(head[18..26].try_into().expect("eight bytes"));
        head[1] = 1;
        let sum = crc32fast::hash(&[b"t", &head[..34]].concat());
        head[34..].copy_from_slice(&sum.to_le_bytes());
        log.insert(("t", HEAD), &*head).expect("it is written");
        drop(log);
        let mut by_status = transaction.open_table(BY_STATUS).expect("the table");
        by_status.remove((2, since, "t")).expect("it is read").expect("it was there");
        by_status.insert((1, since, "t"), ()).expect("it is written");
        drop(by_status);
        transaction.commit().expect("it is stored");
    }
    let store = RedbStore::open(desk.path()).expect("a store");
    assert!(store.verify().await.expect("it is looked at").is_sound());
    let runner = desk.over(store);
    let faults = runner.verify().await.expect("it is looked at").faults;
    assert!(faults.len() == 1 && faults[0].1.contains("is listed as Done, and its records say Waiting"), "{faults:?}");
    // What it says to do helps: out and in again.
    let mut lines = Vec::new();
    runner.thread("t").export(&mut lines).await.expect("it is exported");
    assert!(runner.thread("t").delete().await.expect("it is deleted"));
    runner.thread("t").import(&mut &*lines).await.expect("it is imported");
    assert_eq!(runner.verify().await.expect("it is looked at").faults, []);
    assert_eq!(runner.threads(ThreadQuery::new()).await.expect("a list")[0].status, ThreadStatus::Waiting);
    let end = runner.thread("t").answer(question, Approval::approve()).await.expect("it runs").done().expect("it ends");
    assert_eq!(end.log.len(), 2);
}
