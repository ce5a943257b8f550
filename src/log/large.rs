//! Values that are too large for a record: they are kept outside as artifacts, and the record refers to them by their content.

use serde_json::{Map, Value, json};

/// The key of a reference. A value of the user's that holds it is made an artifact itself, whatever its size, so that the two are never mixed up.
const KEY: &str = "\u{0}artifact";

/// A value outside the log.
#[derive(Debug)]
pub(crate) struct Artifact {
    /// The BLAKE3 hash of `bytes`, in hexadecimal.
    pub(crate) hash: String,
    /// The value as JSON.
    pub(crate) bytes: Vec<u8>,
}

/// Collects the artifacts of an append.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    above: Option<usize>,
    pub(crate) taken: Vec<Artifact>,
}

impl Shelf {
    /// Takes nothing: everything stays in its record.
    pub(crate) fn closed() -> Self {
        Self::default()
    }

    /// Takes values of more than `above` bytes.
    pub(crate) fn above(above: usize) -> Self {
        Self { above: Some(above), taken: Vec::new() }
    }

    /// Bytes of what was taken so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.taken.iter().map(|artifact| artifact.bytes.len() as u64).sum()
    }

    pub(crate) fn is_outsized(&self, bytes: usize) -> bool {
        self.above.is_some_and(|above| bytes > above)
    }

    /// The value with references in place of its large parts; nothing if there is no such part.
    pub(crate) fn take(&mut self, mut value: Value) -> Option<Value> {
        let before = self.taken.len();
        self.above.map(|above| self.lighten(&mut value, above))?;
        (self.taken.len() > before).then_some(value)
    }

    /// Puts the large parts of a value on the shelf, the innermost first. Gives the bytes that are left of it.
    fn lighten(&mut self, value: &mut Value, above: usize) -> usize {
        let (bytes, must_go) = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => return 8,
            Value::String(text) => (text.len() + 2, false),
            Value::Array(items) => (items.iter_mut().map(|item| self.lighten(item, above) + 1).sum(), false),
            Value::Object(fields) => {
                let must_go = fields.contains_key(KEY);
                (fields.iter_mut().map(|(key, field)| key.len() + 4 + self.lighten(field, above)).sum(), must_go)
            }
        };
        if bytes <= above && !must_go {
            return bytes;
        }
        let bytes = value.to_string().into_bytes();
        let hash = hash_of(&bytes);
        *value = json!({ KEY: hash });
        self.taken.push(Artifact { hash, bytes });
        KEY.len() + 64
    }
}

/// The name of an artifact with this content.
pub(crate) fn hash_of(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// An artifact that cannot be had.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) hash: String,
    pub(crate) why: String,
}

/// Where artifacts are.
pub(crate) trait Fetch {
    /// The bytes of an artifact, or why they cannot be had.
    fn fetch(&mut self, hash: &str) -> Result<Vec<u8>, String>;
}

/// Counts the bytes of the artifacts that are read.
pub(crate) struct Counted<'f> {
    pub(crate) fetch: &'f mut dyn Fetch,
    pub(crate) bytes: u64,
}

impl Fetch for Counted<'_> {
    fn fetch(&mut self, hash: &str) -> Result<Vec<u8>, String> {
        let bytes = self.fetch.fetch(hash)?;
        self.bytes += bytes.len() as u64;
        Ok(bytes)
    }
}

/// For a store without artifacts.
pub(crate) struct NoArtifacts;

impl Fetch for NoArtifacts {
    fn fetch(&mut self, _: &str) -> Result<Vec<u8>, String> {
        Err("but this store was opened without a place for artifacts".to_owned())
    }
}

/// The value with its large parts back in place. The content of each is checked against its hash.
pub(crate) fn resolve(value: Value, fetch: &mut dyn Fetch) -> Result<Value, Missing> {
    Ok(match value {
        Value::Array(items) => Value::Array(items.into_iter().map(|item| resolve(item, fetch)).collect::<Result<_, _>>()?),
        Value::Object(fields) => match reference(&fields) {
            Some(hash) => get(hash, fetch)?,
            None => {
                let fields = fields.into_iter().map(|(key, field)| Ok((key, resolve(field, fetch)?)));
                Value::Object(fields.collect::<Result<Map<_, _>, Missing>>()?)
            }
        },
        plain => plain,
    })
}

fn reference(fields: &Map<String, Value>) -> Option<&str> {
    fields.get(KEY).filter(|_| fields.len() == 1)?.as_str()
}

fn get(hash: &str, fetch: &mut dyn Fetch) -> Result<Value, Missing> {
    let missing = |why: String| Missing { hash: hash.to_owned(), why };
    let bytes = fetch.fetch(hash).map_err(missing)?;
    if hash_of(&bytes) != hash {
        return Err(missing("whose content is not what was stored".to_owned()));
    }
    let value: Value = serde_json::from_slice(&bytes).map_err(|e| missing(format!("which cannot be read: {e}")))?;
    // What is left in it are its own parts, and a value of the user's that looks like a reference.
    inner(value, fetch)
}

/// The parts of an artifact. At its top a map with the key is the user's own.
fn inner(value: Value, fetch: &mut dyn Fetch) -> Result<Value, Missing> {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, field)| Ok((key, resolve(field, fetch)?)));
            Ok(Value::Object(fields.collect::<Result<Map<_, _>, Missing>>()?))
        }
        other => resolve(other, fetch),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    struct Kept(HashMap<String, Vec<u8>>);

    impl Fetch for Kept {
        fn fetch(&mut self, hash: &str) -> Result<Vec<u8>, String> {
            self.0.get(hash).cloned().ok_or_else(|| "which is not there".to_owned())
        }
    }

    fn there_and_back(value: &Value, above: usize) -> (usize, Value) {
        let mut shelf = Shelf::above(above);
        let lighter = shelf.take(value.clone()).unwrap_or_else(|| value.clone());
        let kept = shelf.taken.into_iter().map(|artifact| (artifact.hash, artifact.bytes)).collect::<HashMap<_, _>>();
        let count = kept.len();
        (count, resolve(lighter, &mut Kept(kept)).expect("all are there"))
    }

    #[test]
    fn large_parts_go_out_and_come_back() {
        let text = "x".repeat(400);
        let value = json!({ "a": text, "b": [text, "small", { "c": [1, 2, text] }], "d": 1.5 });
        assert_eq!(there_and_back(&value, 300), (1, value.clone()), "one content, one artifact");
        assert_eq!(there_and_back(&value, 2_000), (0, value.clone()));
        let numbers = json!({ "n": (0..90).collect::<Vec<u32>>(), "m": (0..3).collect::<Vec<u32>>() });
        assert_eq!(there_and_back(&numbers, 300), (1, numbers.clone()), "a long list of small values");
        let nested = json!([[text, (0..90).collect::<Vec<u32>>()], (0..99).collect::<Vec<u32>>()]);
        assert_eq!(there_and_back(&nested, 300).1, nested, "an artifact in an artifact");
    }

    #[test]
    fn a_value_that_looks_like_a_reference_stays_what_it_is() {
        let text = "x".repeat(300);
        for value in [
            json!({ KEY: hash_of(b"x"), "t": text }),
            json!({ "t": text, "v": { KEY: hash_of(b"x") } }),
            json!([{ KEY: { KEY: text } }, text]),
            json!([{ KEY: 5 }, text]),
        ] {
            assert_eq!(there_and_back(&value, 200).1, value);
        }
    }

    #[test]
    fn another_content_is_an_error() {
        let mut shelf = Shelf::above(10);
        let lighter = shelf.take(json!(["x".repeat(300)])).expect("it is large");
        let kept = shelf.taken.iter().map(|a| (a.hash.clone(), b"\"y\"".to_vec())).collect();
        let missing = resolve(lighter, &mut Kept(kept)).expect_err("it is another one");
        assert!(missing.why.contains("not what was stored"), "{}", missing.why);
    }
}
