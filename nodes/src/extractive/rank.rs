//! Which sentences are central.

use petgraph::algo::page_rank;
use petgraph::graph::{DiGraph, NodeIndex};

use super::features::Features;

/// Sentences compared with one another at once. `page_rank` costs the square of this for each iteration and neighbour, so that blocks keep
/// the cost proportional to the length of the text.
const BLOCK: usize = 64;

/// One sentence in so many goes on from a block to be compared with those of the other blocks.
const KEPT_OF: usize = 4;

/// `page_rank` takes no weights: a sentence points at the ones it shares most with instead, at so many or a quarter of the block. If each
/// pointed at nearly all others, all would be equally central.
const NEIGHBOURS_MAX: usize = 6;

const DAMPING: f64 = 0.85;
const ITERATIONS: usize = 12;

/// All sentences, the most central first. Of two that are equally central the earlier one comes first.
pub(super) fn rank(features: &Features) -> Vec<usize> {
    let mut left: Vec<usize> = (0..features.of_sentence.len()).collect();
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    while left.len() > BLOCK {
        let blocks = left.len().div_ceil(BLOCK);
        let size = left.len().div_ceil(blocks);
        let (mut winners, mut losers) = (Vec::new(), Vec::new());
        for block in left.chunks(size) {
            let mut scored = score(features, block);
            losers.extend(scored.split_off(scored.len().div_ceil(KEPT_OF)));
            winners.extend(scored.into_iter().map(|(_, sentence)| sentence));
        }
        // Back to the order of the text, so that neighbours in the text meet in the next round's blocks.
        winners.sort_unstable();
        losers.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        rounds.push(losers.into_iter().map(|(_, sentence)| sentence).collect());
        left = winners;
    }
    rounds.push(score(features, &left).into_iter().map(|(_, sentence)| sentence).collect());
    rounds.into_iter().rev().flatten().collect()
}

/// The sentences of a block with how central each is, where 1 is the mean; the most central first.
fn score(features: &Features, block: &[usize]) -> Vec<(f64, usize)> {
    let mut graph = DiGraph::<(), ()>::with_capacity(block.len(), block.len() * NEIGHBOURS_MAX);
    for _ in block {
        graph.add_node(());
    }
    for (node, near) in neighbours(features, block).into_iter().enumerate() {
        for neighbour in near {
            graph.add_edge(NodeIndex::new(node), NodeIndex::new(neighbour), ());
        }
    }
    let ranks = page_rank(&graph, DAMPING, ITERATIONS);
    let mut scored: Vec<_> = ranks.into_iter().map(|rank| rank * block.len() as f64).zip(block.iter().copied()).collect();
    // The sort is stable, and the block is in the order of the text.
    scored.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    scored
}

/// For each sentence of the block the places of those that share most with it.
fn neighbours(features: &Features, block: &[usize]) -> Vec<Vec<usize>> {
    let mut near: Vec<Vec<(f64, usize)>> = vec![Vec::new(); block.len()];
    for one in 0..block.len() {
        for other in one + 1..block.len() {
            let similarity = features.similarity(block[one], block[other]);
            if similarity > 0.0 {
                near[one].push((similarity, other));
                near[other].push((similarity, one));
            }
        }
    }
    let count = block.len().div_ceil(4).min(NEIGHBOURS_MAX);
    let closest = |mut near: Vec<(f64, usize)>| {
        near.sort_by(|(one, at), (other, other_at)| other.total_cmp(one).then(at.cmp(other_at)));
        near.into_iter().take(count).map(|(_, at)| at).collect()
    };
    near.into_iter().map(closest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sentence_is_ranked_once() {
        for count in [0, 1, 2, 63, 64, 65, 200, 1_000] {
            let sentences: Vec<_> = (0..count).map(|i| format!("w{} w{} w{}", i % 7, i % 11, i % 13)).collect();
            let mut order = rank(&Features::of(sentences.iter().map(String::as_str)));
            order.sort_unstable();
            assert_eq!(order, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_all_others_point_at_comes_first_and_what_stands_alone_last() {
        let sentences = ["alpha beta", "rain", "alpha beta gamma delta", "gamma delta", "beta gamma"];
        let order = rank(&Features::of(sentences.into_iter()));
        assert_eq!((order[0], order[4]), (2, 1));
    }
}
