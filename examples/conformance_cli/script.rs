//! Does what the script says, one operation after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferrata::Path;
use ferrata::log::Record;
use serde_json::{Map, Value, json};

use super::begin::{back, begins, find};
use super::body::written;
use super::build::{self, Around, BuildFailure, Built};
use super::engine::{Runner, Thread, asked};
use super::expr::Scope;
use super::operation::{Durability, Edit, Operation, Place, Run};
use super::runs::{self, Begin, Ended, Failure, GraphNodes, Happened, Limits, Shot, handle};
use super::scenario::{Graph, Names, Scenario};
use super::store::{StoreKind, Stores};
use super::stream::{self, End, Start, Watch};
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
    /// The durability of all runs, in place of their own.
    durability: Option<Durability>,
}

/// The whole trace of a scenario, with its runs in their own durability or all in one.
pub(crate) async fn run(scenario: &Scenario, store: &StoreKind, durability: Option<Durability>) -> Value {
    let Some(graph) = scenario.graphs.get("main") else {
        return trace::not_built(&scenario.name, "InvalidGraph", "there is no graph main");
    };
    let stores = Stores::new(store, graph.compile.checkpointer != Some(json!(false)));
    let session = Session { scenario, graph, fields: build::fields(graph), world: Arc::default(), stores, durability };
    let mut runner = match session.open() {
        Ok(runner) => runner,
        Err(BuildFailure::Invalid(why)) => return trace::not_built(&scenario.name, "InvalidGraph", &why),
        Err(BuildFailure::Store(what)) => return trace::not_built(&scenario.name, "Store", &what),
    };
    let mut entries = Vec::new();
    for operation in &scenario.script {
        let keys = match operation {
            Operation::NewProcess => {
                session.world.set_runner(None);
                drop(runner);
                runner = match session.open() {
                    Ok(runner) => runner,
                    Err(failure) => return trace::not_built(&scenario.name, "Reopen", &format!("{failure:?}")),
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
        let mut built = Built::new();
        for (name, graph) in self.scenario.graphs.0.iter().filter(|(name, _)| name != "main") {
            let around = Around { graphs: &self.scenario.graphs, built: &built, world: &self.world };
            let graph = build::build(name, graph, &around)?;
            built.insert(name.clone(), graph);
        }
        let around = Around { graphs: &self.scenario.graphs, built: &built, world: &self.world };
        let graph = build::build("main", self.graph, &around)?;
        let runner = self.stores.runner(graph).map_err(|error| BuildFailure::Store(error.to_string()))?;
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
        let (shot, thread) = match &place.at {
            Some(at) => (Some(find(runs::history(&thread, &place.inside).await?, at)?), back(&thread, at).await?),
            None => (runs::live(&thread, &place.inside).await?, thread),
        };
        let mut shot = shot;
        if let Some(shot) = shot.as_mut().filter(|_| place.subgraphs) {
            runs::with_inner(&thread, shot).await;
        }
        Ok(one("state", trace::snapshot(shot.as_ref())))
    }

    async fn history(&self, runner: &Runner, place: &Place) -> Result<Keys, Failure> {
        let shots = runs::history(&handle(runner, &place.thread, &Limits::default()), &place.inside).await?;
        let limit = place.limit.unwrap_or(shots.len());
        Ok(one("states", shots.iter().take(limit).map(|shot| trace::snapshot(Some(shot))).collect()))
    }

    async fn update_state(&self, runner: &Runner, edit: &Edit) -> Result<Keys, Failure> {
        let mut thread = handle(runner, &edit.thread, &Limits::default());
        if let Some(at) = &edit.at {
            thread = back(&thread, at).await?;
        }
        let values = edit.values.clone().unwrap_or_default();
        let values = written(&values, &Scope::default()).map_err(|_| Failure::Refused("InvalidUpdate"))?;
        let fields = self.fields_inside(&edit.inside);
        runs::edit(&thread, &edit.inside, changes(&fields, values), edit.as_node.as_deref()).await?;
        Ok(done())
    }

    /// The nodes that are graphs. Names of nodes are unique over the graphs of a scenario.
    fn graph_nodes(&self) -> GraphNodes {
        let nodes = self.scenario.graphs.0.iter().flat_map(|(_, graph)| graph.nodes.0.iter().map(move |node| (graph, node)));
        let graphs = nodes.filter(|(_, (_, node))| node.subgraph.is_some());
        let seen = graphs.map(|(graph, (name, node))| {
            let open = build::fields(graph);
            let open = open.iter().filter(|(_, field)| !field.private).map(|(name, _)| name.clone());
            (name.clone(), node.reads.clone().map_or_else(|| open.collect(), |reads| reads.into_iter().collect()))
        });
        seen.collect()
    }

    /// The fields of the graph that these nodes lead to.
    fn fields_inside(&self, nodes: &[String]) -> Fields {
        let inner = nodes.iter().try_fold(self.graph, |graph, node| {
            let (_, node) = graph.nodes.0.iter().find(|(name, _)| name == node)?;
            self.scenario.graphs.get(node.subgraph.as_deref()?)
        });
        inner.map_or_else(Fields::default, build::fields)
    }

    /// Invoke and stream: the same run, told in two ways.
    async fn run(&self, runner: &Runner, run: &Run) -> Keys {
        let mut told = Vec::new();
        let mut start = Start::default();
        let ended = self.begin_and_run(runner, run, &mut start, &mut told).await;
        let thread = handle(runner, &run.thread, &Limits::default());
        let live = runs::live(&thread, &[]).await.ok().flatten();
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
                let inner = if run.subgraphs { inner_starts(&thread, start.log, &told).await } else { BTreeMap::new() };
                let watch = Watch { modes: modes.list(), subgraphs: run.subgraphs };
                keys.insert("chunks".to_owned(), stream::chunks(&watch, start, inner, told, &end).into());
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
        told: &mut Vec<(Path, Happened)>,
    ) -> Result<Ended, Failure> {
        let mut thread = handle(runner, &run.thread, &self.limits(run));
        if let Some(at) = &run.at {
            thread = back(&thread, at).await?;
        }
        self.world.set_records_at_once(self.durability(run) != Some(Durability::Exit) && !matches!(self.stores, Stores::None));
        let begin = begins(&thread, &self.fields, run).await?;
        let before = runs::history(&thread, &[]).await.unwrap_or_default();
        let log = thread.log().await.unwrap_or_default();
        start.log = log.len();
        match &begin {
            Begin::Input(changes) => start.wrote = !changes.is_empty(),
            _ => {
                start.continued = before.first().cloned();
                start.kept = runs::kept(&log, &Path::ROOT);
            }
        }
        start.made = before;
        runs::run(&thread, begin, &self.graph_nodes(), told).await
    }

    fn durability(&self, run: &Run) -> Option<Durability> {
        self.durability.or(run.durability)
    }

    fn limits(&self, run: &Run) -> Limits {
        let names: Vec<String> = self.graph.nodes.0.iter().map(|(name, _)| name.clone()).collect();
        let stops = |stops: &Option<Names>| stops.as_ref().map(|stops| build::stops(stops, &names));
        Limits {
            // The engine's own limit is higher than the scenario's.
            steps_max: Some(run.recursion_limit.unwrap_or(25).try_into().unwrap_or(0)),
            before: stops(&run.interrupt_before),
            after: stops(&run.interrupt_after),
            durability: self.durability(run),
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
    let mut shots = runs::history(thread, &[]).await.unwrap_or_default();
    shots.retain(|shot| before.iter().all(|old| old.position != shot.position));
    shots.reverse();
    shots
}

/// How the graphs inside began in a run before which the log had that length.
async fn inner_starts(thread: &Thread, log_before: usize, told: &[(Path, Happened)]) -> BTreeMap<Path, Start> {
    let log = thread.log().await.unwrap_or_default();
    let paths: BTreeSet<&Path> = told.iter().map(|(path, _)| path).filter(|path| !path.is_root()).collect();
    let mut starts = BTreeMap::new();
    for path in paths {
        let mut shots = runs::history_at(thread, path).await;
        shots.reverse();
        let before = |shot: &Shot| shot.position.is_some_and(|position| position.0 < log_before as u64);
        let input = log.iter().skip(log_before).find_map(|entry| match &entry.record {
            Record::Input(input) if input.path == *path => Some(!input.changes.is_empty()),
            _ => None,
        });
        let mut start = Start { wrote: input.unwrap_or(true), ..Start::default() };
        if input.is_none() && !log.is_empty() {
            start.continued = shots.iter().rfind(|shot| before(shot)).cloned();
            start.kept = runs::kept(&log[..log_before.min(log.len())], path);
        }
        start.made = shots.into_iter().filter(|shot| !before(shot)).collect();
        starts.insert(path.clone(), start);
    }
    starts
}

fn merged((path, happened): &(Path, Happened)) -> Option<Keys> {
    match happened {
        Happened::Merged { values } if path.is_root() => Some(values.clone()),
        _ => None,
    }
}

fn done() -> Keys {
    one("status", "done".into())
}

fn one(key: &str, value: Value) -> Keys {
    Keys::from_iter([(key.to_owned(), value)])
}
