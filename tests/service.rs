//! A real service, real processes, and everything that can leave an order in doubt: it is carried out once, under each policy.
//!
//! How it could break: an order sent again because its process was killed, or because nobody heard the answer; another key for the same order; a
//! look-up that fails and is taken for a "no"; a person who is asked about what the service can tell; a doubt where there is none. The
//! service counts for itself, and only under the policy `repeatable` it knows an order by its key: under the others each request
//! that reaches it is an order.

mod support {
    pub(crate) mod common;
    pub(crate) mod courier;
}

use std::collections::BTreeSet;

use ferrata::log::{Doubt, Record};
use serde_json::{Value, json};
use support::common::{Process, tell, wait_until};
use support::courier::{Desk, Look, Next, Told, nobody};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Policy {
    Ask,
    Check,
    Repeatable,
}

const POLICIES: [Policy; 3] = [Policy::Ask, Policy::Check, Policy::Repeatable];

impl Policy {
    fn desk(self) -> Desk {
        match self {
            Self::Ask => Desk::new(false, &[]),
            Self::Check => Desk::new(false, &["--policy", "check"]),
            Self::Repeatable => Desk::new(true, &["--policy", "repeatable"]),
        }
    }
}

/// What happens to the first process.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Disturbance {
    /// None, but that the answer takes its time.
    Slow,
    /// SIGKILL after the service has acted, before the record.
    KilledAfterwards,
    /// SIGKILL after the start is on record, before the request is sent.
    KilledBefore,
    /// SIGKILL after the request is sent, and the service never acts on it.
    KilledBetween,
    /// The attempt runs out of time after the service has acted.
    TimedOut,
    /// The connection is cut after the service has acted.
    Cut,
    /// The run is cancelled after the service has acted.
    Cancelled,
    /// 503: it has certainly not acted.
    Busy,
    /// Nobody listens.
    Away,
}

impl Disturbance {
    /// The first process. What it told, if it was not killed.
    fn befall(self, desk: &Desk) -> Option<Told> {
        let service = &desk.service;
        let next = match self {
            Self::Slow => Some(Next::Gated),
            Self::KilledAfterwards | Self::TimedOut | Self::Cancelled => Some(Next::Silent),
            Self::KilledBetween => Some(Next::Held),
            Self::Cut => Some(Next::Cut),
            Self::Busy => Some(Next::Busy),
            Self::KilledBefore | Self::Away => None,
        };
        service.next(next.as_slice());
        match self {
            Self::Slow => {
                let mut process = Process::start(&mut desk.command(&[]));
                wait_until(&mut process, || !service.acts().is_empty());
                assert!(!process.has_ended(), "it waits for the answer");
                service.open_the_gate();
                Some(process.output().into())
            }
            Self::KilledAfterwards => {
                desk.kill_when(&[], |service| !service.acts().is_empty());
                None
            }
            Self::KilledBefore => {
                desk.kill_at_line(&["--hold", "request"], |line| line == "held");
                assert!(service.posts().is_empty(), "nothing was sent");
                None
            }
            Self::KilledBetween => {
                desk.kill_when(&[], |service| !service.posts().is_empty());
                assert!(service.acts().is_empty(), "nothing was done");
                None
            }
            Self::Cancelled => Some(desk.type_when("cancel", |service| !service.acts().is_empty())),
            Self::TimedOut => Some(desk.run(&["--patience-ms", "1000"])),
            Self::Cut | Self::Busy => Some(desk.run(&[])),
            Self::Away => Some(desk.run(&["--service", &nobody()])),
        }
    }
}

/// What is told by the service, the exit codes and the log.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    posts: usize,
    looks: usize,
    /// How often a person was asked.
    people: usize,
    /// How often a process ended in an error, and as cancelled.
    failed: usize,
    cancelled: usize,
    doubts: Vec<&'static str>,
    found: usize,
    not_performed: usize,
}

fn expected(disturbance: Disturbance, policy: Policy) -> Seen {
    use Disturbance::{Away, Busy, Cancelled, Cut, KilledAfterwards, KilledBefore, KilledBetween, Slow, TimedOut};
    let doubt = match disturbance {
        KilledAfterwards | KilledBefore | KilledBetween => Some("interrupted"),
        TimedOut => Some("timed out"),
        Cancelled => Some("cancelled"),
        // The check is asked in the same attempt, so that no doubt is left to record.
        Cut if policy == Policy::Ask => Some("failed"),
        Cut | Slow | Busy | Away => None,
    };
    let (asks, checks) = (policy == Policy::Ask, policy == Policy::Check);
    let is_unsure = !matches!(disturbance, Slow | Busy | Away);
    let has_acted = !matches!(disturbance, KilledBefore | KilledBetween);
    let sends_again = match disturbance {
        Slow | KilledBefore | Away => false,
        Busy | KilledBetween => true,
        KilledAfterwards | TimedOut | Cut | Cancelled => policy == Policy::Repeatable,
    };
    // That a repeatable effect was not performed is not worth a record.
    let refused = match disturbance {
        Busy => 1,
        Away => 3,
        _ => usize::from(checks && !has_acted),
    };
    Seen {
        posts: 1 + usize::from(sends_again),
        looks: usize::from(checks && is_unsure),
        people: usize::from(asks && is_unsure),
        failed: usize::from(disturbance == Away),
        cancelled: usize::from(disturbance == Cancelled && !asks),
        doubts: doubt.into_iter().filter(|_| policy != Policy::Repeatable).collect(),
        found: usize::from(checks && is_unsure && has_acted),
        not_performed: if policy == Policy::Repeatable { 0 } else { refused },
    }
}

/// Goes on until the order is done: the same command again, and a person who looks it up at the courier.
fn go_on(desk: &Desk, mut told: Option<Told>, seen: &mut Seen) -> (Value, Vec<String>) {
    let mut shown = Vec::new();
    for _ in 0..5 {
        let now = told.take().unwrap_or_else(|| desk.run(&[]));
        match now.code {
            0 => return (now.last["state"].clone(), shown),
            1 => seen.failed += 1,
            4 => {
                seen.people += 1;
                shown.push(now.last["show"]["idempotency_key"].as_str().expect("it says what to look for").to_owned());
                let answer = desk.service.slip("ship").map_or("not-performed".to_owned(), |slip| format!("performed={slip}"));
                told = Some(desk.run(&["--answer", &answer]));
            }
            5 => seen.cancelled += 1,
            _ => panic!("{}", now.text),
        }
    }
    panic!("it does not end");
}

fn read_log(desk: &Desk, seen: &mut Seen) {
    for record in desk.records() {
        match record {
            Record::EffectDoubted(doubted) => seen.doubts.push(match doubted.why {
                Doubt::Interrupted => "interrupted",
                Doubt::TimedOut => "timed out",
                Doubt::Cancelled => "cancelled",
                Doubt::Failed(_) => "failed",
                _ => "of another kind",
            }),
            Record::EffectDone(done) => seen.found += usize::from(done.found),
            Record::EffectFailed(_) => seen.not_performed += 1,
            _ => {}
        }
    }
}

fn holds(disturbance: Disturbance) {
    for policy in POLICIES {
        let (desk, mut seen) = (policy.desk(), Seen::default());
        let first = disturbance.befall(&desk);
        let (state, shown) = go_on(&desk, first, &mut seen);
        read_log(&desk, &mut seen);
        let (posts, looks) = (desk.service.posts(), desk.service.looks());
        (seen.posts, seen.looks) = (posts.len(), looks.len());
        let case = format!("{disturbance:?}, {policy:?}");
        assert_eq!(desk.service.acts().len(), 1, "{case}: {:?}", desk.service.acts());
        assert_eq!(seen, expected(disturbance, policy), "{case}");
        let keys: BTreeSet<String> = posts.into_iter().map(|post| post.key).chain(looks).chain(shown).collect();
        assert_eq!(keys.len(), 1, "{case}: one key, whoever asks: {keys:?}");
        let done = json!({"order": "1001", "insured": null, "label": null, "slip": "ship-0", "log": ["packed", "shipped"]});
        assert_eq!(state, done, "{case}");
        // Once done, nothing is sent any more.
        assert_eq!(desk.run(&[]).code, 0, "{case}");
        assert_eq!((desk.service.posts().len(), desk.service.looks().len()), (seen.posts, seen.looks), "{case}");
        tell(&format!("{case}: 1 act, {seen:?}"));
    }
}

#[test]
fn undisturbed_but_slow() {
    holds(Disturbance::Slow);
}

#[test]
fn killed_after_the_service_has_acted() {
    holds(Disturbance::KilledAfterwards);
}

#[test]
fn killed_before_the_request_is_sent() {
    holds(Disturbance::KilledBefore);
}

#[test]
fn killed_after_the_request_is_sent_and_nothing_comes_of_it() {
    holds(Disturbance::KilledBetween);
}

#[test]
fn out_of_time_after_the_service_has_acted() {
    holds(Disturbance::TimedOut);
}

#[test]
fn cut_off_after_the_service_has_acted() {
    holds(Disturbance::Cut);
}

#[test]
fn cancelled_after_the_service_has_acted() {
    holds(Disturbance::Cancelled);
}

#[test]
fn a_service_that_is_busy_has_not_acted() {
    holds(Disturbance::Busy);
}

#[test]
fn a_service_that_is_away_has_not_acted() {
    holds(Disturbance::Away);
}

#[test]
fn a_look_up_that_fails_is_tried_again_and_nothing_is_ordered_meanwhile() {
    for failing in [Look::Busy, Look::Cut] {
        let desk = Policy::Check.desk();
        desk.service.next(&[Next::Silent]);
        desk.kill_when(&[], |service| !service.acts().is_empty());
        // One process after the other gives up, and none takes that for a "no".
        desk.service.next_looks(&[failing; 5]);
        let told = desk.run(&["--attempts", "2"]);
        assert_eq!((told.code, desk.service.looks().len()), (1, 2), "{}", told.text);
        assert!(told.text.contains("finding out whether effect \"ship\" was performed"), "{}", told.text);
        assert_eq!(desk.run(&["--attempts", "2"]).code, 1);
        let told = desk.run(&[]);
        assert_eq!((told.code, &told.last["state"]["slip"]), (0, &json!("ship-0")), "{}", told.text);
        assert_eq!((desk.service.posts().len(), desk.service.acts().len(), desk.service.looks().len()), (1, 1, 6));
    }
}

#[test]
fn a_look_up_that_makes_no_sense_leaves_it_to_a_person() {
    let desk = Policy::Check.desk();
    desk.service.next(&[Next::Cut]);
    desk.service.next_looks(&[Look::Nonsense]);
    let told = desk.run(&[]);
    assert_eq!(told.code, 4, "{}", told.text);
    assert_eq!(desk.run(&[]).code, 4, "it still asks");
    assert_eq!((desk.service.posts().len(), desk.service.acts().len()), (1, 1));
    let told = desk.run(&["--answer", "performed=ship-0"]);
    assert_eq!((told.code, &told.last["state"]["slip"]), (0, &json!("ship-0")), "{}", told.text);
    assert_eq!((desk.service.posts().len(), desk.service.acts().len()), (1, 1));
}
