//! Wide state: 49 texts that stay as they are, and a number that changes.

use std::path::Path;

use ferrata::{Graph, Route, START, State, View};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workloads::{Outcome, letters};
use crate::{Measured, now, runner, seconds_since};

#[derive(Route)]
enum Next {
    Inc,
    End,
}

macro_rules! wide {
    ($($field:ident = $number:literal),*) => {
        #[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]
        struct Wide {
            $($field: String,)*
            n: u64,
        }

        fn input() -> WideUpdate {
            Wide::update()$(.$field(letters($number + 1, 20_408)))*
        }
    };
}

wide!(
    f00 = 0,
    f01 = 1,
    f02 = 2,
    f03 = 3,
    f04 = 4,
    f05 = 5,
    f06 = 6,
    f07 = 7,
    f08 = 8,
    f09 = 9,
    f10 = 10,
    f11 = 11,
    f12 = 12,
    f13 = 13,
    f14 = 14,
    f15 = 15,
    f16 = 16,
    f17 = 17,
    f18 = 18,
    f19 = 19,
    f20 = 20,
    f21 = 21,
    f22 = 22,
    f23 = 23,
    f24 = 24,
    f25 = 25,
    f26 = 26,
    f27 = 27,
    f28 = 28,
    f29 = 29,
    f30 = 30,
    f31 = 31,
    f32 = 32,
    f33 = 33,
    f34 = 34,
    f35 = 35,
    f36 = 36,
    f37 = 37,
    f38 = 38,
    f39 = 39,
    f40 = 40,
    f41 = 41,
    f42 = 42,
    f43 = 43,
    f44 = 44,
    f45 = 45,
    f46 = 46,
    f47 = 47,
    f48 = 48
);

pub(crate) async fn wide(variant: &str, n: u64, dir: &Path) -> Outcome {
    let graph = Graph::<Wide>::new("wide")
        .node("inc", |s: View<Wide>| async move { Ok(Wide::update().n(s.n + 1)) })
        .edge(START, "inc")
        .route("inc", move |s: &Wide| if s.n < n { Next::Inc } else { Next::End })
        .build()?;
    let runner = runner(graph, variant, dir)?;
    let input = input();
    let start = now();
    let state = runner.thread("t0").steps_max(n + 1).run(input).await?.done().ok_or("not done")?;
    let wall_s = seconds_since(start);
    assert_eq!(state.n, n);
    Ok(Measured { steps: n, wall_s, first100_us: None, last100_us: None })
}
