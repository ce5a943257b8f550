//! A graph that a supervisor looks after: what it can do with a thread of it, whatever the type of its state.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::id::{RunId, ThreadName};
use crate::log::Question;
use crate::machine::{Begin, Machine};
use crate::runner::desk::Handed;
use crate::runner::keeper::status;
use crate::runner::stop::Live;
use crate::runner::stream::Announcer;
use crate::runner::{Error, Runner};
use crate::state::State;
use crate::store::ThreadStatus;

type Doing<'d, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'd>>;

/// What there is to do for a thread.
#[derive(Debug)]
pub(super) struct Peek {
    pub(super) status: ThreadStatus,
    /// The run that goes on, or the last one.
    pub(super) run: Option<RunId>,
    /// Runs in a row that never ended and came to no result, if the last one did not end.
    pub(super) deaths: u32,
    /// Questions of which somebody has to be told, or reminded.
    pub(super) reminders: Vec<Arc<Question>>,
    pub(super) overdue: Vec<Arc<Question>>,
    /// Whether a run goes on in this process.
    pub(super) is_at_work: bool,
}

pub(super) trait Charge: Send + Sync {
    /// What there is to do for a thread, as it is stored. An error of the code `other-graph` if it is not one of this graph.
    fn peek<'a>(&'a self, thread: &'a ThreadName) -> Doing<'a, Peek>;

    /// Records that somebody is reminded; lets deadlines ring in a run that goes on.
    fn ring<'a>(&'a self, thread: &'a ThreadName) -> Doing<'a, ()>;

    /// Closes the questions whose deadlines have passed, and no more.
    fn expire<'a>(&'a self, thread: &'a ThreadName) -> Doing<'a, ()>;

    /// Resumes a thread, and waits for the end of its run. That a run fails is no error: the run tells. `began` is called when the run goes on.
    fn go_on<'a>(&'a self, thread: &'a ThreadName, began: &'a mut (dyn FnMut() + Send)) -> Doing<'a, ()>;

    /// Ends the run of a thread whose process died, for a person to look at.
    fn give_up<'a>(&'a self, thread: &'a ThreadName) -> Doing<'a, ()>;

    fn live(&self) -> &Arc<Live>;
}

impl<S: State> Charge for Runner<S> {
    fn peek<'a>(&'a self, thread: &'a ThreadName) -> Doing<'a, Peek> {
        Box::pin(async move {
            let handle = self.thread(thread.as_str());
            let was_at_work = handle.desk()?.is_some();
            let (folded, now) = (handle.open_stateless().await?, self.inner.clock.now());
            // A run may have begun while the thread was read.
            let is_at_work = was_at_work || handle.desk()?.is_some();
            let facts = &folded.facts;
            let is_cut_off = facts.run.as_ref().is_some_and(|run| run.ended.is_none());
            let (overdue, in_time): (Vec<_>, Vec<_>) =
                facts.questions.iter().cloned().partition(|question| question.is_overdue(now));
            Ok(Peek {
                status: status(&folded),
                run: facts.run.as_ref().map(|run| run.started.run),
                deaths: if is_cut_off { facts.deaths.saturating_add(1) } else { 0 },
                reminders: in_time.into_iter().filter(|question| question.calls_by(now) > question.reminded).collect(),
                overdue,
                is_at_work,
            })
        })
    }

    fn ring<'a>(&'a self, thread: &'a ThreadName) -> Doing<'a, ()> {
        Box::pin(async move {
            let handle = self.thread(thread.as_str());
            loop {
                match handle.lease() {
                    Ok((_lease, _)) => {
                        let mut driver = handle.driver(Announcer::silent(), false, None).await?;
                        return driver.at_rest(Machine::remind).await;
                    }
                    Err(error) if !error.is_busy() => return Err(error),
                    Err(_) => {}
                }
                let Some(desk) = handle.desk()? else {
                    tokio::task::yield_now().await;
                    continue;
                };
                match desk.hand_in(Handed::Ring).await {
                    Some(()) => return Ok(()),
                    None => _ = desk.until_free().await,
                }
            }
        })
    }

    fn expire<'a>(&'a self, thread: &'a ThreadName) -> Doing<'a, ()> {
        Box::pin(async move {
            let handle = self.thread(thread.as_str());
            let (_lease, _) = handle.lease()?;
            let mut driver = handle.driver(Announcer::silent(), false, None).await?;
            driver.at_rest(Machine::expire).await.map(|_| ())
        })
    }

    fn go_on<'a>(&'a self, thread: &'a ThreadName, began: &'a mut (dyn FnMut() + Send)) -> Doing<'a, ()> {
        Box::pin(async move {
            let run = self.thread(thread.as_str()).spawn(Begin::Resume, Announcer::silent())?;
            began();
            match run.wait().await {
                Err(error) if !error.is_of_the_run() => Err(error),
                _ => Ok(()),
            }
        })
    }

    fn give_up<'a>(&'a self, thread: &'a ThreadName) -> Doing<'a, ()> {
        Box::pin(async move {
            let handle = self.thread(thread.as_str());
            let (_lease, _) = handle.lease()?;
            let mut driver = handle.driver(Announcer::silent(), false, None).await?;
            let run = driver.machine.folded().facts.run.as_ref();
            if run.is_none_or(|run| run.ended.is_some()) {
                return Ok(());
            }
            driver.at_rest(Machine::give_to_a_person).await
        })
    }

    fn live(&self) -> &Arc<Live> {
        &self.inner.live
    }
}
