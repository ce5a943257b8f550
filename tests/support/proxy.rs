//! Stands between a client and a model server on loopback, keeps a log of the requests, and can stop in the middle of a stream.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// A request, and how much of the answer the client got.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    pub(crate) body: Value,
    /// Bytes of the answer that went to the client.
    pub(crate) bytes: usize,
    pub(crate) is_whole: bool,
}

impl Passed {
    pub(crate) fn streams(&self) -> bool {
        self.body["stream"] == true
    }

    pub(crate) fn has_schema(&self) -> bool {
        !self.body["response_format"].is_null()
    }
}

pub(crate) struct Proxy {
    pub(crate) url: String,
    log: Arc<Mutex<Vec<Passed>>>,
    holds: Arc<AtomicBool>,
}

impl Proxy {
    /// In front of the server at that port.
    pub(crate) fn start(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let (log, holds): (Arc<Mutex<Vec<Passed>>>, Arc<AtomicBool>) = Default::default();
        let (kept, stops) = (Arc::clone(&log), Arc::clone(&holds));
        // The threads end with the test process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (kept, stops) = (Arc::clone(&kept), Arc::clone(&stops));
                std::thread::spawn(move || pass(client, port, &kept, &stops).ok());
            }
        });
        Self { url, log, holds }
    }

    pub(crate) fn log(&self) -> Vec<Passed> {
        lock(&self.log).clone()
    }

    /// Whether streams stop after their first bytes, until the client is gone.
    pub(crate) fn hold_streams(&self, holds: bool) {
        self.holds.store(holds, Ordering::SeqCst);
    }
}

fn lock(log: &Mutex<Vec<Passed>>) -> std::sync::MutexGuard<'_, Vec<Passed>> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request for each connection: the client is told to close.
fn pass(mut client: TcpStream, port: u16, log: &Mutex<Vec<Passed>>, holds: &AtomicBool) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let lower = line.trim_end().to_ascii_lowercase();
        if lower.is_empty() {
            break;
        }
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if !lower.starts_with("connection:") {
            head += &line;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request = Passed { body: serde_json::from_slice(&body).unwrap_or_default(), bytes: 0, is_whole: false };
    let (stops, place) = (request.streams() && holds.load(Ordering::SeqCst), {
        let mut log = lock(log);
        log.push(request);
        log.len() - 1
    });
    let mut server = TcpStream::connect(("127.0.0.1", port))?;
    server.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
    server.write_all(&body)?;
    let mut part = [0; 4096];
    loop {
        let read = server.read(&mut part)?;
        if read == 0 {
            lock(log)[place].is_whole = true;
            return Ok(());
        }
        client.write_all(&part[..read])?;
        lock(log)[place].bytes += read;
        if stops && String::from_utf8_lossy(&part[..read]).contains("data:") {
            // Ends when the client is killed and its side of the connection closes.
            let _ = reader.read(&mut [0; 1]);
            return Ok(());
        }
    }
}
