//! Runs the body of a node: operation after operation, collecting one update.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ferrata::{Context, NodeError};
use serde_json::{Map, Value};

use super::engine::{self, Returned};
use super::expr::{Scope, evaluate, is_true};
use super::scenario::{Command, Op};
use super::update::{Collected, Fields, Written, changes};
use super::world::World;

/// How long a body waits for its siblings' records before it goes on regardless.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits where nothing is recorded that it could look for.
const BLIND_WAIT: Duration = Duration::from_millis(50);

/// A body as the graph holds it.
pub(crate) struct Body {
    /// What it is counted under: the node, or `on_error:NODE`.
    pub(crate) name: String,
    pub(crate) ops: Vec<Op>,
    pub(crate) fields: Fields,
    /// Those of the graph outside, if there is one.
    pub(crate) parent: Option<Fields>,
    /// Those of all graphs, for calls.
    pub(crate) graphs: BTreeMap<String, Fields>,
    /// The fields in which it sees how many steps are left.
    pub(crate) steps_left: Vec<String>,
    pub(crate) world: Arc<World>,
}

impl Body {
    /// Runs from the first operation to the last, or to the one that ends the body.
    pub(crate) async fn run(&self, mut input: Map<String, Value>, context: Context) -> Result<Returned, NodeError> {
        self.world.started(&self.name);
        input.extend(self.steps_left.iter().map(|field| (field.clone(), context.steps_left().into())));
        engine::tell_start(&context, &input)?;
        let scope = Scope { fields: input, ..Scope::default() };
        let mut task = Task { body: self, context, scope, collected: Collected::new(), goto: Vec::new(), to_parent: false };
        task.all(&self.ops).await?;
        let fields = self.parent.as_ref().filter(|_| task.to_parent).unwrap_or(&self.fields);
        Ok(Returned { changes: changes(fields, task.collected), goto: task.goto, to_parent: task.to_parent })
    }
}

/// Whether the body goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Ended,
}

type Running<'t> = Pin<Box<dyn Future<Output = Result<Flow, NodeError>> + Send + 't>>;

/// One run of a body.
struct Task<'b> {
    body: &'b Body,
    context: Context,
    scope: Scope,
    collected: Collected,
    goto: Vec<Target>,
    to_parent: bool,
}

/// Where a route or a goto leads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    Node(String),
    Send(String, Value),
}

impl Task<'_> {
    fn all<'t>(&'t mut self, ops: &'t [Op]) -> Running<'t> {
        Box::pin(async move {
            for op in ops {
                if self.one(op).await? == Flow::Ended {
                    return Ok(Flow::Ended);
                }
            }
            Ok(Flow::On)
        })
    }

    async fn one(&mut self, op: &Op) -> Result<Flow, NodeError> {
        match op {
            Op::Write { write } => self.write(write)?,
            Op::Let { bind } => {
                for (name, expression) in bind {
                    let value = self.value(expression)?;
                    self.scope.variables.insert(name.clone(), value);
                }
            }
            Op::Count { count } => self.body.world.count(count),
            Op::Emit { emit } => engine::emit(&self.context, &self.value(emit)?)?,
            Op::Interrupt { interrupt, name } => {
                let question = self.value(interrupt)?;
                let answer = engine::ask(&self.context, &question).await?;
                self.scope.variables.insert(name.clone(), answer);
            }
            Op::Fail { fail, times } => {
                if self.body.world.fails(&self.body.name, *times) {
                    return Err(engine::injected(*fail));
                }
            }
            Op::If { condition, then, otherwise } => {
                let chosen = if is_true(&self.value(condition)?) { then } else { otherwise };
                return self.all(chosen).await;
            }
            Op::While { condition, body } => {
                while is_true(&self.value(condition)?) {
                    if self.all(body).await? == Flow::Ended {
                        return Ok(Flow::Ended);
                    }
                }
            }
            Op::After { after, tasks } => wait_for(&self.body.world, &self.context, after, *tasks).await,
            Op::Call { call, input, name } => {
                let input = self.value(input)?;
                let fields = self.body.graphs.get(call).cloned().unwrap_or_default();
                let output = engine::call(&self.context, call, &fields, &input).await?;
                self.scope.variables.insert(name.clone(), output);
            }
            Op::Command { command } => return self.command(command),
            Op::Return { result } => {
                let result = self.value(result)?;
                return Ok(self.finish(result));
            }
        }
        Ok(Flow::On)
    }

    fn value(&self, expression: &Value) -> Result<Value, NodeError> {
        Ok(evaluate(expression, &self.scope)?)
    }

    fn write(&mut self, fields: &Map<String, Value>) -> Result<(), NodeError> {
        self.collected.extend(written(fields, &self.scope)?);
        Ok(())
    }

    fn command(&mut self, command: &Command) -> Result<Flow, NodeError> {
        self.to_parent = command.graph.is_some();
        self.write(&command.update.clone().unwrap_or_default())?;
        if let Some(goto) = &command.goto {
            let goto = self.value(goto)?;
            // What is no target leads to a node without a name, which the engine refuses.
            self.goto = targets(&goto).unwrap_or_else(|| vec![Target::Node(String::new())]);
        }
        Ok(Flow::Ended)
    }

    /// The result instead of what was collected. What is no object becomes an update of a field without a name, which the engine
    /// refuses.
    fn finish(&mut self, result: Value) -> Flow {
        self.collected = match result {
            Value::Object(fields) => super::update::plain(&fields),
            other => Collected::from([(String::new(), Written::Update(other))]),
        };
        Flow::Ended
    }
}

/// Evaluates what is to be written; an `overwrite` stands only at the top of a value.
pub(crate) fn written(fields: &Map<String, Value>, scope: &Scope) -> Result<Collected, NodeError> {
    let one = |(name, expression): (&String, &Value)| {
        let overwrite = expression.as_object().filter(|object| object.len() == 1).and_then(|object| object.get("overwrite"));
        let written = match overwrite {
            Some(inner) => Written::Overwrite(evaluate(inner, scope)?),
            None => Written::Update(evaluate(expression, scope)?),
        };
        Ok((name.clone(), written))
    };
    fields.iter().map(one).collect()
}

/// The targets that a value stands for: a name, a send, or a list of these. `None` for anything else.
pub(crate) fn targets(value: &Value) -> Option<Vec<Target>> {
    match value {
        Value::Array(items) => Some(items.iter().map(targets).collect::<Option<Vec<_>>>()?.concat()),
        Value::String(node) => Some(vec![Target::Node(node.clone())]),
        Value::Object(object) => match object.get("send")?.as_array()?.as_slice() {
            [Value::String(node), payload] => Some(vec![Target::Send(node.clone(), payload.clone())]),
            _ => None,
        },
        _ => None,
    }
}

/// Waits until enough tasks of each node have ended in this step, and their ends are recorded.
async fn wait_for(world: &World, context: &Context, nodes: &[String], tasks: usize) {
    let Some(runner) = world.witness() else { return tokio::time::sleep(BLIND_WAIT).await };
    let nodes: BTreeSet<&str> = nodes.iter().map(String::as_str).collect();
    let ended = async {
        while !engine::have_ended(&runner, context, &nodes, tasks).await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    // Without the records the order is not certain, and the trace will tell.
    let _ = tokio::time::timeout(PATIENCE, ended).await;
}

#[cfg(test)]
mod tests {
    use super::{Target, targets, written};
    use crate::conformance_cli::expr::Scope;
    use crate::conformance_cli::update::Written;
    use serde_json::json;

    #[test]
    fn targets_are_names_and_sends() {
        let send = Target::Send("w".into(), json!({"x": 1}));
        assert_eq!(targets(&json!([{"send": ["w", {"x": 1}]}, "z"])), Some(vec![send, Target::Node("z".into())]));
        assert_eq!(targets(&json!([])), Some(vec![]));
        assert_eq!(targets(&json!([null])), None);
    }

    #[test]
    fn only_a_written_value_can_be_an_overwrite() {
        let fields = json!({"a": {"overwrite": [1]}, "b": {"const": {"overwrite": 1}}}).as_object().cloned().expect("an object");
        let written = written(&fields, &Scope::default()).expect("good expressions");
        assert_eq!(written["a"], Written::Overwrite(json!([1])));
        assert_eq!(written["b"], Written::Update(json!({"overwrite": 1})));
    }
}
