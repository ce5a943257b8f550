//! Any conversation under any budget: a request that every endpoint takes and that fits, or an error that says what is too large.
//!
//! How this could break: a result loses its call, a role stands where it may not, a text of some script has more tokens than its parts, a cut is one
//! token too long, what must stay word for word is changed, an error without a reason.
//!
//! `PROPTEST_CASES=100000 cargo test --release -p ferrata-nodes --test context_property` tries a hundred thousand.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support {
    pub(crate) mod conversation;
}

use ferrata::state::{Message, Role, ToolCall};
use ferrata_nodes::{
    Assembled, ChatModel, ChatReply, ChatRequest, ContextError, ContextPlan, Layer, PINNED_ID, Recent, RollingSummary,
    SUMMARY_ID, SUMMARY_MARKER, Scripted, SummaryError, Tiktoken, TokenCounter, ToolSpec, is_pinned,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::conversation::check_valid;

const TEXTS: [&str; 12] = [
    "",
    " \n",
    "The agent saved a checkpoint after every node. ",
    "智能体在每个节点之后保存检查点，然后等待人工批准下一步操作。",
    "エージェントは各ノードの後に",
    "에이전트는 각 노드 이후에 ",
    "ตัวแทนบันทึกจุดตรวจสอบ",
    "🔥🎉💯🧪🚀🌤️👩‍💻",
    "pU3KGCUwux1tEyze1iN7LtkeP3IfyxlxF0SU1kk8nVw0YL4xIB5p/tqg7ui5mX9cfCmZ/a/lkyU81lSvTfrXFCegrrP+6SMv",
    r#"{"id":"4e0b7a52-91cd","qty":12,"ok":true}"#,
    "fn main() {\n    println!(\"<|endoftext|>\");\n}\n",
    "e\u{301}\u{202e}\u{0}\u{fffd}",
];

const IDS: [&str; 5] = ["a", "b", "call_1", "", "检"];

fn text() -> impl Strategy<Value = String> {
    let repeat = prop_oneof![8 => 0..4_usize, 3 => 4..30_usize, 1 => 30..200_usize];
    (0..TEXTS.len(), repeat, 0..TEXTS.len()).prop_map(|(kind, repeat, end)| TEXTS[kind].repeat(repeat) + TEXTS[end])
}

fn message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![1 => Just(Role::System), 3 => Just(Role::User), 5 => Just(Role::Assistant), 5 => Just(Role::Tool)];
    let calls = prop::collection::vec((0..IDS.len(), text()), 0..4);
    (role, text(), calls, 0..IDS.len(), 0..24_u8).prop_map(|(role, content, calls, answers, odd)| {
        let mut message = Message::new(role, content);
        // Now and then a role has what it cannot have.
        if message.role == Role::Assistant && odd < 18 || odd == 0 {
            let call = |(id, arguments): (usize, String)| ToolCall { id: IDS[id].to_owned(), name: "f".to_owned(), arguments };
            message.tool_calls = calls.into_iter().map(call).collect();
        }
        if message.role == Role::Tool && odd != 1 || odd == 2 {
            message.tool_call_id = Some(IDS[answers].to_owned());
        }
        match odd {
            3 => message.with_id(format!("{PINNED_ID}{answers}")),
            4 if matches!(message.role, Role::System | Role::User) => {
                let content = format!("{SUMMARY_MARKER}\n{}", message.content);
                Message { content, ..message }.with_id(SUMMARY_ID)
            }
            // An id that calls and results may have, too.
            4 | 5 => message.with_id(SUMMARY_ID),
            odd => message.with_id(format!("m{odd}")),
        }
    })
}

/// A turn as agents have it, or anything at all.
fn conversation() -> impl Strategy<Value = Vec<Message>> {
    let turn = (text(), text(), text()).prop_map(|(asked, found, said)| {
        let call = ToolCall { id: "call_1".to_owned(), name: "search".to_owned(), arguments: "{}".to_owned() };
        let result = Message { tool_call_id: Some("call_1".to_owned()), ..Message::new(Role::Tool, found) };
        vec![Message::user(asked), Message { tool_calls: vec![call], ..Message::assistant("") }, result, Message::assistant(said)]
    });
    let part = prop_oneof![2 => turn, 3 => message().prop_map(|message| vec![message])];
    prop::collection::vec(part, 0..14).prop_map(|parts| parts.concat())
}

fn request() -> impl Strategy<Value = ChatRequest> {
    (any::<bool>(), any::<bool>(), text()).prop_map(|(instructed, has_tools, text)| {
        let instructions = Some(Message::system("You book tables.")).filter(|_| instructed);
        let request = ChatRequest::new(instructions);
        let arguments = serde_json::json!({"type": "object", "properties": {"q": {"type": "string"}}});
        let tool = ToolSpec { name: "search".to_owned(), description: text, arguments };
        if has_tools { request.tools([tool]).schema("answer", serde_json::json!({"type": "object"})) } else { request }
    })
}

#[derive(Clone, Debug)]
struct Plan {
    plan: ContextPlan,
    budget: usize,
    feedback: Option<String>,
    is_window: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let budget = prop_oneof![1 => 0..60_usize, 3 => 60..400_usize, 3 => 400..3_000_usize, 1 => 3_000..40_000_usize];
    let shares = (0..=100_usize, 0..=100_usize, 0..=100_usize);
    (budget, 0..4_u8, 0..6_usize, shares, prop::option::of(text())).prop_map(|(budget, recent, last, shares, feedback)| {
        let is_window = recent == 0;
        let recent = match recent {
            0 => Recent::last(last),
            1 => Recent::by_role_and_age(),
            _ => Recent::newest(),
        };
        let plan = ContextPlan::new(budget).recent(recent);
        let plan = plan.share(Layer::Summary, shares.0).share(Layer::Recent, shares.1).share(Layer::Feedback, shares.2);
        let plan = feedback.iter().fold(plan, |plan, text| plan.feedback(text));
        Plan { plan, budget, feedback, is_window }
    })
}

/// What must be in the request as it is, for each list in this order.
fn check_verbatim(messages: &[Message], sent: &[Message]) -> Result<(), String> {
    let says = |message: &&Message| !message.content.trim().is_empty();
    let of = |role: Role| messages.iter().filter(says).filter(move |message| message.role == role);
    let mut rest = sent.iter();
    for message in of(Role::System).filter(|message| message.id != SUMMARY_ID) {
        if !rest.any(|sent| sent.content == message.content && sent.id == message.id) {
            return Err(format!("system message {message:?}"));
        }
    }
    let users: Vec<&Message> = of(Role::User).filter(|message| message.id != SUMMARY_ID).collect();
    for message in users.first().into_iter().chain(users.last()) {
        if !sent.iter().any(|sent| sent.role == Role::User && sent.content == message.content && sent.id == message.id) {
            return Err(format!("user message {message:?}"));
        }
    }
    Ok(())
}

/// More tokens than all of it together can have, with a result for each call.
fn all_of_it(plan: &Plan, messages: &[Message], request: &ChatRequest) -> usize {
    let counter = Tiktoken::default();
    let of = |message: &Message| counter.count_message(message) + 40 * message.tool_calls.len();
    let feedback = plan.feedback.as_ref().map_or(0, |text| counter.count(text) + 40);
    counter.count_request(request) + messages.iter().map(of).sum::<usize>() + feedback
}

/// Every message is shown, left out, or fit for no request, and the context says which.
fn check_numbers(plan: &Plan, messages: &[Message], context: &Assembled) -> Result<(), String> {
    let is_summary = |message: &Message| message.id == SUMMARY_ID && message.role != Role::Tool && message.tool_calls.is_empty();
    let is_said = |message: &&Message| message.role != Role::System && !is_summary(message);
    let unfit = context.unfit.iter().map(|&at| &messages[at]).filter(is_said).count();
    let should = messages.iter().filter(is_said).count() - unfit - context.left_out
        + context.unanswered.len()
        + usize::from(plan.feedback.is_some());
    let sent = context.request.messages.iter().filter(is_said).count();
    if sent == should { Ok(()) } else { Err(format!("{sent} messages are shown, and {should} should be")) }
}

fn check(plan: &Plan, messages: &[Message], request: &ChatRequest) -> Result<bool, String> {
    let (counter, budget) = (Tiktoken::default(), plan.budget);
    let is_enough = all_of_it(plan, messages, request) <= budget;
    match plan.plan.assemble(messages, request.clone()) {
        Ok(context) => {
            let tokens = counter.count_request(&context.request);
            if tokens != context.tokens || tokens > budget {
                return Err(format!("{tokens} tokens, {} said, budget {budget}", context.tokens));
            }
            let layers: usize = context.layers.iter().map(|(_, tokens)| tokens).sum();
            if layers != tokens {
                return Err(format!("the layers have {layers} of {tokens} tokens"));
            }
            check_valid(&context.request)?;
            check_verbatim(messages, &context.request.messages)?;
            check_numbers(plan, messages, &context)?;
            if context.request.tools != request.tools || context.request.schema != request.schema {
                return Err("the tools are others".to_owned());
            }
            if is_enough && (!context.cut.is_empty() || context.left_out > 0 && !plan.is_window) {
                return Err(format!("{} left out and {:?} cut with room for all", context.left_out, context.cut));
            }
            Ok(true)
        }
        Err(ContextError::TooLarge { what, tokens, over, budget: said, .. }) => {
            if is_enough || what.is_empty() || over == 0 || said != budget || tokens == 0 {
                return Err(format!("an error without a reason: {what}, {tokens}, {over}, {said}"));
            }
            Ok(false)
        }
        Err(ContextError::Nothing) => {
            let could = |message: &Message| message.role != Role::Tool && !message.content.trim().is_empty();
            if messages.iter().any(could) { Err("there was something to send".to_owned()) } else { Ok(false) }
        }
        Err(other) => Err(other.to_string()),
    }
}

#[test]
fn any_conversation_fits_or_is_refused() {
    let cases = std::env::var("PROPTEST_CASES").map_or(2_000, |cases| cases.parse().unwrap());
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() });
    let count = std::cell::Cell::new(0_u32);
    let result = runner.run(&(plan(), conversation(), request()), |(plan, messages, request)| {
        let fits = check(&plan, &messages, &request).map_err(TestCaseError::fail)?;
        count.set(count.get() + u32::from(fits));
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    let sent = count.get();
    assert!(sent > cases / 4, "{sent} of {cases} were sent: the cases are too hard to say anything");
    println!("{sent} of {cases} were sent, the others refused");
}

fn settings() -> impl Strategy<Value = (RollingSummary, usize, usize)> {
    let percent = || 0..=100_usize;
    (40..2_000_usize, percent(), percent(), percent(), prop_oneof![3 => Just(0), 1 => 0..300_usize], 100..800_usize).prop_map(
        |(budget, trigger, target, summary, around, chunk)| {
            let settings = RollingSummary::new().budget(budget).trigger_percent(trigger).target_percent(target);
            (settings.summary_percent(summary).around(around).chunk(chunk), budget, around)
        },
    )
}

/// What holds for every list that comes out of folding.
fn check_folded(before: &[Message], after: &[Message], room: usize) -> Result<(), String> {
    let tokens: usize = after.iter().map(|message| Tiktoken::default().count_message(message)).sum();
    if tokens > room {
        return Err(format!("{tokens} tokens, and {room} are allowed"));
    }
    let is_summary = |message: &&Message| message.id == SUMMARY_ID && message.role != Role::Tool && message.tool_calls.is_empty();
    let summaries: Vec<&Message> = after.iter().filter(is_summary).collect();
    if summaries.len() != 1 || summaries[0].content.len() <= SUMMARY_MARKER.len() + 1 {
        return Err(format!("{} summaries, or an empty one", summaries.len()));
    }
    let is_kept = |message: &&Message| !is_summary(message) && (message.role == Role::System || is_pinned(message));
    if !before.iter().filter(is_kept).eq(after.iter().filter(is_kept)) {
        return Err("system messages and pinned ones are others, or in another order".to_owned());
    }
    let is_user = |message: &&Message| {
        message.role == Role::User && !is_summary(message) && !is_pinned(message) && !message.content.trim().is_empty()
    };
    if before.iter().find(is_user) != after.iter().find(is_user) {
        return Err("the task is another".to_owned());
    }
    let is_free = |message: &&Message| !is_summary(message) && !is_kept(message);
    let mut rest = before.iter().filter(is_free);
    if let Some(message) = after.iter().filter(is_free).find(|message| !rest.any(|old| old == *message)) {
        return Err(format!("changed, or out of order: {message:?}"));
    }
    let mut open: Vec<&str> = Vec::new();
    for message in after.iter().filter(is_free) {
        if message.role == Role::Tool {
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            let call = open.iter().rposition(|call| *call == id).ok_or(format!("a result of {id} without its call"))?;
            open.remove(call);
        }
        open.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
    }
    Ok(())
}

#[test]
fn any_conversation_is_folded_or_refused() {
    let cases = std::env::var("PROPTEST_CASES").map_or(120, |cases| cases.parse().unwrap());
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() });
    let count = std::cell::Cell::new(0_u32);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let result = runner.run(&(settings(), conversation(), text()), |((settings, budget, around), messages, said)| {
        let said = if said.trim().is_empty() { "They looked for a table.".to_owned() } else { said };
        let model = Scripted::answering(move |_| Ok(ChatReply::new(said.clone())));
        let call = |request: ChatRequest| {
            let model = &model;
            async move { model.chat(&request).await }
        };
        let folded = runtime.block_on(settings.fold(&messages, &Tiktoken::default(), call));
        let total: usize = messages.iter().map(|message| Tiktoken::default().count_message(message)).sum();
        match folded {
            Ok(Some(after)) => {
                count.set(count.get() + 1);
                check_folded(&messages, &after, budget - around).map_err(TestCaseError::fail)?;
            }
            Ok(None) if total + around > budget => return Err(TestCaseError::fail("it is over the budget")),
            Err(SummaryError::CannotFit { .. }) if !model.requests().is_empty() => {
                return Err(TestCaseError::fail("a call was paid for nothing"));
            }
            Ok(None) | Err(SummaryError::CannotFit { .. } | SummaryError::NoSummary { .. }) => {}
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(count.get() > cases / 10, "{} of {cases} were folded: the cases are too hard to say anything", count.get());
}
