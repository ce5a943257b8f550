//! Attributes of a state that do not exist, do not fit together, or stand in the wrong place.

use ferrata::State;

#[derive(State)]
struct UnknownRule {
    #[state(apend)] //~ unknown merge rule; there are: replace, append, merge, messages, sum, max, min, with = "path::to::function"
    notes: Vec<String>,
}

#[derive(State)]
struct TwoRules {
    #[state(append, sum)] //~ a field has one merge rule: remove this one, or the other
    notes: Vec<String>,
}

#[derive(State)]
struct TwoRulesInTwoAttributes {
    #[state(append)]
    #[state(merge)] //~ a field has one merge rule: remove this one, or the other
    notes: Vec<String>,
}

#[derive(State)]
struct NotQuoted {
    #[state(with = longer)] //~ write it in quotes: with = "path::to::function"
    best: String,
}

#[derive(State)]
struct NoFunction {
    #[state(with)] //~ write it in quotes: with = "path::to::function"
    best: String,
}

#[derive(State)]
struct NoPath {
    #[state(with = "|old, new| old")] //~ this is no path of a function; what is stored is its name, so a closure will not do
    best: String,
}

#[derive(State)]
struct OperandAlone {
    #[state(append, operand = "String")] //~ an operand goes with a function: add with = "path::to::function"
    notes: Vec<String>,
}

#[derive(State)]
struct NoType {
    #[state(with = "longer", operand = "a text")] //~ this is no type; write, for example, operand = "String"
    best: String,
}

#[derive(State)]
#[state(append)] //~ unknown attribute of a state; there are: version = 2, crate = "path"; a merge rule belongs on a field
struct RuleOnTheStruct {
    notes: Vec<String>,
}

#[derive(State)]
#[state(rename = "other")] //~ unknown attribute of a state; there are: version = 2, crate = "path"; a merge rule belongs on a field
struct UnknownOnTheStruct {
    notes: Vec<String>,
}

#[derive(State)]
#[state(crate = via)] //~ write it in quotes: crate = "::path::to::ferrata"
struct CrateNotQuoted {
    notes: Vec<String>,
}

#[derive(State)]
#[state(version = "2")] //~ write the version as a number from 1 on: version = 2
struct VersionAsText {
    notes: Vec<String>,
}

#[derive(State)]
#[state(version = 0)] //~ write the version as a number from 1 on: version = 2
struct VersionZero {
    notes: Vec<String>,
}

#[derive(State)]
#[state(version = 2, version = 3)] //~ a state has one version
struct TwoVersions {
    notes: Vec<String>,
}

#[derive(State, serde::Serialize)]
struct Renamed {
    #[serde(rename = "remarks")] //~ a state's field is stored under its Rust name, as its type says: remove this attribute, or give
    notes: Vec<String>,
}

#[derive(State, serde::Serialize)]
#[serde(rename_all = "camelCase")] //~ a state's fields are stored under their Rust names; remove this attribute
struct AllRenamed {
    notes: Vec<String>,
}

fn main() {}
