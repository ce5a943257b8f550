//! What two sentences can have in common.

use std::collections::HashMap;

/// What a feature of every sentence still weighs: a text about one thing is not a text about nothing.
const WEIGHT_MIN: f64 = 0.1;

/// The features of each sentence, and what each feature weighs.
#[derive(Debug)]
pub(super) struct Features {
    /// For each sentence, sorted and without repetition.
    pub(super) of_sentence: Vec<Vec<u32>>,
    /// Rare features say more about what a sentence is about than those of every second sentence. This takes the place of lists of
    /// stop words, which would be needed for every language.
    weights: Vec<f64>,
}

impl Features {
    pub(super) fn of<'t>(sentences: impl Iterator<Item = &'t str>) -> Self {
        let mut known: HashMap<String, u32> = HashMap::new();
        let mut sentences_with: Vec<u32> = Vec::new();
        let of_sentence: Vec<Vec<u32>> = sentences
            .map(|sentence| {
                let mut found: Vec<u32> = Vec::new();
                for_each_feature(sentence, &mut |feature| {
                    let next = known.len() as u32;
                    found.push(*known.entry(feature).or_insert(next));
                });
                found.sort_unstable();
                found.dedup();
                sentences_with.resize(known.len(), 0);
                found.iter().for_each(|&feature| sentences_with[feature as usize] += 1);
                found
            })
            .collect();
        let count = of_sentence.len() as f64;
        let weights = sentences_with.into_iter().map(|with| (count / f64::from(with)).ln().max(WEIGHT_MIN)).collect();
        Self { of_sentence, weights }
    }

    /// The weight of what two sentences share, by the logarithms of their lengths as in TextRank.
    pub(super) fn similarity(&self, one: usize, other: usize) -> f64 {
        let (one, other) = (&self.of_sentence[one], &self.of_sentence[other]);
        let shared: f64 = shared(one, other).map(|feature| self.weights[feature as usize]).sum();
        if shared == 0.0 { 0.0 } else { shared / ((one.len() as f64).ln_1p() + (other.len() as f64).ln_1p()) }
    }

    /// Whether two sentences say nearly the same, so that one of them is enough.
    pub(super) fn is_repetition(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.of_sentence[one], &self.of_sentence[other]);
        let shared = shared(one, other).count();
        shared * 4 >= (one.len() + other.len() - shared) * 3
    }
}

/// The features in both of two sorted lists.
fn shared<'a>(one: &'a [u32], other: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    let (mut i, mut j) = (0, 0);
    std::iter::from_fn(move || {
        while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
            i += usize::from(a <= b);
            j += usize::from(b <= a);
            if a == b {
                return Some(*a);
            }
        }
        None
    })
}

/// Words in lower case where words are spaced, pairs of neighbouring characters elsewhere.
pub(crate) fn for_each_feature(sentence: &str, found: &mut dyn FnMut(String)) {
    let mut word = String::new();
    let mut previous = None;
    for c in sentence.chars().chain([' ']) {
        let unspaced = is_unspaced(c);
        if let Some(previous) = previous.filter(|_| unspaced) {
            found(String::from_iter([previous, c]));
        }
        previous = Some(c).filter(|_| unspaced);
        if c.is_alphanumeric() && !unspaced {
            word.extend(c.to_lowercase());
        } else if !word.is_empty() {
            let word = std::mem::take(&mut word);
            // A single letter is an article or a stray mark; a digit is a number.
            if word.len() > 1 || word.starts_with(|c: char| c.is_ascii_digit()) {
                found(word);
            }
        }
    }
}

/// Whether the character belongs to a script whose words are not spaced, or, as in Korean, change their ends too much to be compared.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{0e00}'..='\u{0eff}' // Thai, Lao
        | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' // Burmese, Khmer
        | '\u{3040}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' // Japanese
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}' // Chinese
        | '\u{ac00}'..='\u{d7a3}' // Korean
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_pairs() {
        let mut found = Vec::new();
        for_each_feature("A Log, 7 日志系统 Größe!", &mut |feature| found.push(feature));
        assert_eq!(found, ["log", "7", "日志", "志系", "系统", "größe"]);
    }

    #[test]
    fn similarity_is_symmetric_and_zero_without_anything_shared() {
        let features = Features::of(["the log is safe", "a safe log", "rain"].into_iter());
        assert!(features.similarity(0, 1) > 0.0);
        assert_eq!(features.similarity(0, 1), features.similarity(1, 0));
        assert_eq!(features.similarity(0, 2), 0.0);
        assert!(features.is_repetition(0, 0) && !features.is_repetition(0, 2));
    }
}
