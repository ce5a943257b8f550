//! Names of tools as endpoints take them.

/// How long one may be.
pub(crate) const NAME_MAX: usize = 64;

/// Whether endpoints take it: 1 to 64 letters, digits, `_` and `-`.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_taken)
}

/// The name with `_` in the place of what endpoints do not take. It may be too long.
pub(crate) fn as_name(name: &str) -> String {
    let taken: String = name.chars().map(|letter| if is_taken(letter) { letter } else { '_' }).collect();
    if taken.is_empty() { "_".to_owned() } else { taken }
}

fn is_taken(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'
}
