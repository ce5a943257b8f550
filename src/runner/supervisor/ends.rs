//! What a run tells the supervisor of its store: that it has ended, or that a node may hang.

use serde_json::json;

use crate::clock::Timestamp;
use crate::id::ThreadName;
use crate::log::{Folded, SecretTexts, Suspension};
use crate::machine::Ending;
use crate::runner::context::Attempt;
use crate::runner::notice::{Notice, NoticeKind};

impl Attempt {
    /// Tells that it gives no sign of life.
    pub(in crate::runner) async fn tell_stalled(&self, message: &str) {
        let Some(hub) = &self.run.hub else { return };
        let (thread, task, attempt) = (&self.run.thread, &self.start.task, self.start.attempt);
        let text = format!("Node \"{}\" of thread \"{thread}\" may hang: {message}", task.node);
        let notice = Notice::new(NoticeKind::Stalled, Some(thread), &format!("{task}\0{attempt}"), text, self.run.clock.now());
        hub.tell(notice.about(json!({"node": task.node, "task": task, "attempt": attempt}))).await;
    }
}

/// What somebody has to know of the end of a run, if anything. `why`: why it was suspended, if it was.
pub(in crate::runner) fn notice(
    thread: &ThreadName,
    ending: &Ending,
    folded: &Folded,
    why: Option<Suspension>,
    at: Timestamp,
) -> Option<Notice> {
    let run = folded.facts.run.as_ref().map(|run| run.started.run.0.to_string()).unwrap_or_default();
    match ending {
        Ending::Failed(failure) => {
            let fault = failure.fault();
            // It goes where the store's secrets must not.
            let text = SecretTexts::of(folded).blotted(&fault.text).into_owned();
            let notice = Notice::new(NoticeKind::Failed, Some(thread), &run, format!("Thread \"{thread}\" failed: {text}"), at);
            Some(notice.about(json!({"code": fault.code, "node": fault.node})))
        }
        Ending::Suspended | Ending::Paused | Ending::Expired => {
            let why = why.unwrap_or(match ending {
                Ending::Paused => Suspension::Breakpoint,
                Ending::Expired => Suspension::Expired,
                _ => Suspension::Dropped,
            });
            // Whoever dropped, cancelled or shut down knows.
            if matches!(why, Suspension::Dropped | Suspension::Cancelled | Suspension::ShutDown) {
                return None;
            }
            let text = format!("Thread \"{thread}\" is suspended: {why}; resume it to go on");
            Some(Notice::new(NoticeKind::Suspended, Some(thread), &run, text, at).about(json!({"why": why})))
        }
        Ending::Done | Ending::Waiting(_) | Ending::Handed { .. } => None,
    }
}
