//! Does what the script says, one operation after the other.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::begin::{back, begins, find};
use super::body::written;
use super::build::{self, BuildFailure};
use super::engine::{Runner, Thread, asked};
use super::expr::Scope;
use super::operation::{Durability, Edit, Operation, Place, Run};
use super::runs::{self, Begin, Ended, Failure, Happened, Limits, Shot, handle};
use super::scenario::{Graph, Names, Scenario};
use super::store::{StoreKind, Stores};
use super::stream::{self, End, Start};
use super::trace;
use super::update::{Fields, changes};
use super::world::World;

type Keys = Map<String, Value>;

/// A scenario that is being run.
struct Session<'s> {
    scenario: &'s Scenario,
    graph: &'s Graph,
    fields: Fields,
    world: Arc<World>,
    stores: Stores,
}

/// The whole trace of a scenario.
pub(crate) async fn run(scenario: &Scenario, store: &StoreKind) -> Value {
    let Some(graph) = scenario.graphs.get("main") else {
        return trace::not_built(&scenario.name, "InvalidGraph", "there is no graph main");
    };
    let stores = Stores::new(store, graph.compile.checkpointer != Some(json!(false)));
    let session = Session { scenario, graph, fields: build::fields(graph), world: Arc::default(), stores };
    let mut runner = match session.open() {
        Ok(runner) => runner,
        Err(BuildFailure::Invalid(why)) => return trace::not_built(&scenario.name, "InvalidGraph", &why),
        Err(BuildFailure::Unsupported(what)) => return trace::not_built(&scenario.name, "Unsupported", &what),
    };
    let mut entries = Vec::new();
    for operation in &scenario.script {
        let keys = match operation {
            Operation::NewProcess => {
                session.world.set_runner(None);
                drop(runner);
                runner = match session.open() {
                    Ok(runner) => runner,
                    Err(failure) => return trace::not_built(&scenario.name, "Unsupported", &format!("{failure:?}")),
                };
                Keys::new()
            }
            other => session.operate(&runner, other).await.unwrap_or_else(|failure| trace::failed(&failure)),
        };
        entries.push(trace::entry(operation.name(), keys, session.world.totals()));
    }
    session.world.set_runner(None);
    trace::built(&scenario.name, entries)
}

impl Session<'_> {
    /// Builds all graphs and opens the store.
    fn open(&self) -> Result<Runner, BuildFailure> {
        for (name, graph) in self.scenario.graphs.0.iter().filter(|(name, _)| name != "main") {
            build::build(name, graph, &self.world)?;
        }
        let graph = build::build("main", self.graph, &self.world)?;
        let runner = self.stores.runner(graph).map_err(|error| BuildFailure::Unsupported(error.to_string()))?;
        self.world.set_runner(Some(runner.clone()));
        Ok(runner)
    }

    async fn operate(&self, runner: &Runner, operation: &Operation) -> Result<Keys, Failure> {
        match operation {
            Operation::Invoke(run) | Operation::Stream(run) => Ok(self.run(runner, run).await),
            Operation::GetState(place) => self.get_state(runner, place).await,
            Operation::History(place) => self.history(runner, place).await,
            Operation::UpdateState(edit) => self.update_state(runner, edit).await,
            Operation::DeleteThread(place) => {
                runner.thread(&place.thread).delete().await?;
                Ok(done())
            }
            Operation::NewProcess => Ok(Keys::new()),
        }
    }

    async fn get_state(&self, runner: &Runner, place: &Place) -> Result<Keys, Failure> {
        let thread = handle(runner, &place.thread, &Limits::default());
        if !place.inside.is_empty() || place.subgraphs {
            return Err(Failure::Unsupported("the state of a subgraph"));
        }
        let shot = match &place.at {
            Some(at) => Some(find(runs::history(&thread).await?, at)?),
            None => runs::live(&thread).await?,
        };
        Ok(one("state", trace::snapshot(shot.as_ref())))
    }

    async fn history(&self, runner: &Runner, place: &Place) -> Result<Keys, Failure> {
        if !place.inside.is_empty() {
            return Err(Failure::Unsupported("the history of a subgraph"));
        }
        let shots = runs::history(&handle(runner, &place.thread, &Limits::default())).await?;
        let limit = place.limit.unwrap_or(shots.len());
        Ok(one("states", shots.iter().take(limit).map(|shot| trace::snapshot(Some(shot))).collect()))
    }

    async fn update_state(&self, runner: &Runner, edit: &Edit) -> Result<Keys, Failure> {
        if !edit.inside.is_empty() {
            return Err(Failure::Unsupported("editing inside a subgraph"));
        }
        let mut thread = handle(runner, &edit.thread, &Limits::default());
        if let Some(at) = &edit.at {
            thread = back(&thread, at).await?;
        }
        let values = edit.values.clone().unwrap_or_default();
        let values = written(&values, &Scope::default()).map_err(|_| Failure::Refused("InvalidUpdate"))?;
        runs::edit(&thread, changes(&self.fields, values), edit.as_node.as_deref()).await?;
        Ok(done())
    }

    /// Invoke and stream: the same run, told in two ways.
    async fn run(&self, runner: &Runner, run: &Run) -> Keys {
        let mut told = Vec::new();
        let mut start = Start::default();
        let ended = self.begin_and_run(runner, run, &mut start, &mut told).await;
        let thread = handle(runner, &run.thread, &Limits::default());
        let live = runs::live(&thread).await.ok().flatten();
        let values = match (&ended, live) {
            (Ok(Ended::Done(values)), _) => values.clone(),
            // Of a run that stopped the engine tells questions; the values are those of its thread.
            (_, Some(live)) => live.values,
            // Without a store the last merged values are all there is.
            (_, None) => told.iter().rev().find_map(merged).unwrap_or_default(),
        };
        let mut keys = match &ended {
            Err(failure) => trace::failed(failure),
            Ok(Ended::Done(_)) => done(),
            Ok(Ended::Asked(questions)) => {
                let questions = trace::sorted(questions.iter().map(|question| asked(question)).collect());
                Keys::from_iter([("status".to_owned(), "interrupted".into()), ("interrupts".to_owned(), json!(questions))])
            }
            Ok(Ended::Stopped) => {
                Keys::from_iter([("status".to_owned(), "interrupted".into()), ("interrupts".to_owned(), json!([]))])
            }
        };
        match &run.mode {
            Some(modes) => {
                let end = End {
                    asked: matches!(ended, Ok(Ended::Asked(_))).then_some(values),
                    at_breakpoint: matches!(ended, Ok(Ended::Stopped)),
                };
                start.made = made(&thread, start.made).await;
                keys.insert("chunks".to_owned(), stream::chunks(modes.list(), start, told, &end).into());
            }
            None => match &ended {
                Ok(Ended::Done(_)) => _ = keys.insert("values".to_owned(), values.into()),
                Ok(_) => _ = keys.insert("values".to_owned(), self.output(values).into()),
                Err(_) => {}
            },
        }
        keys
    }

    async fn begin_and_run(
        &self,
        runner: &Runner,
        run: &Run,
        start: &mut Start,
        told: &mut Vec<Happened>,
    ) -> Result<Ended, Failure> {
        let mut thread = handle(runner, &run.thread, &self.limits(run));
        if let Some(at) = &run.at {
            thread = back(&thread, at).await?;
        }
        self.world.set_records_at_once(run.durability != Some(Durability::Exit) && !matches!(self.stores, Stores::None));
        let begins = begins(&thread, &self.fields, run).await?;
        let before = runs::history(&thread).await.unwrap_or_default();
        match begins.first() {
            Some(Begin::Input(changes)) => start.wrote = !changes.is_empty(),
            _ => {
                start.continued = before.first().cloned();
                start.kept = runs::kept(&thread.log().await.unwrap_or_default());
            }
        }
        start.made = before;
        let mut ended = Err(Failure::Refused("EmptyInput"));
        for begin in begins {
            ended = Ok(runs::run(&thread, begin, told).await?);
        }
        ended
    }

    fn limits(&self, run: &Run) -> Limits {
        let names: Vec<String> = self.graph.nodes.0.iter().map(|(name, _)| name.clone()).collect();
        let stops = |stops: &Option<Names>| stops.as_ref().map(|stops| build::stops(stops, &names));
        Limits {
            // The engine's own limit is higher than the scenario's.
            steps_max: Some(run.recursion_limit.unwrap_or(25).try_into().unwrap_or(0)),
            before: stops(&run.interrupt_before),
            after: stops(&run.interrupt_after),
            durability: run.durability,
        }
    }

    /// The fields that a run gives back, for one that stopped on its way.
    fn output(&self, mut values: Keys) -> Keys {
        let private = |name: &String| self.fields.get(name).is_some_and(|field| field.private);
        match &self.graph.output_schema {
            Some(output) => values.retain(|name, _| output.contains(name)),
            None => values.retain(|name, _| !private(name)),
        }
        values
    }
}

/// The checkpoints that were not there before, oldest first.
async fn made(thread: &Thread, before: Vec<Shot>) -> Vec<Shot> {
    let mut shots = runs::history(thread).await.unwrap_or_default();
    shots.retain(|shot| before.iter().all(|old| old.position != shot.position));
    shots.reverse();
    shots
}

fn merged(happened: &Happened) -> Option<Keys> {
    match happened {
        Happened::Merged { values } => Some(values.clone()),
        _ => None,
    }
}

fn done() -> Keys {
    one("status", "done".into())
}

fn one(key: &str, value: Value) -> Keys {
    Keys::from_iter([(key.to_owned(), value)])
}
