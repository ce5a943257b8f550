//! The example `refund` as people run it: real processes, a bank that can be slow, silent or away, and SIGKILL.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

/// Long enough for any machine; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

static REFUND: LazyLock<PathBuf> = LazyLock::new(|| {
    let built = Command::new(env!("CARGO")).args(["build", "--quiet", "--example", "refund"]).status().expect("cargo runs");
    assert!(built.success(), "the example does not build");
    let this = std::env::current_exe().expect("a test has a path");
    let target = this.ancestors().nth(2).expect("a test lies in target/*/deps");
    target.join("examples").join(format!("refund{}", std::env::consts::EXE_SUFFIX))
});

#[test]
fn an_approved_refund_is_paid_once() {
    let desk = Desk::new();
    desk.refund("1001", &["--delay-ms", "2"]).exits(3).says("42.00 for order 1001");
    desk.refund("1001", &["--delay-ms", "2", "--answer", "approve"]).exits(0).says("refunded 42.00");
    desk.refund("1001", &["--delay-ms", "2", "--answer", "approve"]).exits(0).says("refunded 42.00");
    assert_eq!(desk.ledger().len(), 1, "{:?}", desk.ledger());
    assert!(desk.ledger()[0].starts_with("1001 4200 "));
}

#[test]
fn a_correction_pays_less_and_never_more() {
    let desk = Desk::new();
    desk.refund("1001", &["--answer", "amount=4201"]).exits(1).complains("\"maximum\":4200");
    desk.refund("1001", &["--answer", "amount=0"]).exits(1).complains("\"maximum\":4200");
    desk.refund("1001", &["--answer", "amount=4000"]).exits(0).says("refunded 40.00");
    assert!(desk.ledger()[0].starts_with("1001 4000 "));
}

#[test]
fn a_rejected_refund_is_not_paid() {
    let desk = Desk::new();
    desk.refund("1001", &["--answer", "reject"]).exits(0).says("not refunded");
    desk.refund("1001", &["--answer", "approve"]).exits(0).says("not refunded");
    assert!(desk.ledger().is_empty());
}

#[test]
fn an_unknown_order_is_told() {
    let desk = Desk::new();
    desk.refund("9", &["--answer", "approve"]).exits(1).complains("there is no order 9");
    assert!(desk.ledger().is_empty());
}

#[test]
fn over_the_limit_nobody_is_asked() {
    let desk = Desk::new();
    desk.refund("1002", &["--answer", "approve"]).exits(0).says("more than the limit of 500.00");
    desk.refund("1001", &["--limit", "4199"]).exits(0).says("more than the limit of 41.99");
    desk.refund("1003", &["--limit", "19950"]).exits(3).says("199.50");
    assert!(desk.ledger().is_empty());
}

#[test]
fn a_wrong_command_is_told() {
    let desk = Desk::new();
    desk.refund("10/01", &[]).exits(2).complains("no order number");
    desk.refund("1001", &["--limit", "much"]).exits(2).complains("no whole number");
    desk.refund("1001", &["--limit"]).exits(2).complains("needs a value");
    desk.refund("1001", &["--colour", "red"]).exits(2).complains("no option --colour");
    desk.refund("1001", &["--service", "ftp://nowhere"]).exits(1).complains("http://HOST:PORT");
    desk.refund("1001", &["--answer", "perhaps"]).exits(1).complains("approve, reject");
}

#[test]
fn a_kill_after_the_payment_leaves_a_doubt_and_pays_nothing_twice() {
    let (desk, bank) = (Desk::new(), Bank::open());
    desk.is_killed_while_the_bank_is_silent(&bank);
    let key = bank.only_key();
    desk.refund("1001", &["--service", &bank.url]).exits(4).says(&key);
    desk.refund("1001", &["--service", &bank.url, "--answer", "approve"]).exits(1).complains("performed=RECEIPT");
    desk.refund("1001", &["--service", &bank.url, "--answer", "performed=R-0"]).exits(0).says("receipt R-0");
    desk.refund("1001", &["--service", &bank.url]).exits(0).says("receipt R-0");
    assert_eq!(bank.only_key(), key);
    assert!(bank.requests.try_recv().is_err(), "the bank was asked to pay again");
}

#[test]
fn a_person_who_is_wrong_is_saved_by_the_key() {
    let (desk, bank) = (Desk::new(), Bank::open());
    desk.is_killed_while_the_bank_is_silent(&bank);
    let key = bank.only_key();
    desk.refund("1001", &["--service", &bank.url, "--answer", "not-performed"]).exits(0).says("receipt R-0");
    assert_eq!(bank.requests.try_recv().as_ref(), Ok(&key), "the same key is sent again");
    assert_eq!(bank.only_key(), key);
}

#[test]
fn a_bank_that_is_away_is_no_doubt_and_asks_nobody_again() {
    let (desk, bank) = (Desk::new(), Bank::open());
    let away = format!("http://{}", free_address());
    desk.refund("1001", &["--service", &bank.url]).exits(3);
    desk.refund("1001", &["--service", &away, "--answer", "approve"]).exits(1).complains("cannot reach the service");
    desk.refund("1001", &["--service", &away]).exits(1).complains("cannot reach the service");
    desk.refund("1001", &["--service", &bank.url]).exits(0).says("receipt R-0").does_not_ask();
    bank.only_key();
}

/// A folder with a store and a ledger.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn command(&self, order: &str, options: &[&str]) -> Command {
        let mut command = Command::new(&*REFUND);
        command.arg(order).arg("--store").arg(self.0.path().join("store.redb")).arg("--ledger").arg(self.0.path().join("ledger"));
        command.args(options).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn refund(&self, order: &str, options: &[&str]) -> Told {
        Told(self.command(order, options).output().expect("the example runs"))
    }

    fn ledger(&self) -> Vec<String> {
        lines(&self.0.path().join("ledger"))
    }

    /// Returns when the refund is performed, its answer is not sent, and the process is dead.
    fn is_killed_while_the_bank_is_silent(&self, bank: &Bank) {
        bank.silent.store(true, Ordering::SeqCst);
        let mut child = self.command("1001", &["--service", &bank.url, "--answer", "approve"]).spawn().expect("the example runs");
        bank.requests.recv_timeout(PATIENCE).expect("the bank is asked to pay");
        child.kill().expect("it still waits for the bank");
        assert_eq!(child.wait().expect("it ends").code(), None, "it ended before the kill");
        bank.silent.store(false, Ordering::SeqCst);
    }
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

struct Told(Output);

impl Told {
    #[track_caller]
    fn exits(self, code: i32) -> Self {
        assert_eq!(self.0.status.code(), Some(code), "{self:?}");
        self
    }

    #[track_caller]
    fn says(self, text: &str) -> Self {
        assert!(String::from_utf8_lossy(&self.0.stdout).contains(text), "{text:?} is not said: {self:?}");
        self
    }

    #[track_caller]
    fn complains(self, text: &str) -> Self {
        assert!(String::from_utf8_lossy(&self.0.stderr).contains(text), "{text:?} is not said: {self:?}");
        self
    }

    #[track_caller]
    fn does_not_ask(self) -> Self {
        assert!(!String::from_utf8_lossy(&self.0.stdout).contains("answers:"), "it asks: {self:?}");
        self
    }
}

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (stdout, stderr) = (String::from_utf8_lossy(&self.0.stdout), String::from_utf8_lossy(&self.0.stderr));
        write!(f, "{}\n{stdout}{stderr}", self.0.status)
    }
}

/// Orders and bank in this process: what the killed one asked for stays done. It pays first and answers then, unless it is silent.
struct Bank {
    url: String,
    silent: Arc<AtomicBool>,
    receipts: Receipts,
    /// The key of each request to pay, once it was performed.
    requests: Receiver<String>,
}

type Receipts = Arc<Mutex<BTreeMap<String, String>>>;

impl Bank {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let (silent, receipts) = (Arc::new(AtomicBool::new(false)), Receipts::default());
        let (told, requests) = mpsc::channel();
        let (quiet, paid) = (silent.clone(), receipts.clone());
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for mut stream in listener.incoming().flatten() {
                // A process that was killed leaves a connection behind; that is no reason for the bank to end.
                let Ok((body, key)) = serve(&mut stream, &paid) else { continue };
                let is_payment = key.is_some();
                key.map(|key| told.send(key));
                if is_payment && quiet.load(Ordering::SeqCst) {
                    kept.push(stream);
                } else {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    let _ = stream.write_all((head + &body).as_bytes());
                }
            }
        });
        Self { url, silent, receipts, requests }
    }

    #[track_caller]
    fn only_key(&self) -> String {
        let receipts = self.receipts.lock().expect("no panic in the bank");
        assert_eq!(receipts.len(), 1, "{receipts:?}");
        receipts.keys().next().expect("one key").clone()
    }
}

/// Does what one request wants. The answer, and the key if the request was one to pay.
fn serve(stream: &mut TcpStream, receipts: &Receipts) -> std::io::Result<(String, Option<String>)> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length, mut key) = (String::new(), 0, None);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? <= "\r\n".len() {
            break;
        }
        match line.trim().split_once(": ") {
            Some(("Content-Length", value)) => length = value.parse().expect("a length"),
            Some(("Idempotency-Key", value)) => key = Some(value.to_owned()),
            _ => {}
        }
        head.push_str(&line);
    }
    reader.take(length).read_to_end(&mut Vec::new())?;
    let Some(key) = key.filter(|_| head.starts_with("POST /refunds ")) else {
        return Ok((r#"{"amount_cents":4200}"#.to_owned(), None));
    };
    let mut receipts = receipts.lock().expect("no panic in the bank");
    let next = format!("R-{}", receipts.len());
    let receipt = receipts.entry(key.clone()).or_insert(next);
    Ok((format!(r#"{{"receipt":"{receipt}"}}"#), Some(key)))
}

/// An address where nobody listens any more.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}
