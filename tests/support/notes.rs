//! A notifier that keeps what it is told, in the order in which it is told.

use std::sync::{Arc, Mutex};

use ferrata::{Notice, NoticeKind, Notifier, Notifying};
use tokio::sync::watch;

#[derive(Clone, Debug)]
pub(crate) struct Told {
    notices: Arc<Mutex<Vec<Notice>>>,
    count: Arc<watch::Sender<usize>>,
}

impl Default for Told {
    fn default() -> Self {
        Self { notices: Arc::default(), count: Arc::new(watch::Sender::new(0)) }
    }
}

impl Notifier for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn notify<'n>(&'n self, notice: &'n Notice) -> Notifying<'n> {
        self.notices.lock().expect("no panic").push(notice.clone());
        self.count.send_modify(|count| *count += 1);
        Box::pin(std::future::ready(Ok(())))
    }
}

#[allow(dead_code, reason = "each test uses a part of it")]
impl Told {
    pub(crate) fn all(&self) -> Vec<Notice> {
        self.notices.lock().expect("no panic").clone()
    }

    pub(crate) fn kinds(&self) -> Vec<NoticeKind> {
        self.all().iter().map(|notice| notice.kind).collect()
    }

    pub(crate) fn of(&self, kind: NoticeKind) -> Vec<Notice> {
        self.all().into_iter().filter(|notice| notice.kind == kind).collect()
    }

    /// Waits until somebody was told so many times.
    pub(crate) async fn until(&self, count: usize) {
        self.until_that(|told| told.all().len() >= count).await;
    }

    pub(crate) async fn until_kind(&self, kind: NoticeKind, count: usize) {
        self.until_that(|told| told.of(kind).len() >= count).await;
    }

    /// For a day at most, of time that tests mostly skip.
    async fn until_that(&self, holds: impl Fn(&Self) -> bool) {
        let mut count = self.count.subscribe();
        let wait = count.wait_for(|_| holds(self));
        let told = tokio::time::timeout(std::time::Duration::from_secs(86_400), wait).await;
        assert!(told.is_ok(), "nobody was told of it; told was {:?}", self.kinds());
    }
}
