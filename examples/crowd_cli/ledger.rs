//! The ledger: a file in which each line is one write to its end, so that a kill tears no more than the line it hits.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::line::Line;
use super::options::Halt;

/// How a line about an effect begins.
const PERFORMS: &str = "{\"performs\"";

/// Where the process writes down what it does, and where it learns that it is to stand still.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: File,
    halt: Option<Halt>,
    /// How often the place to stand still at was reached.
    reached: AtomicU64,
    /// Appends that the store has been given and has not acknowledged.
    in_flight: AtomicU64,
    /// Results of effects by their key, those of earlier processes included.
    performed: Mutex<HashMap<String, String>>,
}

impl Ledger {
    pub(crate) fn open(path: &Path, halt: Option<Halt>) -> io::Result<Self> {
        let mut performed = HashMap::new();
        let text = if path.exists() { std::fs::read_to_string(path)? } else { String::new() };
        for line in text.lines().filter(|line| line.starts_with(PERFORMS)) {
            // What is torn was not performed.
            if let Ok(Line::Performs { key, result, .. }) = serde_json::from_str(line) {
                performed.insert(key, result);
            }
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, halt, reached: AtomicU64::new(0), in_flight: AtomicU64::new(0), performed: Mutex::new(performed) })
    }

    pub(crate) fn write(&self, line: &Line) {
        let text = serde_json::to_string(line).expect("a line is JSON");
        // A line that was torn before ends where this one begins.
        (&self.file).write_all(format!("\n{text}\n").as_bytes()).expect("the ledger can be written");
    }

    /// Performs an effect.
    pub(crate) fn perform(&self, line: Line) {
        self.write(&line);
        if let Line::Performs { key, result, repeatable, .. } = line {
            self.performed.lock().unwrap_or_else(PoisonError::into_inner).insert(key, result);
            self.comes_to(if repeatable { "repeatable" } else { "effect" });
        }
    }

    /// What came of an effect, if it was performed.
    pub(crate) fn result_of(&self, key: &str) -> Option<String> {
        self.performed.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(crate) fn gives(&self, line: &Line) {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        self.write(line);
    }

    pub(crate) fn keeps(&self, line: &Line) {
        self.write(line);
        self.takes_back();
    }

    /// The store has handed an append back.
    pub(crate) fn takes_back(&self) {
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether what is written to the disk is about more than one thread, or soon will be.
    pub(crate) fn is_shared(&self) -> bool {
        self.in_flight.load(Ordering::SeqCst) >= 2
    }

    /// The process comes to a place of that name, and stands still there if it is to: this thread of it, until somebody kills it.
    pub(crate) fn comes_to(&self, place: &str) {
        let Some(halt) = self.halt.as_ref().filter(|halt| halt.place == place) else { return };
        if self.reached.fetch_add(1, Ordering::SeqCst) + 1 == halt.nth {
            println!("halted");
            loop {
                std::thread::park();
            }
        }
    }
}
