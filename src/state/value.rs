//! Turns any serializable value into JSON, and refuses what JSON would lose.
//!
//! `serde_json::to_value` saves NaN as null; a missing number that looks like "nothing" is the kind of wrong data the engine
//! exists to prevent, so the conversion is done here, with the path of what was refused.

use serde::ser::{self, Serialize};
use serde_json::{Map, Number, Value};

/// How deep lists and objects may be nested in one stored value.
pub const DEPTH_MAX: usize = 100;

/// A value that cannot be stored.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}{what}", path_prefix(.path))]
pub struct ValueError {
    path: String,
    what: String,
}

fn path_prefix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("`{path}`: ") }
}

impl ValueError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { path: String::new(), what: what.into() }
    }

    /// Where in the value, for example `scores[3]`.
    pub fn path(&self) -> &str {
        &self.path
    }

    fn at_index(self, index: usize) -> Self {
        self.under(&format!("[{index}]"))
    }

    pub(crate) fn at_field(self, field: &str) -> Self {
        self.under(field)
    }

    fn under(mut self, outer: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{outer}{dot}{}", self.path);
        self
    }
}

impl ser::Error for ValueError {
    fn custom<T: std::fmt::Display>(what: T) -> Self {
        Self::new(what.to_string())
    }
}

/// Converts, refusing floats that are not finite and nesting beyond [`DEPTH_MAX`].
pub fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, ValueError> {
    value.serialize(Checked { depth_left: DEPTH_MAX })
}

/// Whether a value that is JSON already keeps to [`DEPTH_MAX`]. Looks no deeper than that.
pub(crate) fn is_within_depth(value: &Value) -> bool {
    fn within(value: &Value, left: usize) -> bool {
        match value {
            Value::Array(items) => left > 0 && items.iter().all(|item| within(item, left - 1)),
            Value::Object(fields) => left > 0 && fields.values().all(|field| within(field, left - 1)),
            _ => true,
        }
    }
    within(value, DEPTH_MAX)
}

#[derive(Clone, Copy)]
struct Checked {
    depth_left: usize,
}

impl Checked {
    fn deeper(self) -> Result<Self, ValueError> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left }),
            None => Err(ValueError::new(format!("nested deeper than {DEPTH_MAX} levels; keep such data as text"))),
        }
    }

    fn list(self, len: Option<usize>, variant: Option<&'static str>) -> Result<List, ValueError> {
        Ok(List { inner: self.deeper()?, items: Vec::with_capacity(len.unwrap_or(0)), variant })
    }

    fn object(self, variant: Option<&'static str>) -> Result<Object, ValueError> {
        Ok(Object { inner: self.deeper()?, map: Map::new(), key: String::new(), variant })
    }
}

macro_rules! number {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(self, v: $type) -> Result<Value, ValueError> {
            Ok(Value::from(v))
        }
    )*};
}

impl ser::Serializer for Checked {
    type Ok = Value;
    type Error = ValueError;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = List;
    type SerializeMap = Object;
    type SerializeStruct = Object;
    type SerializeStructVariant = Object;

    number!(serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_u8: u8,
        serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_bool: bool, serialize_str: &str);

    fn serialize_i128(self, v: i128) -> Result<Value, ValueError> {
        Number::from_i128(v).map(Value::Number).ok_or_else(|| ValueError::new(format!("{v} is beyond 64 bits; keep it as text")))
    }

    fn serialize_u128(self, v: u128) -> Result<Value, ValueError> {
        Number::from_u128(v).map(Value::Number).ok_or_else(|| ValueError::new(format!("{v} is beyond 64 bits; keep it as text")))
    }

    fn serialize_f32(self, v: f32) -> Result<Value, ValueError> {
        self.serialize_f64(f64::from(v))
    }

    fn serialize_f64(self, v: f64) -> Result<Value, ValueError> {
        Number::from_f64(v)
            .map(Value::Number)
            .ok_or_else(|| ValueError::new(format!("{v} is no finite number; use an Option for a number that is not known")))
    }

    fn serialize_char(self, v: char) -> Result<Value, ValueError> {
        Ok(Value::String(v.to_string()))
    }

    fn serialize_bytes(self, v: &[u8]) -> Result<Value, ValueError> {
        Ok(Value::Array(v.iter().map(|b| Value::from(*b)).collect()))
    }

    fn serialize_none(self) -> Result<Value, ValueError> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, v: &T) -> Result<Value, ValueError> {
        v.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, ValueError> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, ValueError> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Value, ValueError> {
        Ok(Value::from(variant))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, v: &T) -> Result<Value, ValueError> {
        v.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        v: &T,
    ) -> Result<Value, ValueError> {
        let value = v.serialize(self.deeper()?).map_err(|e| e.at_field(variant))?;
        Ok(Value::Object(Map::from_iter([(variant.to_owned(), value)])))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<List, ValueError> {
        self.list(len, None)
    }

    fn serialize_tuple(self, len: usize) -> Result<List, ValueError> {
        self.list(Some(len), None)
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<List, ValueError> {
        self.list(Some(len), None)
    }

    fn serialize_tuple_variant(self, _: &'static str, _: u32, variant: &'static str, len: usize) -> Result<List, ValueError> {
        self.list(Some(len), Some(variant))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Object, ValueError> {
        self.object(None)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Object, ValueError> {
        self.object(None)
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, variant: &'static str, _: usize) -> Result<Object, ValueError> {
        self.object(Some(variant))
    }
}

fn wrap(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        Some(variant) => Value::Object(Map::from_iter([(variant.to_owned(), value)])),
        None => value,
    }
}

struct List {
    inner: Checked,
    items: Vec<Value>,
    variant: Option<&'static str>,
}

impl List {
    fn push<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), ValueError> {
        let value = v.serialize(self.inner).map_err(|e| e.at_index(self.items.len()))?;
        self.items.push(value);
        Ok(())
    }

    fn finish(self) -> Value {
        wrap(self.variant, Value::Array(self.items))
    }
}

macro_rules! list {
    ($($trait:ident $method:ident),*) => {$(
        impl ser::$trait for List {
            type Ok = Value;
            type Error = ValueError;
            fn $method<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), ValueError> {
                self.push(v)
            }
            fn end(self) -> Result<Value, ValueError> {
                Ok(self.finish())
            }
        }
    )*};
}
list!(SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field, SerializeTupleVariant serialize_field);

struct Object {
    inner: Checked,
    map: Map<String, Value>,
    key: String,
    variant: Option<&'static str>,
}

impl Object {
    fn put<T: Serialize + ?Sized>(&mut self, key: String, v: &T) -> Result<(), ValueError> {
        let value = v.serialize(self.inner).map_err(|e| e.at_field(&key))?;
        self.map.insert(key, value);
        Ok(())
    }
}

impl ser::SerializeMap for Object {
    type Ok = Value;
    type Error = ValueError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), ValueError> {
        self.key = match key.serialize(self.inner)? {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            other => return Err(ValueError::new(format!("{other} cannot be the key of a map; use text or a number"))),
        };
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), ValueError> {
        let key = std::mem::take(&mut self.key);
        self.put(key, v)
    }

    fn end(self) -> Result<Value, ValueError> {
        Ok(wrap(self.variant, Value::Object(self.map)))
    }
}

macro_rules! object {
    ($($trait:ident),*) => {$(
        impl ser::$trait for Object {
            type Ok = Value;
            type Error = ValueError;
            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, v: &T) -> Result<(), ValueError> {
                self.put(key.to_owned(), v)
            }
            fn end(self) -> Result<Value, ValueError> {
                Ok(wrap(self.variant, Value::Object(self.map)))
            }
        }
    )*};
}
object!(SerializeStruct, SerializeStructVariant);

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;
    use serde_json::json;

    #[derive(Serialize)]
    struct Scores {
        name: Option<&'static str>,
        scores: Vec<f64>,
    }

    #[test]
    fn agrees_with_serde_json_on_what_json_can_hold() {
        let value = Scores { name: None, scores: vec![0.1, -2.5e300] };
        assert_eq!(to_value(&value).ok(), serde_json::to_value(&value).ok());
        let tree = json!({"a": [1, "x", null, {"b": true}], "n": u64::MAX});
        assert_eq!(to_value(&tree).ok(), Some(tree));
    }

    #[test]
    fn what_json_would_lose_is_refused_with_its_path() {
        let cases = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        for bad in cases {
            let error = to_value(&Scores { name: Some("n"), scores: vec![1.0, 2.0, 3.0, bad] }).expect_err("not finite");
            assert_eq!(error.path(), "scores[3]");
        }
        let mut deep = json!(1);
        for _ in 0..DEPTH_MAX {
            deep = json!([deep]);
        }
        assert!(to_value(&deep).is_ok());
        assert!(to_value(&json!([deep])).expect_err("too deep").to_string().contains("deeper than 100"));
    }
}
