//! Conditional edges.

/// What a conditional edge answers: an enum whose variants name nodes, so that every target is known when the graph is built.
///
/// ```
/// use ferrata::{END, Route};
///
/// #[derive(Route)]
/// enum AfterCheck {
///     LookUp,              // the node "look_up"
///     #[route("pay_out")]
///     Pay,                 // the node "pay_out"
///     End,                 // the end
/// }
///
/// assert_eq!(AfterCheck::TARGETS, ["look_up", "pay_out", END]);
/// assert_eq!(AfterCheck::Pay.target(), "pay_out");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a route",
    note = "put `#[derive(Route)]` on an enum whose variants name nodes, or use `Graph::route_to` with a list of names"
)]
pub trait Route {
    /// All nodes it can lead to.
    const TARGETS: &'static [&'static str];

    /// The node it leads to now.
    fn target(&self) -> &'static str;
}
