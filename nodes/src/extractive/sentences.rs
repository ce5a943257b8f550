//! Text to sentences, in any language, plain or Markdown.

use super::features::is_unspaced;

/// From here on a sentence may end at a comma or a space, and further on it ends anywhere, in bytes: what has no sentence marks (Thai,
/// logs, base64) still comes in pieces that can be chosen.
const SOFT_BYTES_MAX: usize = 400;
const HARD_BYTES_MAX: usize = 600;

/// Lines in this range of characters may have been wrapped by an editor; others end where their author wanted.
const WRAPPED_CHARS: std::ops::RangeInclusive<usize> = 45..=130;

const ABBREVIATIONS: &[&str] = &[
    "abs", "al", "approx", "art", "bzw", "ca", "cf", "co", "corp", "dept", "dr", "etc", "evtl", "fig", "ggf", "hr", "inc", "jr",
    "kap", "ltd", "max", "min", "mio", "mr", "mrd", "mrs", "ms", "no", "nr", "prof", "resp", "sog", "sr", "st", "str", "tel",
    "usw", "vgl", "vol", "vs",
];

/// German writes dates as `3. Mai`, and starts every noun with a capital, so that only the names tell them from an end.
const MONTHS: &[&str] = &["Jan", "Feb", "März", "Apr", "Mai", "Jun", "Jul", "Aug", "Sep", "Okt", "Nov", "Dez", "Jahrhundert"];

#[derive(Debug)]
pub(super) struct Sentence {
    pub(super) text: String,
    /// Sentences with the same number stand in one paragraph.
    pub(super) paragraph: usize,
}

/// The sentences of a text, without code blocks, table rows, headings, rules and lines that are a single tag.
pub(super) fn sentences(text: &str) -> Vec<Sentence> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Splitter::default();
    let mut at = 0;
    while let Some(&line) = lines.get(at) {
        at += 1;
        match kind(line) {
            // A fence that is never closed is taken as a stray line: the text may have been cut inside a block.
            Line::Fence(mark) => {
                found.end_paragraph();
                at = lines[at..].iter().position(|line| line.starts_with(mark)).map_or(at, |closing| at + closing + 1);
            }
            Line::Other => found.end_paragraph(),
            Line::Item(content) => {
                found.end_paragraph();
                found.line(content);
            }
            Line::Text(content) => found.line(content),
        }
    }
    found.end_paragraph();
    found.sentences
}

/// Every line as it is, for a text that has nothing but what [`sentences`] leaves out.
pub(super) fn raw_lines(text: &str) -> Vec<Sentence> {
    let mut found = Splitter::default();
    for line in text.lines().map(str::trim).filter(|line| line.chars().any(char::is_alphanumeric)) {
        found.line(line);
        found.end_paragraph();
    }
    found.sentences
}

enum Line<'t> {
    Fence(&'static str),
    Item(&'t str),
    Text(&'t str),
    /// Blank, or structure that says nothing as a sentence.
    Other,
}

fn kind(line: &str) -> Line<'_> {
    if let Some(mark) = ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark)) {
        return Line::Fence(mark);
    }
    let is_heading = line.starts_with('#') && line.trim_start_matches('#').starts_with([' ', '\t']);
    let is_row = line.starts_with('|') && line[1..].contains('|');
    let is_tag = line.starts_with('<') && line.ends_with('>') && !line.contains(char::is_whitespace);
    if is_heading || is_row || is_tag || !line.chars().any(char::is_alphanumeric) {
        return Line::Other;
    }
    let quoted = line.trim_start_matches(['>', ' ']);
    match item(quoted) {
        Some(content) => Line::Item(content),
        None => Line::Text(quoted),
    }
}

/// What follows the mark of a list item.
fn item(line: &str) -> Option<&str> {
    if let Some(content) = ["- ", "* ", "+ ", "• ", "· "].into_iter().find_map(|mark| line.strip_prefix(mark)) {
        return Some(content.trim_start());
    }
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_number = (1..=3).contains(&(line.len() - rest.len()));
    rest.strip_prefix(['.', ')', '、'])
        .filter(|rest| is_number && rest.starts_with(' ') || rest.starts_with("、"))
        .map(str::trim_start)
}

#[derive(Default)]
struct Splitter {
    sentences: Vec<Sentence>,
    paragraph: usize,
    pending: String,
    last_line_chars: usize,
}

impl Splitter {
    fn line(&mut self, line: &str) {
        if !self.pending.is_empty() {
            if self.is_wrapped(line) {
                self.pending.push(' ');
            } else {
                self.end_line();
            }
        }
        self.pending.push_str(line);
        self.last_line_chars = line.chars().count();
    }

    /// Whether the line goes on with the sentence before it.
    fn is_wrapped(&self, line: &str) -> bool {
        let goes_on = line.starts_with(|c: char| c.is_alphabetic() && !is_unspaced(c));
        let is_open = !self.pending.ends_with(|c: char| ".!?…:。！？".contains(c) || is_unspaced(c));
        goes_on && is_open && WRAPPED_CHARS.contains(&self.last_line_chars)
    }

    fn end_line(&mut self) {
        let text = std::mem::take(&mut self.pending);
        for part in split(&text) {
            self.sentences.push(Sentence { text: part.to_owned(), paragraph: self.paragraph });
        }
    }

    fn end_paragraph(&mut self) {
        self.end_line();
        self.paragraph += 1;
    }
}

/// The sentences of one paragraph that stands on one line.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while let Some(c) = text[at..].chars().next() {
        let after = at + c.len_utf8();
        let end = sentence_end(text, start, at, c).or_else(|| length_end(start, after, c));
        at = end.unwrap_or(after);
        if end.is_some() {
            parts.push(text[start..at].trim());
            start = at;
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| part.chars().any(char::is_alphanumeric));
    parts
}

/// The end of the sentence if the mark at `at` ends it, with the marks and quotes that follow.
fn sentence_end(text: &str, start: usize, at: usize, mark: char) -> Option<usize> {
    let is_full_width = "。！？｡।॥؟۔።".contains(mark);
    if !is_full_width && !".!?…".contains(mark) {
        return None;
    }
    let rest = text[at..].trim_start_matches(|c: char| ".!?…。！？｡।॥؟۔።\"'”’»)]）」』】》".contains(c));
    let end = text.len() - rest.len();
    let is_followed = |is: &dyn Fn(char) -> bool| rest.chars().next().is_none_or(is);
    if is_full_width {
        return Some(end);
    }
    if !is_followed(&|c| c.is_whitespace() || is_unspaced(c)) {
        return None;
    }
    let goes_on = rest.trim_start().starts_with(char::is_lowercase);
    let is_open = matches!(mark, '.' | '…') && goes_on || mark == '.' && end == at + 1 && is_abbreviation(&text[start..at], rest);
    (!is_open || rest.is_empty()).then_some(end)
}

/// Whether the full stop after this text belongs to its last word: `Dr.`, `z. B.`, `am 3. Mai`.
fn is_abbreviation(before: &str, rest: &str) -> bool {
    let word = before.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    if word.chars().all(|c| c.is_ascii_digit()) {
        let next = rest.trim_start();
        return word.len() <= 2 && MONTHS.iter().any(|month| next.starts_with(month));
    }
    let mut letters = word.chars();
    let is_initial = letters.next().is_some_and(|c| c.is_alphabetic() && !is_unspaced(c) && c != 'I') && letters.next().is_none();
    is_initial || ABBREVIATIONS.contains(&word.to_lowercase().as_str())
}

fn length_end(start: usize, after: usize, c: char) -> Option<usize> {
    let bytes = after - start;
    let may_end = c.is_whitespace() || ",;，、；".contains(c);
    (bytes >= HARD_BYTES_MAX || bytes >= SOFT_BYTES_MAX && may_end).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        sentences(text).into_iter().map(|sentence| sentence.text).collect()
    }

    #[test]
    fn sentences_of_many_languages() {
        let cases: &[(&str, &[&str])] = &[
            ("One is here. Two is there! Is three?", &["One is here.", "Two is there!", "Is three?"]),
            (
                "Pi is 3.14 here. See e.g. the log of Dr. Ada B. Long.",
                &["Pi is 3.14 here.", "See e.g. the log of Dr. Ada B. Long."],
            ),
            ("Am 3. Mai kam z. B. Frau Grün. Sie blieb.", &["Am 3. Mai kam z. B. Frau Grün.", "Sie blieb."]),
            ("It costs 42. The cook paid. Version 1.2 came.", &["It costs 42.", "The cook paid.", "Version 1.2 came."]),
            ("She said \"Stop!\" Then it stopped.", &["She said \"Stop!\"", "Then it stopped."]),
            ("Wait... what? See https://a.example/x.y now.", &["Wait... what?", "See https://a.example/x.y now."]),
            ("天气很好。你说“走吧！”我们走了。", &["天气很好。", "你说“走吧！”", "我们走了。"]),
            ("नमस्ते दुनिया। यह दूसरा है।", &["नमस्ते दुनिया।", "यह दूसरा है।"]),
            ("First line\nSecond line", &["First line", "Second line"]),
            ("- one item\n- two items\n3. three items", &["one item", "two items", "three items"]),
        ];
        for (text, expected) in cases {
            assert_eq!(texts(text), *expected, "{text}");
        }
    }

    #[test]
    fn markdown_is_not_taken_for_sentences() {
        let text = "# A heading\n\nBody text.\n\n```rust\nlet x = 1;\n```\n| a | b |\n|---|---|\n---\n<new>\n> Quoted text.\n";
        assert_eq!(texts(text), ["Body text.", "Quoted text."]);
        assert_eq!(texts("Before.\n```\nnever closed"), ["Before.", "never closed"]);
    }

    #[test]
    fn wrapped_lines_are_one_sentence() {
        let text = "This sentence was wrapped by an editor at some column\nthat nobody remembers. Next.";
        assert_eq!(texts(text), ["This sentence was wrapped by an editor at some column that nobody remembers.", "Next."]);
    }

    #[test]
    fn sentences_have_a_bound() {
        for text in ["x".repeat(5_000), "ab, ".repeat(2_000), "ตัวแทน".repeat(500), "节".repeat(2_000)] {
            let found = texts(&text);
            assert!(found.iter().all(|part| part.len() < HARD_BYTES_MAX + 4), "{text:.20}");
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
            assert_eq!(found.iter().map(|part| letters(part)).sum::<usize>(), letters(&text), "{text:.20}");
        }
    }
}
