//! Stores of every format that there ever was are read, and their threads go on.
//!
//! How it could break: a file of yesterday that is refused, or half of it; an upgrade that loses a question, pays again, or is done a second time. The
//! files are described in `fixtures/README.md`.

mod support {
    pub(crate) mod common;
    pub(crate) mod desk;
}

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ferrata::log::{Record, RunOutcome};
use ferrata::store::{InboxQuery, Order, Reach, RedbOptions, RedbStore, Store, ThreadQuery, ThreadStatus};
use ferrata::{Approval, Keep, ThreadName};
use redb::{Database, ReadableTable, TableDefinition};
use support::common::{example, text};
use support::desk::{Case, Desk, copied};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn refund(order: &str, store: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(example("refund"));
    command.arg(order).arg("--store").arg(store).args(["--delay-ms", "2"]).args(options);
    command.output().expect("it runs")
}

#[tokio::test]
async fn format_1_is_brought_up_to_date_and_its_threads_go_on() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = copied(&fixture("format-1.redb"), dir.path());
    // The second time it is up to date.
    for _ in 0..2 {
        let store = RedbStore::open(&path).expect("it is brought up to date");
        let listed = store.threads(&ThreadQuery::new()).await.expect("a list");
        let lines: Vec<_> = listed.iter().map(|thread| (thread.name.as_str(), thread.status)).collect();
        assert_eq!(lines, [("1001", ThreadStatus::Waiting), ("1002", ThreadStatus::Done), ("1003", ThreadStatus::Done)]);
        // That format had no index of what is open.
        let open = store.questions(&InboxQuery::new()).await.expect("a list");
        assert_eq!(open.iter().map(|row| row.thread.as_str()).collect::<Vec<_>>(), ["1001"]);
        let by_time = ThreadQuery::new().status(ThreadStatus::Done).order(Order::OldestFirst);
        let by_time = store.threads(&by_time).await.expect("a list");
        assert_eq!(by_time.iter().map(|thread| thread.name.as_str()).collect::<Vec<_>>(), ["1002", "1003"]);
        for thread in &listed {
            let whole = store.load(&thread.name, Reach::Whole).await.expect("it is read");
            assert_eq!(whole.entries.len() as u64, thread.records);
            assert!(whole.entries.iter().enumerate().all(|(position, entry)| entry.position.0 == position as u64));
            assert!(matches!(&whole.entries[0].record, Record::Opened(opened) if opened.graph == "refund"));
            let Some(Record::RunEnded(ended)) = whole.entries.last().map(|entry| &entry.record) else { panic!("{thread:?}") };
            assert_eq!(ended.outcome == RunOutcome::Waiting, thread.status == ThreadStatus::Waiting);
            // That format had a time for the thread, and none for each append.
            assert!(whole.entries.iter().all(|entry| entry.at == thread.updated_at));
            assert!(thread.updated_at.ms_since(ended.at) < 1_000 && thread.since == thread.updated_at);
        }
        let verified = store.verify().await.expect("it is looked at");
        assert!(verified.is_sound(), "{verified:?}");
        assert_eq!((verified.threads, verified.records), (3, listed.iter().map(|thread| thread.records).sum()));
    }
    let ledger = dir.path().join("ledger.txt");
    let ledger_option = ["--ledger", ledger.to_str().expect("a path")];
    let asked = refund("1001", &path, &ledger_option);
    assert!(asked.status.code() == Some(3) && text(&asked).contains("42.00 for order 1001"), "{}", text(&asked));
    for _ in 0..2 {
        let paid = refund("1001", &path, &[&ledger_option[..], &["--answer", "approve"]].concat());
        assert!(paid.status.success() && text(&paid).contains("refunded 42.00"), "{}", text(&paid));
    }
    for (order, told) in [("1002", "more than the limit"), ("1003", "refunded 199.50")] {
        let told_again = refund(order, &path, &ledger_option);
        assert!(told_again.status.success() && text(&told_again).contains(told), "{}", text(&told_again));
    }
    assert_eq!(std::fs::read_to_string(&ledger).expect("the ledger").lines().count(), 1, "1003 is not paid again");
    let name = ThreadName::new("1001").expect("a name");
    let store = RedbStore::open(&path).expect("a store");
    assert_eq!(store.threads(&ThreadQuery::new().prefix("1001")).await.expect("a list")[0].status, ThreadStatus::Done);
    assert!(store.load(&name, Reach::Whole).await.expect("it is read").entries.len() > 10);
}

/// What the files from `format-2.redb` on hold, but that of the older one no question has a deadline. The desk's clock and its bank are those of whoever calls.
async fn make(desk: &Desk, path: &Path) {
    // Small, and with an artifact all the same.
    let store = RedbOptions::new().artifacts_above(2_500).open(path).expect("a store");
    let runner = desk.over(store.clone());
    for thread in ["waiting", "forked", "failed", "pruned", "large"] {
        let paper = if thread == "large" { "page ".repeat(1_000) } else { String::new() };
        for topic in ["rope", "ladder"] {
            let n = if thread == "waiting" { 60_000 } else { 0 };
            let input = Case::update().topic(topic).paper(&*paper).n(n);
            let question = runner.thread(thread).run(input).await.expect("it runs").questions()[0].id;
            if topic == "ladder" && ["waiting", "pruned", "large"].contains(&thread) {
                continue;
            }
            let fails = topic == "ladder" && thread == "failed";
            if fails {
                desk.fails("pay");
            }
            let answered = runner.thread(thread).answer(question, Approval::approve().by("dana")).await;
            assert_eq!(answered.is_err(), fails);
        }
    }
    let history = runner.thread("forked").history().await.expect("the history");
    let first = history.iter().find(|checkpoint| checkpoint.next.iter().any(|node| node.as_str() == "approve"));
    let thread = runner.thread("forked").at(first.expect("it asked").position);
    thread.update(Case::update().topic("stone"), None).await.expect("it is edited");
    runner.thread("pruned").prune(Keep::Last(2)).await.expect("it is pruned");
    drop(runner);
    store.compact().await.expect("it is compacted");
}

/// The threads that ask.
const BY_NAME: [&str; 3] = ["large", "pruned", "waiting"];
const BY_DEADLINE: [&str; 3] = ["waiting", "large", "pruned"];

/// A copy of a store with its artifacts.
fn whole_copy(store: &Path, folder: &Path) -> PathBuf {
    let path = copied(store, folder);
    let artifacts = |path: &Path| PathBuf::from(format!("{}.artifacts", path.display()));
    for inner in std::fs::read_dir(artifacts(store)).expect("its artifacts") {
        let inner = inner.expect("an entry").path();
        let to = artifacts(&path).join(inner.file_name().expect("a name"));
        std::fs::create_dir_all(&to).expect("a folder");
        for file in std::fs::read_dir(&inner).expect("a folder") {
            copied(&file.expect("an entry").path(), &to);
        }
    }
    path
}

/// It is read, and its threads go on, each with what was done in it done once. `asks`: the threads that ask, in the order of the inbox.
async fn goes_on(store: &Path, asks: [&str; 3]) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = whole_copy(store, dir.path());
    let store = RedbStore::open(&path).expect("it is read");
    let verified = store.verify().await.expect("it is looked at");
    assert!(verified.is_sound() && verified.snapshots > 1 && verified.artifacts > 0, "{verified:?}");
    // Nobody here knows what was done in it.
    let desk = Desk::new();
    let runner = desk.over(store);
    let checked = runner.verify().await.expect("it is looked at");
    assert_eq!((checked.threads, checked.faults), (5, vec![]));
    let listed = runner.threads(ThreadQuery::new()).await.expect("a list");
    let lines: Vec<_> = listed.iter().map(|thread| (thread.name.as_str(), thread.status)).collect();
    use ThreadStatus::{Failed, Suspended, Waiting};
    assert_eq!(lines, [("failed", Failed), ("forked", Suspended), ("large", Waiting), ("pruned", Waiting), ("waiting", Waiting)]);
    let inbox = runner.inbox(InboxQuery::new()).await.expect("the inbox");
    assert_eq!(inbox.items.iter().map(|item| item.thread.as_str()).collect::<Vec<_>>(), asks);
    assert!(inbox.items.iter().all(|item| item.question.text == "Pay for ladder?"), "{inbox:?}");
    for (thread, checkpoints) in [("failed", 9), ("forked", 11), ("large", 8), ("pruned", 2), ("waiting", 8)] {
        let history = runner.thread(thread).history().await.expect("the history");
        assert_eq!(history.len(), checkpoints, "{thread}");
        assert!(history.is_sorted_by(|later, earlier| later.position > earlier.position));
    }
    let paper = runner.thread("large").state().await.expect("a state").values.paper.clone();
    assert_eq!(paper, "page ".repeat(1_000));
    let both = ["draft rope", "pay rope", "draft ladder", "pay ladder"];
    for thread in ["waiting", "pruned", "large"] {
        let handle = runner.thread(thread);
        let question = handle.questions().await.expect("the questions")[0].id;
        let end = handle.answer(question, Approval::approve()).await.expect("it runs").done().expect("it ends");
        assert_eq!(end.log, both, "{thread}");
    }
    let performed = || desk.performed().into_iter().map(|(what, _)| what).collect::<Vec<_>>();
    assert_eq!(performed(), ["pay ladder"; 3], "each once, and nothing that was done before");
    let end = runner.thread("failed").resume().await.expect("it goes on").done().expect("it ends");
    assert_eq!((&end.log[..], performed().len()), (&both.map(str::to_owned)[..], 3), "it was paid before it failed");
    let question = runner.thread("forked").resume().await.expect("it goes on").questions()[0].clone();
    assert_eq!(question.text, "Pay for stone?");
    let end = runner.thread("forked").answer(question.id, Approval::approve()).await.expect("it runs").done().expect("it ends");
    assert_eq!(end.log.last().map(String::as_str), Some("pay stone"));
    assert!(runner.verify().await.expect("it is looked at").faults.is_empty());
    assert!(runner.inbox(InboxQuery::new()).await.expect("the inbox").items.is_empty());
}

#[tokio::test]
async fn format_2_is_read_and_its_threads_go_on() {
    goes_on(&fixture("format-2.redb"), BY_NAME).await;
}

#[tokio::test]
async fn format_3_is_read_and_its_threads_go_on() {
    goes_on(&fixture("format-3.redb"), BY_DEADLINE).await;
}

#[tokio::test]
async fn format_4_is_read_and_its_threads_go_on() {
    goes_on(&fixture("format-4.redb"), BY_DEADLINE).await;
}

#[tokio::test]
async fn what_an_older_file_knows_of_deadlines_rings() {
    for (name, rings) in [("format-2.redb", 0), ("format-3.redb", 1), ("format-4.redb", 1)] {
        let dir = tempfile::tempdir().expect("a folder");
        let store = RedbStore::open(whole_copy(&fixture(name), dir.path())).expect("it is read");
        let alarms = store.alarms(None, 10).await.expect("a list");
        assert_eq!(alarms.len(), rings, "{name}: {alarms:?}");
        assert!(alarms.iter().all(|row| row.thread.as_str() == "waiting"), "{alarms:?}");
    }
}

#[tokio::test]
async fn a_damaged_thread_of_an_older_file_does_not_hold_up_the_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = whole_copy(&fixture("format-2.redb"), dir.path());
    {
        let database = Database::open(&path).expect("it opens");
        let transaction = database.begin_write().expect("a transaction");
        let log: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("log");
        let mut log = transaction.open_table(log).expect("the table");
        let last = log.range(("pruned", 0)..("pruned", u64::MAX)).expect("rows").next_back().expect("a row").expect("it is read");
        let (position, mut bytes) = (last.0.value().1, last.1.value().to_vec());
        drop(last);
        bytes[20] ^= 1;
        log.insert(("pruned", position), &*bytes).expect("it is written");
        drop(log);
        transaction.commit().expect("it is stored");
    }
    let store = RedbStore::open(&path).expect("it is brought up to date");
    let runner = Desk::new().over(store.clone());
    let asks = |items: &[ferrata::InboxItem]| items.iter().map(|item| item.thread.to_string()).collect::<Vec<_>>();
    let inbox = runner.inbox(InboxQuery::new()).await.expect("the inbox");
    assert_eq!((asks(&inbox.items), inbox.unreadable.len()), (vec!["large".to_owned(), "waiting".to_owned()], 0));
    // Who looks at the thread is told.
    assert!(runner.thread("pruned").questions().await.expect_err("it is damaged").to_string().contains("\"pruned\" is damaged"));
    assert!(!store.verify().await.expect("it is looked at").is_sound());
}

#[tokio::test]
async fn the_newest_fixture_can_be_made() {
    let desk = Desk::new();
    make(&desk, &desk.path()).await;
    goes_on(&desk.path(), BY_DEADLINE).await;
    // To be kept; one that is there was made by the version it stands for.
    if let Some(path) = std::env::var_os("FERRATA_FIXTURE").map(PathBuf::from) {
        assert!(!path.exists(), "{} is there already", path.display());
        make(&Desk::new(), &path).await;
    }
}
