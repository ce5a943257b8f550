//! What a person wants to be kept.

use ferrata::state::{Message, Role};

/// The id of a message that is pinned begins with this.
pub const PINNED_ID: &str = "pinned:";

/// A message that stays word for word in every summary and every context, until it is removed.
///
/// It is pinned by its id, so a program unpins it by removing that message. Calls of tools and their results cannot be pinned: pin what they said as a
/// message of its own.
///
/// ```
/// use ferrata::state::Message;
/// use ferrata_nodes::{PINNED_ID, is_pinned, pinned};
///
/// let fact = pinned(Message::user("I am allergic to peanuts."));
/// assert!(is_pinned(&fact) && fact.id.starts_with(PINNED_ID));
/// assert_eq!(fact, pinned(Message::user("I am allergic to peanuts.")), "said twice, it is pinned once");
/// assert_eq!(pinned(Message::user("Hi").with_id("m1")).id, "pinned:m1");
/// ```
#[must_use]
pub fn pinned(message: Message) -> Message {
    let id = match message.id.as_str() {
        "" => blake3::hash(message.content.as_bytes()).to_hex()[..16].to_owned(),
        id => id.strip_prefix(PINNED_ID).unwrap_or(id).to_owned(),
    };
    message.with_id(format!("{PINNED_ID}{id}"))
}

/// Whether a message stays word for word because it is [`pinned`].
///
/// ```
/// use ferrata::state::Message;
/// assert!(!ferrata_nodes::is_pinned(&Message::user("Hi").with_id("m1")));
/// ```
pub fn is_pinned(message: &Message) -> bool {
    message.id.starts_with(PINNED_ID) && message.role != Role::Tool && message.tool_calls.is_empty()
}
