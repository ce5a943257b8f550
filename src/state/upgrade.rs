//! How what was stored in another shape becomes a state of this program, or an error: no field becomes empty by itself.

use std::collections::BTreeMap;
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

    /// Fields that nothing became of: with and without them the state is the same. A serde alias takes one under another name.
    fn lost(&self, state: &StateCell, values: &Map<String, Value>) -> Vec<(String, String)> {
        let mut unknown = self.unknown(values);
        unknown.retain(|(name, _)| {
            let mut without = values.clone();
            without.remove(name);
            let same = |other: StateCell| self.values(&other).ok() == self.values(state).ok();
            self.decode(without).is_ok_and(same)
        });
        unknown
    }
}
