//! "One file could not be parsed; the model tried thirty other ways and burned the budget."
//!
//! Real files, and a real redb file that another process could open. The model is a mock: it knows a new way each time it is asked, thirty of them, and counts
//! what that costs. How it could break: the count of rounds is lost with the process; the other files wait for the one that is broken, or are read
//! again with it; nobody can say what was spent.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ferrata::store::RedbStore;
use ferrata::{Approval, Context, END, Graph, Guard, NodeError, Outcome, QuestionKind, Runner, START, State, Thread, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

/// What is known of one file.
#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Sheet {
    path: String,
    way: String,
    tries: u64,
    sum: Option<i64>,
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Job {
    paths: Vec<String>,
    #[state(append)]
    sums: Vec<(String, i64)>,
}

/// Who was asked what, and which files were read.
#[derive(Clone, Default)]
struct World(Arc<Mutex<(Vec<String>, Vec<String>)>>);

impl World {
    /// The mock model: another way each time.
    fn ask(&self, path: &str) -> String {
        let asked = &mut self.0.lock().expect("no panic").0;
        asked.push(path.to_owned());
        format!("way {}", asked.iter().filter(|other| *other == path).count())
    }

    fn asked(&self, path: &str) -> usize {
        self.0.lock().expect("no panic").0.iter().filter(|asked| *asked == path).count()
    }

    fn reads(&self, path: &str) -> usize {
        self.0.lock().expect("no panic").1.iter().filter(|read| *read == path).count()
    }

    /// Adds up the numbers of a file, one in a line.
    fn sum(&self, path: &str) -> ferrata::Result<i64> {
        self.0.lock().expect("no panic").1.push(path.to_owned());
        let mut sum = 0;
        for (line, number) in std::fs::read_to_string(path)?.lines().enumerate() {
            let number: i64 =
                number.parse().map_err(|error| NodeError::new(format!("line {}: {error}", line + 1)).deterministic())?;
            sum += number;
        }
        Ok(sum)
    }
}

const ROUNDS: u32 = 4;

/// Asks for a way to read the file, tries it, and asks again.
fn sheet(world: &World) -> Graph<Sheet> {
    let propose = {
        let world = world.clone();
        move |sheet: View<Sheet>, ctx: Context| {
            let world = world.clone();
            async move {
                let ask = |_key| async { Ok(world.ask(&sheet.path)) };
                let way = ctx.effect("model", ask).repeatable().arguments(&(&sheet.path, sheet.tries)).await?;
                ctx.spend_tokens(900, 100);
                Ok(Sheet::update().way(way).tries(sheet.tries + 1))
            }
        }
    };
    let parse = {
        let world = world.clone();
        move |sheet: View<Sheet>, ctx: Context| {
            let world = world.clone();
            async move {
                match world.sum(&sheet.path) {
                    Ok(sum) => Ok(Sheet::update().sum(Some(sum))),
                    Err(error) => {
                        // It goes back to the model, which knows another way.
                        ctx.note_failure(&error);
                        Ok(Sheet::update())
                    }
                }
            }
        }
    };
    Graph::<Sheet>::new("sheet")
        .node("propose", propose)
        .node("parse", parse)
        .phase("read", ["propose", "parse"], Guard::new().failures(ROUNDS).rounds(30))
        .edge(START, "propose")
        .edge("propose", "parse")
        .route_to("parse", ["propose", END], |sheet: &Sheet| if sheet.sum.is_some() { END } else { "propose" })
        .build()
        .expect("the graph is right")
}

fn job(world: &World) -> Graph<Job> {
    let read = |path: String, ctx: Context| async move {
        let sheet = ctx.call::<Sheet>("sheet", Sheet::update().path(&*path)).await?;
        let sum = sheet.sum.ok_or_else(|| NodeError::new("no sum"))?;
        Ok(Job::update().sum((path, sum)))
    };
    Graph::<Job>::new("job")
        .node("list", || async { Ok(Job::update()) })
        .fan_out("list", "read", |job: &Job| job.paths.clone())
        .node("read", read)
        .callable("sheet", sheet(world))
        .edge(START, "list")
        .edge("read", END)
        .build()
        .expect("the graph is right")
}

/// As another process would open it.
fn open(dir: &TempDir, world: &World) -> Thread<Job> {
    Runner::new(job(world), RedbStore::open(dir.path().join("store.redb")).expect("a store")).thread("job")
}

fn write(dir: &TempDir, name: &str, text: &str) -> String {
    let path: PathBuf = dir.path().join(name);
    std::fs::write(&path, text).expect("it is written");
    path.to_string_lossy().into_owned()
}

async fn tokens(thread: &Thread<Job>) -> u64 {
    let report = thread.report().await.expect("a report");
    report.nodes.iter().map(|node| node.input_tokens + node.output_tokens).sum()
}

#[tokio::test]
async fn a_file_that_cannot_be_parsed_stops_for_a_person_and_the_others_are_finished() {
    let (dir, world) = (TempDir::new().expect("a folder"), World::default());
    let mut paths: Vec<String> = (1..=5).map(|n| write(&dir, &format!("{n}.txt"), &format!("{n}\n{n}\n"))).collect();
    let broken = write(&dir, "broken.txt", "12\ntwelve\n");
    paths.insert(2, broken.clone());

    let outcome = open(&dir, &world).run(Job::update().paths(paths.clone())).await.expect("it waits");
    let Outcome::Waiting(questions) = outcome else { panic!("{outcome:?}") };
    assert_eq!(questions.len(), 1);
    assert!(matches!(&questions[0].kind, QuestionKind::Guard(nodes) if nodes.len() == 2), "{:?}", questions[0].kind);
    let show = questions[0].show.as_ref().expect("what was tried").to_string();
    assert!(show.contains("line 2: invalid digit"), "{show}");
    assert_eq!((world.asked(&broken), world.reads(&broken)), (ROUNDS as usize, ROUNDS as usize), "and not thirty times");
    assert!(paths.iter().filter(|path| **path != broken).all(|path| world.reads(path) == 1), "the others are finished");

    // What it cost is on record, and another process tells the same.
    let spent = tokens(&open(&dir, &world)).await;
    assert_eq!(spent, 1_000 * (u64::from(ROUNDS) + 5));
    assert!(matches!(open(&dir, &world).resume().await, Ok(Outcome::Waiting(_))));
    assert_eq!((tokens(&open(&dir, &world)).await, world.asked(&broken)), (spent, ROUNDS as usize));

    // Somebody repairs the file and says so; only that one is read.
    std::fs::write(&broken, "12\n12\n").expect("it is written");
    let outcome = open(&dir, &world).answer(questions[0].id, Approval::approve().by("dana")).await.expect("it goes on");
    let state = outcome.done().expect("it ends");
    let sums: Vec<i64> = state.sums.iter().map(|(_, sum)| *sum).collect();
    assert_eq!(sums, [2, 4, 24, 6, 8, 10], "in the order of the files");
    assert_eq!((world.asked(&broken), world.reads(&broken)), (ROUNDS as usize + 1, ROUNDS as usize + 1));
    assert!(paths.iter().filter(|path| **path != broken).all(|path| world.reads(path) == 1));
    assert_eq!(tokens(&open(&dir, &world)).await, spent + 1_000);
}
