//! How what was stored in another shape becomes a state of this program, or an error: no field becomes empty by itself.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use serde_json::{Map, Value};

use super::{Schema, StateCell, StateKind, panic_text};

/// Makes values of one version those of the next one. The error is a text; it may panic.
pub(crate) type UpgradeFn = Arc<dyn Fn(&mut Map<String, Value>) -> Result<(), String> + Send + Sync>;

/// Upgrade functions, by the version that they take.
pub(crate) type Upgrades = BTreeMap<u32, UpgradeFn>;

/// Why stored values make no state of this program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Unfit {
    /// A newer program stored it.
    Newer,
    /// An upgrade function failed.
    Upgrade { from: u32, why: String },
    /// The fields that do not fit, each with what is wrong.
    Fields(Vec<(String, String)>),
    /// It does not fit, and no field can be named.
    Whole(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newer => f.write_str("a newer version of the program stored it"),
            Self::Upgrade { from, why } => write!(f, "the upgrade from version {from} {why}"),
            Self::Fields(fields) => {
                let told = fields.iter().map(|(field, what)| format!("field `{field}` {what}"));
                f.write_str(&told.collect::<Vec<_>>().join(", and "))
            }
            Self::Whole(why) => f.write_str(why),
        }
    }
}

/// A state that was stored in another shape.
#[derive(Debug)]
pub(crate) struct Fitted {
    pub(crate) state: StateCell,
    /// The fields whose value an upgrade changed, or that it made or removed.
    pub(crate) changed: Vec<String>,
}

impl StateKind {
    /// Makes a state of values that were stored in the shape `stored`.
    pub(crate) fn fit(&self, stored: &Schema, mut values: Map<String, Value>, upgrades: &Upgrades) -> Result<Fitted, Unfit> {
        let (from, to) = (stored.version(), self.schema.version());
        if from > to {
            return Err(Unfit::Newer);
        }
        let before = values.clone();
        for (from, upgrade) in upgrades.range(from..to) {
            let upgraded = catch_unwind(AssertUnwindSafe(|| upgrade(&mut values)));
            let upgraded = upgraded.unwrap_or_else(|panic| Err(format!("panicked: {}", panic_text(&*panic))));
            upgraded.map_err(|why| Unfit::Upgrade { from: *from, why })?;
        }
        let names = before.keys().chain(values.keys().filter(|name| !before.contains_key(*name)));
        let changed = names.filter(|name| before.get(*name) != values.get(*name)).cloned().collect();
        if self.is_open() {
            self.fill(stored, &mut values);
            let unfit = [self.misfits(&values), self.unknown(&values)].concat();
            if !unfit.is_empty() {
                return Err(Unfit::Fields(unfit));
            }
        }
        let Ok(state) = self.decode(values.clone()) else {
            let unfit = [self.misfits(&values), self.unknown(&values)].concat();
            // What serde says may hold the value, which is nobody's business here, so it has the last word only.
            let whole = || self.decode(values).err().map_or_else(String::new, |error| error.to_string());
            return Err(if unfit.is_empty() { Unfit::Whole(whole()) } else { Unfit::Fields(unfit) });
        };
        let lost = self.lost(&state, &values);
        if lost.is_empty() { Ok(Fitted { state, changed }) } else { Err(Unfit::Fields(lost)) }
    }

    /// A field that the stored shape did not have begins as the schema says, where a state takes whatever it is given.
    fn fill(&self, stored: &Schema, values: &mut Map<String, Value>) {
        for field in self.schema.fields().iter().filter(|field| stored.field(&field.name).is_none()) {
            if let Some(initial) = field.initial.as_ref().filter(|_| !values.contains_key(&field.name)) {
                values.insert(field.name.clone(), initial.clone());
            }
        }
    }

    /// Fields that the JSON Schema does not allow as they are. It says nothing about unknown ones.
    fn misfits(&self, values: &Map<String, Value>) -> Vec<(String, String)> {
        let Ok(validator) = jsonschema::validator_for(self.schema.json()) else { return Vec::new() };
        let mut misfits: Vec<(String, String)> = Vec::new();
        for error in validator.iter_errors(&Value::Object(values.clone())) {
            let path = error.instance_path().to_string();
            let mut steps = path.splitn(3, '/').skip(1);
            let misfit = match (steps.next(), error.kind()) {
                (None, ValidationErrorKind::Required { property: Value::String(name) }) => {
                    (name.clone(), "is missing, and it has no default".to_owned())
                }
                (Some(field), _) => {
                    let place = steps.next().map(|rest| format!(" at /{rest}")).unwrap_or_default();
                    (field.to_owned(), format!("does not fit{place}: {}", error.masked_with("what is stored")))
                }
                (None, _) => continue,
            };
            if misfits.iter().all(|(field, _)| *field != misfit.0) {
                misfits.push(misfit);
            }
        }
        misfits
    }

    fn unknown(&self, values: &Map<String, Value>) -> Vec<(String, String)> {
        let unknown = values.keys().filter(|name| self.schema.field(name).is_none());
        unknown.map(|name| (name.clone(), "is stored, and the program's state does not have it".to_owned())).collect()
    }

    /// What nothing became of, fields and what is inside them: with and without it the state is the same. A serde alias takes something under another
    /// name.
    fn lost(&self, state: &StateCell, values: &Map<String, Value>) -> Vec<(String, String)> {
        let Ok(kept) = self.values(state) else { return Vec::new() };
        let stays = |without: &Value| {
            let state = without.as_object().and_then(|without| self.decode(without.clone()).ok());
            state.and_then(|state| self.values(&state).ok()).is_some_and(|same| same == kept)
        };
        let mut stored = Value::Object(values.clone());
        let mut missing = Vec::new();
        collect_missing(&stored, &Value::Object(kept.clone()), &mut Vec::new(), &mut missing);
        let mut lost: Vec<(String, String)> = Vec::new();
        for place in first_of_each_kind(missing) {
            let Some(field) = place[0].as_str().filter(|field| lost.iter().all(|(told, _)| told != field)) else { continue };
            let Some(taken) = take(&mut stored, &place) else { continue };
            if stays(&stored) {
                let inside: String =
                    place[1..].iter().map(|step| format!("/{}", step.as_str().map_or(step.to_string(), str::to_owned))).collect();
                let at = if inside.is_empty() { String::new() } else { format!(" with something at {inside}") };
                lost.push((field.to_owned(), format!("is stored{at}, and the program's state does not have it")));
            }
            put_back(&mut stored, &place, taken);
        }
        lost
    }
}

/// Where something stands: names of fields and numbers of items, outermost first.
type Place = Vec<Value>;

/// How many places are looked at where something may be lost. Those that differ in more than the numbers of items are all looked at.
const PLACES_MAX: usize = 256;

/// What is stored and does not stand in `kept`, other than nothing.
fn collect_missing(stored: &Value, kept: &Value, place: &mut Place, missing: &mut Vec<Place>) {
    let mut go = |step: Value, stored: &Value, kept: Option<&Value>| {
        place.push(step);
        match kept {
            Some(kept) => collect_missing(stored, kept, place, missing),
            None if is_nothing(stored) && place.len() > 1 => {}
            None => missing.push(place.clone()),
        }
        place.pop();
    };
    match (stored, kept) {
        (Value::Object(stored), Value::Object(kept)) => {
            stored.iter().for_each(|(name, value)| go(name.as_str().into(), value, kept.get(name)));
        }
        (Value::Array(stored), Value::Array(kept)) => {
            // Where items are fewer, a type of the user's has made something else of the list.
            stored.iter().zip(kept).enumerate().for_each(|(index, (value, kept))| go(index.into(), value, Some(kept)));
        }
        _ => {}
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

/// Of places that differ only in the numbers of items, the first one comes first; there may be very many of the others.
fn first_of_each_kind(places: Vec<Place>) -> Vec<Place> {
    let mut kinds = HashSet::new();
    let names = |place: &Place| place.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>();
    let (mut first, more): (Vec<Place>, Vec<Place>) = places.into_iter().partition(|place| kinds.insert(names(place)));
    let room = PLACES_MAX.saturating_sub(first.len());
    first.extend(more.into_iter().take(room));
    first
}

fn inner<'v>(value: &'v mut Value, place: &[Value]) -> Option<&'v mut Value> {
    place.iter().try_fold(value, |value, step| match step {
        Value::String(name) => value.get_mut(name),
        step => value.get_mut(usize::try_from(step.as_u64()?).ok()?),
    })
}

fn take(value: &mut Value, place: &[Value]) -> Option<Value> {
    let (last, outer) = place.split_last()?;
    inner(value, outer)?.as_object_mut()?.remove(last.as_str()?)
}

fn put_back(value: &mut Value, place: &[Value], taken: Value) {
    if let Some((Value::String(name), outer)) = place.split_last()
        && let Some(Value::Object(outer)) = inner(value, outer)
    {
        outer.insert(name.clone(), taken);
    }
}
