//! Several models behind one: by what is asked of them, and by whether they work.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrata::clock::{Clock, SystemClock, Timestamp};

use crate::error::{ModelError, ModelErrorClass};
use crate::model::{ChatFuture, ChatModel, ChatReply, ChatRequest, Delta, Purpose, Tell};

/// How strong a model has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// For the main path.
    Strong,
    /// For chores: summaries, titles, classifications.
    Light,
}

type Choose = dyn Fn(&ChatRequest) -> Tier + Send + Sync;

/// A strong model for the main path, and a light one for chores.
///
/// Requests to condense go to the light one, all others to the strong one, unless [`choosing`](Self::choosing) says otherwise.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata_nodes::{ChatModel, ChatRequest, Router, Scripted};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ferrata_nodes::ModelError> {
/// let model = Router::new(Scripted::new([Ok("deep thoughts")]).named("big"), Scripted::new([Ok("in short")]).named("small"));
/// let reply = model.chat(&ChatRequest::new([Message::user("Think.")])).await?;
/// assert_eq!((reply.model.as_str(), reply.content.as_str()), ("big", "deep thoughts"));
/// assert_eq!(model.chat(&ChatRequest::condense("Shorten.", "A long text.", 10)).await?.model, "small");
/// # Ok(()) }
/// ```
#[must_use]
pub struct Router {
    strong: Arc<dyn ChatModel>,
    light: Arc<dyn ChatModel>,
    choose: Arc<Choose>,
    name: String,
}

impl Router {
    /// A router over these two.
    pub fn new(strong: impl ChatModel + 'static, light: impl ChatModel + 'static) -> Self {
        let name = format!("{} or {}", strong.name(), light.name());
        let choose = |request: &ChatRequest| if request.purpose == Purpose::Condense { Tier::Light } else { Tier::Strong };
        Self { strong: Arc::new(strong), light: Arc::new(light), choose: Arc::new(choose), name }
    }

    /// Says which requests go to which of them.
    pub fn choosing(mut self, choose: impl Fn(&ChatRequest) -> Tier + Send + Sync + 'static) -> Self {
        self.choose = Arc::new(choose);
        self
    }

    fn for_request(&self, request: &ChatRequest) -> &Arc<dyn ChatModel> {
        match (self.choose)(request) {
            Tier::Strong => &self.strong,
            Tier::Light => &self.light,
        }
    }
}

impl ChatModel for Router {
    fn name(&self) -> &str {
        &self.name
    }

    fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a> {
        self.for_request(request).chat(request)
    }

    fn chat_streamed<'a>(&'a self, request: &'a ChatRequest, tell: &'a mut Tell<'_>) -> ChatFuture<'a> {
        self.for_request(request).chat_streamed(request, tell)
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("strong", &self.strong).field("light", &self.light).finish_non_exhaustive()
    }
}

/// How often a model fails in a row before it is passed by, if nobody says otherwise.
const FAILURES: u32 = 3;
/// For how long then.
const PAUSE: Duration = Duration::from_secs(60);

/// Models of which the first one that works answers: another provider, or a smaller model, when the first choice is down.
///
/// A failure that may pass, a spent quota and a refused key go on to the next model at once; a request that is wrong in itself does not, since the next model would
/// get the same; it is the error, unless a model before it may work later. A model that has failed so many times in a row is passed by for a while, then tried again with one request. The error is the last one that
/// may pass, or else the last one, with all of them in its text. An answer that broke off in the middle of a stream goes on too:
/// [`Delta::Anew`] tells that what had been told of it is void.
///
/// What is known of the models is known to this value, and begins anew with the process. It is no second layer of retries: each model gets a request once.
///
/// Not guaranteed: a model that is silent until the node's time is up has not failed, since the request was given up. Let
/// [`OpenAi::read_timeout`](crate::OpenAi::read_timeout) be shorter than that. What a model that failed had cost is not in the usage of another one's answer.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata_nodes::{ChatModel, ChatRequest, Fallbacks, ModelError, ModelErrorClass, Scripted};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ModelError> {
/// let down = Scripted::answering(|_| Err(ModelError::new(ModelErrorClass::Server, "down"))).named("first");
/// let model = Fallbacks::new(down).then(Scripted::new([Ok("I am here")]).named("second"));
/// let reply = model.chat(&ChatRequest::new([Message::user("Hello?")])).await?;
/// assert_eq!((reply.model.as_str(), reply.content.as_str()), ("second", "I am here"));
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Fallbacks {
    models: Vec<Fallback>,
    failures: u32,
    pause: Duration,
    name: String,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct Fallback {
    model: Arc<dyn ChatModel>,
    health: Mutex<Health>,
}

/// How a model has done of late.
#[derive(Debug, Default)]
struct Health {
    in_a_row: u32,
    /// It is passed by until then.
    until: Option<Timestamp>,
    /// One request is under way to see whether it works again.
    is_probed: bool,
}

impl Fallback {
    fn new(model: impl ChatModel + 'static) -> Self {
        Self { model: Arc::new(model), health: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it may be asked now. A probe ends when its guard is dropped, however that comes.
    /// The error is when it may be asked again.
    fn admit(&self, now: Timestamp) -> Result<Probe<'_>, Timestamp> {
        let mut health = self.lock();
        match health.until {
            None => Ok(Probe { of: self, is_probe: false }),
            Some(until) if now >= until && !health.is_probed => {
                health.is_probed = true;
                Ok(Probe { of: self, is_probe: true })
            }
            Some(until) => Err(until),
        }
    }

    fn ended(&self, worked: bool, failures: u32, until: Timestamp) {
        let mut health = self.lock();
        if worked {
            *health = Health { is_probed: health.is_probed, ..Health::default() };
            return;
        }
        health.in_a_row = health.in_a_row.saturating_add(1);
        if health.in_a_row >= failures {
            health.until = Some(until);
        }
    }
}

struct Probe<'f> {
    of: &'f Fallback,
    is_probe: bool,
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        if self.is_probe {
            self.of.lock().is_probed = false;
        }
    }
}

impl Fallbacks {
    /// A chain that begins with this model.
    pub fn new(model: impl ChatModel + 'static) -> Self {
        let name = model.name().to_owned();
        Self { models: vec![Fallback::new(model)], failures: FAILURES, pause: PAUSE, name, clock: Arc::new(SystemClock) }
    }

    /// The same chain with another model at its end.
    pub fn then(mut self, model: impl ChatModel + 'static) -> Self {
        self.name = format!("{}, then {}", self.name, model.name());
        self.models.push(Fallback::new(model));
        self
    }

    /// After how many failures in a row a model is passed by, and for how long; 3 and 60 seconds if not set. At least one failure.
    pub fn pass_by(mut self, failures: u32, pause: Duration) -> Self {
        (self.failures, self.pause) = (failures.max(1), pause);
        self
    }

    /// What tells the time in place of the system, for tests.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use ferrata::clock::{ManualClock, Timestamp};
    /// use ferrata::state::Message;
    /// use ferrata_nodes::{ChatModel, ChatReply, ChatRequest, Fallbacks, ModelError, ModelErrorClass, Scripted};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ModelError> {
    /// let down = Arc::new(Scripted::answering(|_| Err(ModelError::new(ModelErrorClass::Server, "down"))));
    /// let up = Scripted::answering(|_| Ok(ChatReply::new("here")));
    /// let clock = Arc::new(ManualClock::at(Timestamp(0)));
    /// let model = Fallbacks::new(Arc::clone(&down)).then(up).pass_by(2, Duration::from_secs(60)).clock(clock.clone());
    /// let request = ChatRequest::new([Message::user("Hello?")]);
    /// for _ in 0..5 {
    ///     assert_eq!(model.chat(&request).await?.content, "here");
    /// }
    /// assert_eq!(down.requests().len(), 2); // then it was passed by
    /// clock.advance_ms(60_000);
    /// model.chat(&request).await?;
    /// assert_eq!(down.requests().len(), 3); // one request, to see whether it works again
    /// # Ok(()) }
    /// ```
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    async fn answer(&self, request: &ChatRequest, mut tell: Option<&mut Tell<'_>>) -> Result<ChatReply, ModelError> {
        let mut failed = Failed { was_told: false, said: Vec::new(), last: None, passed_by: None };
        for fallback in &self.models {
            let name = fallback.model.name();
            let _probe = match fallback.admit(self.clock.now()) {
                Ok(probe) => probe,
                Err(until) => {
                    failed.said.push(format!("{name} is passed by, since it failed {} times in a row", self.failures));
                    failed.passed_by = Some(failed.passed_by.map_or(until, |earlier| earlier.min(until)));
                    continue;
                }
            };
            let answered = match tell.as_deref_mut() {
                Some(tell) => failed.ask(&*fallback.model, request, tell).await,
                None => fallback.model.chat(request).await,
            };
            match answered {
                Ok(reply) => {
                    fallback.ended(true, self.failures, self.clock.now());
                    return Ok(reply);
                }
                Err(error) if !goes_on(error.class()) => return Err(failed.stopped_by(name, error, self.clock.now())),
                Err(error) => {
                    fallback.ended(false, self.failures, self.clock.now().plus(self.pause));
                    tracing::warn!(model = name, error = %error, "a model failed, and the next one is asked");
                    failed.said.push(format!("{name}: {error}"));
                    // A chain in which one may work later is worth another attempt, whatever ails the others.
                    if error.is_transient() || !failed.last.as_ref().is_some_and(ModelError::is_transient) {
                        failed.last = Some(error);
                    }
                }
            }
        }
        Err(failed.error(self.clock.now()))
    }
}

/// What has become of the models of a chain so far.
struct Failed {
    /// A part of an answer was told that is void.
    was_told: bool,
    said: Vec<String>,
    last: Option<ModelError>,
    /// When the first of those that were passed by is tried again.
    passed_by: Option<Timestamp>,
}

impl Failed {
    async fn ask(&mut self, model: &dyn ChatModel, request: &ChatRequest, tell: &mut Tell<'_>) -> Result<ChatReply, ModelError> {
        if std::mem::take(&mut self.was_told) {
            tell(Delta::Anew);
        }
        let mut listen = |delta: Delta<'_>| {
            self.was_told = true;
            tell(delta);
        };
        model.chat_streamed(request, &mut listen).await
    }

    /// The request is wrong for that model. One before it may take it, when it works again: a larger one, for a conversation that is too long for this one.
    fn stopped_by(mut self, name: &str, error: ModelError, now: Timestamp) -> ModelError {
        if self.passed_by.is_none() && !self.last.as_ref().is_some_and(ModelError::is_transient) {
            return error;
        }
        self.said.push(format!("{name}: {error}"));
        self.error(now)
    }

    fn error(self, now: Timestamp) -> ModelError {
        let text = format!("no model answered: {}", self.said.join("; "));
        match (self.last, self.passed_by) {
            (Some(error), passed_by) if error.is_transient() || passed_by.is_none() => error.with_message(text),
            (_, passed_by) => {
                let wait = Duration::from_millis(passed_by.map_or(0, |until| until.ms_since(now)));
                ModelError::new(ModelErrorClass::Server, text).with_retry_after(wait)
            }
        }
    }
}

/// Whether another model may do better.
fn goes_on(class: ModelErrorClass) -> bool {
    class.is_transient() || class.is_terminal() || class == ModelErrorClass::Protocol
}

impl ChatModel for Fallbacks {
    fn name(&self) -> &str {
        &self.name
    }

    fn chat<'a>(&'a self, request: &'a ChatRequest) -> ChatFuture<'a> {
        Box::pin(self.answer(request, None))
    }

    fn chat_streamed<'a>(&'a self, request: &'a ChatRequest, tell: &'a mut Tell<'_>) -> ChatFuture<'a> {
        Box::pin(self.answer(request, Some(tell)))
    }
}
