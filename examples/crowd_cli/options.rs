//! The options of the crowd.

use std::path::PathBuf;

/// The places where a process can be told to stand still, apart from those before and after a kind of record.
const PLACES: [&str; 5] = ["effect", "repeatable", "written", "sync", "synced"];

/// Where the process stands still until it is killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Halt {
    /// The place.
    pub(crate) place: String,
    /// At which time it comes there, from 1.
    pub(crate) nth: u64,
}

impl Halt {
    fn parse(text: &str) -> Result<Self, String> {
        let help = || format!("--halt takes PLACE:N, where PLACE is before:KIND, after:KIND, or one of {}", PLACES.join(", "));
        let (place, nth) = text.rsplit_once(':').ok_or_else(help)?;
        let is_place = PLACES.contains(&place) || place.starts_with("before:") || place.starts_with("after:");
        let nth = nth.parse().ok().filter(|nth| *nth > 0 && is_place).ok_or_else(help)?;
        Ok(Self { place: place.to_owned(), nth })
    }

    /// Whether it lies below the store.
    pub(crate) fn is_of_the_disk(&self) -> bool {
        matches!(self.place.as_str(), "written" | "sync" | "synced")
    }
}

/// What was asked for on the command line.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) store: PathBuf,
    pub(crate) ledger: PathBuf,
    pub(crate) threads: u64,
    pub(crate) rounds: u64,
    pub(crate) halt: Option<Halt>,
    pub(crate) check: bool,
}

impl Options {
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut store, mut ledger, mut threads, mut rounds, mut halt, mut check) = (None, None, 200, 1, None, false);
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
            match name.as_str() {
                "--store" => store = Some(value()?.into()),
                "--ledger" => ledger = Some(value()?.into()),
                "--threads" => threads = value()?.parse().map_err(|_| "--threads takes a whole number")?,
                "--rounds" => rounds = value()?.parse().map_err(|_| "--rounds takes a whole number")?,
                "--halt" => halt = Some(Halt::parse(&value()?)?),
                "--check" => check = true,
                other => return Err(format!("there is no option {other}; see the top of examples/crowd.rs")),
            }
        }
        let (store, ledger) = (store.ok_or("--store FILE is missing")?, ledger.ok_or("--ledger FILE is missing")?);
        Ok(Self { store, ledger, threads, rounds, halt, check })
    }
}
