//! Random graphs in a random world: appends that are slow, fail, or kill the process before or after they took place; a clock that is set back; people
//! who answer wrongly first. After every append and whenever something is told, a checker for each law of the design looks at all that was seen.
//!
//! How it could break: anything that is lost, done twice, told too early, or that depends on who was first. The seed is printed with every failure;
//! `FERRATA_SEED` runs one seed alone, `FERRATA_SIM_SECONDS` goes on for that long.

#[path = "support/sim_laws.rs"]
mod sim_laws;
#[path = "support/sim_world.rs"]
mod sim_world;

use std::time::{Duration, Instant};

use ferrata::log::Record;
use ferrata::state::{Change, Op};
use serde_json::{Value, json};

use sim_laws::{LAWS, Observed, Told};
use sim_world::{Counts, Trouble, live};

/// How long it goes on if nobody says otherwise.
const SECONDS: u64 = 20;
/// What it must have gone through by then, on the slowest machine.
const WORLDS_MIN: u64 = 50;

#[track_caller]
fn keeps_the_laws(seen: &Observed, seed: u64) {
    for (name, law) in LAWS {
        if let Err(breach) = law(seen) {
            panic!("seed {seed}: {name}: {breach}");
        }
    }
}

/// One graph: undisturbed, and twice with trouble. All must end alike.
fn world(seed: u64) -> (Observed, Counts) {
    let mut counts = Counts::default();
    let undisturbed = live(seed, 0, Trouble::None, &mut counts);
    keeps_the_laws(&undisturbed, seed);
    let mut disturbed = Observed::default();
    for timing in 1..3 {
        disturbed = live(seed, timing, Trouble::Some, &mut counts);
        disturbed.ends.extend(undisturbed.ends.clone());
        keeps_the_laws(&disturbed, seed);
    }
    counts.worlds = 1;
    (disturbed, counts)
}

#[test]
#[allow(clippy::disallowed_methods, reason = "how long it may go on is a matter of real time")]
fn every_law_holds_in_every_world() {
    let number = |name: &str| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    if let Some(seed) = number("FERRATA_SEED") {
        world(seed);
        return;
    }
    let (began, limit) = (Instant::now(), Duration::from_secs(number("FERRATA_SIM_SECONDS").unwrap_or(SECONDS)));
    let mut total = Counts::default();
    for seed in 0.. {
        if began.elapsed() >= limit && total.worlds >= WORLDS_MIN {
            break;
        }
        total.add(&world(seed).1);
    }
    let per_minute = total.worlds as f64 / began.elapsed().as_secs_f64() * 60.0;
    eprintln!("simulation, seeds 0..{}: {total:?}, {per_minute:.0} worlds a minute, each lived three times", total.worlds);
    assert!(total.died_before > 0 && total.died_after > 0 && total.failed_before > 0 && total.failed_after > 0, "{total:?}");
    assert!(total.doubts > 0 && total.answers > 0 && total.refused > 0, "{total:?}");
}

#[test]
fn the_same_seed_gives_the_same_world() {
    for seed in 0..5 {
        let logs = [1, 1].map(|timing| live(seed, timing, Trouble::Some, &mut Counts::default()).appends);
        assert_eq!(logs[0], logs[1], "seed {seed}");
    }
}

/// A store that says it has stored what it has not.
#[test]
fn a_store_that_lies_is_caught_by_the_second_law() {
    let caught = (0..30).find_map(|seed| {
        let seen = live(seed, 1, Trouble::Lies, &mut Counts::default());
        sim_laws::law_2_nothing_is_announced_before_it_is_durable(&seen).err()
    });
    assert!(caught.is_some_and(|breach| breach.contains("was told")), "it was not caught");
}

/// A world in which everything happened that can be doctored.
fn rich() -> Observed {
    let is_rich = |seen: &Observed| {
        let has = |is: fn(&Record) -> bool| seen.records().any(is);
        has(|r| matches!(r, Record::Answered(_))) && has(|r| matches!(r, Record::EffectDoubted(_))) && !seen.performed.is_empty()
    };
    (0..500).map(|seed| world(seed).0).find(is_rich).expect("some world has all of it")
}

fn record(seen: &mut Observed, is: fn(&Record) -> bool) -> &mut Record {
    seen.appends.iter_mut().flatten().find(|record| is(record)).expect("there is one")
}

#[test]
fn every_checker_catches_a_planted_fault_and_only_its_own() {
    let whole = rich();
    keeps_the_laws(&whole, 0);
    let plants: [fn(&mut Observed); 10] = [
        |seen| seen.performed.push(seen.performed[0].clone()),
        |seen| {
            let result = seen.told.iter_mut().find(|(told, _)| matches!(told, Told::Result(_))).expect("results were told");
            result.1 = 0;
        },
        |seen| {
            let rest = seen.appends[0].split_off(1);
            seen.appends.insert(1, rest);
        },
        |seen| seen.states[0].1 = json!({ "log": [] }),
        |seen| {
            let Record::Stepped(stepped) = record(seen, |r| matches!(r, Record::Stepped(_))) else { return };
            stepped.resolved.push(Change::new("log", Op::Set(json!(vec!["an old entry"; 200]))));
        },
        |seen| seen.ends.push(json!({ "log": ["another order"] })),
        |seen| {
            seen.wrong_answers.push(json!("many"));
            let Record::Answered(answered) = record(seen, |r| matches!(r, Record::Answered(_))) else { return };
            answered.value = json!("many");
        },
        |seen| {
            let told = seen.told.iter_mut().find(|(told, _)| matches!(told, Told::Outcome("waiting"))).expect("it waited");
            told.0 = Told::Outcome("error");
        },
        |seen| seen.at_work_max = seen.tasks_max + 1,
        |seen| {
            let Record::Answered(answered) = record(seen, |r| matches!(r, Record::Answered(_))) else { return };
            answered.by = None;
        },
    ];
    for ((name, _), plant) in LAWS.iter().zip(plants) {
        let mut doctored = whole.clone();
        plant(&mut doctored);
        let caught: Vec<&str> = LAWS.iter().filter(|(_, law)| law(&doctored).is_err()).map(|(law, _)| *law).collect();
        assert_eq!(caught, [*name]);
    }
    let _: Value = whole.ends[0].clone();
}
