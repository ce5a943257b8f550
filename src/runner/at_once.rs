//! Real threads for what tests a store: the runtime of a test may have one only.

use std::future::Future;
use std::panic::resume_unwind;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

/// Does all of these at once, each on a thread of its own, with the timers and sockets of this runtime. Gives what they gave, in order.
pub(crate) async fn at_once<T, F>(works: impl IntoIterator<Item = F>) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let begin = |work: F| {
        let runtime = Handle::current();
        spawn_blocking(move || runtime.block_on(work))
    };
    // All are begun before the first one is waited for.
    let begun: Vec<_> = works.into_iter().map(begin).collect();
    let mut done = Vec::with_capacity(begun.len());
    for work in begun {
        match work.await {
            Ok(gave) => done.push(gave),
            Err(error) => resume_unwind(error.into_panic()),
        }
    }
    done
}
