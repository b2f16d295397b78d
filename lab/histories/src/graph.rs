//! The precedence graph of transactions, and its cycles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The reason why the first of two transactions precedes the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Before {
    /// The first appended to a list before the second.
    Appended,
    /// The second read an append of the first.
    WasRead,
    /// The first read a list before the second appended to the list.
    ReadOlder,
    /// The first ended before the second began.
    Ended,
    /// One of the two nodes is a point in time, not a transaction.
    Moment,
}

/// A graph with numbered nodes. The lowest numbers are the transactions, the others are points in time ("moments").
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    edges: Vec<BTreeMap<usize, Before>>,
}

impl Graph {
    pub(crate) fn with(nodes: usize) -> Self {
        Self {
            edges: vec![BTreeMap::new(); nodes],
        }
    }

    pub(crate) fn node(&mut self) -> usize {
        self.edges.push(BTreeMap::new());
        self.edges.len() - 1
    }

    /// Adds an edge. If two nodes have several reasons, the first one in the order of `Before` stays.
    pub(crate) fn add(&mut self, from: usize, to: usize, why: Before) {
        if from != to {
            let known = self.edges[from].entry(to).or_insert(why);
            *known = (*known).min(why);
        }
    }

    /// Returns a shortest cycle: its nodes, each with the reason for the step to the next node. `None`: the graph has no cycle.
    pub(crate) fn circle(&self) -> Option<Vec<(usize, Before)>> {
        let mut back = Self::with(self.edges.len());
        for (from, edges) in self.edges.iter().enumerate() {
            edges.iter().for_each(|(to, why)| back.add(*to, from, *why));
        }
        // Removes the nodes that no cycle reaches or that reach no cycle.
        let left = back.without_firsts(self.without_firsts((0..self.edges.len()).collect()));
        let circles = left
            .iter()
            .filter_map(|start| self.shortest_back(*start, &left));
        circles.min_by_key(Vec::len)
    }

    /// Repeatedly removes the nodes without an incoming edge, until each remaining node has one.
    fn without_firsts(&self, mut nodes: BTreeSet<usize>) -> BTreeSet<usize> {
        let mut leading = vec![0_usize; self.edges.len()];
        for next in nodes.iter().flat_map(|node| self.edges[*node].keys()) {
            leading[*next] += 1;
        }
        let firsts = nodes.iter().filter(|node| leading[**node] == 0);
        let mut firsts: Vec<usize> = firsts.copied().collect();
        while let Some(first) = firsts.pop() {
            nodes.remove(&first);
            for next in self.edges[first].keys() {
                leading[*next] -= 1;
                if leading[*next] == 0 && nodes.contains(next) {
                    firsts.push(*next);
                }
            }
        }
        nodes
    }

    fn shortest_back(
        &self,
        start: usize,
        within: &BTreeSet<usize>,
    ) -> Option<Vec<(usize, Before)>> {
        let mut came: BTreeMap<usize, (usize, Before)> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for (next, why) in &self.edges[node] {
                if !within.contains(next) || came.contains_key(next) {
                    continue;
                }
                came.insert(*next, (node, *why));
                if *next == start {
                    return Some(Self::path_to(start, &came));
                }
                queue.push_back(*next);
            }
        }
        None
    }

    fn path_to(start: usize, came: &BTreeMap<usize, (usize, Before)>) -> Vec<(usize, Before)> {
        let mut path = Vec::new();
        let mut node = start;
        loop {
            let (from, why) = came[&node];
            path.push((from, why));
            node = from;
            if node == start {
                path.reverse();
                return path;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: usize, edges: &[(usize, usize)]) -> Graph {
        let mut graph = Graph::with(nodes);
        for (from, to) in edges {
            graph.add(*from, *to, Before::Appended);
        }
        graph
    }

    fn circle(nodes: usize, edges: &[(usize, usize)]) -> Option<Vec<usize>> {
        let circle = graph(nodes, edges).circle()?;
        Some(circle.into_iter().map(|(node, _)| node).collect())
    }

    #[test]
    fn the_shortest_circle_is_reported() {
        assert_eq!(circle(3, &[(0, 1), (1, 2), (0, 2)]), None);
        assert_eq!(circle(3, &[(0, 1), (1, 2), (2, 1)]), Some(vec![1, 2]));
        let long = [(0, 1), (1, 2), (2, 3), (3, 0), (2, 0)];
        assert_eq!(circle(4, &long), Some(vec![0, 1, 2]));
        assert_eq!(circle(1, &[(0, 0)]), None);
    }

    #[test]
    fn a_long_chain_needs_no_deep_stack() {
        let edges: Vec<_> = (0..200_000).map(|at| (at, at + 1)).collect();
        assert_eq!(circle(200_001, &edges), None);
    }
}
