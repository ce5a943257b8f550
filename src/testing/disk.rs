//! A disk in memory that fails as it is told to.

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::Disk;

/// What real disks write as a whole, in bytes; a write of more can be torn in between.
const SECTOR: usize = 512;

/// What can be done with a disk, and fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskOp {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// What was written is made durable.
    Sync,
    /// The disk is made longer or shorter.
    SetLen,
}

impl DiskOp {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Sync, Self::SetLen];
}

/// How often each thing was done with a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted([u64; 4]);

impl Counted {
    /// How often this was done, what failed included.
    pub fn of(&self, op: DiskOp) -> u64 {
        self.0[op as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    /// It fails with an error, this time or from then on, after half of its bytes or with nothing done.
    Wrong { kind: ErrorKind, from_then_on: bool, short: bool },
    /// The power goes while it is done: it never returns a result.
    OffWithin,
    /// It is done, and nothing after it.
    OffAfter,
}

/// One thing that goes wrong with a [`FaultyDisk`]: at the n-th read, write, sync or change of length, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct DiskFault {
    op: DiskOp,
    n: u64,
    goes: Goes,
}

impl DiskFault {
    /// The n-th of these fails, with nothing done; the next one works again. What it says is [`ErrorKind::Other`] if nothing else is chosen.
    pub fn fails(op: DiskOp, n: u64) -> Self {
        Self { op, n, goes: Goes::Wrong { kind: ErrorKind::Other, from_then_on: false, short: false } }
    }

    /// The power goes while the n-th of these is under way. What was written since the last sync may be there afterwards or not, this write too.
    /// Nothing works any more.
    pub fn power_cut(op: DiskOp, n: u64) -> Self {
        Self { op, n, goes: Goes::OffWithin }
    }

    /// The power goes right behind the n-th of these, which was done. With [`DiskOp::Sync`]: everything after the n-th sync is lost.
    pub fn power_cut_after(op: DiskOp, n: u64) -> Self {
        Self { op, n, goes: Goes::OffAfter }
    }

    /// What a failure says, for example [`ErrorKind::StorageFull`]. Means nothing for a power cut.
    pub fn saying(mut self, error: ErrorKind) -> Self {
        if let Goes::Wrong { kind, .. } = &mut self.goes {
            *kind = error;
        }
        self
    }

    /// All that follow fail as well, until [`FaultyDisk::heal`]: of this kind, and no others.
    pub fn from_then_on(mut self) -> Self {
        if let Goes::Wrong { from_then_on, .. } = &mut self.goes {
            *from_then_on = true;
        }
        self
    }

    /// It does half of its bytes before it fails: a read that ends early, a write that is torn.
    pub fn short(mut self) -> Self {
        if let Goes::Wrong { short, .. } = &mut self.goes {
            *short = true;
        }
        self
    }

    fn hits(&self, op: DiskOp, n: u64) -> bool {
        let repeats = matches!(self.goes, Goes::Wrong { from_then_on: true, .. });
        self.op == op && (self.n == n || (repeats && n > self.n))
    }
}

/// What becomes of the writes that were not synced when the power went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced {
    /// None is there.
    Lost,
    /// All of them are there.
    Kept,
    /// Some are there, and one of them was torn in the middle: chosen by this seed. A disk is free to do that, since it was not told to sync.
    Some(u64),
}

/// Something that changed the disk.
#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write(at, written) => {
                let end = at + written.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*at..end].copy_from_slice(written);
            }
            Self::SetLen(len) => bytes.resize(*len, 0),
        }
    }
}

#[derive(Default)]
struct Inside {
    /// What the next read sees.
    now: Vec<u8>,
    /// What the last sync made durable.
    durable: Vec<u8>,
    /// What came after it, in order.
    unsynced: Vec<Change>,
    counted: Counted,
    faults: Vec<DiskFault>,
    hit: u64,
    off: bool,
}

/// A disk in memory that loses what was not synced, tears writes and fails, where a test tells it to: under a
/// [`RedbStore`](crate::store::RedbStore) that is opened on it. Clones are the same disk.
///
/// It counts what is done with it, so that a test can let a run go through undisturbed first, and then let each sync, write and read of it go
/// wrong in turn. A sync that fails makes nothing durable and forgets nothing: the next one takes along what was written before.
///
/// ```
/// # use ferrata::{END, Graph, Runner, START, State, View};
/// use std::sync::Arc;
/// use ferrata::store::RedbOptions;
/// use ferrata::testing::{DiskFault, DiskOp, FaultyDisk, Unsynced};
/// # use serde::{Deserialize, Serialize};
/// # #[derive(State, Serialize, Deserialize, schemars::JsonSchema, Clone, Default)]
/// # struct Count { n: u64 }
/// # async fn add(s: View<Count>) -> ferrata::Result<CountUpdate> { Ok(Count::update().n(s.n + 1)) }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let graph = Graph::<Count>::new("count").node("add", add).edge(START, "add").edge("add", END).build()?;
/// let disk = FaultyDisk::new();
/// let store = RedbOptions::new().open_on(Arc::new(disk.clone()))?;
/// let syncs = disk.counted().of(DiskOp::Sync);
/// disk.inject(DiskFault::power_cut_after(DiskOp::Sync, syncs + 1)); // the input is durable, and no more
/// let runner = Runner::new(graph.clone(), store);
/// assert_eq!(runner.thread("t").run(Count::update().n(41)).await.unwrap_err().code(), "store");
///
/// let found = disk.after_power_cut(Unsynced::Some(7)); // a new process, the same machine
/// let runner = Runner::new(graph, RedbOptions::new().open_on(Arc::new(found))?);
/// assert_eq!(runner.thread("t").resume().await?.done().unwrap().n, 42);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct FaultyDisk {
    // A plain mutex: nothing is awaited while it is held.
    inside: Arc<Mutex<Inside>>,
}

impl FaultyDisk {
    /// An empty disk on which nothing goes wrong yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk with these bytes on it, all of them durable.
    pub fn holding(bytes: Vec<u8>) -> Self {
        let disk = Self::new();
        let mut inside = disk.lock();
        (inside.now, inside.durable) = (bytes.clone(), bytes);
        drop(inside);
        disk
    }

    /// Lets something go wrong; what was said before still holds.
    pub fn inject(&self, fault: DiskFault) {
        self.lock().faults.push(fault);
    }

    /// Nothing goes wrong any more. Power that is off stays off.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// How often each thing was done.
    pub fn counted(&self) -> Counted {
        self.lock().counted
    }

    /// How many times something went wrong as it was told to.
    pub fn hits(&self) -> u64 {
        self.lock().hit
    }

    /// The bytes that the next read would see.
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().now.clone()
    }

    /// The disk as it is found after the power went now: a new one, on which nothing goes wrong, and which counts from 0. This one stays as it is.
    pub fn after_power_cut(&self, unsynced: Unsynced) -> Self {
        let inside = self.lock();
        let mut bytes = inside.durable.clone();
        match unsynced {
            Unsynced::Lost => {}
            Unsynced::Kept => inside.unsynced.iter().for_each(|change| change.apply(&mut bytes)),
            Unsynced::Some(seed) => some(&inside.unsynced, &mut Dice(seed), &mut bytes),
        }
        drop(inside);
        Self::holding(bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A half of the changes, in order, and one of them torn.
fn some(changes: &[Change], dice: &mut Dice, bytes: &mut Vec<u8>) {
    let torn = dice.below(changes.len().max(1));
    for (place, change) in changes.iter().enumerate() {
        match change {
            Change::Write(at, written) if place == torn => {
                let sectors: Vec<&[u8]> = written.chunks(SECTOR).collect();
                let cut = dice.below(sectors.len() + 1);
                // Either the beginning or the end of it.
                let kept = if dice.below(2) == 0 { 0..cut } else { cut..sectors.len() };
                let from = at + kept.start * SECTOR;
                Change::Write(from, sectors[kept].concat()).apply(bytes);
            }
            change if dice.below(2) == 0 => change.apply(bytes),
            _ => {}
        }
    }
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % n as u64).unwrap_or_default()
    }
}

fn off() -> io::Error {
    io::Error::new(ErrorKind::NotConnected, "the power is off")
}

fn index(at: u64) -> io::Result<usize> {
    usize::try_from(at).map_err(|_| ErrorKind::InvalidInput.into())
}

impl Inside {
    /// Counts, and does it: all of it, half of it, or nothing. `act` gets how much, as a share of 2.
    fn act(&mut self, op: DiskOp, mut act: impl FnMut(&mut Self, usize) -> io::Result<()>) -> io::Result<()> {
        if self.off {
            return Err(off());
        }
        self.counted.0[op as usize] += 1;
        let n = self.counted.of(op);
        let Some(fault) = self.faults.iter().find(|fault| fault.hits(op, n)).copied() else { return act(self, 2) };
        self.hit += 1;
        match fault.goes {
            Goes::Wrong { kind, short, .. } => {
                if short {
                    act(self, 1)?;
                }
                let kind = if short && op == DiskOp::Read { ErrorKind::UnexpectedEof } else { kind };
                Err(io::Error::new(kind, format!("{op:?} {n} fails, as it was told to")))
            }
            Goes::OffWithin => {
                if matches!(op, DiskOp::Write | DiskOp::SetLen) {
                    act(self, 2)?;
                }
                self.off = true;
                Err(off())
            }
            Goes::OffAfter => {
                act(self, 2)?;
                self.off = true;
                Ok(())
            }
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.unsynced.push(change);
    }
}

impl Disk for FaultyDisk {
    fn len(&self) -> io::Result<u64> {
        let inside = self.lock();
        if inside.off { Err(off()) } else { Ok(inside.now.len() as u64) }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let from = index(at)?;
        self.lock().act(DiskOp::Read, |inside, share| {
            let end = from.checked_add(into.len()).filter(|end| *end <= inside.now.len()).ok_or(ErrorKind::UnexpectedEof)?;
            let read = (end - from) * share / 2;
            into[..read].copy_from_slice(&inside.now[from..from + read]);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = index(len)?;
        self.lock().act(DiskOp::SetLen, |inside, share| {
            if share == 2 {
                inside.change(Change::SetLen(len));
            }
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.lock().act(DiskOp::Sync, |inside, share| {
            if share == 2 {
                let written = std::mem::take(&mut inside.unsynced);
                written.iter().for_each(|change| change.apply(&mut inside.durable));
            }
            Ok(())
        })
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let from = index(at)?;
        self.lock().act(DiskOp::Write, |inside, share| {
            inside.change(Change::Write(from, bytes[..bytes.len() * share / 2].to_vec()));
            Ok(())
        })
    }
}

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inside = self.lock();
        f.debug_struct("FaultyDisk").field("bytes", &inside.now.len()).field("counted", &inside.counted).finish_non_exhaustive()
    }
}
