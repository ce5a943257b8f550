//! What the field cases share: a store in a file, the world outside as another file, and processes that are this test itself.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use ferrata::log::{Entry, Record};
use ferrata::store::RedbStore;
use ferrata::{Approval, Context, END, Graph, GraphBuilder, IntoNode, NodeError, Runner, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::support::common::lines;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
pub(crate) struct Work {
    pub(crate) topic: String,
    pub(crate) n: u64,
    #[state(append)]
    pub(crate) log: Vec<String>,
}

pub(crate) fn graph() -> GraphBuilder<Work> {
    Graph::<Work>::new("work")
}

/// The outside world: a file that gets a line for each thing that was done.
#[derive(Clone)]
pub(crate) struct World {
    file: PathBuf,
    /// Nodes that fail the next time they run.
    faults: Arc<Mutex<HashSet<&'static str>>>,
}

impl World {
    pub(crate) fn at(dir: &Path) -> Self {
        Self { file: dir.join("effects.txt"), faults: Arc::default() }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn note(&self, line: &str) -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.file)?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_all()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        lines(&self.file)
    }

    pub(crate) fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|seen| *seen == line).count()
    }

    pub(crate) fn fails_once(&self, node: &'static str) {
        self.faults.lock().expect("not poisoned").insert(node);
    }

    /// A node that leaves its name in the world and in the state, and fails in between if a fault is due.
    pub(crate) fn node(&self, name: &'static str) -> impl IntoNode<Work, (View<Work>,)> + use<> {
        let world = self.clone();
        move |_: View<Work>| {
            let world = world.clone();
            async move {
                world.note(name)?;
                if world.faults.lock().expect("not poisoned").remove(name) {
                    return Err(NodeError::new(format!("{name} is out of luck")));
                }
                Ok(Work::update().push_log(name))
            }
        }
    }
}

/// A folder with a store and its world.
pub(crate) struct Field {
    dir: TempDir,
    pub(crate) world: World,
}

impl Field {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let world = World::at(dir.path());
        Self { dir, world }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn store(&self) -> RedbStore {
        store_in(self.dir.path())
    }

    /// Opens the store, as a new process would: the one before must be gone.
    pub(crate) fn open(&self, graph: GraphBuilder<Work>) -> Runner<Work> {
        Runner::new(graph.build().expect("the graph is right"), self.store())
    }
}

pub(crate) fn store_in(dir: &Path) -> RedbStore {
    RedbStore::open(dir.join("field.redb")).expect("the store opens")
}

const PROCESS_DIR: &str = "FERRATA_FIELD_CASE";

/// Where a test that was started as a process of its own finds its files; nothing in the test itself.
pub(crate) fn process_dir() -> Option<PathBuf> {
    std::env::var_os(PROCESS_DIR).map(PathBuf::from)
}

/// That test of this binary as a process of its own.
pub(crate) fn as_process(test: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test has a path"));
    command.args(["--exact", test, "--nocapture"]).env(PROCESS_DIR, dir);
    command
}

/// The nodes whose results were saved, in that order.
pub(crate) fn saved(log: &[Entry]) -> Vec<&str> {
    log.iter()
        .filter_map(|entry| if let Record::TaskDone(done) = &entry.record { Some(done.task.node.as_str()) } else { None })
        .collect()
}

// ---- graphs ----

/// first, slow until it is let go on, last.
pub(crate) fn gated(world: &World, open: &Arc<Notify>) -> GraphBuilder<Work> {
    let (noting, open) = (world.clone(), Arc::clone(open));
    let slow = move || {
        let (world, open) = (noting.clone(), Arc::clone(&open));
        async move {
            world.note("slow")?;
            open.notified().await;
            Ok(Work::update().push_log("slow"))
        }
    };
    let graph = graph().node("first", world.node("first")).node("slow", slow).node("last", world.node("last"));
    graph.edge(START, "first").edge("first", "slow").edge("slow", "last").edge("last", END)
}

/// one, two, a node that asks a model and then a tool, four.
pub(crate) fn with_a_tool(world: &World, tool_hangs: bool) -> GraphBuilder<Work> {
    let noting = world.clone();
    let three = move |ctx: Context| {
        let world = noting.clone();
        async move {
            world.note("three")?;
            let model = |_| async { Ok("call the tool".to_owned()) };
            let call: String = ctx.effect("model", model).repeatable().tokens(|_| (30, 4)).await?;
            let tool = |_| async {
                world.note("tool")?;
                if tool_hangs {
                    std::future::pending::<()>().await;
                }
                Ok("performed".to_owned())
            };
            let result: String = ctx.effect("tool", tool).await?;
            Ok(Work::update().push_log(format!("{call}: {result}")))
        }
    };
    let noting = world.clone();
    let two = move |ctx: Context| {
        let world = noting.clone();
        async move {
            world.note("two")?;
            ctx.spend_tokens(100, 20);
            Ok(Work::update().push_log("two"))
        }
    };
    let graph = graph().node("one", world.node("one")).node("two", two).node("three", three).node("four", world.node("four"));
    graph.edge(START, "one").edge("one", "two").edge("two", "three").edge("three", "four").edge("four", END)
}

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
pub(crate) struct Child {
    pub(crate) topic: String,
    pub(crate) n: u64,
    #[state(append)]
    pub(crate) log: Vec<String>,
}

/// A node of the child that leaves its name in the world, and what it sees in the state.
fn inner(world: &World, name: &'static str) -> impl IntoNode<Child, (View<Child>,)> + use<> {
    let world = world.clone();
    move |s: View<Child>| {
        let world = world.clone();
        async move {
            world.note(name)?;
            Ok(Child::update().n(s.n + 1).push_log(format!("{name} sees {}", s.topic)))
        }
    }
}

/// p1, a child that asks between c1 and c2, p2. The child's input is what p1 wrote.
pub(crate) fn asking(world: &World) -> Graph<Work> {
    let child = Graph::<Child>::new("child").node("c1", inner(world, "c1")).node("c2", inner(world, "c2"));
    let child = child
        .question("ask", |s: &Child| Approval::ask(format!("Go on with {}?", s.topic)))
        .edge(START, "c1")
        .edge("c1", "ask")
        .approved("ask", "c2")
        .rejected("ask", END)
        .edge("c2", END)
        .build()
        .expect("the child is right");
    let noting = world.clone();
    let p1 = move |s: View<Work>| {
        let world = noting.clone();
        async move {
            world.note("p1")?;
            Ok(Work::update().topic(format!("{} from p1", s.topic)).push_log("p1"))
        }
    };
    let child = child.mapped(
        |s: &Work| Child::update().topic(&*s.topic),
        |_, inner: &Child| Work::update().set_log([vec!["p1".to_owned()], inner.log.clone()].concat()),
    );
    let graph = graph().node("p1", p1).node("child", child).node("p2", world.node("p2"));
    graph.edge(START, "p1").edge("p1", "child").edge("child", "p2").edge("p2", END).build().expect("the graph is right")
}

/// A child that goes on counting over runs, a question, then ship or cancel.
pub(crate) fn remembering(world: &World) -> GraphBuilder<Work> {
    let child = Graph::<Child>::new("child").node("c", inner(world, "c")).edge(START, "c").edge("c", END);
    let child = child.build().expect("the child is right").continued();
    let child = child.mapped(|s: &Work| Child::update().topic(&*s.topic), |_, inner: &Child| Work::update().n(inner.n));
    graph()
        .node("child", child)
        .question("ask", |s: &Work| Approval::ask(format!("Ship {}?", s.n)))
        .node("ship", world.node("ship"))
        .node("cancel", world.node("cancel"))
        .edge(START, "child")
        .edge("child", "ask")
        .approved("ask", "ship")
        .rejected("ask", "cancel")
        .edge("ship", END)
        .edge("cancel", END)
}
