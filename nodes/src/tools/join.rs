//! Futures that run beside each other in one task, and panics that stay with the one that has them.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

/// Something that goes on.
pub(super) type Going<'f, T> = Pin<Box<dyn Future<Output = T> + Send + 'f>>;

/// Waits for all of them. They are polled in their order, so that the first poll, too, has an order one can rely on.
pub(super) async fn join<T>(mut going: Vec<Going<'_, T>>) -> Vec<T> {
    let mut ended: Vec<Option<T>> = going.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, end) in going.iter_mut().zip(&mut ended).filter(|(_, end)| end.is_none()) {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                *end = Some(value);
            }
        }
        if ended.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    ended.into_iter().flatten().collect()
}

/// What the future gives, or the text of its panic, be it in the making or later.
pub(super) async fn caught<'f, T>(make: impl FnOnce() -> Going<'f, T>) -> Result<T, String> {
    let mut future = calmly(make)?;
    poll_fn(|context| match calmly(|| future.as_mut().poll(context)) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// What the closure gives, or the text of its panic. What it leaves behind then is dropped, and nobody looks at it again.
pub(super) fn calmly<T>(act: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|panic| text_of(&*panic))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}
