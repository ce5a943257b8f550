//! A small set of nodes by their numbers, in declared order.

/// Few of them at a time, mostly one: a sorted list is quicker than a tree, and costs nothing while it is empty.
#[derive(Debug, Default)]
pub(super) struct NodeSet(Vec<usize>);

impl NodeSet {
    /// False if it was in there.
    pub(super) fn insert(&mut self, node: usize) -> bool {
        match self.0.binary_search(&node) {
            Ok(_) => false,
            Err(place) => {
                self.0.insert(place, node);
                true
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes out the nodes for which that holds.
    pub(super) fn split_off(&mut self, holds: impl Fn(usize) -> bool) -> Self {
        if !self.0.iter().any(|node| holds(*node)) {
            return Self::default();
        }
        let (out, kept) = std::mem::take(&mut self.0).into_iter().partition(|node| holds(*node));
        self.0 = kept;
        Self(out)
    }
}

impl Extend<usize> for NodeSet {
    fn extend<I: IntoIterator<Item = usize>>(&mut self, nodes: I) {
        nodes.into_iter().for_each(|node| _ = self.insert(node));
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<I: IntoIterator<Item = usize>>(nodes: I) -> Self {
        let mut set = Self::default();
        set.extend(nodes);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::NodeSet;

    #[test]
    fn each_node_is_in_once_and_in_declared_order() {
        let mut set: NodeSet = [5, 1, 5, 3].into_iter().collect();
        assert!(!set.insert(3) && set.insert(4));
        assert_eq!(set.iter().collect::<Vec<_>>(), [1, 3, 4, 5]);
        let odd = set.split_off(|node| node % 2 == 1);
        assert_eq!((odd.iter().collect::<Vec<_>>(), set.iter().collect::<Vec<_>>()), (vec![1, 3, 5], vec![4]));
        assert!(set.split_off(|_| false).is_empty() && !set.is_empty());
    }
}
