//! Threads that are copied, and that go from store to store as lines of JSON.
//!
//! How it could break: a copy that pays with the key of the first one, or that does again what was done; lines that were cut and go in all the same; an
//! import that writes over a thread.

mod support {
    pub(crate) mod desk;
}

use ferrata::store::{MemoryStore, RedbStore, ThreadQuery};
use ferrata::{Answer, Approval, Keep, Runner};
use serde_json::Value;
use support::desk::{Case, CaseUpdate, Desk, asked, counting, done, exported, history, seen};

/// The key of the last thing that was done, which must be this.
#[track_caller]
fn last_key(desk: &Desk, what: &str) -> String {
    let (done, key) = desk.performed().pop().expect("something was done");
    assert_eq!(done, what);
    key
}

#[tokio::test]
async fn a_copy_is_another_thread_from_then_on() {
    let desk = Desk::new();
    let runner = desk.open();
    let thread = runner.thread("t");
    let question = thread.run(Case::update().topic("rope")).await.expect("it runs").questions()[0].id;
    for name in ["copy", "copy of a copy"] {
        let from = if name == "copy" { "t" } else { "copy" };
        runner.thread(from).copy_to(name).await.expect("it is copied");
        assert_eq!(seen(&history(&thread).await), seen(&history(&runner.thread(name)).await));
    }
    drop((thread, runner));
    let runner = desk.open();
    let original = exported(&runner.thread("t")).await;
    let mut keys = Vec::new();
    for name in ["copy", "copy of a copy"] {
        let end = done(runner.thread(name).answer(question, Approval::approve()).await);
        assert_eq!(end.log, ["draft rope", "pay rope"]);
        keys.push(last_key(&desk, "pay rope"));
    }
    assert_eq!(exported(&runner.thread("t")).await, original, "it is as it was");
    done(runner.thread("t").answer(question, Approval::approve()).await);
    keys.push(last_key(&desk, "pay rope"));
    assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2], "each pays with a key of its own: {keys:?}");
    assert_eq!(desk.performed().len(), 4, "what was finished before stays finished in all");
    assert_eq!(runner.verify().await.expect("it is looked at").faults, []);
}

#[tokio::test]
async fn a_copy_of_a_doubt_is_in_doubt_itself() {
    let desk = Desk::new();
    let runner = desk.open();
    let thread = runner.thread("t");
    let question = thread.run(Case::update().topic("rope")).await.expect("it runs").questions()[0].id;
    desk.fails("the line");
    let outcome = thread.answer(question, Approval::approve()).await.expect("it waits");
    assert!(outcome.questions()[0].is_doubt());
    thread.copy_to("copy").await.expect("it is copied");
    let doubt = outcome.questions()[0].id;
    let end = done(thread.answer(doubt, Answer::performed(Value::Null)).await);
    assert_eq!((end.log.len(), desk.performed().len()), (2, 1), "it was done, and is not done again");
    let copy = runner.thread("copy");
    assert_eq!(copy.resume().await.expect("it waits").questions()[0].id, doubt, "it is not repeated in silence");
    let end = done(copy.answer(doubt, Answer::not_performed()).await);
    assert_eq!((end.log.len(), last_key(&desk, "pay rope").is_empty()), (2, false));
}

#[tokio::test]
async fn a_copy_never_takes_the_place_of_a_thread() {
    let desk = Desk::new();
    let runner = desk.open();
    for name in ["t", "other"] {
        asked(&runner, name, Case::update().topic(name)).await;
    }
    let before = (exported(&runner.thread("t")).await, exported(&runner.thread("other")).await);
    for name in ["other", "t"] {
        let error = runner.thread("t").copy_to(name).await.expect_err("there is one");
        assert_eq!(error.code(), "thread-exists");
        assert!(error.to_string().contains(&format!("\"{name}\"")) && error.to_string().contains("use another name"), "{error}");
    }
    let error = runner.thread("nobody").copy_to("new").await.expect_err("there is none");
    assert!(error.is_unknown_thread(), "{error}");
    assert!(runner.thread("new").state().await.expect_err("nothing was made").is_unknown_thread());
    assert_eq!((exported(&runner.thread("t")).await, exported(&runner.thread("other")).await), before);
}

/// Threads of every kind: waiting, done and forked, failed half way, pruned, with a large value.
async fn all_kinds(desk: &Desk) -> (Runner<Case>, [&'static str; 5]) {
    let runner = desk.open();
    let ask = async |name: &str, input: CaseUpdate| asked(&runner, name, input).await;
    ask("waiting", Case::update().topic("wait ünd 🔥\u{2028}")).await;
    let question = ask("forked", Case::update().topic("rope")).await;
    done(runner.thread("forked").answer(question, Approval::approve()).await);
    let back = history(&runner.thread("forked")).await[1].position;
    runner.thread("forked").at(back).update(Case::update().topic("ladder"), None).await.expect("it is edited");
    let question = ask("failed", Case::update().topic("stone")).await;
    desk.fails("pay");
    runner.thread("failed").answer(question, Approval::approve()).await.expect_err("it fails");
    for topic in ["one", "two"] {
        let question = ask("pruned", Case::update().topic(topic)).await;
        done(runner.thread("pruned").answer(question, Approval::approve()).await);
    }
    ask("pruned", Case::update().topic("three")).await;
    runner.thread("pruned").prune(Keep::Last(2)).await.expect("it is pruned");
    ask("large", Case::update().topic("book").paper("page ".repeat(40_000))).await;
    (runner, ["waiting", "forked", "failed", "pruned", "large"])
}

#[tokio::test]
async fn a_thread_goes_out_as_lines_and_comes_back_the_same() {
    let (desk, other) = (Desk::new(), Desk::new());
    let (runner, names) = all_kinds(&desk).await;
    let there = desk.over(RedbStore::open(other.path()).expect("a store"));
    for name in names {
        let (thread, copy) = (runner.thread(name), there.thread(name));
        let lines = exported(&thread).await;
        assert_eq!(exported(&thread).await, lines, "{name}: twice the same");
        copy.import(&mut lines.as_bytes()).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(exported(&copy).await, lines, "{name}: there and back");
        assert_eq!(copy.log().await.expect("the log"), thread.log().await.expect("the log"));
        assert_eq!(seen(&history(&copy).await), seen(&history(&thread).await));
        let (here, copied) = (thread.state().await.expect("a state"), copy.state().await.expect("a state"));
        assert_eq!(
            (&*here.values, here.status, &here.next, &here.questions),
            (&*copied.values, copied.status, &copied.next, &copied.questions)
        );
        // Each line is JSON that any tool reads.
        let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
        assert_eq!(rows[0]["thread"], name);
        assert_eq!(rows[1].get("snapshot").is_some(), name == "pruned");
        // A line break at the end may get lost on the way.
        there.thread(name).copy_to("again").await.expect("it is copied");
        there.thread("again").delete().await.expect("it is deleted");
        there.thread("again").import(&mut lines.trim_end().as_bytes()).await.expect("it is whole");
        there.thread("again").delete().await.expect("it is deleted");
    }
    let (mut here, mut listed) =
        (runner.threads(ThreadQuery::new()).await.expect("a list"), there.threads(ThreadQuery::new()).await.expect("a list"));
    // For one that runs, or was edited, the time of its last record stands for that of its status.
    here.iter_mut().chain(&mut listed).for_each(|line| line.since = line.updated_at);
    assert_eq!(here, listed);
    assert_eq!(there.verify().await.expect("it is looked at").faults, []);
    drop((runner, there));
    // It is the same thread: it goes on there, and pays with the key that it would have used here.
    let (runner, there) = (desk.open(), desk.over(RedbStore::open(other.path()).expect("a store")));
    let mut keys = Vec::new();
    for thread in [runner.thread("waiting"), there.thread("waiting")] {
        let question = thread.questions().await.expect("the questions")[0].id;
        done(thread.answer(question, Approval::approve()).await);
        keys.push(last_key(&desk, "pay wait ünd 🔥\u{2028}"));
    }
    assert_eq!(keys[0], keys[1]);
    assert_eq!(done(there.thread("failed").resume().await).log, ["draft stone", "pay stone"]);
    assert_eq!(desk.performed().iter().filter(|(what, _)| what == "pay stone").count(), 1, "what was done is not done again");
    // Under another name it is a copy.
    let lines = exported(&runner.thread("large")).await;
    there.thread("copy").import(&mut lines.as_bytes()).await.expect("it is imported");
    for name in ["large", "copy"] {
        let question = there.thread(name).questions().await.expect("the questions")[0].id;
        assert_eq!(done(there.thread(name).answer(question, Approval::approve()).await).paper.len(), 200_000);
        keys.push(last_key(&desk, "pay book"));
    }
    assert_ne!(keys[2], keys[3]);
}

#[tokio::test]
async fn an_import_never_takes_the_place_of_a_thread() {
    let desk = Desk::new();
    let (runner, names) = all_kinds(&desk).await;
    for name in names {
        let lines = exported(&runner.thread(name)).await;
        for over in names {
            let before = exported(&runner.thread(over)).await;
            let error = runner.thread(over).import(&mut lines.as_bytes()).await.expect_err("there is one");
            assert_eq!(error.code(), "thread-exists");
            assert_eq!(exported(&runner.thread(over)).await, before);
        }
    }
    let error = runner.thread("nobody").export(&mut Vec::new()).await.expect_err("there is none");
    assert!(error.is_unknown_thread());
}

/// Lines that are no export, with the number of the line that is wrong, and what is wrong with it.
fn spoiled(lines: &[&str]) -> Vec<(String, usize, &'static str)> {
    let join = |lines: Vec<&str>| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let with = |at: usize, line: &str| {
        let mut lines = lines.to_vec();
        lines[at] = line;
        join(lines)
    };
    let without = |at: usize| join([&lines[..at], &lines[at + 1..]].concat());
    let twice = |at: usize| join([&lines[..=at], &lines[at..]].concat());
    let count = lines.len();
    let mut spoiled = Vec::new();
    for cut in 0..count {
        spoiled.push((join(lines[..cut].to_vec()), cut + 1, "it is missing: the export is cut"));
        let half = lines[cut].char_indices().nth(lines[cut].chars().count() / 2).expect("a letter").0;
        spoiled.push((join(lines[..cut].to_vec()) + &lines[cut][..half], cut + 1, "EOF while parsing"));
    }
    let swapped = lines[3].replacen("\"position\":2", "\"position\":9", 1);
    let unnamed = lines[0].replacen("\"thread\":\"t\"", "\"thread\":\"\"", 1);
    let renamed = lines[0].replacen("\"thread\":\"t\"", "\"thread\":\"u\"", 1);
    let longer = lines[0].replacen("\"records\":", "\"records\":1", 1);
    let endless = lines[0].replacen("\"from\":0", "\"from\":18446744073709551615", 1);
    let based = lines[0].replacen("\"from\":0", "\"from\":4", 1);
    let unknown = lines[3].replacen("\"record\":{\"", "\"record\":{\"never_heard_of_", 1);
    spoiled.extend([
        (without(3), 4, "it holds record 3, not 2"),
        (twice(3), 5, "it holds record 2, not 3"),
        (with(3, &swapped), 4, "it holds record 9, not 2"),
        (with(3, "{}"), 4, "missing field"),
        (with(3, ""), 4, "EOF while parsing"),
        (with(3, "some words"), 4, "expected value"),
        (with(3, &unknown), 4, "unknown variant"),
        (with(1, lines[0]), 2, "missing field"),
        (without(0), 1, "missing field"),
        (with(0, &unnamed), 1, "it is empty"),
        (with(0, &renamed), 2, "it belongs to another thread"),
        (with(0, &longer), count + 1, "it is missing"),
        (with(0, &endless), 1, "no thread has"),
        (with(0, &based), 2, "missing field `snapshot`"),
        (join([lines, &["{}"]].concat()), count + 1, "the first line promises"),
        (join(vec!["{\"ferrata_export\":1,\"thread\":\"t\",\"from\":0,\"records\":0}"]), 1, "there is nothing in it"),
        (
            join(vec![
                "{\"ferrata_export\":1,\"thread\":\"t\",\"from\":0,\"records\":1}",
                &lines[2].replacen("\"position\":1", "\"position\":0", 1),
            ]),
            2,
            "no thread begins",
        ),
        ("[".repeat(100_000), 1, ""),
    ]);
    spoiled
}

#[tokio::test]
async fn lines_that_were_cut_or_edited_are_refused_with_their_number() {
    let desk = Desk::new();
    let runner = desk.open();
    asked(&runner, "t", Case::update().topic("rope")).await;
    let lines = exported(&runner.thread("t")).await;
    let lines: Vec<&str> = lines.lines().collect();
    let there = desk.over(MemoryStore::new());
    for (text, number, why) in spoiled(&lines) {
        let error = there.thread("t").import(&mut text.as_bytes()).await.expect_err("it is no export");
        let told = error.to_string();
        assert_eq!(error.code(), "export", "{told}");
        assert!(told.contains(&format!("line {number} of the export is wrong")), "{number}: {told}");
        assert!(told.contains(why) && told.contains("nothing was imported"), "{told}");
        assert!(there.threads(ThreadQuery::new()).await.expect("a list").is_empty());
    }
    let bytes = [lines[0].as_bytes(), b"\n\xff\xfe\n"].concat();
    let error = there.thread("t").import(&mut &*bytes).await.expect_err("it is no text").to_string();
    assert!(error.contains("line 2 of the export is wrong"), "{error}");
    let newer = lines.join("\n").replacen("\"ferrata_export\":1", "\"ferrata_export\":2", 1);
    let error = there.thread("t").import(&mut newer.as_bytes()).await.expect_err("it is newer").to_string();
    assert!(error.contains("version 2") && error.contains("use the newer program"), "{error}");
    // Whole lines that make no thread together, or one of another graph.
    let without_run = lines.join("\n").replacen("run_started", "run_ended", 1);
    there.thread("t").import(&mut without_run.as_bytes()).await.expect_err("no such record");
    let error =
        counting(MemoryStore::new(), 1).thread("t").import(&mut lines.join("\n").as_bytes()).await.expect_err("another graph");
    assert_eq!(error.code(), "other-graph");
    assert!(there.threads(ThreadQuery::new()).await.expect("a list").is_empty());
    there.thread("t").import(&mut lines.join("\n").as_bytes()).await.expect("the lines themselves are right");
}
