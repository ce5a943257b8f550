//! An API token in the state that never reaches the file of the threads: the store gets a reference, a vault has the value.
//!
//! ```sh
//! cargo run --example vault -- --store /tmp/jobs.redb --vault /tmp/vault.json --token key-to-the-hut
//! cargo run --example vault -- --store /tmp/jobs.redb --forget    # refused: the token is needed, and nobody has it
//! ```
//!
//! `--vault FILE` keeps tokens in a file of its own, which stands here for a keychain or a secret manager. `--forget` keeps them in memory only, so
//! that each process needs `--token` again. `--pause-at NODE` lets that node wait for ten minutes, after the line `NODE` on standard output: time
//! to kill the process. The same command again continues the job.
//!
//! Exit code 0: done, with the state as JSON; 5: the token is needed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::store::RedbStore;
use ferrata::{BuildError, END, ForgetSecrets, Graph, Outcome, Runner, START, SecretPlace, Secrets, SecretsError, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
struct Upload {
    #[state(secret)]
    token: Option<String>,
    #[state(append)]
    log: Vec<String>,
}

/// Keeps values in a file; a store gets the names they have there.
struct Vault {
    file: PathBuf,
    // One writer at a time.
    lock: Mutex<()>,
}

impl Vault {
    fn read(&self) -> Result<BTreeMap<String, Value>, SecretsError> {
        if !self.file.exists() {
            return Ok(BTreeMap::new());
        }
        Ok(serde_json::from_slice(&std::fs::read(&self.file)?)?)
    }
}

impl Secrets for Vault {
    fn seal(&self, place: SecretPlace<'_>, value: Value) -> Result<Value, SecretsError> {
        let _one = self.lock.lock().map_err(|_| "the vault is broken")?;
        let mut values = self.read()?;
        // A value that is known has a name already.
        let known = values.iter().find(|(_, known)| **known == value).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| format!("{}/{}/{}", place.thread, place.field, values.len()));
        values.insert(name.clone(), value);
        // The value has to be safe before the store speaks of it.
        let new = self.file.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(&values)?)?;
        std::fs::File::open(&new)?.sync_all()?;
        std::fs::rename(new, &self.file)?;
        Ok(name.into())
    }

    fn open(&self, _: SecretPlace<'_>, stored: Value) -> Result<Option<Value>, SecretsError> {
        let Some(name) = stored.as_str() else { return Ok(None) };
        Ok(self.read()?.remove(name))
    }
}

struct Options {
    store: PathBuf,
    vault: Option<PathBuf>,
    token: Option<String>,
    pause_at: Option<String>,
}

fn options() -> Result<Options, String> {
    let (mut store, mut vault, mut token, mut pause_at, mut forget) = (None, None, None, None, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--store" => store = Some(PathBuf::from(value()?)),
            "--vault" => vault = Some(PathBuf::from(value()?)),
            "--token" => token = Some(value()?),
            "--pause-at" => pause_at = Some(value()?),
            "--forget" => forget = true,
            other => return Err(format!("unknown option {other}; the options are described at the top of examples/vault.rs")),
        }
    }
    if vault.is_some() == forget {
        return Err("say where the token is kept: --vault FILE, or --forget".to_owned());
    }
    Ok(Options { store: store.ok_or("--store FILE is missing")?, vault, token, pause_at })
}

/// check, upload, tell: each uses the token.
fn graph(pause_at: Option<String>) -> Result<Graph<Upload>, BuildError> {
    let pause_at = Arc::new(pause_at);
    let step = |name: &'static str| {
        let pause_at = Arc::clone(&pause_at);
        move |s: View<Upload>| {
            let pause_at = Arc::clone(&pause_at);
            async move {
                println!("{name}");
                if pause_at.as_deref() == Some(name) {
                    tokio::time::sleep(Duration::from_secs(600)).await;
                }
                let token = s.token.as_deref().ok_or_else(|| ferrata::NodeError::new("there is no token"))?;
                Ok(Upload::update().push_log(format!("{name} with a token of {} bytes", token.len())))
            }
        }
    };
    let graph =
        Graph::<Upload>::new("upload").node("check", step("check")).node("upload", step("upload")).node("tell", step("tell"));
    graph.edge(START, "check").edge("check", "upload").edge("upload", "tell").edge("tell", END).build()
}

async fn run() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let Options { store, vault, token, pause_at } = options()?;
    let runner = Runner::new(graph(pause_at)?, RedbStore::open(store)?);
    let runner = match vault {
        Some(file) => runner.secrets(Vault { file, lock: Mutex::new(()) }),
        None => runner.secrets(ForgetSecrets),
    };
    let mut thread = runner.thread("upload");
    if let Some(token) = &token {
        // For a thread that has begun; one that begins gets it with the input.
        thread = thread.secret("token", token.as_str());
    }
    match thread.run_once(Upload::update().token(token)).await {
        Ok(Outcome::Done(state)) => println!("{}", serde_json::to_string(&state.log)?),
        Ok(other) => return Err(format!("{other:?}").into()),
        Err(error) if error.code() == "secret-missing" => {
            eprintln!("{error}");
            return Ok(ExitCode::from(5));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

#[tokio::main]
async fn main() -> ExitCode {
    run().await.unwrap_or_else(|error| {
        eprintln!("{error}");
        ExitCode::FAILURE
    })
}
