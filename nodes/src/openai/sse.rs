//! Server-sent events, from bytes as they come.
//!
//! Of our own, since what there is panics at a byte-order mark or loses an event that no empty line follows.

/// One event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// Its type; empty if the server named none.
    pub(super) kind: String,
    pub(super) data: String,
}

/// Takes bytes apart into events, however they are cut.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    /// The last byte was a carriage return: a line feed behind it ends no other line.
    after_return: bool,
    begun: bool,
}

impl Events {
    /// Takes in bytes, and gives the events that are complete with them.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' if self.after_return => self.after_return = false,
                b'\n' | b'\r' => {
                    self.after_return = *byte == b'\r';
                    events.extend(self.end_line());
                }
                byte => {
                    self.after_return = false;
                    self.line.push(*byte);
                }
            }
        }
        events
    }

    /// What is left when the stream has ended: servers forget the last empty line.
    pub(super) fn finish(mut self) -> Option<Event> {
        let last = self.end_line();
        last.or_else(|| self.end_line())
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        let line = if self.begun { &*line } else { line.trim_start_matches('\u{feff}') };
        self.begun = true;
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.kind),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // A comment, or a field that says nothing here.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8], step: usize) -> Vec<(String, String)> {
        let mut events = Events::default();
        let mut seen: Vec<Event> = text.chunks(step).flat_map(|part| events.push(part)).collect();
        seen.extend(events.finish());
        seen.into_iter().map(|event| (event.kind, event.data)).collect()
    }

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let text = "\u{feff}: hi\r\n\r\ndata: 气\r\ndata:b\r\n\r\nevent: error\rid: 7\rretry: 3\rdata: {}\r\r:\ndata: \n\ndata\n\nx\n\ndata: last".as_bytes();
        let event = |kind: &str, data: &str| (kind.to_owned(), data.to_owned());
        let expected = [event("", "气\nb"), event("error", "{}"), event("", ""), event("", ""), event("", "last")];
        for step in [1, 2, 3, 7, text.len()] {
            assert_eq!(all(text, step), expected, "{step}");
        }
        assert_eq!(all(b"data: a\n", 3), [event("", "a")], "an end without an empty line");
        assert!(all(b"", 1).is_empty() && all(b"event: x\n\n", 1).is_empty());
    }
}
