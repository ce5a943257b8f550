//! What a tool may show to the other side, and to nobody else.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

/// Credentials by their names.
#[derive(Clone, Default)]
pub(crate) struct Credentials(Arc<BTreeMap<String, SecretString>>);

impl Credentials {
    pub(crate) fn add(&mut self, name: String, value: String) {
        Arc::make_mut(&mut self.0).insert(name, SecretString::from(value));
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(ExposeSecret::expose_secret)
    }

    /// The text with names in the place of credentials; `None` if there are none in it.
    pub(crate) fn censored(&self, text: &str) -> Option<String> {
        let mut written: Vec<(String, &str)> = self.0.iter().flat_map(|(name, value)| ways(name, value)).collect();
        // One may be a part of another, of which nothing may be left.
        written.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        let mut censored = text.to_owned();
        for (value, name) in written.iter().filter(|(value, _)| text.contains(value.as_str())) {
            censored = censored.replace(value.as_str(), &format!("[credential {name}]"));
        }
        (censored != text).then_some(censored)
    }
}

/// How a credential may be written: as it is, and inside of JSON. Around one that comes from a file there may be white space that its user leaves out.
fn ways<'n>(name: &'n str, value: &SecretString) -> impl Iterator<Item = (String, &'n str)> {
    let plain = value.expose_secret().trim();
    let quoted = Value::from(plain).to_string();
    let inner = quoted.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or_default().to_owned();
    [plain.to_owned(), inner].into_iter().filter(|written| !written.is_empty()).map(move |written| (written, name))
}

impl FromIterator<(String, String)> for Credentials {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(all: I) -> Self {
        Self(Arc::new(all.into_iter().map(|(name, value)| (name, SecretString::from(value))).collect()))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn censored(credentials: &[(&str, &str)], text: &str) -> Option<String> {
        let credentials: Credentials =
            credentials.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        credentials.censored(text)
    }

    #[test]
    fn nothing_is_left_of_a_credential_that_begins_like_another() {
        let both = [("a", "hunter"), ("b", "hunter-of-the-bank")];
        assert_eq!(censored(&both, "hunter-of-the-bank and hunter").as_deref(), Some("[credential b] and [credential a]"));
    }

    #[test]
    fn white_space_around_a_credential_does_not_hide_it() {
        assert_eq!(censored(&[("a", " hunter\n")], "Bearer hunter").as_deref(), Some("Bearer [credential a]"));
        assert_eq!(censored(&[("a", " \n"), ("b", "")], "Bearer hunter"), None);
    }

    #[test]
    fn quotes_in_a_credential_do_not_hide_it_in_json() {
        let text = Value::from("say \"so\"").to_string();
        assert_eq!(censored(&[("a", "say \"so\"")], &text).as_deref(), Some("\"[credential a]\""));
    }
}
