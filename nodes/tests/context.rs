//! What a model sees, in the cases that go wrong for people.
//!
//! How this could break: a result is sent without its call, a message larger than the budget leads to an empty request or to one that is too large,
//! the summariser is asked every turn for nothing, what must survive does not, a count is not that of the model.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support {
    pub(crate) mod conversation;
}

use ferrata::state::{Message, Role};
use ferrata_nodes::{
    Assembled, ChatReply, ChatRequest, ContextError, ContextPlan, FEEDBACK_MARKER, Layer, Recent, RollingSummary, SUMMARY_ID,
    SUMMARY_MARKER, Scripted, Summary, Tally, Tiktoken, TokenCache, TokenCounter, ToolSpec, is_pinned, pinned,
};
use support::conversation::{calls, check_valid, filler, result};

fn assemble(plan: &ContextPlan, messages: &[Message]) -> Result<Assembled, ContextError> {
    plan.assemble(messages, ChatRequest::new([]))
}

fn tokens(messages: &[Message]) -> usize {
    messages.iter().map(|message| Tiktoken::default().count_message(message)).sum()
}

/// Checks what holds for every context, and gives its messages.
fn sent(context: &Assembled, budget: usize) -> &[Message] {
    check_valid(&context.request).unwrap_or_else(|what| panic!("{what}: {:#?}", context.request.messages));
    let tokens = Tiktoken::default().count_request(&context.request);
    assert!(tokens == context.tokens && tokens <= budget, "{tokens} tokens, {} said, {budget} allowed", context.tokens);
    &context.request.messages
}

fn booking() -> Vec<Message> {
    vec![
        Message::system("You book tables."),
        Message::user("Book a table for 6 at the Heron, budget 80"),
        calls(&["c1", "c2"], "{}"),
        result("c1", filler(30)),
        result("c2", filler(20)),
        Message::user("Any later?"),
        Message::assistant("At nine."),
    ]
}

/// F29: every cut, every budget.
#[test]
fn f29_calls_and_their_results() {
    let all = booking();
    for (start, end) in (0..all.len()).flat_map(|start| (start + 1..=all.len()).map(move |end| (start, end))) {
        let messages = &all[start..end];
        for budget in 10..tokens(messages) + 40 {
            let plan = ContextPlan::new(budget);
            let context = match assemble(&plan, messages) {
                Ok(context) => context,
                Err(ContextError::TooLarge { over, .. }) => {
                    assert!(over > 0 && budget < 120, "{start}..{end} in {budget}");
                    continue;
                }
                Err(ContextError::Nothing) => {
                    assert!(messages.iter().all(|message| message.role == Role::Tool), "{start}..{end}");
                    continue;
                }
                Err(other) => panic!("{other}"),
            };
            let sent = sent(&context, budget);
            // In the order of the conversation: roles and ids say which message it is.
            let mut rest = messages.iter();
            let is_said = |message: &&Message| message.role != Role::System && message.role != Role::Tool;
            for message in sent.iter().filter(is_said) {
                let is_it = |old: &Message| {
                    old.role == message.role && (old.content == message.content || message.content.ends_with("[…]"))
                };
                assert!(rest.any(is_it), "{start}..{end} in {budget}: {message:?} is out of order");
            }
        }
        let whole = assemble(&ContextPlan::new(10_000), messages);
        if let Ok(whole) = whole {
            assert_eq!(
                whole.unanswered.len(),
                sent(&whole, 10_000).iter().filter(|m| m.content.contains("never answered")).count()
            );
            assert_eq!(whole.left_out, 0);
        }
    }
    let whole = assemble(&ContextPlan::new(10_000), &all).unwrap();
    assert_eq!(whole.request.messages, all);
}

#[test]
fn a_call_that_was_never_answered_says_so_and_a_stray_result_goes() {
    let messages =
        [Message::user("Book."), calls(&["a", "b"], "{}"), result("b", "yes"), result("x", "stray"), Message::user("And?")];
    let context = assemble(&ContextPlan::new(1_000), &messages).unwrap();
    let sent = sent(&context, 1_000);
    assert_eq!(sent.len(), 5);
    assert!(sent[2].content.contains("never answered") && sent[2].tool_call_id.as_deref() == Some("a"));
    assert_eq!(sent[3], messages[2]);
    assert_eq!((context.unanswered, context.unfit), (vec!["a".to_owned()], vec![3]));
}

/// F31: system prompt, first task, 200 turns, room for ten of them.
#[tokio::test]
async fn f31_what_must_survive() {
    let start = [Message::system("You book tables."), Message::user("Book a table for 6 at the Heron, budget 80")];
    let fact = pinned(Message::user("I am allergic to peanuts."));
    let (budget, plan) = (600, ContextPlan::new(600));
    let model = Scripted::answering(|_| Ok(ChatReply::new("They looked for a table.")));
    let mut messages = [start.as_slice(), std::slice::from_ref(&fact)].concat();
    for turn in 0..200 {
        messages.push(Message::user(format!("Turn {turn}: and at this hour? {}", filler(16))));
        messages.push(Message::assistant(format!("Turn {turn}: no. {}", filler(16))));
        let call = |request: ChatRequest| {
            let model = &model;
            async move { ferrata_nodes::ChatModel::chat(model, &request).await }
        };
        let folded = RollingSummary::new().budget(500).fold(&messages, &Tiktoken::default(), call).await.unwrap();
        messages = folded.unwrap_or(messages);
        let context = assemble(&plan, &messages).unwrap();
        let sent = sent(&context, budget);
        assert_eq!(sent[0], start[0], "the system prompt, word for word and first");
        assert_eq!(sent.iter().find(|message| message.role == Role::User), Some(&start[1]), "the first task, word for word");
        assert_eq!(sent.iter().filter(|message| is_pinned(message)).collect::<Vec<_>>(), [&fact]);
        let summaries: Vec<_> = sent.iter().filter(|message| message.content.contains("They looked")).collect();
        assert!(summaries.len() <= 1);
        // Not a thing the user said, and not the last thing.
        assert!(summaries.iter().all(|message| message.role == Role::User && message.content.starts_with(SUMMARY_MARKER)));
        assert_eq!(sent.last(), messages.last());
    }
    assert!((10..=70).contains(&model.requests().len()), "{}", model.requests().len());
}

/// F32: one user message, or one result, of five times the budget.
#[test]
fn f32_one_message_larger_than_the_budget() {
    let large = "table ".repeat(5_000);
    let error = assemble(&ContextPlan::new(1_000), &[Message::user(large.clone()).with_id("m7")]).unwrap_err();
    let ContextError::TooLarge { what, message, tokens, over, budget } = &error else { panic!("{error}") };
    assert_eq!((what.as_str(), message.as_deref(), *budget), ("the first task", Some("m7"), 1_000));
    assert_eq!(*over, tokens + 3 - 1_000);
    assert!(error.to_string().contains("\"m7\"") && error.to_string().contains(&over.to_string()), "{error}");

    let mut messages = vec![Message::user("Book."), calls(&["c1"], "{}"), result("c1", large)];
    let context = assemble(&ContextPlan::new(1_000), &messages).unwrap();
    let shown = sent(&context, 1_000);
    assert!(shown[2].content.ends_with("[…]") && context.tokens > 900, "{} tokens", context.tokens);
    assert_eq!(context.cut, [2]);

    // Long past, it is left out, and a note says so.
    messages.extend((0..4).map(|turn| Message::user(format!("Turn {turn}: go on."))));
    let context = assemble(&ContextPlan::new(1_000), &messages).unwrap();
    let shown = sent(&context, 1_000);
    assert_eq!((context.left_out, shown[0].content.as_str()), (2, "[2 earlier messages are not shown here.]"));
}

/// Tools that leave no room for any message are too large; it is not that there is nothing to say.
#[test]
fn tools_that_leave_no_room_are_named() {
    let tool = ToolSpec { name: "search".to_owned(), description: filler(336), arguments: serde_json::json!({"type": "object"}) };
    let request = ChatRequest::new([]).tools([tool]);
    let around = Tiktoken::default().count_request(&request);
    let error = ContextPlan::new(around + 5).assemble(&[Message::assistant(filler(16))], request).unwrap_err();
    assert!(error.to_string().contains("the tools and the schema"), "{error}");
    assert_eq!(assemble(&ContextPlan::new(100), &[Message::user(" "), result("x", "stray")]), Err(ContextError::Nothing));
}

/// F33: 900 of 1,000 are fixed and the threshold is 0.65. No call can gain anything, so none is made, and what is over the budget is refused with a reason.
#[tokio::test]
async fn f33_budget_too_tight() {
    let tool = ToolSpec { name: "search".to_owned(), description: filler(336), arguments: serde_json::json!({"type": "object"}) };
    let request = ChatRequest::new([Message::system(filler(368))]).tools([tool]);
    let counter = Tiktoken::default();
    let around = counter.count_request(&request);
    assert!((850..1_000).contains(&around), "{around}");
    let model = Scripted::answering(|_| Ok(ChatReply::new("They looked for a table.")));
    let settings = RollingSummary::new().budget(1_000).trigger_percent(65).around(around);
    let mut messages = vec![Message::user("Book.")];
    let mut refused = 0;
    for turn in 0..10 {
        messages.extend([Message::user(format!("Turn {turn}?")), Message::assistant(format!("Turn {turn}: no."))]);
        let call = |request: ChatRequest| {
            let model = &model;
            async move { ferrata_nodes::ChatModel::chat(model, &request).await }
        };
        match settings.fold(&messages, &counter, call).await {
            Ok(folded) => assert!(folded.is_none()),
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("budget of 1000"), "{error}");
            }
        }
        let context = ContextPlan::new(1_000).assemble(&messages, request.clone()).unwrap();
        sent(&context, 1_000);
    }
    assert!(refused > 0);
    assert_eq!(model.requests().len(), 0, "a call that gains nothing");
}

/// F34: the counts of another implementation, js-tiktoken 1.0, in which text is ordinary text.
#[test]
fn f34_counting_tokens() {
    let rows: Vec<serde_json::Value> = serde_json::from_str(include_str!("fixtures/tokens.json")).unwrap();
    assert!(rows.len() >= 14);
    for row in rows {
        let text = match (&row["text"], &row["repeat"]) {
            (serde_json::Value::String(text), _) => text.clone(),
            (_, repeat) => repeat.as_str().unwrap().chars().cycle().take(row["chars"].as_u64().unwrap() as usize).collect(),
        };
        for (counter, name) in [(Tiktoken::o200k(), "o200k"), (Tiktoken::cl100k(), "cl100k")] {
            assert_eq!(counter.count(&text) as u64, row[name], "{} in {name}", row["kind"]);
            let cached = TokenCache::new(counter);
            let message = Message::user(text.clone());
            assert_eq!(cached.count_message(&message) as u64, row[name].as_u64().unwrap() + 4);
            assert_eq!(cached.count_message(&message), counter.count_message(&message));
        }
    }
}

#[test]
fn a_summary_in_parts_gives_way_entry_by_entry() {
    let entries = |what: &str| (0..20).map(|n| format!("{what} {n}: {}", filler(8).trim())).collect::<Vec<_>>();
    let whole = Summary { verified: entries("V"), doubtful: entries("D"), decisions: entries("C"), open: entries("O") };
    let summary = Message::user(format!("{SUMMARY_MARKER}\n{whole}")).with_id(SUMMARY_ID);
    let messages = [Message::user("Book."), summary.clone(), Message::user("Go on.")];
    let context = assemble(&ContextPlan::new(700), &messages).unwrap();
    let shown = sent(&context, 700);
    let shorter = Summary::of(shown).unwrap();
    assert!(shorter.doubtful.is_empty() && shorter.verified.len() < 20 && shorter.open.len() == 20, "{shorter:?}");
    assert!(shown[1].content.ends_with("[…]"));
    assert_eq!(context.cut, [1]);
    let all = assemble(&ContextPlan::new(7_000), &messages).unwrap();
    assert_eq!(sent(&all, 7_000)[1], summary);
}

#[test]
fn each_layer_gets_its_share_and_what_others_leave() {
    let mut messages = vec![Message::user("Book.")];
    messages.extend((0..200).map(|n| Message::assistant(format!("{n}: {}", filler(16)))));
    messages.extend([calls(&["c1"], "{}"), result("c1", filler(20_000))]);
    let of = |context: &Assembled, layer| context.layers.iter().find(|(at, _)| *at == layer).unwrap().1;

    let context = assemble(&ContextPlan::new(1_000).feedback(filler(16)), &messages).unwrap();
    let shown = sent(&context, 1_000);
    assert!(shown.last().unwrap().content.starts_with(FEEDBACK_MARKER));
    assert!(of(&context, Layer::Recent) > 300, "recent messages have their share beside a large result: {:?}", context.layers);
    assert!(of(&context, Layer::Feedback) > 500, "and the result has what nobody else wants: {:?}", context.layers);

    let context = assemble(&ContextPlan::new(1_000).share(Layer::Recent, 80).share(Layer::Feedback, 5), &messages).unwrap();
    sent(&context, 1_000);
    assert!(of(&context, Layer::Recent) > 700, "{:?}", context.layers);
}

#[test]
fn windows_and_importance_need_no_model() {
    let mut messages = vec![Message::system("You book tables."), Message::user("Book.")];
    for turn in 0..50 {
        let id = format!("c{turn}");
        messages.extend([
            Message::user(format!("Turn {turn}?")),
            calls(&[&id], "{}"),
            result(&id, filler(16)),
            Message::assistant("No."),
        ]);
    }
    let context = assemble(&ContextPlan::new(10_000).recent(Recent::last(6)), &messages).unwrap();
    let shown = sent(&context, 10_000);
    assert!(shown.len() <= 2 + 1 + 1 + 6 + 1, "{}", shown.len());

    messages[4 + 2].content = "IMPORTANT".to_owned();
    let plan =
        ContextPlan::new(800).recent(Recent::important(|message, age| if message.content == "IMPORTANT" { 10.0 } else { age }));
    let context = assemble(&plan, &messages).unwrap();
    let shown = sent(&context, 800);
    assert!(shown.iter().any(|message| message.content == "IMPORTANT"));
    assert_eq!(shown.last(), messages.last());
    let context = assemble(&ContextPlan::new(800).recent(Recent::by_role_and_age()), &messages).unwrap();
    assert!(sent(&context, 800).iter().filter(|message| message.role == Role::User).count() > 5);
}

#[test]
fn a_tally_knows_what_one_more_message_costs() {
    let mut tally = Tally::new(TokenCache::default());
    let messages: Vec<_> = (0..200).map(|n| Message::user(filler(n)).with_id(format!("m{n}"))).collect();
    messages.iter().for_each(|message| tally.put(message));
    assert_eq!(tally.total(), tokens(&messages));
    tally.put(&Message::user("").with_id("m199"));
    tally.remove("m0");
    tally.remove("m0");
    assert_eq!(tally.total(), tokens(&messages[1..199]) + 4);
    let next = result("c1", "Done.");
    assert_eq!(tally.total_with(&next), tally.total() + tokens(std::slice::from_ref(&next)));
}
