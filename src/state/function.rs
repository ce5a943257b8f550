//! Merge rules that are functions of the user's.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::value::{ValueError, to_value};

/// The source of an error whose type is the user's.
type Source = Box<dyn Error + Send + Sync>;

/// A merge rule of one's own: a function from a field's value and an operand to the new value.
///
/// Nodes hand over operands. When a step is merged, the function takes them one after the other, in merge order: the nodes in
/// the order they were declared, then sends in theirs, whichever finished first. The step's record holds the outcome.
///
/// The function has to be pure, since it may be called more than once for the same operands, and quick, since it holds the run up. An
/// operand that it cannot take fails the task that hands it over. If it panics or returns an error, nothing of the step is
/// merged: mend it, and resume the thread.
///
/// On a derived field it is `#[state(with = "path::to::function")]`, see [`State`](super::State). For a schema made at run time:
///
/// ```
/// use ferrata::state::{Field, MergeFunction, Schema, Update, Values};
/// use ferrata::{END, GraphBuilder, Runner, START, store::MemoryStore};
/// use serde_json::json;
///
/// fn longer(old: String, new: String) -> String {
///     if new.len() > old.len() { new } else { old }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> ferrata::Result<()> {
/// let best = Field::with("best", MergeFunction::new("longer", longer)).initial(json!(""));
/// let schema = Schema::new("Answers", vec![best], json!({"type": "object"}));
/// let answer = |text: &'static str| move || async move { Ok(Update::new().combine("best", text)) };
/// let graph = GraphBuilder::<Values>::with_schema("answers", schema)
///     .node("a", answer("perhaps"))
///     .node("b", answer("no"))
///     .edge(START, "a")
///     .edge(START, "b")
///     .edge("a", END)
///     .edge("b", END)
///     .build()?;
/// let state = Runner::new(graph, MemoryStore::new()).thread("t").run(Update::new()).await?.done().unwrap();
/// assert_eq!(state.get("best"), Some(&json!("perhaps")));
/// # Ok(()) }
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MergeFunction {
    name: Cow<'static, str>,
    /// Absent in a schema that was read: a store keeps the name alone.
    #[serde(skip)]
    code: Option<Arc<dyn Code>>,
}

/// A function whose types are not known.
trait Code: Send + Sync {
    /// Whether an operand has the right type.
    fn accepts(&self, operand: &Value) -> Result<(), FunctionError>;
    /// What the operands make of a value.
    fn merge(&self, before: Value, operands: &[&Value]) -> Result<Value, FunctionError>;
}

struct Typed<T, U, F>(F, PhantomData<fn(T, U)>);

impl<T, U, R, F> Code for Typed<T, U, F>
where
    T: Serialize + DeserializeOwned,
    U: DeserializeOwned,
    R: MergeOutcome<T>,
    F: Fn(T, U) -> R + Send + Sync,
{
    fn accepts(&self, operand: &Value) -> Result<(), FunctionError> {
        read_operand::<U>(operand).map(drop)
    }

    fn merge(&self, before: Value, operands: &[&Value]) -> Result<Value, FunctionError> {
        // Read once and written once, however many operands there are.
        let mut value = T::deserialize(before).map_err(|e| FunctionError::Value(e.into()))?;
        for operand in operands {
            value = (self.0)(value, read_operand(operand)?).into_outcome().map_err(FunctionError::Failed)?;
        }
        to_value(&value).map_err(FunctionError::Outcome)
    }
}

fn read_operand<U: DeserializeOwned>(operand: &Value) -> Result<U, FunctionError> {
    U::deserialize(operand).map_err(|e| FunctionError::Operand(e.into()))
}

impl MergeFunction {
    /// A function of the field's value and an operand. It returns the new value, or a `Result` of it.
    ///
    /// `name` is what a thread stores of it. A thread whose schema has another name there is a thread of another shape, so a
    /// function that now does something else should get another name. Types are as in the JSON of the field: where a field can be
    /// absent the function takes an `Option`.
    ///
    /// ```
    /// use ferrata::state::MergeFunction;
    ///
    /// let first = MergeFunction::new("first", |old: Option<String>, new: String| old.or(Some(new)));
    /// let sum = MergeFunction::new("checked sum", |old: u8, new: u8| old.checked_add(new).ok_or("more than 255"));
    /// assert_eq!((first.name(), sum.name()), ("first", "checked sum"));
    /// ```
    pub fn new<T, U, R>(name: impl Into<Cow<'static, str>>, function: impl Fn(T, U) -> R + Send + Sync + 'static) -> Self
    where
        T: Serialize + DeserializeOwned + 'static,
        U: DeserializeOwned + 'static,
        R: MergeOutcome<T>,
    {
        Self { name: name.into(), code: Some(Arc::new(Typed(function, PhantomData))) }
    }

    /// The name that is stored.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether only the name is known, since it was read from a store.
    pub(crate) fn is_missing(&self) -> bool {
        self.code.is_none()
    }

    /// Checks that an operand has the right type.
    pub(crate) fn accepts(&self, operand: &Value) -> Result<(), FunctionError> {
        self.call(|code| code.accepts(operand))
    }

    /// What the operands make of the value.
    pub(crate) fn merge(&self, before: Value, operands: &[&Value]) -> Result<Value, FunctionError> {
        self.call(|code| code.merge(before, operands))
    }

    /// Nothing of the user's may take the engine with it.
    fn call<R>(&self, call: impl FnOnce(&dyn Code) -> Result<R, FunctionError>) -> Result<R, FunctionError> {
        let code = self.code.as_deref().ok_or(FunctionError::Missing)?;
        catch_unwind(AssertUnwindSafe(|| call(code))).unwrap_or_else(|panic| Err(FunctionError::Panicked(panic_text(&*panic))))
    }
}

/// By name: what a thread stored is compared with what a program has.
impl PartialEq for MergeFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for MergeFunction {}

impl fmt::Debug for MergeFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MergeFunction").field(&self.name).finish()
    }
}

/// What a [`MergeFunction`] of a field of type `T` may return: the new value, or a `Result` of it.
#[diagnostic::on_unimplemented(
    message = "the merge function of a field of type `{T}` cannot return `{Self}`",
    note = "it takes the field's value and an operand, and returns the new value as `{T}` or `Result<{T}, _>`"
)]
pub trait MergeOutcome<T> {
    #[doc(hidden)]
    fn into_outcome(self) -> Result<T, Box<dyn Error + Send + Sync>>;
}

impl<T> MergeOutcome<T> for T {
    fn into_outcome(self) -> Result<T, Source> {
        Ok(self)
    }
}

impl<T, E: Into<Source>> MergeOutcome<T> for Result<T, E> {
    fn into_outcome(self) -> Result<T, Source> {
        self.map_err(Into::into)
    }
}

/// What can go wrong with a [`MergeFunction`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FunctionError {
    /// A schema that was read has the name alone.
    #[error("is known by its name only; give it back to the schema with `Schema::with_function`")]
    Missing,
    /// The operand is not of the type that the function takes.
    #[error("cannot take the operand: {0}")]
    Operand(#[source] Box<dyn Error + Send + Sync>),
    /// The field's value is not of the type that the function takes.
    #[error("cannot take the field's value: {0}")]
    Value(#[source] Box<dyn Error + Send + Sync>),
    /// It panicked; the text of the panic.
    #[error("panicked: {0}")]
    Panicked(String),
    /// It returned an error.
    #[error("failed: {0}")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
    /// What it returned cannot be stored.
    #[error("gave what cannot be stored: {0}")]
    Outcome(#[source] ValueError),
}

/// The text of a panic, for errors.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(function: &MergeFunction, before: Value, operands: &[Value]) -> Result<Value, String> {
        function.merge(before, &operands.iter().collect::<Vec<_>>()).map_err(|error| error.to_string())
    }

    #[test]
    fn operands_are_taken_one_after_the_other() {
        let join = MergeFunction::new("join", |old: String, new: char| format!("{old}{new}"));
        assert_eq!(merged(&join, json!("<"), &[json!("a"), json!("b"), json!("c")]), Ok(json!("<abc")));
        let first = MergeFunction::new("first", Option::<u64>::or);
        assert_eq!(merged(&first, Value::Null, &[Value::Null, json!(2), json!(3)]), Ok(json!(2)));
        let max = MergeFunction::new("max", u64::max);
        assert_eq!(merged(&max, json!(3), &[json!(2), json!(7), json!(5)]), Ok(json!(7)));
    }

    #[test]
    fn whatever_goes_wrong_is_an_error() {
        let divide = MergeFunction::new("divide", |old: i64, by: i64| if by == 7 { Err("seven") } else { Ok(old / by) });
        let cases = [
            (json!(8), json!("x"), "cannot take the operand: invalid type: string \"x\", expected i64"),
            (json!("x"), json!(1), "cannot take the field's value: invalid type: string \"x\", expected i64"),
            (json!(8), json!(7), "failed: seven"),
            (json!(8), json!(0), "panicked: attempt to divide by zero"),
        ];
        for (before, operand, text) in cases {
            assert_eq!(merged(&divide, before, &[operand]), Err(text.to_owned()));
        }
        let ratio = MergeFunction::new("ratio", |old: f64, by: f64| old / by);
        let error = merged(&ratio, json!(1.0), &[json!(0.0)]).expect_err("not finite");
        assert!(error.starts_with("gave what cannot be stored: inf is no finite number"), "{error}");
        assert_eq!(divide.accepts(&json!(0)).map_err(|e| e.to_string()), Ok(()));
        assert!(matches!(divide.accepts(&json!([])), Err(FunctionError::Operand(_))));
    }

    #[test]
    fn only_the_name_is_stored_and_compared() {
        let max = MergeFunction::new("max", u64::max);
        let read: MergeFunction = serde_json::from_value(json!("max")).expect("a name");
        assert_eq!((serde_json::to_value(&max).expect("it is stored"), &read), (json!("max"), &max));
        assert_ne!(max, MergeFunction::new("max_of_all", u64::max));
        assert!(!max.is_missing() && read.is_missing());
        assert!(matches!(read.merge(json!(1), &[]), Err(FunctionError::Missing)));
    }
}
