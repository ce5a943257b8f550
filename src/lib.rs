//! ferrata
extern crate self as ferrata;
pub mod clock;
mod id;
pub mod state;
pub use ferrata_derive::{State, Route};
pub use id::*;
pub use state::{State, StaticState, View};
pub use graph_stub::*;
mod graph_stub {
    /// END
    pub const END: &str = "__end__";
    /// Route
    pub trait Route { /// t
        const TARGETS: &'static [&'static str]; /// t
        fn target(&self)->&'static str; }
}
#[doc(hidden)]
pub mod __private {
    pub use serde_json::{Map, Value, from_value};
    pub fn json_schema<S: schemars::JsonSchema>() -> Value { schemars::schema_for!(S).to_value() }
}
