//! A text is shortened to what matters in it, without any model.
//!
//! How this could break: the answer is empty, over its limit, out of order, different from run to run, or takes too long for a long text.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::time::{Duration, Instant};

use ferrata::state::Message;
use ferrata_nodes::{ChatModel, ChatReply, ChatRequest, Extractive, Finish, ModelError, ModelErrorClass, Tiktoken, TokenCounter};

async fn condense(text: &str, tokens_max: u32) -> Result<ChatReply, ModelError> {
    Extractive::new().chat(&ChatRequest::condense("Shorten the text.", text, tokens_max)).await
}

/// The answer, of which the promises that hold for every text have been checked.
async fn condensed(text: &str, tokens_max: u32) -> String {
    let reply = condense(text, tokens_max).await.unwrap();
    let content = reply.content;
    assert!(!content.trim().is_empty());
    assert!(Tiktoken::default().count(&content) <= tokens_max as usize, "{content}");
    assert_eq!(content, condense(text, tokens_max).await.unwrap().content, "the answer changed");
    assert_eq!(reply.finish == Finish::Length, content.ends_with("[…]"));
    let mut rest = text;
    for line in content.lines().map(|line| line.trim_end_matches(" […]")) {
        let at = line.split_inclusive(['.', '。']).map(str::trim).filter(|sentence| !sentence.is_empty());
        for sentence in at {
            let found = rest.find(sentence).unwrap_or_else(|| panic!("not in the text after what came before: {sentence}"));
            rest = &rest[found + sentence.len()..];
        }
    }
    content
}

const ENGLISH: &str = "The engine writes every change of the state into a log. It rained on Tuesday. \
    After a crash the engine reads the log and restores the state. My cat is called Ferris. \
    A record in the log has a checksum, so that damage is found. The cook made soup. \
    Snapshots of the state shorten the log that the engine must read after a crash.";

const GERMAN: &str = "Die Maschine schreibt jede Änderung des Zustands in ein Protokoll. Am Dienstag regnete es. \
    Nach einem Absturz liest die Maschine das Protokoll und stellt den Zustand wieder her. Meine Katze heißt Ferris. \
    Ein Abbild des Zustands verkürzt das Protokoll, das die Maschine nach einem Absturz lesen muss.";

const CHINESE: &str = "引擎把状态的每次变化写入日志。星期二下雨了。崩溃之后，引擎读取日志并恢复状态。我的猫叫小白。\
    日志中的每条记录都有校验和。状态的快照缩短了引擎崩溃之后要读取的日志。";

const MARKDOWN: &str = "# The log\n\nThe engine writes every change of the state into the log.\n\n```rust\nlet log = engine.log(state);\n```\n\n\
    | engine | log |\n|---|---|\n| state | log |\n\n- After a crash the engine restores the state from the log.\n- Soup is on the stove.\n\n\
    ## Snapshots\n\nA snapshot of the state shortens the log that the engine reads after a crash.\n";

#[tokio::test]
async fn central_sentences_are_kept_and_asides_dropped() {
    let cases: &[(&str, u32, &[&str], &[&str])] = &[
        (ENGLISH, 45, &["After a crash"], &["rained", "cat", "soup"]),
        (GERMAN, 60, &["Nach einem Absturz"], &["regnete", "Katze"]),
        (CHINESE, 30, &["崩溃之后，引擎读取日志"], &["下雨", "小白"]),
        (MARKDOWN, 30, &["After a crash the engine"], &["Soup", "let log", "|", "#", "- "]),
    ];
    for (text, tokens_max, kept, dropped) in cases {
        let content = condensed(text, *tokens_max).await;
        for part in *kept {
            assert!(content.contains(part), "`{part}` is missing in: {content}");
        }
        for part in *dropped {
            assert!(!content.contains(part), "`{part}` is in: {content}");
        }
    }
}

#[tokio::test]
async fn every_limit_is_kept() {
    for text in [ENGLISH, GERMAN, CHINESE, MARKDOWN] {
        for tokens_max in [4, 5, 8, 13, 21, 34, 55, 89, 500] {
            condensed(text, tokens_max).await;
        }
    }
}

#[tokio::test]
async fn text_that_fits_stays_as_it_is() {
    assert_eq!(condensed(MARKDOWN, 500).await, MARKDOWN.trim());
}

#[tokio::test]
async fn what_is_said_twice_is_kept_once() {
    let text = format!("{0} {0} {0}", ENGLISH);
    let content = condensed(&text, 120).await;
    assert_eq!(content.matches("After a crash the engine reads").count(), 1, "{content}");
}

#[tokio::test]
async fn texts_without_sentences_still_give_an_answer() {
    let cases = [
        "```\nlet a = 1;\nlet b = a + 1;\n```".repeat(30),
        "| a | b |\n".repeat(200),
        "# Heading\n".repeat(100),
        "pU3KGCUwux1tEyze1iN7LtkeP3IfyxlxF0SU1kk8".repeat(60),
        "🔥🎉💯🧪🚀".repeat(100),
        "?!".repeat(2_000),
        "ตัวแทนบันทึกจุดตรวจสอบ".repeat(100),
    ];
    for text in cases {
        let content = condense(&text, 20).await.unwrap().content;
        assert!(!content.trim().is_empty() && Tiktoken::default().count(&content) <= 20, "{content}");
    }
}

#[tokio::test]
async fn the_limit_is_300_tokens_if_none_is_set() {
    let text: String = (0..500).map(|i| format!("Record {i} of the log names step {}. ", i * 7 % 100)).collect();
    let mut request = ChatRequest::condense("", text, 0);
    request.output_tokens_max = None;
    let content = Extractive::new().chat(&request).await.unwrap().content;
    let tokens = Tiktoken::default().count(&content);
    assert!((250..=300).contains(&tokens), "{tokens}: {content}");
}

#[tokio::test]
async fn it_does_not_pretend_to_be_a_language_model() {
    let error = Extractive::new().chat(&ChatRequest::new([Message::user("Hi")])).await.unwrap_err();
    assert_eq!(error.class(), ModelErrorClass::BadRequest);
    for variable in ["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"] {
        assert!(error.to_string().contains(variable), "{error}");
    }
    for request in [ChatRequest::condense("", " \n", 10), ChatRequest::condense("", "🔥🎉💯".repeat(9), 0)] {
        assert_eq!(Extractive::new().chat(&request).await.unwrap_err().class(), ModelErrorClass::BadRequest);
    }
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "it measures how long something takes")]
async fn a_megabyte_takes_seconds_at_most() {
    const WORDS: [&str; 16] = [
        "engine", "log", "state", "record", "crash", "snapshot", "node", "edge", "answer", "question", "the", "of", "reads",
        "writes", "waits", "step",
    ];
    let mut seed = 7_u64;
    let mut text = String::new();
    while text.len() < 1_000_000 {
        for _ in 0..12 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text += WORDS[(seed >> 60) as usize];
            text += &format!("{} ", seed >> 54 & 15);
        }
        text += "ends here. ";
    }
    let started = Instant::now();
    let content = condense(&text, 300).await.unwrap().content;
    let took = started.elapsed();
    println!("{} bytes in {took:?}", text.len());
    assert!(!content.is_empty());
    // Many times what it takes unoptimized; what grows with the square of the length would take minutes.
    assert!(took < Duration::from_secs(20), "{took:?}");
}
