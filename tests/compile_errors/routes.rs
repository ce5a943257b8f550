//! What is no route, and why.

use ferrata::Route;

#[derive(Route)]
enum HoldsData {
    LookUp,
    Pay(u64), //~ a variant of a route names a node and holds no data; what the node needs belongs in the state, or in a fan-out
    Ask { question: String }, //~ a variant of a route names a node and holds no data; what the node needs belongs in the state, or in a fan-out
}

#[derive(Route)]
enum Empty {} //~ a route leads somewhere: give it a variant for each node, or `End`

#[derive(Route)]
struct NoEnum { //~ a route is an enum: each of its variants names a node
    node: String,
}

#[derive(Route)]
enum NamedWrong {
    #[route(name = "pay_out")] //~ write the node's name: #[route("name")]
    Pay,
    #[route] //~ write the node's name: #[route("name")]
    End,
}

#[derive(Route)]
#[route("pay_out")] //~ unknown attribute of a route; there is: crate = "path"; a node's name belongs on a variant
enum NameOnTheEnum {
    Pay,
}

#[derive(Route)]
enum TwoNames {
    #[route("pay_out")]
    #[route("pay")] //~ a variant names one node: remove this name, or the other
    Pay,
}

fn main() {}
