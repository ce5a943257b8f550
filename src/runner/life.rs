//! A process that can be killed, played by a thread with a runtime of its own: for what tests graphs.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, oneshot};

use crate::state::panic_text;

/// How long blocking calls of a life that is over may still take, and a life that is to stop.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// How long effects may take that were under way when it died. Of time that is skipped it is as good as for ever.
const SKIPPED_REST: Duration = Duration::from_secs(3_600);
const REAL_REST: Duration = Duration::from_secs(1);

/// Whether a life goes on.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    dead: AtomicBool,
    died: Notify,
    rested: Notify,
}

impl Pulse {
    /// It is over: nothing may happen any more.
    pub(crate) fn stop(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.died.notify_one();
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Nothing is under way any more.
    pub(crate) fn rest(&self) {
        self.rested.notify_one();
    }

    /// Comes back when it is over and what was under way has ended, or cannot end.
    async fn stopped(&self, patience: Duration) {
        self.died.notified().await;
        tokio::select! {
            biased;
            () = self.rested.notified() => {}
            () = tokio::time::sleep(patience) => {}
        }
    }
}

/// What became of a life.
#[derive(Debug)]
pub(crate) enum Lived<T> {
    /// It came to its end.
    Ended(T),
    /// It was killed.
    Died,
    /// It took too long, and was stopped.
    Late,
    /// It panicked with this text.
    Panicked(String),
}

/// Lives until the end, or until the pulse stops. Nothing of it goes on then: its runtime is dropped with all that it holds. Blocks.
///
/// `real_time`: waits take the time they take. Without it, time stands still while anything can go on, and jumps when all wait.
pub(crate) fn live<T, F, Fut>(pulse: &Arc<Pulse>, real_time: bool, within: Duration, begin: F) -> Lived<T>
where
    T: Send + 'static,
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = T>,
{
    let (sender, ended) = mpsc::channel();
    let own = Arc::clone(pulse);
    // Nobody listens any more if it took too long.
    std::thread::spawn(move || _ = sender.send(catch_unwind(AssertUnwindSafe(|| go(&own, real_time, begin)))));
    let lived = ended.recv_timeout(within);
    let is_late = lived.is_err();
    if is_late {
        pulse.stop();
        // A node that blocks its thread cannot be stopped. It is left to itself, and can record nothing.
        let _ = ended.recv_timeout(LAST_BREATH + REAL_REST);
    }
    match lived {
        Err(_) => Lived::Late,
        Ok(Err(panic)) => Lived::Panicked(panic_text(&*panic)),
        Ok(Ok(Ok(Some(end)))) if !pulse.is_dead() => Lived::Ended(end),
        Ok(Ok(Ok(_))) => Lived::Died,
        Ok(Ok(Err(error))) => Lived::Panicked(format!("there is no runtime to be had: {error}")),
    }
}

fn go<T, F, Fut>(pulse: &Pulse, real_time: bool, begin: F) -> std::io::Result<Option<T>>
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = T>,
{
    let runtime = runtime(real_time)?;
    let patience = if real_time { REAL_REST } else { SKIPPED_REST };
    let ended = runtime.block_on(async {
        tokio::select! {
            biased;
            () = pulse.stopped(patience) => None,
            end = async { begin().await } => Some(end),
        }
    });
    runtime.shutdown_timeout(LAST_BREATH);
    Ok(ended)
}

fn runtime(real_time: bool) -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().start_paused(!real_time).build()
}

/// Does what blocks in a thread of its own, whatever runtime waits for it. `work` can ask whether anybody still does.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce(&dyn Fn() -> bool) -> T + Send + 'static) -> T {
    let (sender, done) = oneshot::channel::<Result<T, Box<dyn Any + Send>>>();
    std::thread::spawn(move || {
        let done = catch_unwind(AssertUnwindSafe(|| work(&|| !sender.is_closed())));
        // Whoever waited is gone.
        _ = sender.send(done);
    });
    match done.await {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => unreachable!("the thread always sends what came of it"),
    }
}
