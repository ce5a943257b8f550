//! Runs one scenario of `tests/conformance` and prints its trace as JSON.
//!
//! ```sh
//! cargo run --example conformance -- tests/conformance/scenarios/basics-linear.json
//! cargo run --example conformance -- --store redb tests/conformance/scenarios/basics-linear.json
//! ```

mod conformance_cli;

use std::error::Error;
use std::path::PathBuf;

use conformance_cli::{Scenario, StoreKind, run};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (mut path, mut redb) = (None, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--store" => match arguments.next().as_deref() {
                Some("memory") => redb = false,
                Some("redb") => redb = true,
                _ => return Err("--store takes memory or redb".into()),
            },
            _ => path = Some(PathBuf::from(argument)),
        }
    }
    let path = path.ok_or("usage: conformance [--store memory|redb] SCENARIO")?;
    let scenario: Scenario = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
    let folder = tempfile::tempdir()?;
    let store = if redb { StoreKind::Redb(folder.path().to_owned()) } else { StoreKind::Memory };
    println!("{}", run(&scenario, &store, None).await);
    Ok(())
}
