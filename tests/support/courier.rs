//! A courier's service on loopback, which speaks HTTP byte by byte and counts what it does, and the example that deals with it as a process.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use ferrata::log::Record;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::common::{Process, example, log_of, text, wait_until};

/// What the service does with a request that orders something. If nothing else is said, it acts and answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Next {
    /// Acts, and never answers.
    Silent,
    /// Acts, and cuts the connection.
    Cut,
    /// Acts, and answers when the gate is opened.
    Gated,
    /// 503, and does not act.
    Busy,
    /// Has read it, and never acts on it.
    Held,
}

/// What it does with a request that looks something up. If nothing else is said, it tells the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Look {
    Busy,
    Cut,
    Nonsense,
}

/// A request to order something, or an order that was carried out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) what: String,
    pub(crate) key: String,
}

#[derive(Default)]
struct Books {
    posts: Vec<Order>,
    acts: Vec<Order>,
    looks: Vec<String>,
    next: VecDeque<Next>,
    next_looks: VecDeque<Look>,
    gate_is_open: bool,
    /// Whether a second order under a known key is the same order.
    knows_keys: bool,
}

impl Books {
    fn slip(&self, what: &str, key: &str) -> Option<String> {
        let number = self.acts.iter().position(|act| act.what == what && act.key == key)?;
        Some(format!("{what}-{number}"))
    }
}

#[derive(Clone, Default)]
pub(crate) struct Service(Arc<(Mutex<Books>, Condvar)>);

impl Service {
    /// The service, and its address.
    fn open(knows_keys: bool) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let service = Self::default();
        service.books().knows_keys = knows_keys;
        let serving = service.clone();
        // The threads end with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let service = serving.clone();
                // A process that was killed leaves a connection behind; that is no reason for the service to end.
                std::thread::spawn(move || drop(service.serve(stream)));
            }
        });
        (service, url)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.0.lock().expect("no panic in the service")
    }

    /// What it does with the requests that come now, in this order.
    pub(crate) fn next(&self, next: &[Next]) {
        self.books().next.extend(next);
    }

    pub(crate) fn next_looks(&self, next: &[Look]) {
        self.books().next_looks.extend(next);
    }

    pub(crate) fn open_the_gate(&self) {
        self.books().gate_is_open = true;
        self.0.1.notify_all();
    }

    /// Every request to order something.
    pub(crate) fn posts(&self) -> Vec<Order> {
        self.books().posts.clone()
    }

    /// Every order that was carried out.
    pub(crate) fn acts(&self) -> Vec<Order> {
        self.books().acts.clone()
    }

    /// The key of every request that looked something up.
    pub(crate) fn looks(&self) -> Vec<String> {
        self.books().looks.clone()
    }

    /// What a person finds who looks the order up.
    pub(crate) fn slip(&self, what: &str) -> Option<String> {
        let books = self.books();
        let act = books.acts.iter().find(|act| act.what == what)?;
        books.slip(what, &act.key)
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let (line, key) = read_request(&mut stream)?;
        let mut path = line.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').split('/');
        let what = path.next().unwrap_or_default().to_owned();
        match (line.split(' ').next(), key) {
            (Some("GET"), _) => self.look_up(&mut stream, &what, path.next().unwrap_or_default()),
            (Some("POST"), Some(key)) => self.take_order(&mut stream, Order { what, key }),
            _ => answer(&mut stream, "400 Bad Request", &json!({})),
        }
    }

    fn look_up(&self, stream: &mut TcpStream, what: &str, key: &str) -> std::io::Result<()> {
        let (next, slip) = {
            let mut books = self.books();
            books.looks.push(key.to_owned());
            (books.next_looks.pop_front(), books.slip(what, key))
        };
        match (next, slip) {
            (Some(Look::Cut), _) => Ok(()),
            (Some(Look::Busy), _) => answer(stream, "503 Service Unavailable", &json!({})),
            (Some(Look::Nonsense), _) => answer(stream, "200 OK", &json!({ "slip": null })),
            (None, Some(slip)) => answer(stream, "200 OK", &json!({ "slip": slip })),
            (None, None) => answer(stream, "404 Not Found", &json!({})),
        }
    }

    fn take_order(&self, stream: &mut TcpStream, order: Order) -> std::io::Result<()> {
        let mut books = self.books();
        books.posts.push(order.clone());
        let next = books.next.pop_front();
        if next == Some(Next::Busy) {
            drop(books);
            return answer(stream, "503 Service Unavailable", &json!({}));
        }
        if next != Some(Next::Held) && !(books.knows_keys && books.acts.contains(&order)) {
            books.acts.push(order.clone());
        }
        let slip = books.slip(&order.what, &order.key);
        if next == Some(Next::Gated) {
            books = self.0.1.wait_while(books, |books| !books.gate_is_open).expect("no panic in the service");
        }
        drop(books);
        match next {
            Some(Next::Cut) => Ok(()),
            // Ends when the client is gone.
            Some(Next::Silent | Next::Held) => stream.read(&mut [0]).map(drop),
            _ => answer(stream, "200 OK", &json!({ "slip": slip })),
        }
    }
}

/// The first line of a request, and its idempotency key.
fn read_request(stream: &mut TcpStream) -> std::io::Result<(String, Option<String>)> {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length, mut key) = (String::new(), 0, None);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? <= "\r\n".len() {
            break;
        }
        match line.trim().split_once(": ") {
            Some(("Content-Length", value)) => length = value.parse().map_err(std::io::Error::other)?,
            Some(("Idempotency-Key", value)) => key = Some(value.to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((first, key))
}

fn answer(stream: &mut TcpStream, status: &str, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// An address where nobody listens any more.
pub(crate) fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

/// What a process said until it ended.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) code: i32,
    /// The last line.
    pub(crate) last: Value,
    pub(crate) text: String,
}

impl From<Output> for Told {
    fn from(output: Output) -> Self {
        let text = text(&output);
        let code = output.status.code().unwrap_or_else(|| panic!("it was killed: {text}"));
        let lines = String::from_utf8_lossy(&output.stdout);
        let last = lines.lines().last().map_or(Value::Null, |line| serde_json::from_str(line).expect("a line of JSON"));
        Self { code, last, text }
    }
}

pub(crate) const ORDER: &str = "1001";

/// An order: a store in a file, the service, and options that are those of each process.
pub(crate) struct Desk {
    dir: TempDir,
    pub(crate) service: Service,
    url: String,
    options: Vec<&'static str>,
}

impl Desk {
    pub(crate) fn new(knows_keys: bool, options: &[&'static str]) -> Self {
        let (service, url) = Service::open(knows_keys);
        Self { dir: tempfile::tempdir().expect("a folder"), service, url, options: options.to_vec() }
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.dir.path().join("courier.redb")
    }

    /// Options that come later count more.
    pub(crate) fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(example("courier"));
        command.arg(ORDER).arg("--store").arg(self.store()).args(["--service", &self.url]).args(&self.options).args(options);
        command
    }

    pub(crate) fn run(&self, options: &[&str]) -> Told {
        self.command(options).output().expect("the process runs").into()
    }

    /// Starts a process and kills it when that is so.
    #[track_caller]
    pub(crate) fn kill_when(&self, options: &[&str], holds: impl Fn(&Service) -> bool) {
        let mut process = Process::start(&mut self.command(options));
        wait_until(&mut process, || holds(&self.service));
        assert!(!process.has_ended(), "it ended before the kill: {}", process.complaint());
        process.kill();
    }

    /// Starts a process, with somebody at the keyboard, and kills it when it has said such a line. Gives the line.
    #[track_caller]
    pub(crate) fn kill_at_line(&self, options: &[&str], is_wanted: impl Fn(&Value) -> bool) -> Value {
        let mut process = Process::start_with_keyboard(&mut self.command(options));
        let lines = BufReader::new(process.stdout()).lines();
        let lines = lines.map(|line| serde_json::from_str(&line.expect("it is text")).expect("a line of JSON"));
        let Some(line) = { lines }.find(is_wanted) else { panic!("it ended before the kill: {}", process.complaint()) };
        assert!(!process.has_ended(), "it ended before the kill");
        process.kill();
        line
    }

    /// Starts a process, and types a line and nothing more when that is so.
    pub(crate) fn type_when(&self, line: &str, holds: impl Fn(&Service) -> bool) -> Told {
        let mut process = Process::start_with_keyboard(&mut self.command(&[]));
        wait_until(&mut process, || holds(&self.service));
        process.enter(line);
        process.output().into()
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        log_of(&self.store(), ORDER).into_iter().map(|entry| entry.record).collect()
    }
}
