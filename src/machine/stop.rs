//! Ends a run before its time.

use super::{Command, Env, Live, Machine, Step};
use crate::id::{Path, TaskId};
use crate::log::{Doubt, Suspension};

impl Machine {
    /// Starts nothing new; the run ends as suspended when what is running has ended.
    pub(crate) fn stop(&mut self, why: Suspension, env: &Env<'_>) -> Step {
        // That a question has expired is for a person, whatever comes then.
        (self.stopping, self.why) = (true, self.why.filter(|why| *why == Suspension::Expired).or(Some(why)));
        let inner: Vec<Path> = self.inner.keys().rev().cloned().collect();
        inner.iter().chain([&Path::ROOT]).try_for_each(|path| self.go_on(path, env))
    }

    /// Cuts everything that is running: effects under way are in doubt, and the run ends.
    pub(crate) fn cancel(&mut self, why: Suspension, env: &Env<'_>) -> Step {
        (self.stopping, self.why) = (true, Some(why));
        let mut cut: Vec<TaskId> = Vec::new();
        for (path, motion) in std::iter::once((&Path::ROOT, &self.root)).chain(&self.inner) {
            let Some(scope) = self.folded.scope(path) else { continue };
            let running = (0..motion.tasks.len()).filter(|index| matches!(motion.tasks[*index], Live::Running { .. }));
            cut.extend(running.map(|index| scope.task_id(index)));
        }
        self.inner.clear();
        self.take_back(|_| true);
        self.root.begin_step(self.root.tasks.len());
        self.root.running = 0;
        self.at_work = 0;
        self.doubt_all(&cut, &Doubt::Cancelled, true, env)?;
        self.go_on(&Path::ROOT, env)
    }

    /// What was to be started in these graphs is not.
    pub(super) fn take_back(&mut self, of: impl Fn(&Path) -> bool) {
        self.commands.retain(|command| match command {
            Command::Start(start) => !of(&start.place.path),
            Command::Wait { place, .. } => !of(&place.path),
            Command::Answer { .. } | Command::Abort(_) | Command::End(_) => true,
        });
    }
}
