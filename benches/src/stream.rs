//! How long a token takes from a server's socket to whoever watches a run, and to a bare client.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use ferrata::state::Message;
use ferrata::{END, Event, Graph, START, State};
use ferrata_nodes::{ChatDelta, ChatNode, OpenAi};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::workloads::Problem;
use crate::{Measured, now, runner};

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Talk {
    #[state(messages)]
    messages: Vec<Message>,
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
const FIRST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"},\"finish_reason\":null}]}\n\n";
const LAST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// When the first token of the newest answer was written.
type Written = Arc<Mutex<Option<Instant>>>;

async fn serve(listener: TcpListener, written: Written) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let written = Arc::clone(&written);
        tokio::spawn(async move {
            let mut request = Vec::new();
            // The body is small and comes with the head, or right behind it.
            while !request.ends_with(b"}") {
                if stream.read_buf(&mut request).await? == 0 {
                    return Ok(());
                }
            }
            stream.set_nodelay(true)?;
            stream.write_all(HEAD.as_bytes()).await?;
            *written.lock().expect("no panic") = Some(now());
            stream.write_all(FIRST.as_bytes()).await?;
            stream.write_all(LAST.as_bytes()).await
        });
    }
}

fn since(written: &Written) -> f64 {
    let written = written.lock().expect("no panic").take().expect("a token was written");
    now().duration_since(written).as_secs_f64() * 1e6
}

async fn bare(address: std::net::SocketAddr, written: &Written) -> Result<f64, Problem> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}").await?;
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains("Hello") {
        stream.read_buf(&mut answer).await?;
    }
    Ok(since(written))
}

/// N answers to a bare client and N to whoever watches a run, in turn. Reports what the second takes over the first.
pub(crate) async fn first_token(variant: &str, n: u64, dir: &std::path::Path) -> Result<Measured, Problem> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let (address, written) = (listener.local_addr()?, Written::default());
    tokio::spawn(serve(listener, Arc::clone(&written)));
    let model = OpenAi::new(format!("http://{address}/v1"), "demo");
    let chat = ChatNode::new(model).streamed().over(Talk::MESSAGES);
    let graph = Graph::<Talk>::new("talk").node("chat", chat).edge(START, "chat").edge("chat", END).build()?;
    let runner = runner(graph, variant, dir)?;
    let (mut bares, mut watched) = (Vec::new(), Vec::new());
    for number in 0..n {
        bares.push(bare(address, &written).await?);
        let mut events = runner.thread(&format!("t{number}")).stream(Talk::update().message(Message::user("Hi")))?;
        while let Some(event) = events.next().await {
            let Event::Custom { value, .. } = event else { continue };
            if let Ok(ChatDelta::Text(_)) = serde_json::from_value(value) {
                watched.push(since(&written));
            }
        }
        events.outcome().await?.done().ok_or("the run asks somebody")?;
    }
    let [bare, watched] = [bares, watched].map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    eprintln!("a bare client has the token after {bare:.0} us, whoever watches the run after {watched:.0} us (medians of {n})");
    Ok(Measured { steps: n, wall_s: (watched - bare) * 1e-6 * n as f64, first100_us: Some(bare), last100_us: Some(watched) })
}
