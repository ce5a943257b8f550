//! The options of the service.

use std::path::PathBuf;
use std::time::Duration;

/// What was asked for on the command line.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) store: PathBuf,
    pub(crate) ledger: PathBuf,
    pub(crate) threads: u64,
    pub(crate) step: Duration,
    pub(crate) patience: Duration,
    pub(crate) drain: Duration,
    pub(crate) deaths_max: u32,
    pub(crate) asks: bool,
    pub(crate) poison: Option<String>,
    pub(crate) hang: Option<String>,
    pub(crate) block: Option<String>,
}

impl Options {
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut store, mut ledger, mut asks) = (None, None, false);
        let (mut threads, mut step, mut patience, mut drain, mut deaths_max) = (20, 200, 600_000, 10_000, 3);
        let (mut poison, mut hang, mut block) = (None, None, None);
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
            let number = |text: String| text.parse::<u64>().map_err(|_| format!("{name} takes a whole number"));
            match name.as_str() {
                "--store" => store = Some(value()?.into()),
                "--ledger" => ledger = Some(value()?.into()),
                "--threads" => threads = number(value()?)?,
                "--step-ms" => step = number(value()?)?,
                "--patience-ms" => patience = number(value()?)?,
                "--drain-ms" => drain = number(value()?)?,
                "--deaths-max" => deaths_max = number(value()?)?.try_into().map_err(|_| "--deaths-max is too large")?,
                "--ask" => asks = true,
                "--poison" => poison = Some(value()?),
                "--hang" => hang = Some(value()?),
                "--block" => block = Some(value()?),
                other => return Err(format!("there is no option {other}; see the top of examples/service.rs")),
            }
        }
        let (store, ledger) = (store.ok_or("--store FILE is missing")?, ledger.ok_or("--ledger FILE is missing")?);
        let [step, patience, drain] = [step, patience, drain].map(Duration::from_millis);
        Ok(Self { store, ledger, threads, step, patience, drain, deaths_max, asks, poison, hang, block })
    }
}
