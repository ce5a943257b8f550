//! A conversation stays under its budget and keeps what it must keep.
//!
//! How this could break: a result loses its call, the task or the system prompt changes, the list is over the budget for some text or size,
//! an error text becomes the summary, a failed call loses history, every turn costs a call.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::sync::Arc;

use ferrata::state::{Message, Role, ToolCall};
use ferrata_nodes::{
    ChatModel, ChatReply, ChatRequest, Extractive, Finish, ModelError, ModelErrorClass, Purpose, RollingSummary, SUMMARY_ID,
    SUMMARY_MARKER, Scripted, SummaryError, Tiktoken, TokenCounter,
};

type Folded = Result<Option<Vec<Message>>, SummaryError<ModelError>>;

async fn fold(settings: &RollingSummary, messages: &[Message], model: &dyn ChatModel) -> Folded {
    settings.fold(messages, &Tiktoken::default(), |request| async move { model.chat(&request).await }).await
}

fn tokens(messages: &[Message]) -> usize {
    messages.iter().map(|message| Tiktoken::default().count_message(message)).sum()
}

/// A model whose summaries are short.
fn brief() -> Scripted {
    Scripted::answering(|_| Ok(ChatReply::new("They looked for a table.")))
}

/// A model that ignores every limit.
fn verbose() -> Scripted {
    Scripted::answering(|_| Ok(ChatReply::new("检查点 and so on 🌤️, at length. ".repeat(300))))
}

fn calls(ids: &[&str], arguments: &str) -> Message {
    let mut message = Message::assistant("");
    message.tool_calls = ids
        .iter()
        .map(|id| ToolCall { id: (*id).to_owned(), name: "search".to_owned(), arguments: arguments.to_owned() })
        .collect();
    message
}

fn result(id: &str, content: impl Into<String>) -> Message {
    let mut message = Message::new(Role::Tool, content);
    message.tool_call_id = Some(id.to_owned());
    message
}

/// Every result follows its call, every call has one result; only the newest calls may still wait.
fn check_pairs(messages: &[Message], case: &str) {
    let mut open: Vec<&str> = Vec::new();
    for message in messages {
        match &message.tool_call_id {
            Some(id) => {
                let at = open.iter().position(|call| call == id);
                open.swap_remove(at.unwrap_or_else(|| panic!("{case}: {id} has no call before it: {messages:#?}")));
            }
            None => {
                assert!(open.is_empty(), "{case}: {open:?} have no results: {messages:#?}");
                open.extend(message.tool_calls.iter().map(|call| call.id.as_str()));
            }
        }
    }
}

/// What holds for every list that comes out of folding.
fn check(before: &[Message], after: &[Message], budget: usize, case: &str) {
    assert!(tokens(after) <= budget, "{case}: {} tokens", tokens(after));
    check_pairs(after, case);
    let summaries: Vec<_> = after.iter().filter(|message| message.id == SUMMARY_ID).collect();
    assert_eq!(summaries.len(), 1, "{case}");
    assert!(summaries[0].role == Role::User && summaries[0].content.starts_with(SUMMARY_MARKER), "{case}");
    assert!(summaries[0].content.trim().len() > SUMMARY_MARKER.len(), "{case}: an empty summary");
    let mut rest = before.iter();
    for message in after.iter().filter(|message| message.id != SUMMARY_ID) {
        assert!(rest.any(|old| old == message), "{case}: changed or out of order: {message:?}");
    }
    let is_system = |message: &&Message| message.role == Role::System && message.id != SUMMARY_ID;
    assert!(before.iter().filter(is_system).eq(after.iter().filter(is_system)), "{case}: system messages");
    let is_user = |message: &&Message| message.role == Role::User && message.id != SUMMARY_ID;
    assert_eq!(before.iter().find(is_user), after.iter().find(is_user), "{case}: the first task");
}

fn filler(words: usize) -> String {
    "The Heron has no table at this hour. ".repeat(words.div_ceil(8))
}

/// System, task, two calls with results, a question, an answer, one more call with its result.
fn booking(words: usize) -> Vec<Message> {
    let messages = [
        Message::system("You book tables."),
        Message::user("Book a table for 6 at the Heron, budget 80."),
        calls(&["c1", "c2"], &format!(r#"{{"q":"{}"}}"#, filler(words / 4))),
        result("c1", filler(words)),
        result("c2", filler(words / 2)),
        Message::user("Any later?"),
        Message::assistant(filler(words / 3)),
        calls(&["c3"], "{}"),
        result("c3", filler(words / 2)),
        Message::assistant("There is one at nine."),
    ];
    messages.into_iter().enumerate().map(|(at, message)| message.with_id(format!("m{at}"))).collect()
}

#[tokio::test]
async fn calls_and_results_stay_together_at_every_cut() {
    let all = booking(60);
    let mut folds = 0;
    for (start, end) in (0..all.len()).flat_map(|start| (start + 1..=all.len()).map(move |end| (start, end))) {
        // A list that begins in the middle of calls has results that no list may have; they have to go.
        let messages = &all[start..end];
        for budget in (100..tokens(messages)).step_by(11) {
            let case = format!("{start}..{end} in {budget}");
            match fold(&RollingSummary::new().budget(budget), messages, &brief()).await {
                Ok(Some(after)) => {
                    folds += 1;
                    check(messages, &after, budget, &case);
                }
                Ok(None) => panic!("{case}: not folded"),
                // Only calls that wait for their results may be too large here.
                Err(error) => assert!(error.to_string().contains("wait for their results"), "{case}: {error}"),
            }
        }
    }
    assert!(folds > 300, "{folds}");
}

#[tokio::test]
async fn the_budget_is_kept_for_every_kind_of_text() {
    let texts = [
        "The agent saved a checkpoint after every node. ",
        "智能体在每个节点之后保存检查点，然后等待人工批准下一步操作。",
        "🔥🎉💯🧪🚀🌤️👩‍💻",
        "pU3KGCUwux1tEyze1iN7LtkeP3IfyxlxF0SU1kk8nVw0YL4xIB5p/tqg7ui5mX9cfCmZ/a/lkyU81lSvTfrXFCegrrP+6SMv",
        "| a | b |\n",
    ];
    for (at, text) in texts.into_iter().enumerate() {
        for (repeat, budget, chunk) in [(3, 150, 128), (10, 150, 128), (20, 400, 4_000), (40, 300, 500)] {
            let mut messages = booking(40);
            messages.extend((0..4).map(|turn| Message::new([Role::User, Role::Assistant][turn % 2], text.repeat(repeat))));
            let settings = RollingSummary::new().budget(budget).chunk(chunk);
            for model in [&Extractive::new() as &dyn ChatModel, &verbose(), &brief()] {
                let case = format!("text {at}, {repeat} times, budget {budget}, {}", model.name());
                match fold(&settings, &messages, model).await {
                    Ok(after) => check(&messages, &after.expect("it is over the budget"), budget, &case),
                    Err(error) => panic!("{case}: {error}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn a_list_that_fits_is_left_alone() {
    let messages = booking(40);
    let model = brief();
    assert!(fold(&RollingSummary::new().budget(tokens(&messages)), &messages, &model).await.unwrap().is_none());
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_failed_summary_is_reported_and_never_stored() {
    let busy = || ModelError::new(ModelErrorClass::Server, "busy").with_status(503);
    let refused = || Ok(ChatReply::new("half of it").finish(Finish::ContentFilter));
    let answers: Vec<Result<ChatReply, ModelError>> = vec![
        Err(busy()),
        Ok(ChatReply::new(" ")),
        Ok(ChatReply::new("Error: timeout")),
        refused(),
        Ok(ChatReply::new("No table.")),
    ];
    let model = Scripted::replies(answers);
    let (messages, settings) = (booking(200), RollingSummary::new().budget(300));
    let first = fold(&settings, &messages, &model).await.unwrap_err();
    assert!(matches!(&first, SummaryError::Call { source, piece: 1, .. } if source.status() == Some(503)), "{first:?}");
    for _ in 0..3 {
        let error = fold(&settings, &messages, &model).await.unwrap_err();
        assert!(matches!(error, SummaryError::NoSummary { .. }), "{error:?}");
    }
    let after = fold(&settings, &messages, &model).await.unwrap().unwrap();
    check(&messages, &after, 300, "after the failures");
    assert_eq!(after[2].content, format!("{SUMMARY_MARKER}\nNo table."));
    assert_eq!(model.requests().len(), 5, "one call for each fold");
}

#[tokio::test]
async fn system_prompt_and_first_task_survive_hundreds_of_turns() {
    let start = [Message::system("You book tables."), Message::user("Book a table for 6 at the Heron, budget 80")];
    let (model, settings) = (brief(), RollingSummary::new().budget(600));
    let mut messages = start.to_vec();
    for turn in 0..200 {
        messages.push(Message::user(format!("Turn {turn}: and at this hour? {}", filler(20))));
        messages.push(Message::assistant(format!("Turn {turn}: no. {}", filler(20))));
        if let Some(after) = fold(&settings, &messages, &model).await.unwrap() {
            check(&messages, &after, 600, &format!("turn {turn}"));
            assert_eq!(after.last(), messages.last());
            messages = after;
        }
        assert_eq!(messages[..2], start);
    }
    let count = model.requests().len();
    assert!((10..=60).contains(&count), "head-room must save calls: {count} for 200 turns");
}

#[tokio::test]
async fn the_next_summary_is_made_from_the_last_one_and_what_is_new() {
    let (model, settings) = (brief(), RollingSummary::new().budget(300));
    let first = fold(&settings, &booking(200), &model).await.unwrap().unwrap();
    let mut messages = first.clone();
    messages.extend([Message::assistant(format!("NEW {}", filler(200))), Message::user("Go on.")]);
    let before = model.requests().len();
    let second = fold(&settings, &messages, &model).await.unwrap().unwrap();
    check(&messages, &second, 300, "second fold");
    let request = &model.requests()[before];
    assert_eq!(request.purpose, Purpose::Condense);
    let text = &request.messages[1].content;
    assert!(text.contains("They looked for a table.") && text.contains("NEW"), "{text}");
    assert!(!text.contains(SUMMARY_MARKER) && !text.contains("You book tables."), "{text}");
}

#[tokio::test]
async fn large_messages_are_folded_in_chunks() {
    let counter = Tiktoken::default();
    let large = "Table 4 is free at nine. ".repeat(500);
    let tail = |message| [booking(8), vec![message]].concat();
    let mut with_result = booking(8);
    with_result.extend([calls(&["c9"], "{}"), result("c9", large.clone())]);
    // What the model has to answer now stays word for word, or nothing is sent.
    let settings = RollingSummary::new().budget(1_000).summary_percent(20).chunk(500);
    let model = brief();
    let refused = fold(&settings, &tail(Message::user(large.clone())), &model).await.unwrap_err();
    assert!(refused.to_string().starts_with("the last user message has"), "{refused}");
    assert!(model.requests().is_empty());
    let answered = [tail(Message::user(large.clone())), vec![Message::assistant("Table 4, then.")]].concat();
    for messages in [answered, tail(Message::assistant(large.clone())), with_result] {
        let model = brief();
        let after = fold(&settings, &messages, &model).await.unwrap().unwrap();
        check(&messages, &after, 1_000, "large");
        let requests = model.requests();
        assert!(requests.len() > 10, "{}", requests.len());
        for request in &requests {
            assert!(counter.count(&request.messages[1].content) <= 500);
            assert_eq!(request.output_tokens_max, Some(200));
        }
    }
}

#[tokio::test]
async fn what_cannot_fit_is_said_before_any_call() {
    let large = filler(1_000);
    let case = |messages: Vec<Message>| async move {
        let model = brief();
        let error = fold(&RollingSummary::new().budget(1_000), &messages, &model).await.unwrap_err();
        assert!(model.requests().is_empty());
        error
    };
    for nothing in [RollingSummary::new().budget(1_000).summary_percent(0), RollingSummary::new().budget(300).summary_percent(0)]
    {
        let model = brief();
        let error = fold(&nothing, &booking(1_000), &model).await.unwrap_err();
        assert!(matches!(error, SummaryError::CannotFit { .. }) && model.requests().is_empty(), "{error}");
    }
    let tools = fold(&RollingSummary::new().budget(1_000).around(950), &booking(40), &brief()).await.unwrap_err();
    assert!(tools.to_string().starts_with("beside 950 tokens around the messages, the summary"), "{tools}");
    let prompt = Message::system(filler(700));
    let task = case(vec![Message::user(large.clone())]).await;
    let system = case(vec![prompt.clone(), Message::user("Book."), Message::assistant(filler(300))]).await;
    let waiting = case(vec![Message::user("Book."), Message::assistant("Yes."), calls(&["c1"], &large)]).await;
    for (error, named) in [(task, "the first task has"), (system, "the system messages ("), (waiting, "the calls that wait")] {
        let SummaryError::CannotFit { what, tokens, over, budget } = &error else { panic!("{error:?}") };
        assert!(what.starts_with(named), "{error}");
        assert!(*budget == 1_000 && over <= tokens && *over > 0, "{error}");
        assert!(error.to_string().contains(&format!("{over} more")), "{error}");
    }
}

#[tokio::test]
async fn the_last_question_stays_word_for_word_behind_many_tool_calls() {
    let mut messages = booking(40);
    messages.push(Message::user("Is there one by the window?"));
    for at in 0..20 {
        let id = format!("w{at}");
        messages.extend([calls(&[&id], "{}"), result(&id, filler(40))]);
    }
    let after = fold(&RollingSummary::new().budget(500), &messages, &brief()).await.unwrap().unwrap();
    check(&messages, &after, 500, "window");
    assert_eq!(after[3].content, "Is there one by the window?");
    assert_eq!(after.last(), messages.last());
}

#[tokio::test]
async fn a_document_of_any_length_is_read_in_chunks() {
    let counter = Tiktoken::default();
    let mut text = filler(6_000);
    text.push_str("\n\nThe code word is PLOVER. The table of the Heron is booked under the code word PLOVER.\n\n");
    text.push_str(&filler(6_000));
    let model = Arc::new(Scripted::answering(|request| {
        let asked = &request.messages[1].content;
        Ok(ChatReply::new(if asked.contains("PLOVER") { "The code word is PLOVER." } else { "No table." }))
    }));
    let settings = RollingSummary::new().chunk(1_000);
    let condense = |text: String, tokens_max| {
        let (model, settings) = (model.clone(), settings.clone());
        // Spawned, which needs a future that can be sent.
        tokio::spawn(async move {
            let call = |request: ChatRequest| {
                let model = model.clone();
                async move { model.chat(&request).await }
            };
            settings.condense_document(&text, tokens_max, &Tiktoken::default(), call).await
        })
    };
    assert_eq!(condense(text.clone(), 200).await.unwrap().unwrap(), "The code word is PLOVER.");
    let requests = model.requests();
    assert!(requests.len() > 10);
    assert!(requests.iter().all(|request| counter.count(&request.messages[1].content) <= 1_000));
    assert_eq!(condense("Short.".to_owned(), 200).await.unwrap().unwrap(), "Short.");
    assert_eq!(model.requests().len(), requests.len(), "what fits costs no call");

    let extractive = Extractive::new();
    let call = |request: ChatRequest| {
        let extractive = &extractive;
        async move { extractive.chat(&request).await }
    };
    let condensed = settings.condense_document(&text, 100, &counter, call).await.unwrap();
    assert!(!condensed.is_empty() && counter.count(&condensed) <= 100, "{condensed}");
}

#[tokio::test]
async fn folding_can_be_spawned() {
    let task = tokio::spawn(async move {
        let model = brief();
        fold(&RollingSummary::new().budget(300), &booking(200), &model).await
    });
    assert!(task.await.unwrap().unwrap().is_some());
}
