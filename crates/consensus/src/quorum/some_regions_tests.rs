//! Whether "a majority in each of K of R regions" can be said in the engine's words, which are majorities of sets that all
//! have to be met: by trying all sets. It decides what the policy of some of the regions does (decision 46).

use super::majority::majority_of;

/// Voters are bits; region r has the `size` bits from `r * size` on.
struct Case {
    regions: u32,
    size: u32,
    required: u32,
}

impl Case {
    fn voters(&self) -> u32 {
        self.regions * self.size
    }

    /// Whether these members are a majority in as many regions as are required.
    fn is_quorum(&self, members: u32) -> bool {
        let region = |r: u32| ((1 << self.size) - 1) << (r * self.size);
        let met = (0..self.regions).filter(|r| is_majority(members, region(*r)));
        met.count() as u32 >= self.required
    }

    /// Whether some sets have majorities that all these quorums are, and nothing else is.
    fn can_be_said(&self) -> bool {
        let all = || 0u32..1 << self.voters();
        let quorums: Vec<u32> = all().filter(|members| self.is_quorum(*members)).collect();
        // The sets that no quorum fails; asking for all of them is the most that may be asked for.
        let sets: Vec<u32> = all()
            .skip(1)
            .filter(|set| quorums.iter().all(|quorum| is_majority(*quorum, *set)))
            .collect();
        let mut others = all().filter(|members| !self.is_quorum(*members));
        others.all(|other| !sets.iter().all(|set| is_majority(other, *set)))
    }
}

fn is_majority(members: u32, of: u32) -> bool {
    (members & of).count_ones() as usize >= majority_of(of.count_ones() as usize)
}

#[test]
fn some_regions_of_three_voters_cannot_be_said_as_majorities_of_sets() {
    for (regions, size) in [
        (2, 1),
        (2, 2),
        (2, 3),
        (3, 1),
        (3, 2),
        (3, 3),
        (4, 1),
        (5, 1),
    ] {
        // With fewer, two quorums need not meet.
        for required in regions / 2 + 1..=regions {
            let case = Case {
                regions,
                size,
                required,
            };
            let expected = required == regions || size < 3;
            assert_eq!(
                case.can_be_said(),
                expected,
                "{required} of {regions} regions of {size}"
            );
        }
    }
}
