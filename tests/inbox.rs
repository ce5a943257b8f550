//! The inbox says what the threads say: every open question once, by deadline, and nothing that was answered.
//!
//! How it could break: a question that is in the index and not open, or open and not in the index, after whatever is done with a thread; a page that leaves
//! one out or shows it twice; a page that costs more with every thread there is.

mod support {
    pub(crate) mod desk;
}

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::clock::{ManualClock, Timestamp};
use ferrata::store::{
    Append, Appended, InboxQuery, Loaded, MemoryStore, OpenQuestion, Pending, Reach, RedbStore, Restore, Store, ThreadName,
    ThreadQuery, ThreadStatus,
};
use ferrata::{
    Answer, Approval, Ask, Context, Durability, END, ForgetSecrets, Graph, InboxItem, Keep, Outcome, QuestionId, Runner, START,
    State, Thread, View,
};
use redb::{Database, ReadableTable, TableDefinition};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use support::desk::{Case, Desk, asked, counting};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Poll {
    /// In how many milliseconds each question is due; 0 for never.
    due: Vec<u64>,
    #[state(append)]
    log: Vec<String>,
}

/// Asks all of them at once, each in a task of its own.
fn poll(store: impl Store, clock: &ManualClock) -> Runner<Poll> {
    let each = |due: u64, ctx: Context| async move {
        let ask = Ask::<String>::new(format!("due in {due}"));
        let said: String = ctx.ask("q", if due > 0 { ask.deadline(Duration::from_millis(due)) } else { ask }).await?;
        Ok(Poll::update().push_log(said))
    };
    let begin = |_: View<Poll>| async { Ok(Poll::update().push_log("begun")) };
    let graph = Graph::<Poll>::new("poll").node("begin", begin).node("each", each).edge(START, "begin");
    let graph = graph.fan_out("begin", "each", |s: &Poll| s.due.clone()).edge("each", END).build().expect("the graph is right");
    Runner::with_clock(graph, store, clock.clone())
}

type Stores = Vec<(&'static str, Arc<dyn Store>)>;

fn memory_and_file() -> (tempfile::TempDir, Stores) {
    let dir = tempfile::tempdir().expect("a folder");
    let file = RedbStore::open(dir.path().join("s.redb")).expect("a store");
    let stores: Stores = vec![("memory", Arc::new(MemoryStore::new())), ("file", Arc::new(file))];
    (dir, stores)
}

/// All pages.
async fn inbox<S: State>(runner: &Runner<S>, query: InboxQuery) -> Vec<InboxItem> {
    let (mut items, mut next) = (Vec::new(), Some(query));
    while let Some(query) = next {
        let most = query.most();
        let page = runner.inbox(query).await.expect("the inbox");
        assert!(page.items.len() <= most && page.unreadable.is_empty());
        items.extend(page.items);
        next = page.next;
    }
    items
}

/// What is asked, as thread and text.
async fn told<S: State>(runner: &Runner<S>, query: InboxQuery) -> Vec<(String, String)> {
    let items = inbox(runner, query).await;
    items.iter().map(|item| (item.thread.to_string(), item.question.text.clone())).collect()
}

/// The inbox has each open question of all threads once, in order, and the index says nothing else.
async fn agrees<S: State>(runner: &Runner<S>, store: &dyn Store, when: &str) {
    let items = inbox(runner, InboxQuery::new().limit(3)).await;
    let place = |item: &InboxItem| (item.question.deadline.map_or(u64::MAX, |due| due.0), item.thread.clone(), item.question.id);
    assert!(items.is_sorted_by(|a, b| place(a) < place(b)), "{when}: {items:?}");
    let found: BTreeSet<(ThreadName, QuestionId)> = items.iter().map(|item| (item.thread.clone(), item.question.id)).collect();
    assert_eq!(found.len(), items.len(), "{when}: a question is there twice");
    let mut open = BTreeSet::new();
    for thread in runner.threads(ThreadQuery::new().limit(1_000)).await.expect("a list") {
        let questions = runner.thread(thread.name.as_str()).questions().await.expect("the questions");
        open.extend(questions.iter().map(|question| (thread.name.clone(), question.id)));
    }
    assert_eq!(found, open, "{when}");
    let rows = store.questions(&InboxQuery::new().limit(1_000)).await.expect("the index");
    assert_eq!(rows.iter().map(|row| (row.thread.clone(), row.question.id)).collect::<BTreeSet<_>>(), open, "{when}");
    assert_eq!(runner.verify().await.expect("it is looked at").faults, [], "{when}");
}

#[tokio::test]
async fn questions_come_by_deadline_and_those_without_one_last() {
    let (_dir, stores) = memory_and_file();
    for (name, store) in stores {
        let runner = poll(Arc::clone(&store), &ManualClock::at(Timestamp(1_000)));
        for (thread, due) in [("b", vec![300, 0]), ("a", vec![0]), ("c", vec![100, 500]), ("a2", vec![300]), ("z", vec![1])] {
            _ = runner.thread(thread).run(Poll::update().due(due)).await.expect("it runs");
        }
        let due = |thread: &str, ms: u64| (thread.to_owned(), format!("due in {ms}"));
        let all = [due("z", 1), due("c", 100), due("a2", 300), due("b", 300), due("c", 500), due("a", 0), due("b", 0)];
        for limit in [1, 2, 3, 7, 100] {
            assert_eq!(told(&runner, InboxQuery::new().limit(limit)).await, all, "{name}, {limit}");
            assert_eq!(told(&runner, InboxQuery::new().limit(limit).due_before(Timestamp(1_300))).await, all[..2], "{name}");
            assert_eq!(told(&runner, InboxQuery::new().limit(limit).due_before(Timestamp(u64::MAX))).await, all[..5], "{name}");
            assert_eq!(told(&runner, InboxQuery::new().limit(limit).prefix("a")).await, [due("a2", 300), due("a", 0)], "{name}");
            let both = InboxQuery::new().limit(limit).prefix("c").due_before(Timestamp(1_101));
            assert_eq!(told(&runner, both).await, [due("c", 100)], "{name}");
        }
        let none = runner.inbox(InboxQuery::new().limit(0)).await.expect("nothing");
        assert!(none.items.is_empty() && none.next.is_none());
        agrees(&runner, &*store, name).await;
    }
}

#[tokio::test]
async fn pages_through_many_threads_lose_nothing_and_repeat_nothing() {
    let (_dir, stores) = memory_and_file();
    for (name, store) in stores {
        let runner = poll(Arc::clone(&store), &ManualClock::at(Timestamp(1_000)));
        for number in 0..120_u64 {
            let asks = if number < 10 { 3 } else { 2 };
            let due: Vec<u64> = (0..asks).map(|n| number * 7 % 11 * n).collect();
            _ = runner.thread(&format!("t{number}")).run(Poll::update().due(due)).await.expect("it runs");
        }
        assert_eq!(inbox(&runner, InboxQuery::new().limit(7)).await.len(), 250, "{name}");
        agrees(&runner, &*store, name).await;
        // Some are answered and some asked while somebody turns the pages.
        let open = inbox(&runner, InboxQuery::new()).await;
        let (mut seen, mut next, mut page) = (Vec::new(), Some(InboxQuery::new().limit(9)), 0);
        let mut answered = BTreeSet::new();
        while let Some(query) = next {
            let found = runner.inbox(query).await.expect("the inbox");
            seen.extend(found.items.iter().map(|item| (item.thread.clone(), item.question.id)));
            next = found.next;
            let item = &open[page * 31 % open.len()];
            _ = runner.thread(item.thread.as_str()).answer(item.question.id, "yes").await.expect("it runs");
            answered.insert((item.thread.clone(), item.question.id));
            _ = runner.thread(&format!("new {page}")).run(Poll::update().due(vec![5])).await.expect("it runs");
            page += 1;
        }
        let different: BTreeSet<_> = seen.iter().cloned().collect();
        assert_eq!(different.len(), seen.len(), "{name}: nothing is seen twice");
        let stayed = open.iter().map(|item| (item.thread.clone(), item.question.id)).filter(|id| !answered.contains(id));
        assert!(stayed.clone().count() > 200 && stayed.into_iter().all(|id| different.contains(&id)), "{name}");
        agrees(&runner, &*store, name).await;
    }
}

async fn first(thread: &Thread<Poll>) -> QuestionId {
    thread.questions().await.expect("the questions")[0].id
}

async fn is_waiting(run: impl Future<Output = Result<Outcome<Poll>, ferrata::Error>>, questions: usize) {
    assert_eq!(run.await.expect("it runs").questions().len(), questions);
}

#[tokio::test]
async fn whatever_is_done_with_a_thread_the_inbox_says_what_the_threads_say() {
    for durability in [Durability::Step, Durability::Behind, Durability::Exit] {
        let (_dir, stores) = memory_and_file();
        for (name, store) in stores {
            let runner = poll(Arc::clone(&store), &ManualClock::at(Timestamp(1_000)));
            let thread = runner.thread("t").durability(durability);
            let check = async |what: &str| agrees(&runner, &*store, &format!("{what}, {name}, {durability:?}")).await;
            let asks = |due: &[u64]| Poll::update().due(due.to_vec());
            is_waiting(runner.thread("other").run(asks(&[50, 0])), 2).await;
            is_waiting(thread.run(asks(&[10, 0, 30])), 3).await;
            check("asked").await;
            let answered = first(&thread).await;
            is_waiting(thread.answer(answered, "one"), 2).await;
            check("answered").await;
            assert!(thread.answer(answered, "again").await.is_err() && thread.answer(first(&thread).await, 7).await.is_err());
            check("an answer was refused").await;
            assert!(thread.run(asks(&[1])).await.is_err());
            check("an input was refused").await;
            thread.copy_to("copy").await.expect("it is copied");
            check("copied").await;
            is_waiting(runner.thread("copy").answer(first(&thread).await, "in the copy"), 1).await;
            check("answered in the copy").await;
            is_waiting(thread.clone().supersede().run(asks(&[0, 7])), 2).await;
            check("superseded").await;
            let checkpoints = thread.history().await.expect("the history");
            let begun = checkpoints.iter().find(|checkpoint| checkpoint.next.len() == 2).expect("the step that asks").position;
            is_waiting(thread.clone().at(begun).resume(), 2).await;
            check("forked").await;
            thread.clone().at(begun).update(Poll::update().push_log("edited"), Some("each")).await.expect("it is edited");
            check("forked and edited").await;
            assert!(thread.questions().await.expect("the questions").is_empty());
            is_waiting(thread.clone().at(begun).resume(), 2).await;
            check("forked again").await;
            thread.prune(Keep::Last(1)).await.expect("it is pruned");
            check("pruned").await;
            let mut lines = Vec::new();
            thread.export(&mut lines).await.expect("it is exported");
            runner.thread("imported").import(&mut &*lines).await.expect("it is imported");
            check("imported").await;
            assert!(runner.thread("imported").import(&mut &*lines).await.is_err());
            check("an import was refused").await;
            thread.update(Poll::update().push_log("edited"), Some("each")).await.expect("it is edited");
            check("edited").await;
            assert!(runner.thread("copy").delete().await.expect("it is deleted"));
            check("deleted").await;
            assert_eq!(told(&runner, InboxQuery::new()).await.len(), 4, "{name}: other and imported, two each");
            while let Some(item) = inbox(&runner, InboxQuery::new()).await.first() {
                _ = runner.thread(item.thread.as_str()).answer(item.question.id, "the end").await.expect("it runs");
            }
            check("all are answered").await;
        }
    }
}

#[tokio::test]
async fn effects_in_doubt_are_in_it_and_a_file_has_it_when_it_is_opened_again() {
    let desk = Desk::new();
    let runner = desk.open();
    let question = asked(&runner, "doubtful", Case::update().topic("rope").n(5_000)).await;
    asked(&runner, "waiting", Case::update().topic("ladder")).await;
    desk.fails("the line");
    let doubt = runner.thread("doubtful").answer(question, Approval::approve()).await.expect("it runs").questions()[0].clone();
    assert!(doubt.is_doubt());
    let before = inbox(&runner, InboxQuery::new()).await;
    assert_eq!(before.iter().map(|item| item.question.is_doubt()).collect::<Vec<_>>(), [true, false]);
    drop(runner);
    let store = RedbStore::open(desk.path()).expect("the store opens");
    let runner = desk.over(store.clone());
    assert_eq!(inbox(&runner, InboxQuery::new()).await, before);
    runner.thread("doubtful").answer(doubt.id, Answer::not_performed()).await.expect("it runs").done().expect("it ends");
    agrees(&runner, &store, "the doubt is settled").await;
    assert!(store.verify().await.expect("it is looked at").is_sound());
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Vault {
    #[state(secret)]
    token: String,
}

#[tokio::test]
async fn threads_of_other_graphs_are_in_it_with_what_is_stored_of_secrets() {
    let store = Arc::new(MemoryStore::new());
    let ask = |s: &Vault| Ask::<bool>::new(format!("Use {}?", s.token)).show(&s.token);
    let graph = Graph::<Vault>::new("vault").question("use", ask).answered("use", |_, _: bool| Vault::update());
    let graph = graph.edge(START, "use").edge("use", END).build().expect("the graph is right");
    let vault = Runner::new(graph, Arc::clone(&store)).secrets(ForgetSecrets);
    _ = vault.thread("v").run(Vault::update().token("a-long-token-of-mine")).await.expect("it runs");
    let runner = poll(Arc::clone(&store), &ManualClock::at(Timestamp(1_000)));
    _ = runner.thread("p").run(Poll::update().due(vec![9])).await.expect("it runs");
    assert_eq!(runner.thread("v").questions().await.expect_err("nobody here opens its secrets").code(), "no-secrets");
    let items = inbox(&runner, InboxQuery::new()).await;
    assert_eq!(items, inbox(&vault, InboxQuery::new()).await);
    assert_eq!(items.iter().map(|item| item.thread.as_str()).collect::<Vec<_>>(), ["p", "v"]);
    assert!(!format!("{items:?}").contains("a-long-token"), "{items:?}");
    assert_eq!(items[1].question, vault.thread("v").questions().await.expect("the questions")[0]);
}

/// Counts what is loaded.
#[derive(Debug, Default)]
struct Counting {
    inner: MemoryStore,
    loads: Arc<AtomicUsize>,
}

impl Store for Counting {
    ferrata::hand_on_store!(
        inner; threads, questions, delete, restore, prune, resource, keep_resource, alarms, note, keep_note, notes
    );

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        self.inner.append(append)
    }

    fn load<'a>(&'a self, thread: &'a ThreadName, reach: Reach) -> Pending<'a, Loaded> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        self.inner.load(thread, reach)
    }
}

#[tokio::test]
async fn a_page_reads_its_own_threads_once_however_many_there_are() {
    let mut costs = Vec::new();
    for threads in [20, 200] {
        let store = Counting::default();
        let loads = Arc::clone(&store.loads);
        let runner = poll(store, &ManualClock::at(Timestamp(1_000)));
        for number in 0..threads {
            let due = if number % 2 == 0 { vec![5, 5, 0] } else { vec![] };
            _ = runner.thread(&format!("t{number:03}")).run(Poll::update().due(due)).await.expect("it runs");
        }
        let before = loads.load(Ordering::SeqCst);
        assert_eq!(runner.inbox(InboxQuery::new().limit(10)).await.expect("the inbox").items.len(), 10);
        costs.push(loads.load(Ordering::SeqCst) - before);
    }
    assert_eq!(costs, [5, 5], "two questions of each of five threads");
}

/// Notes what each append says of questions.
#[derive(Debug, Default)]
struct Noting {
    inner: MemoryStore,
    said: Arc<Mutex<Vec<Option<usize>>>>,
}

impl Store for Noting {
    ferrata::hand_on_store!(inner);

    fn append(&self, append: Append) -> Pending<'_, Appended> {
        self.said.lock().expect("no panic").push(append.questions.as_ref().map(Vec::len));
        self.inner.append(append)
    }
}

#[tokio::test]
async fn only_appends_that_change_what_is_open_speak_of_it() {
    let store = Noting::default();
    let said = Arc::clone(&store.said);
    counting(store, 20).thread("t").run(Case::update()).await.expect("it runs").done().expect("it ends");
    assert!(said.lock().expect("no panic").len() > 20 && said.lock().expect("no panic").iter().all(Option::is_none));
    let store = Noting::default();
    let said = Arc::clone(&store.said);
    let runner = poll(store, &ManualClock::at(Timestamp(1_000)));
    for number in [2, 1] {
        let open = runner.thread("t").run_once(Poll::update().due(vec![3, 0])).await.expect("it runs").questions().to_vec();
        assert_eq!(open.len(), number);
        _ = runner.thread("t").answer(open[0].id, "yes").await.expect("it runs");
    }
    let spoken: Vec<usize> = said.lock().expect("no panic").iter().flatten().copied().collect();
    // Both can be asked in one append.
    assert!(spoken.ends_with(&[2, 1, 0]) && spoken.len() <= 4, "{spoken:?}");
}

/// A copy of a thread that is done, of which the index says that it asks.
async fn stale() -> (Runner<Poll>, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    let runner = poll(Arc::clone(&store), &ManualClock::at(Timestamp(1_000)));
    let question = runner.thread("a").run(Poll::update().due(vec![1])).await.expect("it runs").questions()[0].clone();
    runner.thread("a").answer(question.id, "yes").await.expect("it runs").done().expect("it ends");
    _ = runner.thread("z").run(Poll::update().due(vec![9])).await.expect("it runs");
    let thread = ThreadName::new("a").expect("a name");
    let Loaded { entries, .. } = store.load(&thread, Reach::Whole).await.expect("it is loaded");
    store.delete(&thread).await.expect("it is deleted");
    let (status, questions) = (ThreadStatus::Done, vec![OpenQuestion::from(&*question)]);
    store.restore(Restore { thread, base: None, entries, status, questions, alarms: Vec::new() }).await.expect("it is put in");
    (runner, store)
}

#[tokio::test]
async fn a_question_that_is_not_open_any_more_is_left_out_and_pages_go_on() {
    let (runner, store) = stale().await;
    let page = runner.inbox(InboxQuery::new().limit(1)).await.expect("the inbox");
    assert!(page.items.is_empty() && page.unreadable.is_empty());
    let page = runner.inbox(page.next.expect("there is more")).await.expect("the inbox");
    assert_eq!(page.items[0].thread.as_str(), "z");
    assert_eq!(inbox(&runner, InboxQuery::new().limit(1)).await.len(), 1);
    // So is one of a thread that is gone.
    store.delete(&ThreadName::new("z").expect("a name")).await.expect("it is deleted");
    assert!(inbox(&runner, InboxQuery::new().limit(1)).await.is_empty());
}

#[tokio::test]
async fn an_index_that_the_records_do_not_yield_is_told_by_the_runner() {
    let (runner, _) = stale().await;
    let faults = runner.verify().await.expect("it is looked at").faults;
    let [(thread, fault)] = &faults[..] else { panic!("{faults:?}") };
    assert!(thread.as_str() == "a" && fault.contains("the index of open questions"), "{fault}");
    // What it says to do helps.
    let mut lines = Vec::new();
    runner.thread("a").export(&mut lines).await.expect("it is exported");
    assert!(runner.thread("a").delete().await.expect("it is deleted"));
    runner.thread("a").import(&mut &*lines).await.expect("it is imported");
    assert_eq!(runner.verify().await.expect("it is looked at").faults, []);
}

#[tokio::test]
async fn a_damaged_thread_is_named_and_the_others_are_there() {
    let desk = Desk::new();
    let runner = desk.open();
    for name in ["damaged", "sound"] {
        asked(&runner, name, Case::update().topic("rope")).await;
    }
    drop(runner);
    {
        let database = Database::open(desk.path()).expect("it opens");
        let transaction = database.begin_write().expect("a transaction");
        let log: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("log");
        let mut log = transaction.open_table(log).expect("the table");
        let mut bytes = log.get(("damaged", 0)).expect("it is read").expect("it is there").value().to_vec();
        bytes[20] ^= 1;
        log.insert(("damaged", 0), &*bytes).expect("it is written");
        drop(log);
        transaction.commit().expect("it is stored");
    }
    let runner = desk.open();
    let page = runner.inbox(InboxQuery::new()).await.expect("the inbox");
    assert_eq!(page.items.iter().map(|item| item.thread.as_str()).collect::<Vec<_>>(), ["sound"]);
    assert_eq!(page.unreadable.iter().map(|(thread, _)| thread.as_str()).collect::<Vec<_>>(), ["damaged"]);
    assert!(page.unreadable[0].1.to_string().contains("is damaged"), "{page:?}");
    assert!(runner.thread("damaged").delete().await.expect("it is deleted"));
    assert!(runner.inbox(InboxQuery::new()).await.expect("the inbox").unreadable.is_empty());
}

#[tokio::test]
async fn without_a_store_there_is_none() {
    let begin = |_: View<Poll>| async { Ok(Poll::update()) };
    let graph = Graph::<Poll>::new("poll").node("begin", begin).edge(START, "begin").edge("begin", END).build();
    let runner = Runner::without_store(graph.expect("the graph is right"));
    assert_eq!(runner.inbox(InboxQuery::new()).await.expect_err("there is none").code(), "no-store");
}
