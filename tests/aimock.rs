//! A server that somebody else wrote: a tool loop with calls beside each other and an approval, a server that asks to wait, a stream that is cut.
//!
//! How it could break: we and our own test server misread the protocol in the same way. The server is `@copilotkit/aimock`; `FERRATA_TEST_AIMOCK` names the folder of
//! the package (see `.ci/run`).

mod support {
    pub(crate) mod common;
}

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use ferrata::log::Record;
use ferrata::state::{Message, Role};
use ferrata::store::MemoryStore;
use ferrata::{Approval, END, Graph, Guard, Outcome, Retry, Runner, START, State};
use ferrata_nodes::{ChatNode, OpenAi, Risk, Tool, ToolContext, ToolsNode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use support::common::tell;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug)]
struct Desk {
    #[state(messages)]
    messages: Vec<Message>,
}

struct Mock {
    process: Child,
    lines: BufReader<ChildStdout>,
    url: String,
}

impl Mock {
    /// `None`: there is none here, and that is said.
    fn start() -> Option<Self> {
        let Ok(package) = std::env::var("FERRATA_TEST_AIMOCK") else {
            assert!(std::env::var("CI").is_err(), "CI has the mock server: `.ci/run` sets FERRATA_TEST_AIMOCK");
            tell("skipped: FERRATA_TEST_AIMOCK names no mock server; `.ci/run` prepares one");
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/aimock.mjs");
        let mut command = Command::new("node");
        command.arg(script).arg(package).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("node starts");
        let mut lines = BufReader::new(process.stdout.take().expect("stdout is a pipe"));
        let mut url = String::new();
        lines.read_line(&mut url).expect("it says where it is");
        Some(Self { process, lines, url: format!("{}/v1", url.trim()) })
    }

    fn model(&self) -> OpenAi {
        OpenAi::new(&self.url, "gpt-5").api_key("mock")
    }

    /// With which statuses the requests so far were answered, as the server says.
    fn statuses(&mut self) -> Vec<u16> {
        writeln!(self.process.stdin.as_mut().expect("stdin is a pipe")).expect("it listens");
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("it answers");
        serde_json::from_str(&line).expect("a list")
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Deserialize, JsonSchema)]
struct Order {
    order: String,
}

#[derive(Deserialize, JsonSchema)]
struct Refund {
    order: String,
    cents: u64,
}

fn desk(model: OpenAi, paid: &Arc<Mutex<Vec<u64>>>) -> Graph<Desk> {
    let paid = Arc::clone(paid);
    let look_up = |order: Order, _: ToolContext| async move { Ok(json!({"order": order.order, "state": "arrived broken"})) };
    let refund = move |refund: Refund, _: ToolContext| {
        let paid = Arc::clone(&paid);
        async move {
            paid.lock().expect("no panic").push(refund.cents);
            Ok(format!("{} cents for {}", refund.cents, refund.order))
        }
    };
    let tools = ToolsNode::new([
        Tool::new("look_up", "Looks up an order.", look_up).risk(Risk::Read),
        Tool::new("refund", "Pays money back.", refund).risk(Risk::Irreversible),
    ]);
    let tools = tools.expect("the tools are right");
    let chat = ChatNode::new(model).tools(tools.specs()).streamed().over(Desk::MESSAGES);
    let graph = Graph::<Desk>::new("desk")
        .node("chat", chat.retry(Retry::transient(3)))
        .node("tools", tools.over(Desk::MESSAGES).guard(Guard::new()))
        .edge(START, "chat")
        .route_to("chat", ["tools", END], |desk: &Desk| if ToolsNode::is_wanted(&desk.messages) { "tools" } else { END })
        .edge("tools", "chat");
    graph.build().expect("the graph is right")
}

#[tokio::test]
async fn a_tool_loop_an_approval_a_wait_and_a_stream_that_is_cut() {
    let Some(mut mock) = Mock::start() else { return };
    let (store, paid) = (Arc::new(MemoryStore::new()), Arc::new(Mutex::new(Vec::new())));
    let thread = |name: &str| Runner::new(desk(mock.model(), &paid), Arc::clone(&store)).thread(name);

    // It is told to wait first; then two calls at once, one of which a person has to approve.
    let outcome =
        thread("desk").run(Desk::update().message(Message::user("My order A-7 arrived broken."))).await.expect("it waits");
    let Outcome::Waiting(questions) = outcome else { panic!("{outcome:?}") };
    assert_eq!(questions.len(), 1);
    let shown = format!("{} {:?}", questions[0].text, questions[0].show);
    assert!(shown.contains("refund") && shown.contains("4200") && paid.lock().expect("no panic").is_empty(), "{shown}");
    // Another process goes on.
    let desk =
        thread("desk").answer(questions[0].id, Approval::approve().by("dana")).await.expect("it works").done().expect("it ends");
    assert_eq!(*paid.lock().expect("no panic"), [4_200]);
    let roles: Vec<Role> = desk.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::Assistant]);
    let calls = &desk.messages[1].tool_calls;
    assert!(calls[0].id != calls[1].id, "{calls:?}");
    assert_eq!(
        [&desk.messages[2], &desk.messages[3]].map(|result| result.tool_call_id.clone()),
        [0, 1].map(|n: usize| Some(calls[n].id.clone()))
    );
    assert_eq!(desk.messages[4].content, "Your money is on its way.");

    // A stream that is cut is no answer; the next one is.
    let poem = thread("poem")
        .run(Desk::update().message(Message::user("A poem, please.")))
        .await
        .expect("it works")
        .done()
        .expect("it ends");
    assert_eq!(poem.messages[1].content, "The log only grows, and nothing in it is ever written twice by anyone at all.");
    let log = thread("poem").log().await.expect("it is read");
    let cut: Vec<_> = log
        .iter()
        .filter(|entry| matches!(&entry.record, Record::AttemptFailed(failed) if failed.failure.message.contains("broke off")))
        .collect();
    assert_eq!(cut.len(), 1, "{log:?}");
    let statuses = mock.statuses();
    assert_eq!(
        statuses,
        [429, 200, 200, 200, 200],
        "each request once, but for the one that was told to wait and the one that was cut"
    );
}
