//! Everything that is logged, as text.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[derive(Clone, Debug, Default)]
pub(crate) struct Logs(Arc<Mutex<String>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        _ = write!(self.0, " {field}={value:?}");
    }
}

impl Logs {
    /// Everything that is logged on this thread while the guard lives.
    pub(crate) fn begin() -> (Self, tracing::subscriber::DefaultGuard) {
        let logs = Self::default();
        (logs.clone(), tracing::subscriber::set_default(logs))
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    fn add(&self, what: &Metadata<'_>, record: impl FnOnce(&mut Line)) {
        let mut line = Line(format!("{} {}", what.level(), what.name()));
        record(&mut line);
        _ = writeln!(self.0.lock().unwrap(), "{}", line.0);
    }
}

impl Subscriber for Logs {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.add(span.metadata(), |line| span.record(line));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.add(event.metadata(), |line| event.record(line));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
