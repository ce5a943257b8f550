//! A graph runs at its times: each time once, whatever dies, whatever the clock does, never two at once, and what was missed as was said.
//!
//! How it could break: a morning with two reports, or with none; a report that begins while yesterday's is still at work; a process that was down for a week and begins with seven reports
//! at once; a clock that is set back and has everything reported again; the day on which summer begins.

mod support {
    pub(crate) mod notes;
    pub(crate) mod tokio_clock;
}

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata::clock::{Clock, Timestamp};
use ferrata::store::{MemoryStore, ThreadQuery, ThreadStatus};
use ferrata::{
    Approval, Context, END, Firing, Graph, Missed, NoticeKind, Recovery, Runner, START, Schedule, State, Supervisor, View,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use support::notes::Told;
use support::tokio_clock::TokioClock;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// 2026-03-16, a Monday, at 06:00 in London; summer time begins there on the 29th.
const BEGINNING: u64 = 1_773_640_800_000;

#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default, Debug, PartialEq)]
struct Report {
    at: u64,
    /// How many reports there were before it.
    number: u64,
    text: Option<String>,
}

/// What is outside: who works, and what was reported.
#[derive(Default)]
struct World {
    at_work: AtomicU32,
    reports: Mutex<Vec<u64>>,
    takes: Mutex<Duration>,
    asks: AtomicBool,
}

impl World {
    fn reports(&self) -> Vec<u64> {
        self.reports.lock().expect("no panic").clone()
    }

    fn takes(&self, time: Duration) {
        *self.takes.lock().expect("no panic") = time;
    }
}

struct AtWork(Arc<World>);

impl AtWork {
    fn begin(world: &Arc<World>) -> Self {
        assert_eq!(world.at_work.fetch_add(1, Ordering::SeqCst), 0, "two are at work at once");
        Self(Arc::clone(world))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::SeqCst);
    }
}

fn graph(world: &Arc<World>) -> Graph<Report> {
    let (world, outside) = (Arc::clone(world), Arc::clone(world));
    let report = move |state: View<Report>, ctx: Context| {
        let world = Arc::clone(&world);
        async move {
            let at_work = AtWork::begin(&world);
            let at = state.at;
            let mail = |_| async {
                world.reports.lock().expect("no panic").push(at);
                Ok(())
            };
            ctx.effect("mail", mail).await?;
            if world.asks.load(Ordering::SeqCst) {
                drop(at_work);
                ctx.ask("read", Approval::ask("Is it read?")).await?;
            }
            Ok(Report::update().text(format!("report {}", state.number)))
        }
    };
    let collect = move || {
        let world = Arc::clone(&outside);
        async move {
            let _at_work = AtWork::begin(&world);
            let takes = *world.takes.lock().expect("no panic");
            tokio::time::sleep(takes).await;
            Ok(Report::update())
        }
    };
    let graph = Graph::<Report>::new("report").node("collect", collect).node("report", report);
    graph.edge(START, "collect").edge("collect", "report").edge("report", END).build().expect("it is right")
}

fn daily(missed: Missed) -> Schedule<Report> {
    let input = |firing: Firing<Report>| {
        let number = firing.previous.map_or(0, |yesterday| yesterday.number + 1);
        Report::update().at(firing.at.0).number(number)
    };
    Schedule::new("daily", "0 7 * * *", input).zone("Europe/London").missed(missed)
}

struct Service {
    world: Arc<World>,
    store: Arc<MemoryStore>,
    clock: TokioClock,
}

struct Process {
    runner: Runner<Report>,
    supervisor: Supervisor,
    told: Told,
}

impl Service {
    fn new() -> Self {
        let clock = TokioClock::new();
        clock.ahead_ms.store(BEGINNING, Ordering::SeqCst);
        Self { world: Arc::default(), store: Arc::default(), clock }
    }

    async fn start(&self, missed: Missed) -> Process {
        let runner = Runner::with_clock(graph(&self.world), Arc::clone(&self.store), self.clock.clone());
        let told = Told::default();
        let recovery = Recovery::default().first_delay(Duration::from_secs(1));
        let supervise = runner.supervise().notify(told.clone()).recovery(recovery).patience(None);
        let supervisor = supervise.schedule(daily(missed)).start().await.expect("it begins");
        Process { runner, supervisor, told }
    }

    /// The times in hours after the beginning, by London's clock in winter.
    fn hours(&self) -> Vec<u64> {
        self.world.reports().iter().map(|at| (at - BEGINNING) / 3_600_000).collect()
    }

    fn shift(&self, ms: i64) {
        let ahead = self.clock.ahead_ms.load(Ordering::SeqCst);
        self.clock.ahead_ms.store(ahead.checked_add_signed(ms).expect("after 1970"), Ordering::SeqCst);
    }
}

/// The process dies: its runtime with all that it does.
async fn crash(process: Process) {
    drop(process.supervisor);
    drop(process.runner);
    tokio::task::yield_now().await;
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn thirty_days_with_two_crashes_and_a_missed_day_give_thirty_reports_each_once() {
    let service = Service::new();
    service.world.takes(10 * MINUTE);
    let mut process = service.start(Missed::One).await;
    for day in 0..30 {
        match day {
            // In the middle of the report.
            4 | 17 => {
                pass(HOUR + 5 * MINUTE).await;
                crash(process).await;
                pass(2 * MINUTE).await;
                process = service.start(Missed::One).await;
                pass(DAY - HOUR - 7 * MINUTE).await;
            }
            // Nobody is there in the morning.
            9 => {
                crash(process).await;
                pass(5 * HOUR).await;
                process = service.start(Missed::One).await;
                pass(DAY - 5 * HOUR).await;
            }
            _ => pass(DAY).await,
        }
    }
    // At seven by London's clock: an hour earlier from the 29th on, which is the 14th day.
    let expected: Vec<u64> = (0..30).map(|day| day * 24 + if day < 13 { 1 } else { 0 }).collect();
    assert_eq!(service.hours(), expected);
    let threads = process.runner.threads(ThreadQuery::new().prefix("daily/").status(ThreadStatus::Done)).await.expect("a list");
    assert_eq!(threads.len(), 30);
    // Each had the report of the day before at hand.
    let last = process.runner.thread(threads[29].name.as_str()).state().await.expect("it is there").values;
    assert_eq!((last.number, last.text.as_deref()), (29, Some("report 29")));
    assert_eq!(process.told.of(NoticeKind::Missed), []);
    process.supervisor.drain(HOUR).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_missed_is_skipped_made_up_for_once_or_made_up_for_one_by_one() {
    let cases: [(Missed, Vec<u64>, &[u64]); 3] = [
        (Missed::Skip, vec![1, 121], &[4]),
        (Missed::One, vec![1, 97, 121], &[3]),
        (Missed::All, vec![1, 25, 49, 73, 97, 121], &[]),
    ];
    for (missed, hours, told) in cases {
        let service = Service::new();
        let process = service.start(missed).await;
        pass(2 * HOUR).await;
        process.supervisor.drain(MINUTE).await;
        drop(process.runner);
        // Four mornings.
        pass(4 * DAY + HOUR).await;
        let process = service.start(missed).await;
        pass(DAY).await;
        assert_eq!(service.hours(), hours, "{missed:?}");
        let notices = process.told.of(NoticeKind::Missed);
        assert_eq!(notices.iter().map(|notice| notice.about["missed"].as_u64().expect("a number")).collect::<Vec<_>>(), told);
        process.supervisor.drain(MINUTE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_are_never_at_work_at_once_and_one_that_waits_for_a_person_is_at_work() {
    let service = Service::new();
    service.world.takes(30 * HOUR);
    let process = service.start(Missed::One).await;
    pass(3 * DAY).await;
    // The node itself would have panicked.
    assert_eq!(service.hours(), [1, 25], "the second one began when the first was over");
    service.world.takes(MINUTE);
    service.world.asks.store(true, Ordering::SeqCst);
    pass(20 * HOUR).await;
    let reports = service.hours().len();
    let open = process.runner.inbox(Default::default()).await.expect("a list").items;
    assert_eq!(open.len(), 1);
    pass(3 * HOUR).await;
    assert_eq!(service.hours().len(), reports, "it waits");
    service.world.asks.store(false, Ordering::SeqCst);
    let item = &open[0];
    let thread = process.runner.thread(item.thread.as_str());
    assert!(thread.answer(item.question.id, Approval::approve()).await.expect("it is taken").done().is_some());
    pass(DAY).await;
    assert!(service.hours().len() > reports);
    assert_eq!(process.told.of(NoticeKind::Failed), []);
    process.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_gives_no_report_twice_and_does_not_silence_the_schedule() {
    let service = Service::new();
    let process = service.start(Missed::One).await;
    pass(HOUR + MINUTE).await;
    assert_eq!(service.hours(), [1]);
    // Back by an hour, and seven comes again.
    service.shift(-3_600_000);
    pass(2 * HOUR).await;
    assert_eq!(service.hours(), [1]);
    // A year forward: one report for all of it.
    service.shift(365 * 86_400_000);
    pass(MINUTE).await;
    assert_eq!(service.hours().len(), 2);
    // And back again: the next morning has its report.
    service.shift(-365 * 86_400_000);
    pass(DAY + HOUR).await;
    assert_eq!(service.hours()[2..], [25]);
    let mut times = BTreeMap::new();
    service.world.reports().into_iter().for_each(|at| *times.entry(at).or_insert(0) += 1);
    assert!(times.values().all(|count| *count == 1), "{times:?}");
    process.supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_is_dropped_or_drained_in_the_middle_of_a_run_leaves_it_to_the_next_one() {
    for drains in [true, false] {
        let service = Service::new();
        service.world.takes(30 * MINUTE);
        let process = service.start(Missed::One).await;
        pass(HOUR + 10 * MINUTE).await;
        let Process { runner, supervisor, .. } = process;
        if drains {
            let down = supervisor.drain(HOUR).await;
            assert_eq!((down.ended.len(), down.stuck.len()), (1, 0));
        } else {
            drop(supervisor);
            pass(HOUR).await;
        }
        drop(runner);
        assert!(service.hours().is_empty(), "it had only collected");
        let process = service.start(Missed::One).await;
        pass(DAY + HOUR).await;
        assert_eq!(service.hours(), [1, 25]);
        let threads = process.runner.threads(ThreadQuery::new().prefix("daily/")).await.expect("a list");
        assert!(threads.iter().all(|thread| thread.status == ThreadStatus::Done), "{threads:?}");
        process.supervisor.drain(MINUTE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_whose_input_panics_is_told_of_once_and_goes_on_when_it_is_mended() {
    let service = Service::new();
    let start = async |is_mended: bool| {
        let runner = Runner::with_clock(graph(&service.world), Arc::clone(&service.store), service.clock.clone());
        let told = Told::default();
        let input = move |firing: Firing<Report>| {
            assert!(is_mended, "there is no input");
            Report::update().at(firing.at.0)
        };
        let schedule = Schedule::new("daily", "0 7 * * *", input).zone("Europe/London");
        let supervisor = runner.supervise().notify(told.clone()).schedule(schedule).start().await.expect("it begins");
        (supervisor, told)
    };
    let (supervisor, told) = start(false).await;
    pass(3 * HOUR).await;
    assert_eq!((service.hours(), told.kinds()), (vec![], vec![NoticeKind::GivenUp]));
    assert!(told.all()[0].text.contains("there is no input"), "{}", told.all()[0].text);
    drop(supervisor);
    let (supervisor, _) = start(true).await;
    pass(MINUTE).await;
    assert_eq!(service.hours(), [1]);
    supervisor.drain(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_makes_no_sense_is_told_before_anything_begins() {
    let world = Arc::<World>::default();
    let runner = Runner::with_clock(graph(&world), MemoryStore::new(), TokioClock::new());
    let schedule =
        |name: &str, pattern: &str| Schedule::new(name, pattern, |firing: Firing<Report>| Report::update().at(firing.at.0));
    for (wrong, word) in [
        (schedule("a", "every day"), "minute hour day month weekday"),
        (schedule("a", "0 7 * * *").zone("Vienna"), "Europe/Vienna"),
        (schedule("a\n", "0 7 * * *"), "names no threads"),
    ] {
        let error = runner.supervise().schedule(wrong).start().await.expect_err(word);
        assert!(error.code() == "schedule" && error.to_string().contains(word), "{error}");
    }
    let twice = runner.supervise().schedule(schedule("a", "0 7 * * *")).schedule(schedule("a", "0 8 * * *")).start().await;
    assert!(twice.expect_err("two of one name").to_string().contains("is there twice"));
    // What was refused supervises nothing.
    let supervisor = runner.supervise().schedule(schedule("a", "0 7 * * *")).start().await.expect("it begins");
    assert_eq!(TokioClock::new().now(), Timestamp(0));
    supervisor.drain(MINUTE).await;
}
