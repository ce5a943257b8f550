//! Answers to a thread's questions: to one at rest, and to one that is at work.

use super::desk::{Handed, elsewhere};
use super::error::Error;
use super::outcome::Outcome;
use super::stream::{Announcer, Events};
use super::thread::Thread;
use crate::graph::Answer;
use crate::id::QuestionId;
use crate::log::Suspension;
use crate::log::{Record, RunOutcome};
use crate::machine::{Begin, GivenAnswer};
use crate::state::State;

impl<S: State> Thread<S> {
    /// Answers a question and continues the thread.
    ///
    /// While a run of the thread goes on in this process, on another branch, the answer goes to that run: it is recorded at once, who asked goes on, and
    /// this returns what the run ends with. (A run with [`Durability::Exit`](crate::Durability::Exit) is waited for.)
    ///
    /// # Errors
    ///
    /// A question that is not open (with who answered it, and when), or whose deadline has passed; an answer that does not fit its schema: nothing is
    /// recorded, and the question stays as it was. Whatever fails in the run: the answer is recorded.
    pub async fn answer(&self, question: QuestionId, answer: impl Into<Answer>) -> Result<Outcome<S>, Error> {
        self.answer_all([(question, answer)]).await
    }

    /// Answers several questions at once, and continues the thread: all of the answers are accepted, or none.
    ///
    /// # Errors
    ///
    /// As [`answer`](Self::answer), for the first one that is wrong; two answers to one question.
    pub async fn answer_all<A: Into<Answer>>(
        &self,
        answers: impl IntoIterator<Item = (QuestionId, A)>,
    ) -> Result<Outcome<S>, Error> {
        let (name, answers) = (self.name()?, given(answers));
        if answers.is_empty() {
            return self.resume().await;
        }
        answers.iter().try_for_each(GivenAnswer::check_depth).map_err(|refusal| Error::answer(name, refusal))?;
        let questions: Vec<QuestionId> = answers.iter().map(|answer| answer.question).collect();
        match self.give(answers).await {
            Err(error) if error.code() == "question-unknown" => Err(self.why_not_open(&questions, error).await?),
            result => result,
        }
    }

    /// Answers the one question that is open, and continues the thread. For a person at a prompt; a program that shows a question answers that one, by
    /// its id: here, whoever answers twice may answer the next question.
    ///
    /// # Errors
    ///
    /// No open question (code `not-waiting`), or several (`question-ambiguous`, with their ids); else as [`answer`](Self::answer).
    pub async fn reply(&self, answer: impl Into<Answer>) -> Result<Outcome<S>, Error> {
        let open = self.questions().await?;
        match &open[..] {
            [question] => self.answer(question.id, answer).await,
            [] => Err(self.not_waiting().await?),
            several => Err(Error::ambiguous(self.name()?, several)),
        }
    }

    /// As [`answer`](Self::answer), to be watched. An answer that is refused is the outcome's error. While a run of the thread goes on, this is refused
    /// (`thread-busy`): that run is watched already, or by nobody.
    pub fn stream_answer(&self, question: QuestionId, answer: impl Into<Answer>) -> Result<Events<S>, Error> {
        self.stream_answers([(question, answer)])
    }

    /// As [`answer_all`](Self::answer_all), to be watched.
    pub fn stream_answers<A: Into<Answer>>(
        &self,
        answers: impl IntoIterator<Item = (QuestionId, A)>,
    ) -> Result<Events<S>, Error> {
        self.watch(Begin::Answer(given(answers)))
    }

    /// The answers begin a run, or go to the one that goes on.
    async fn give(&self, answers: Vec<GivenAnswer>) -> Result<Outcome<S>, Error> {
        let name = self.name()?;
        loop {
            match self.spawn(Begin::Answer(answers.clone()), Announcer::silent()) {
                // A handle that goes back in time begins a line of its own.
                Err(error) if error.is_busy() && self.is_live() => {}
                run => return run?.wait().await,
            }
            let at_work = self.inner.store.as_ref().and_then(|store| store.at_work());
            let Some(desk) = self.inner.live.desk(name).or_else(|| elsewhere(at_work, name)) else {
                // It has become free meanwhile.
                tokio::task::yield_now().await;
                continue;
            };
            match desk.hand_in(|reply| Handed::Answers(answers.clone(), reply)).await {
                Some(Ok(())) => return self.ended(desk.until_free().await).await,
                Some(Err(refusal)) => return Err(Error::answer(name, refusal)),
                None => _ = desk.until_free().await,
            }
        }
    }

    /// What the run that took the answers ended with, as the log tells.
    async fn ended(&self, why: Option<Suspension>) -> Result<Outcome<S>, Error> {
        let folded = self.open(false).await?.folded;
        match folded.facts.run.as_ref().and_then(|run| run.ended.clone()) {
            Some(RunOutcome::Done) => Ok(self.done(&folded)),
            Some(RunOutcome::Waiting) => Ok(Outcome::waits(folded.facts.questions)),
            Some(RunOutcome::Failed(fault)) => Err(Error::failed_elsewhere(self.name()?, fault)),
            Some(RunOutcome::Suspended) | None => Ok(Outcome::Suspended(why.unwrap_or(Suspension::Dropped))),
        }
    }

    /// Why none of these questions is open: what became of the first one that anything became of.
    async fn why_not_open(&self, questions: &[QuestionId], unknown: Error) -> Result<Error, Error> {
        let name = self.name()?;
        let closed = self.log().await?.into_iter().rev().find_map(|entry| match entry.record {
            Record::Answered(a) if questions.contains(&a.question) => Some(Error::answered(name, &a)),
            Record::Expired(expired) if questions.contains(&expired.question) => Some(Error::expired(name, &expired)),
            Record::Closed(closed) => {
                let question = questions.iter().find(|question| closed.questions.contains(question))?;
                Some(Error::closed(name, *question, &closed))
            }
            _ => None,
        });
        match closed {
            Some(closed) => Ok(closed),
            None if self.questions().await?.is_empty() => self.not_waiting().await,
            None => Ok(unknown),
        }
    }

    async fn not_waiting(&self) -> Result<Error, Error> {
        let (name, folded) = (self.name()?, self.open_stateless().await?);
        Ok(if folded.root.facts.head.is_none() { Error::unknown_thread(name) } else { Error::not_waiting(name) })
    }
}

fn given<A: Into<Answer>>(answers: impl IntoIterator<Item = (QuestionId, A)>) -> Vec<GivenAnswer> {
    let given = |(question, answer): (QuestionId, A)| {
        let Answer { value, by } = answer.into();
        GivenAnswer { question, value, by }
    };
    answers.into_iter().map(given).collect()
}
