//! Seals secret values on their way to the store, and opens them on their way back.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::Value;

use super::driver::Driver;
use super::error::Error;
use super::secrets::{SecretPlace, Secrets, SecretsError};
use super::thread::Thread;
use crate::graph::{Keeps, Shape};
use crate::id::{Path, ThreadName};
use crate::log::{Folded, Lack, Record, SecretTexts, Snapshot, Walk, tells};
use crate::machine::Begin;
use crate::state::{Change, Op, Schema, State, StateKind, ValueError, is_empty, is_sealed, is_within_depth, sealed, take_sealed};
use crate::store::{Append, Loaded};

/// What a handle to a thread knows of secrets.
#[derive(Clone, Default)]
pub(crate) struct SecretOptions {
    pub(super) hook: Option<Arc<dyn Secrets>>,
    /// Values for those that are not there any more, by field.
    handed_in: BTreeMap<String, Value>,
}

impl fmt::Debug for SecretOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The values are nobody's business.
        f.debug_struct("SecretOptions").field("handed_in", &self.handed_in.keys()).finish_non_exhaustive()
    }
}

/// Seals what a run appends.
pub(crate) struct Sealer {
    hook: Arc<dyn Secrets>,
    kind: Arc<StateKind>,
    thread: ThreadName,
}

impl Sealer {
    /// Takes the secrets out of a snapshot.
    pub(super) fn seal_snapshot(&self, snapshot: Box<Snapshot>, folded: &Folded) -> Result<Box<Snapshot>, Error> {
        let mut snapshot = Some(snapshot);
        self.seal_all(&mut [], &mut snapshot, folded)?;
        Ok(snapshot.expect("it is still there"))
    }

    /// Takes the secrets out of what is about to be appended. The records of the machine itself stay as they are.
    pub(super) fn seal(&self, append: &mut Append, folded: &Folded) -> Result<(), Error> {
        self.seal_all(&mut append.records, &mut append.snapshot, folded)
    }

    fn seal_all(&self, records: &mut [Record], snapshot: &mut Option<Box<Snapshot>>, folded: &Folded) -> Result<(), Error> {
        let mut texts = SecretTexts::default();
        let mut turn = |path: &Path, field: &str, value: &mut Value| -> Result<(), Error> {
            if is_empty(value) {
                return Ok(());
            }
            texts.learn(value);
            let place = SecretPlace { thread: &self.thread, path, field };
            let plain = value.take();
            let stored = guarded(|| self.hook.seal(place, plain)).map_err(|e| Error::secret(place, "sealed", e))?;
            *value = sealed(stored);
            Ok(())
        };
        let mut walk = Walk::new(&self.kind, None, &mut turn);
        records.iter_mut().try_for_each(|record| walk.record(record))?;
        snapshot.iter_mut().try_for_each(|snapshot| walk.snapshot(snapshot))?;
        if snapshot.is_none() && !records.iter().any(tells) {
            return Ok(());
        }
        texts.learn_from(folded);
        records.iter_mut().for_each(|record| texts.blot_record(record));
        snapshot.iter_mut().for_each(|snapshot| texts.blot_snapshot(snapshot));
        Ok(())
    }
}

/// A hook that panics does not take the engine with it.
fn guarded<T>(call: impl FnOnce() -> Result<T, SecretsError>) -> Result<T, SecretsError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err("it panicked".into()))
}

impl<S: State> Thread<S> {
    /// A value for a secret field whose own one is not there any more: [`ForgetSecrets`](crate::ForgetSecrets) forgot it, or the vault did. It takes
    /// the place of the field's value wherever that is missing, in all graphs at work, and counts as the whole value, with what is pending.
    ///
    /// It is no input: a value that is there is not touched, and what is handed in is not recorded.
    ///
    /// # Errors
    ///
    /// When the handle is used: no graph of the thread has such a secret field (code `secret-unknown`), or the value does not fit it (code `secret`).
    pub fn secret(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        self.options.secrets.handed_in.insert(field.into(), value.into());
        self
    }

    /// What seals the thread's records; `None` if nothing is stored, or nothing of it is secret.
    ///
    /// # Errors
    ///
    /// Something is secret, and nobody says what may be stored of it.
    pub(super) fn sealer(&self) -> Result<Option<Sealer>, Error> {
        let (shape, thread) = (self.inner.shape(), self.name()?);
        if self.inner.store.is_none() {
            return Ok(None);
        }
        let known = shape.kind.secret_names();
        if let Some(field) = self.options.secrets.handed_in.keys().find(|field| !known.contains(field.as_str())) {
            return Err(Error::secret_unknown(thread, field, &known));
        }
        match &self.options.secrets.hook {
            Some(hook) if !known.is_empty() => {
                Ok(Some(Sealer { hook: Arc::clone(hook), kind: Arc::clone(&shape.kind), thread: thread.clone() }))
            }
            Some(_) => Ok(None),
            None => match stored_secrets(shape) {
                fields if fields.is_empty() => Ok(None),
                fields => Err(Error::no_secrets(thread, &fields)),
            },
        }
    }

    /// Opens the secrets of what was read. Those that are not there stay sealed, and the fold notes them.
    fn unseal<'r>(
        &self,
        stored: Option<&Schema>,
        snapshot: Option<&mut Snapshot>,
        records: impl IntoIterator<Item = &'r mut Record>,
    ) -> Result<(), Error> {
        let (kind, thread) = (self.kind(), self.name()?);
        // Without a sealer nothing of the thread's state is secret by now; the mark may have been taken away.
        let stored = stored.filter(|stored| stored.has_secrets());
        if self.sealer()?.is_none() && stored.is_none() {
            return Ok(());
        }
        let Some(hook) = &self.options.secrets.hook else {
            return Err(Error::no_secrets(thread, &stored.map(marked).unwrap_or_default()));
        };
        let mut turn = |path: &Path, field: &str, value: &mut Value| -> Result<(), Error> {
            let Some(stored) = take_sealed(value) else { return Ok(()) };
            let place = SecretPlace { thread, path, field };
            let opened = guarded(|| hook.open(place, stored)).map_err(|e| Error::secret(place, "opened", e))?;
            *value = match opened {
                Some(plain) if !is_sealed(&plain) => plain,
                Some(_) => return Err(Error::secret(place, "opened", "it gave a sealed value".into())),
                None if kind.at(path).is_some_and(|kind| kind.schema.is_secret(field)) => sealed(Value::Null),
                None => return Err(Error::secret(place, "opened", "its value is gone; mark the field secret again".into())),
            };
            Ok(())
        };
        let mut walk = Walk::new(kind, stored, &mut turn);
        snapshot.into_iter().try_for_each(|snapshot| walk.snapshot(snapshot))?;
        records.into_iter().try_for_each(|record| walk.record(record))
    }

    /// What was loaded, with the secrets that are there.
    pub(super) fn plain(&self, mut loaded: Loaded) -> Result<Loaded, Error> {
        let stored = super::open::opened_by(loaded.snapshot.as_ref(), &loaded.entries);
        let stored = stored.map(|opened| &opened.schema).filter(|schema| schema.has_secrets()).cloned();
        self.unseal(stored.as_ref(), loaded.snapshot.as_mut(), loaded.entries.iter_mut().map(|entry| &mut entry.record))?;
        Ok(loaded)
    }

    /// The thread with what was handed in where something is missing.
    pub(super) fn supplied(&self, mut folded: Folded) -> Result<Folded, Error> {
        self.supply(&mut folded)?;
        Ok(folded)
    }

    /// Puts what was handed in where something is missing.
    fn supply(&self, folded: &mut Folded) -> Result<(), Error> {
        let handed_in = &self.options.secrets.handed_in;
        let thread = self.name()?;
        for (field, value) in handed_in {
            let place = SecretPlace { thread, path: &Path::ROOT, field };
            if !is_within_depth(value) || is_sealed(value) {
                let error = ValueError::new("it is nested too deep, or has the key `$secret`");
                return Err(Error::secret(place, "handed in", error.into()));
            }
            let one = BTreeMap::from([(field.clone(), value.clone())]);
            folded.supply(&one).map_err(|e| Error::secret(place, "handed in", e.into()))?;
        }
        Ok(())
    }

    /// Refuses a run, or an edit of the graph at `path`, that begins with secrets that are not there. What it writes itself need not be.
    pub(super) fn need_secrets(&self, folded: &Folded, writes: Option<(&Path, &[Change])>) -> Result<(), Error> {
        let is_there = |lack: &Lack| match writes {
            None => false,
            // What is pending may be given up; if not, it is found later.
            Some((path, changes)) => lack.is_pending || lack.path != *path || changes.iter().any(|c| replaces(c, &lack.field)),
        };
        let lacks = folded.lacks().into_iter().filter(|lack| !is_there(lack)).collect();
        refuse(self.name()?, lacks)
    }
}

impl Begin {
    /// What it writes into the outermost graph.
    pub(super) fn writes(&self) -> Option<(&Path, &[Change])> {
        match self {
            Self::Input { changes, .. } => Some((&Path::ROOT, changes)),
            Self::Resume | Self::Answer(_) | Self::Compensate { .. } => None,
        }
    }
}

fn replaces(change: &Change, field: &str) -> bool {
    change.field == field && matches!(change.op, Op::Set(_) | Op::Overwrite(_))
}

impl Driver {
    /// Refuses what has begun in memory, and is not recorded yet, if a secret is still not there.
    pub(super) fn need_secrets(&self) -> Result<(), Error> {
        if self.keeper.sealer.is_none() {
            return Ok(());
        }
        refuse(&self.thread, self.machine.folded().lacks())
    }
}

fn refuse(thread: &ThreadName, lacks: Vec<Lack>) -> Result<(), Error> {
    if lacks.is_empty() { Ok(()) } else { Err(Error::secret_missing(thread, &lacks)) }
}

/// The secret fields of a graph and of those inside it whose steps are stored, for errors.
fn stored_secrets(shape: &Shape) -> Vec<String> {
    let mut fields = marked(&shape.schema);
    for (key, subgraph) in shape.subgraphs.iter().filter(|(_, subgraph)| subgraph.keeps != Keeps::Unstored) {
        fields.extend(stored_secrets(&subgraph.shape).into_iter().map(|field| format!("{key}/{field}")));
    }
    fields
}

fn marked(schema: &Schema) -> Vec<String> {
    schema.fields().iter().filter(|field| field.secret).map(|field| field.name.clone()).collect()
}
