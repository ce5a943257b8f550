//! What model calls cost in money: a table of the user's, applied to what a log tells.

use std::collections::BTreeMap;

use ferrata::log::{Entry, Record};
use serde::{Deserialize, Serialize};

use crate::model::{ChatReply, Usage};

/// Tokens that a price is for.
const PER: u128 = 1_000_000;

/// What a model takes, in micro-dollars (millionths of a dollar) for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// For tokens that are read.
    pub input: u64,
    /// For tokens that are written.
    pub output: u64,
    /// For tokens that are read from the endpoint's cache; as all others if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<u64>,
}

/// Prices of models, by name.
///
/// ```
/// use ferrata_nodes::{Price, Prices, Usage};
///
/// let prices = Prices::from_json(r#"{"big-1": {"input": 2000000, "output": 8000000}, "big-1-mini": {"input": 400000, "output": 1600000}}"#)?;
/// // 1,000 tokens read and 100 written: 0.002 and 0.0008 dollars.
/// assert_eq!(prices.cost("big-1", &Usage::told(1_000, 100)), Some(2_800));
/// // A model that names its version counts as the longest name that it begins with.
/// assert_eq!(prices.price("big-1-mini-2026-11-01"), prices.price("big-1-mini"));
/// assert_eq!(prices.cost("another", &Usage::told(1, 1)), None);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prices(BTreeMap<String, Price>);

impl Prices {
    /// A table without prices.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same table with the price of a model.
    #[must_use]
    pub fn with(mut self, model: impl Into<String>, price: Price) -> Self {
        self.0.insert(model.into(), price);
        self
    }

    /// A table from JSON, as in the example above.
    ///
    /// # Errors
    ///
    /// It is no such JSON.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// The price of a model: that of its name, or of the longest name in the table that its name goes on from with `-`, `@` or `:`.
    pub fn price(&self, model: &str) -> Option<Price> {
        let goes_on =
            |known: &str| model.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '@', ':']));
        let known = self.0.iter().filter(|(known, _)| goes_on(known)).max_by_key(|(known, _)| known.len());
        known.map(|(_, price)| *price)
    }

    /// What that cost, in micro-dollars, rounded up; `None` for a model that has no price.
    pub fn cost(&self, model: &str, usage: &Usage) -> Option<u64> {
        let Price { input, output, cached_input } = self.price(model)?;
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let product = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let sum = product(usage.input_tokens - cached, input)
            + product(cached, cached_input.unwrap_or(input))
            + product(usage.output_tokens, output);
        Some(u64::try_from(sum.div_ceil(PER)).unwrap_or(u64::MAX))
    }

    /// What the model calls of a thread cost, model by model: all that [`call`](crate::call) and the nodes of this crate have recorded.
    ///
    /// Not in it: answers that were of no use, such as those that [`ask_for`](crate::ask_for) gave up on, of which the thread's report has the tokens; and calls whose
    /// process died before the answer was stored, of which nothing is left.
    pub fn of_log(&self, entries: &[Entry]) -> Vec<ModelCost> {
        let mut costs: BTreeMap<String, ModelCost> = BTreeMap::new();
        for entry in entries {
            let Record::EffectDone(done) = &entry.record else { continue };
            let Ok(ChatReply { model, usage: Some(usage), .. }) = ChatReply::deserialize(&done.result) else { continue };
            let cost = costs.entry(model.clone()).or_insert_with(|| ModelCost { model, ..ModelCost::default() });
            cost.calls += 1;
            cost.usage.input_tokens = cost.usage.input_tokens.saturating_add(usage.input_tokens);
            cost.usage.output_tokens = cost.usage.output_tokens.saturating_add(usage.output_tokens);
            cost.usage.cached_tokens = cost.usage.cached_tokens.saturating_add(usage.cached_tokens);
            cost.usage.is_counted |= usage.is_counted;
        }
        costs.values_mut().for_each(|cost| cost.micro_dollars = self.cost(&cost.model, &cost.usage));
        costs.into_values().collect()
    }
}

/// What the calls of one model cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelCost {
    /// The model, as it calls itself.
    pub model: String,
    /// How many answers of it are on record.
    pub calls: u64,
    /// The tokens of all of them. `is_counted`: of some of them by us.
    pub usage: Usage,
    /// In money, rounded up once; `None` if the table has no price for it.
    pub micro_dollars: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_exact_and_rounded_up_once() {
        let price = Price { input: 1, output: 3, cached_input: Some(0) };
        let prices = Prices::new().with("m", price);
        let usage = |input, output, cached| Usage { cached_tokens: cached, ..Usage::told(input, output) };
        assert_eq!(prices.cost("m", &usage(0, 0, 0)), Some(0));
        assert_eq!(prices.cost("m", &usage(1, 0, 0)), Some(1), "a part of a micro-dollar is one");
        assert_eq!(prices.cost("m", &usage(1_000_000, 1_000_000, 0)), Some(4));
        assert_eq!(prices.cost("m", &usage(1_000_000, 0, 2_000_000)), Some(0), "no more is cached than is read");
        assert_eq!(prices.cost("m", &usage(u64::MAX, u64::MAX, 0)), Some(73_786_976_294_839));
        assert_eq!(prices.price("mm"), None);
    }
}
