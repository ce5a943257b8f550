//! What a state consists of, as a value.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::MergeFunction;
use super::fingerprint::{bare, fingerprint};

/// How a step's changes of a field are merged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rule {
    /// The new value replaces the old one. Two writers in one step are an error before anything is stored.
    Replace,
    /// Items are added at the end, in the order of the tasks.
    Append,
    /// Keys are set and removed, in the order of the tasks.
    Merge,
    /// Messages are added, replaced and removed by their id.
    Messages,
    /// Numbers are added up.
    Sum,
    /// The largest number stays.
    Max,
    /// The smallest number stays.
    Min,
    /// Operands go into a function of the user's, in the order of the tasks.
    Function(MergeFunction),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Merge => "merge",
            Self::Messages => "messages",
            Self::Sum => "sum",
            Self::Max => "max",
            Self::Min => "min",
            Self::Function(function) => return write!(f, "function {}", function.name()),
        })
    }
}

/// One field of a state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// Its name, in Rust and in the log.
    pub name: String,
    /// How changes are merged.
    pub rule: Rule,
    /// What it holds before anything is written; `None` if it is absent then, or if the state type knows.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub initial: Option<Value>,
    /// Whether only nodes that ask for it see it, and no input or output holds it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub private: bool,
    /// Whether its values are secrets: what a store gets of them is said by [`Runner::secrets`](crate::Runner::secrets).
    #[serde(default, skip_serializing_if = "is_false")]
    pub secret: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde wants")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// A value that is there: a null is one too.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Field {
    /// A field that is absent until it is written.
    pub fn new(name: impl Into<String>, rule: Rule) -> Self {
        Self { name: name.into(), rule, initial: None, private: false, secret: false }
    }

    /// A field whose changes are operands of that function.
    pub fn with(name: impl Into<String>, function: MergeFunction) -> Self {
        Self::new(name, Rule::Function(function))
    }

    /// The same field, with a value from the beginning.
    #[must_use]
    pub fn initial(mut self, value: Value) -> Self {
        self.initial = Some(value);
        self
    }

    /// The same field, seen only by nodes that ask for it. Works on states whose fields can be absent.
    #[must_use]
    pub fn private(mut self) -> Self {
        self.private = true;
        self
    }

    /// The same field, with values that are secrets; see [`Runner::secrets`](crate::Runner::secrets). What it holds from the beginning is none: it
    /// stands in the schema, and may not be more than empty.
    #[must_use]
    pub fn secret(mut self) -> Self {
        self.secret = true;
        self
    }
}

/// The fields of a state with their merge rules, and its JSON Schema.
///
/// ```
/// use ferrata::{StaticState, State, state::Rule};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// struct Trip { goal: String, #[state(append)] notes: Vec<String> }
///
/// let schema = Trip::schema();
/// assert_eq!(schema.field("notes").unwrap().rule, Rule::Append);
/// assert_eq!(schema.json()["properties"]["goal"]["type"], "string");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schema {
    name: String,
    #[serde(default = "first", skip_serializing_if = "is_first")]
    version: u32,
    fields: Vec<Field>,
    json: Value,
}

fn first() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature serde wants")]
fn is_first(version: &u32) -> bool {
    *version == 1
}

impl Schema {
    /// A schema of these fields; `json` is the JSON Schema of the whole state. Of secret fields it loses its `default`, since a schema is stored.
    pub fn new(name: impl Into<String>, fields: Vec<Field>, mut json: Value) -> Self {
        for field in fields.iter().filter(|field| field.secret) {
            let property = json.get_mut("properties").and_then(|all| all.get_mut(&field.name)).and_then(Value::as_object_mut);
            property.and_then(|property| property.remove("default"));
        }
        Self { name: name.into(), version: 1, fields, json }
    }

    /// The same schema as that version of the state; without it, it is version 1. What is stored in an earlier one goes through the upgrades that
    /// the graph has for it, see [`GraphBuilder::upgrade`](crate::GraphBuilder::upgrade). A struct says `#[state(version = 2)]`.
    #[must_use]
    pub fn with_version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// The same schema with that function for every field whose rule names it. A schema that was read, from a file or a log, has
    /// only the names of its functions.
    ///
    /// ```
    /// use ferrata::state::{Field, MergeFunction, Schema};
    ///
    /// let largest = || MergeFunction::new("largest", u64::max);
    /// let schema = Schema::new("Marks", vec![Field::with("mark", largest())], serde_json::json!({"type": "object"}));
    /// let stored = serde_json::to_string(&schema).unwrap();
    /// let read: Schema = serde_json::from_str(&stored).unwrap();
    /// assert_eq!(read, schema); // compared by name
    /// let _ready = read.with_function(largest());
    /// ```
    #[must_use]
    pub fn with_function(mut self, function: MergeFunction) -> Self {
        for field in &mut self.fields {
            if let Rule::Function(named) = &mut field.rule
                && *named == function
            {
                *named = function.clone();
            }
        }
        self
    }

    /// Name of the state type.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of the state, from 1.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The fields in declared order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }

    /// The JSON Schema of the whole state.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// 16 hexadecimal digits that tell the shape of the state: the same for the same version, fields, merge rules and JSON types, in whichever order
    /// the fields are declared and whatever is said about them in comments.
    ///
    /// ```
    /// use ferrata::{State, StaticState};
    /// use serde::{Deserialize, Serialize};
    ///
    /// mod then {
    ///     # use super::*;
    ///     #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    ///     pub struct Trip { pub goal: String, pub days: u32 }
    /// }
    ///
    /// /// A trip.
    /// #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
    /// struct Trip { days: u32, goal: String }
    ///
    /// # fn main() {
    /// assert_eq!(Trip::schema().fingerprint(), then::Trip::schema().fingerprint());
    /// assert_ne!(Trip::schema().fingerprint(), Trip::schema().with_version(2).fingerprint());
    /// # }
    /// ```
    pub fn fingerprint(&self) -> String {
        let mut rules: Vec<_> = self.fields.iter().map(|f| (&f.name, &f.rule)).collect();
        rules.sort_by_key(|(name, _)| *name);
        fingerprint(&json!([self.version, rules, bare(&self.json)]))
    }

    /// The shape of one field: its merge rule and its JSON Schema; `None` if there is no such field.
    pub(crate) fn field_fingerprint(&self, name: &str) -> Option<String> {
        let rule = &self.field(name)?.rule;
        let json = bare(&self.json);
        let own = &json["properties"][name];
        // It may lead anywhere in there.
        let defs = if own.to_string().contains("$ref") { &json["$defs"] } else { &Value::Null };
        Some(fingerprint(&json!([rule, own, defs])))
    }

    /// The schema of a state of which nothing is known.
    pub(crate) fn unknown() -> Self {
        Self::new("unknown", Vec::new(), json!({}))
    }

    /// The same schema, with what its fields hold before anything is written, where it does not tell.
    pub(crate) fn filled(mut self, empty: &Map<String, Value>) -> Self {
        for field in self.fields.iter_mut().filter(|field| field.initial.is_none() && !field.secret) {
            field.initial = empty.get(&field.name).cloned();
        }
        self
    }

    /// The fields with their JSON types and merge rules, for errors: `order: string, notes: array (append)`.
    pub(crate) fn shape(&self) -> String {
        let describe = |field: &Field| {
            let json = &self.json["properties"][&field.name];
            let types = match &json["type"] {
                Value::String(one) => one.clone(),
                Value::Array(many) => many.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
                _ => json["$ref"].as_str().and_then(|r| r.rsplit('/').next()).unwrap_or("any").to_owned(),
            };
            let rule = (field.rule != Rule::Replace).then(|| field.rule.to_string());
            let marks: Vec<String> = rule.into_iter().chain(field.secret.then(|| "secret".to_owned())).collect();
            let marks = if marks.is_empty() { String::new() } else { format!(" ({})", marks.join(", ")) };
            format!("{}: {types}{marks}", field.name)
        };
        let fields = self.fields.iter().map(describe).collect::<Vec<_>>().join(", ");
        format!("{} {{ {fields} }} (version {}, {})", self.name, self.version, self.fingerprint())
    }

    /// Whether there is such a field and its values are secrets.
    pub(crate) fn is_secret(&self, name: &str) -> bool {
        self.field(name).is_some_and(|field| field.secret)
    }

    /// Whether it has fields whose values are secrets.
    pub(crate) fn has_secrets(&self) -> bool {
        self.fields.iter().any(|field| field.secret)
    }

    /// Fields whose merge function is known by its name only, and that name.
    pub(crate) fn missing_functions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().filter_map(|field| match &field.rule {
            Rule::Function(function) if function.is_missing() => Some((&*field.name, function.name())),
            _ => None,
        })
    }

    /// The names of the fields, for errors.
    pub(crate) fn field_names(&self) -> String {
        self.fields.iter().map(|f| f.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}
