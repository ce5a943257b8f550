//! What the engine does about effects holds wherever the process dies: checks, compensations, marks, questions that expire.
//!
//! How it could break: an effect that is checked and performed all the same; a compensation that is done twice, or skipped because the process died
//! between it and its record; a mark that is lost, or that counts for another task.

mod support {
    pub(crate) mod crash_world;
}

use std::time::Duration;

use ferrata::testing::crash_everywhere_in;
use ferrata::{
    Approval, Ask, BuildError, Context, END, Graph, IntoNode, NodeError, OnExpiry, PastEffect, Performed, START, View,
};
use support::crash_world::{Outside, Work, WorkUpdate};

/// Two payments, of which the bank itself can tell what became.
fn checked(outside: &Outside) -> Result<Graph<Work>, BuildError> {
    let outside = outside.clone();
    let pay = move |ctx: Context| {
        let outside = outside.clone();
        async move {
            for payment in ["first", "second"] {
                let (pay, bank) = (outside.clone(), outside.clone());
                let effect = ctx.effect("pay", move |_key| async move { Ok(pay.perform(payment)) });
                let check = move |_key| {
                    let performed = bank.performed(payment);
                    async move { Ok(if performed == 0 { Performed::No } else { Performed::Yes(performed) }) }
                };
                effect.check(check).arguments(payment).await?;
            }
            Ok(Work::update().push_log("paid twice"))
        }
    };
    Graph::new("checked").node("pay", pay).edge(START, "pay").edge("pay", END).build()
}

#[tokio::test]
async fn where_a_check_can_tell_nobody_is_asked_and_nothing_is_paid_twice() {
    let report = crash_everywhere_in(Outside::new, checked, Work::update())
        .once("pay")
        .after_each(|outside, _| assert_eq!((outside.performed("first"), outside.performed("second")), (1, 1)))
        .await
        .expect("it survives");
    eprintln!("checked: {report}");
    assert_eq!((report.effects, report.doubts), (2, 0), "{report}");
    assert!(report.missed.is_empty(), "{report}");
}

/// Three bookings, two of them at once, and a flight that there is no seat in.
fn trip(outside: &Outside) -> Result<Graph<Work>, BuildError> {
    let book = |what: &'static str| {
        let outside = outside.clone();
        move |ctx: Context| {
            let outside = outside.clone();
            async move {
                let book = ctx.effect("book", move |_key| async move { Ok(outside.perform(&format!("book {what}"))) });
                book.compensate("cancel", what).await?;
                Ok(Work::update().push_log(what))
            }
        }
    };
    let cancel = {
        let outside = outside.clone();
        move |past: PastEffect, _key: String| {
            let outside = outside.clone();
            async move {
                let what: String = past.given()?;
                assert_eq!(outside.performed(&format!("book {what}")), 1, "only what was booked is cancelled");
                outside.perform(&format!("cancel {what}"));
                Ok(())
            }
        }
    };
    let fly = || async { Err::<WorkUpdate, _>(NodeError::new("no seats").deterministic()) };
    Graph::new("trip")
        .node("hotel", book("hotel"))
        .node("car", book("car"))
        .node("train", book("train"))
        .node("fly", fly)
        .undo("cancel", cancel)
        .compensate_on_failure()
        .edge(START, "hotel")
        .edge("hotel", "car")
        .edge("hotel", "train")
        .join(["car", "train"], "fly")
        .edge("fly", END)
        .build()
}

#[tokio::test]
async fn what_is_taken_back_is_taken_back_once_wherever_the_process_dies() {
    let report = crash_everywhere_in(Outside::new, trip, Work::update())
        .may_fail()
        .once("book")
        .once("compensate")
        .after_each(|outside, _| {
            for what in ["hotel", "car", "train"] {
                let counts = (outside.performed(&format!("book {what}")), outside.performed(&format!("cancel {what}")));
                assert_eq!(counts, (1, 1), "{what}");
            }
        })
        .await
        .expect("it survives");
    eprintln!("compensated: {report}");
    assert_eq!(report.effects, 6, "{report}");
    assert!(report.end.contains("node-failed"), "{report}");
}

/// A long node that marks how far it has come, and must not go back behind its last mark.
fn marked(outside: &Outside) -> Result<Graph<Work>, BuildError> {
    let outside = outside.clone();
    let read = move |ctx: Context| {
        let outside = outside.clone();
        async move {
            let first = ctx.marked::<u64>("row")?.unwrap_or(0);
            for row in first..4 {
                outside.perform(&format!("row {row}"));
                ctx.mark("row", &(row + 1)).await?;
            }
            Ok(Work::update().push_log("read"))
        }
    };
    Graph::new("marked").node("read", read).edge(START, "read").edge("read", END).build()
}

#[tokio::test]
async fn a_long_node_goes_on_behind_its_last_mark() {
    let report = crash_everywhere_in(Outside::new, marked, Work::update())
        .after_each(|outside, _| {
            let rows: Vec<u64> = (0..4).map(|row| outside.performed(&format!("row {row}"))).collect();
            // Of one crash, one row that was not marked yet can be read again.
            assert!(rows.iter().sum::<u64>() <= 5 && rows.iter().all(|times| *times >= 1), "{rows:?}");
        })
        .await
        .expect("it survives");
    eprintln!("marked: {report}");
    assert!(report.missed.is_empty(), "{report}");
}

/// An approval that nobody gives in time, and a question inside a node with an answer for that case.
fn expiring(outside: &Outside) -> Result<Graph<Work>, BuildError> {
    let outside = outside.clone();
    let tell = move |_: View<Work>, ctx: Context| {
        let outside = outside.clone();
        async move {
            ctx.effect("tell", |_key| async move { Ok(outside.perform("tell")) }).await?;
            let ask = Ask::<String>::new("What shall I say?")
                .deadline(Duration::from_secs(3600))
                .on_expiry(ferrata::Answer::new("nothing"));
            Ok(Work::update().push_log(ctx.ask("words", ask).await?))
        }
    };
    Graph::new("expiring")
        .question("approve", |_: &Work| Approval::ask("Go?").deadline(Duration::from_secs(3600)).on_expiry(OnExpiry::GoOn))
        .node("tell", tell.into_node())
        .edge(START, "approve")
        .approved("approve", END)
        .rejected("approve", END)
        .expired("approve", "tell")
        .edge("tell", END)
        .build()
}

#[tokio::test]
async fn what_expired_stays_expired() {
    let report = crash_everywhere_in(Outside::new, expiring, Work::update())
        .after_each(|outside, state| {
            assert_eq!(outside.performed("tell"), 1);
            assert_eq!(state.log, ["nothing"]);
        })
        .await
        .expect("it survives");
    eprintln!("expired: {report}");
    assert!(report.end.contains("done"), "{report}");
}
