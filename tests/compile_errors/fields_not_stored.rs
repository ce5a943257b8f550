//! A field of a type that cannot be stored.

use ferrata::State;

#[derive(Clone, Default)]
struct Client;

#[derive(State, Clone, Default)] //~ put `#[derive(State, Serialize, Deserialize, JsonSchema, Clone, Default)]` on the struct
struct Trip {
    client: Client, //~ a field of a state cannot be a `Client`: it cannot be stored
    //~ put `#[derive(Serialize, Deserialize, JsonSchema, Clone)]` on the type of the field
}

fn main() {}
