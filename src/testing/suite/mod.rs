//! What every store must do, as checks that any store can be put through.

mod alarms;
mod asked;
mod change;
mod list;
mod read;
mod resources;
mod sample;
mod survive;
mod write;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::store::{Pending, Store, StoreError};

/// A promise of a [`Store`], with a check that holds it to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Check {
    /// An append is there as a whole or not at all, for whoever reads at any moment; one that is refused leaves no trace.
    Atomicity,
    /// What was appended is read back as it was, in the order of positions, whatever the clock said.
    Order,
    /// An append happens at the expected position only, and of many writers at one position exactly one wins.
    Fencing,
    /// What was acknowledged is there after a crash. Needs [`StoreSuite::reopen`].
    Crash,
    /// Many threads at once, and no record ends up in another one.
    Concurrency,
    /// Large values, large appends, large snapshots, and empty ones.
    Size,
    /// Of a log is loaded what was asked for, with the snapshot that stands before it.
    Reach,
    /// The index says of each thread what its last append said, and since when.
    Listing,
    /// Pages in every order, of every selection, are the whole list: nothing twice, nothing left out.
    Paging,
    /// The index of open questions says of each thread what its last append said of them, in order and in pages.
    Questions,
    /// The index of alarms says of each thread what its last append said of them, in order and in pages.
    Alarms,
    /// A note is what was kept last under exactly its key, and keys are listed in order.
    Notes,
    /// What is kept of a resource is what was said of it last, under exactly its name.
    Resources,
    /// Each name is a thread of its own, byte by byte.
    Names,
    /// A thread that is deleted is gone, and every other one is as it was.
    Deletion,
    /// A whole thread is put in as it was, or not at all if there is one of that name.
    Restore,
    /// What stands before a snapshot is forgotten, and nothing else is.
    Prune,
}

impl Check {
    /// All of them, in the order in which they are run: what later ones rely on comes first.
    pub const ALL: [Self; 17] = [
        Self::Atomicity,
        Self::Order,
        Self::Fencing,
        Self::Reach,
        Self::Size,
        Self::Concurrency,
        Self::Listing,
        Self::Paging,
        Self::Names,
        Self::Deletion,
        Self::Restore,
        Self::Prune,
        Self::Questions,
        Self::Alarms,
        Self::Notes,
        Self::Resources,
        Self::Crash,
    ];
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Atomicity => "atomicity",
            Self::Order => "order",
            Self::Fencing => "fencing",
            Self::Crash => "crash",
            Self::Concurrency => "concurrency",
            Self::Size => "size",
            Self::Reach => "reach",
            Self::Listing => "listing",
            Self::Paging => "paging",
            Self::Names => "names",
            Self::Deletion => "deletion",
            Self::Restore => "restore",
            Self::Prune => "prune",
            Self::Questions => "questions",
            Self::Alarms => "alarms",
            Self::Notes => "notes",
            Self::Resources => "resources",
        })
    }
}

/// Why a check failed, in words for whoever writes the store.
#[derive(Debug)]
struct Fault(String);

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self(format!("an operation failed that should not: {error}"))
    }
}

type Found = Result<(), Fault>;

/// Says what is wrong unless the condition holds.
macro_rules! must {
    ($holds:expr, $($wrong:tt)+) => {
        if !$holds {
            return Err($crate::testing::suite::Fault(format!($($wrong)+)));
        }
    };
}
use must;

/// What a store was held to without a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// The checks it passed.
    pub passed: Vec<Check>,
    /// The checks that could not be made: [`Check::Crash`], if the suite was not told how to reopen the store.
    pub left_out: Vec<Check>,
}

/// The promises that a store broke, each with what was seen.
#[derive(thiserror::Error)]
#[error("{} of the store's promises {} broken:{}", .faults.len(), if .faults.len() == 1 { "is" } else { "are" }, list(.faults))]
pub struct Broken {
    faults: Vec<(Check, String)>,
}

fn list(faults: &[(Check, String)]) -> String {
    faults.iter().map(|(check, what)| format!("\n  {check}: {what}")).collect()
}

impl Broken {
    /// Each check that failed, with what is wrong.
    pub fn faults(&self) -> impl Iterator<Item = (Check, &str)> {
        self.faults.iter().map(|(check, what)| (*check, what.as_str()))
    }
}

// A test that unwraps shows this.
impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

type Open<S> = Box<dyn Fn() -> Pending<'static, S> + Send + Sync>;
type Reopen<S> = Box<dyn Fn(S) -> Pending<'static, S> + Send + Sync>;

/// Holds a store to its promises: those of [`Store`], one [`Check`] for each.
///
/// Every check gets a store of its own from the closure, which must be empty. The checks run one after another; each uses up to 50 threads at once.
/// All of them together write about 20 MB.
///
/// ```
/// use ferrata::store::MemoryStore;
/// use ferrata::testing::{Check, StoreSuite};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// // In a `#[tokio::test]` of your own:
/// let kept = StoreSuite::new(|| async { Ok(MemoryStore::new()) }).run().await.unwrap();
/// assert_eq!(kept.left_out, [Check::Crash]); // it keeps nothing beyond the process, and promises nothing
/// # }
/// ```
///
/// # Not checked
///
/// Which threads are [at work](Store::at_work); damage of what was stored; what happens when the disk is full or fails.
pub struct StoreSuite<S> {
    open: Open<S>,
    reopen: Option<Reopen<S>>,
}

impl<S: Store> StoreSuite<S> {
    /// A suite for the stores that `open` makes: each time a new and empty one.
    pub fn new<F, R>(open: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<S, StoreError>> + Send + 'static,
    {
        Self { open: Box::new(move || Box::pin(open())), reopen: None }
    }

    /// The same suite for a store that is durable. `reopen` gets a store that is about to crash, and opens another one on what is left of it.
    ///
    /// Nobody uses the store at that moment, but futures of appends may have been dropped before they were done. A crash is no goodbye: a store
    /// that writes something when it is dropped should be left as it lies there, for example by a copy of its files that is made before.
    ///
    /// ```
    /// use ferrata::store::RedbStore;
    /// use ferrata::testing::{Check, StoreSuite};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// # let dir = std::env::temp_dir().join(format!("ferrata-suite-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir).unwrap();
    /// # let path = dir.join("s.redb");
    /// let open = move || {
    ///     let path = path.clone();
    ///     async move { RedbStore::open(path) }
    /// };
    /// let suite = StoreSuite::new(open).reopen(|store| async move {
    ///     let image = format!("{}-left", store.path().display());
    ///     std::fs::copy(store.path(), &image).expect("a copy of the file as it lies there");
    ///     RedbStore::open(image)
    /// });
    /// suite.check(Check::Crash).await.unwrap();
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # }
    /// ```
    #[must_use]
    pub fn reopen<F, R>(mut self, reopen: F) -> Self
    where
        F: Fn(S) -> R + Send + Sync + 'static,
        R: Future<Output = Result<S, StoreError>> + Send + 'static,
    {
        self.reopen = Some(Box::new(move |store| Box::pin(reopen(store))));
        self
    }

    /// Makes every check, also after one that failed.
    ///
    /// # Errors
    ///
    /// All promises that are broken, each with what was seen.
    pub async fn run(&self) -> Result<Kept, Broken> {
        let (mut kept, mut faults) = (Kept { passed: Vec::new(), left_out: Vec::new() }, Vec::new());
        for check in Check::ALL {
            if check == Check::Crash && self.reopen.is_none() {
                kept.left_out.push(check);
                continue;
            }
            match self.make(check).await {
                Ok(()) => kept.passed.push(check),
                Err(Fault(what)) => faults.push((check, what)),
            }
        }
        if faults.is_empty() { Ok(kept) } else { Err(Broken { faults }) }
    }

    /// Makes one check.
    ///
    /// # Errors
    ///
    /// The promise is broken; or it is [`Check::Crash`], and the suite was not told how to reopen the store.
    pub async fn check(&self, check: Check) -> Result<(), Broken> {
        self.make(check).await.map_err(|Fault(what)| Broken { faults: vec![(check, what)] })
    }

    async fn make(&self, check: Check) -> Found {
        let store = (self.open)().await.map_err(|error| Fault(format!("the store cannot be opened: {error}")))?;
        let store = Arc::new(store);
        if check == Check::Crash {
            let reopen = self.reopen.as_ref().ok_or_else(|| Fault("say how to reopen the store, with `reopen`".to_owned()))?;
            return survive::crash(store, reopen).await;
        }
        let store: Arc<dyn Store> = store;
        match check {
            Check::Atomicity => write::atomicity(&store).await,
            Check::Order => write::order(&store).await,
            Check::Fencing => write::fencing(&store).await,
            Check::Concurrency => write::concurrency(&store).await,
            Check::Size => read::size(&store).await,
            Check::Reach => read::reach(&store).await,
            Check::Listing => list::listing(&store).await,
            Check::Paging => list::paging(&store).await,
            Check::Names => list::names(&store).await,
            Check::Deletion => change::deletion(&store).await,
            Check::Restore => change::restore(&store).await,
            Check::Prune => change::prune(&store).await,
            Check::Questions => asked::questions(&store).await,
            Check::Alarms => alarms::alarms(&store).await,
            Check::Notes => alarms::notes(&store).await,
            Check::Resources => resources::resources(&store).await,
            Check::Crash => Ok(()),
        }
    }
}

impl<S> fmt::Debug for StoreSuite<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSuite").field("reopens", &self.reopen.is_some()).finish_non_exhaustive()
    }
}
