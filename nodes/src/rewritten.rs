//! A list of messages that became another one, as an update that loses nothing.

use std::collections::HashSet;

use ferrata::state::{Message, Role, Update};

/// The update that makes one list of messages out of another, in a field under the rule `messages`.
///
/// It removes and puts by id and overwrites nothing, so that what another node of the same step adds to the field stays.
pub(crate) fn rewritten(field: &'static str, old: &[Message], new: &[Message]) -> Update {
    if !has_own_ids(old) || old.iter().any(|message| message.id.is_empty()) || !has_own_ids(new) {
        return Update::new().overwrite(field, new);
    }
    // What stands in its order stays in its place.
    let mut places = Vec::new();
    for message in new {
        let from = places.last().map_or(0, |last| last + 1);
        let Some(place) = old[from..].iter().position(|before| before.id == message.id) else { break };
        places.push(from + place);
    }
    // Behind that, all of them are put there anew: results with their call, so that nothing comes between them.
    while places.len() < new.len() && new[places.len()].role == Role::Tool && places.pop().is_some() {}
    let stays: HashSet<&str> = places.iter().map(|&at| old[at].id.as_str()).collect();
    let changed = places.iter().zip(new).filter(|&(&at, message)| old[at] != *message).map(|(_, message)| message);
    let put: Vec<&Message> = changed.chain(&new[places.len()..]).collect();
    let gone: Vec<String> = old.iter().map(|message| &message.id).filter(|id| !stays.contains(id.as_str())).cloned().collect();
    let update = if gone.is_empty() { Update::new() } else { Update::new().remove(field, gone) };
    if put.is_empty() { update } else { update.put(field, &put) }
}

/// Whether no two messages have the same id.
fn has_own_ids(messages: &[Message]) -> bool {
    let mut seen = HashSet::new();
    messages.iter().map(|message| message.id.as_str()).filter(|id| !id.is_empty()).all(|id| seen.insert(id))
}

#[cfg(test)]
mod tests {
    use ferrata::state::{Change, Op, typed};

    use super::*;

    fn list(ids: &str) -> Vec<Message> {
        ids.chars().map(|id| Message::user(id.to_lowercase().to_string()).with_id(id.to_string())).collect()
    }

    fn ops(old: &[Message], new: &[Message]) -> Vec<&'static str> {
        let verb = |change: &Change| match &change.op {
            Op::Remove(_) => "remove",
            Op::Put(_) => "put",
            _ => "overwrite",
        };
        let (update, mut messages) = (rewritten("x", old, new), old.to_vec());
        if update.changes().iter().all(|change| !matches!(change.op, Op::Overwrite(_))) {
            update.changes().iter().for_each(|change| typed::messages(&mut messages, change).unwrap());
            assert_eq!(messages, new);
        }
        update.changes().iter().map(verb).collect()
    }

    #[test]
    fn one_list_becomes_the_other() {
        let lists = ["", "a", "abc", "ac", "asc", "scba", "bSa", "xyz"].map(list);
        for old in &lists {
            for new in &lists {
                assert!(!ops(old, new).contains(&"overwrite"));
            }
        }
        assert!(ops(&list("abc"), &list("abc")).is_empty());
        assert_eq!(ops(&list("abc"), &list("ac")), ["remove"]);
        // What changes in its place costs no more than itself.
        let mut changed = list("ac");
        changed[0].content = "new".to_owned();
        let update = rewritten("x", &list("abc"), &changed);
        assert!(matches!(&update.changes()[1].op, Op::Put(items) if items.len() == 1), "{update:?}");
    }

    #[test]
    fn a_new_message_may_lack_an_id_and_no_two_may_have_the_same() {
        let unnamed = [list("a"), vec![Message::user("new")], list("b")].concat();
        assert_eq!(ops(&list("ab"), &unnamed), ["remove", "put"]);
        assert_eq!(ops(&unnamed, &list("a")), ["overwrite"]);
        assert_eq!(ops(&list("aa"), &list("a")), ["overwrite"]);
        assert_eq!(ops(&list("a"), &list("aa")), ["overwrite"]);
    }
}
