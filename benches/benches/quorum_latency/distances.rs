//! The distances between members: one-way delays, of which a round trip is twice as much.

use std::time::Duration;

use raft_types::MemberId;
use serde::Serialize;

/// The number of members in a region: one database member and two witnesses.
pub(crate) const MEMBERS_OF_A_REGION: u64 = 3;

/// One pair of distances to measure, in milliseconds one way.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Distances {
    /// The delay between two members of one region.
    pub(crate) inside_one_way_ms: f64,
    /// The delay between two members of different regions.
    pub(crate) across_one_way_ms: f64,
}

impl Distances {
    /// Returns the delay between two members. Members are numbered from 1, region by region.
    pub(crate) fn one_way(&self, from: MemberId, to: MemberId) -> Duration {
        let here = region_number(from) == region_number(to);
        Duration::from_secs_f64(self.one_way_ms(here) / 1e3)
    }

    fn one_way_ms(&self, here: bool) -> f64 {
        if here {
            self.inside_one_way_ms
        } else {
            self.across_one_way_ms
        }
    }

    /// Returns the round trip within a region, or between two regions, in milliseconds.
    pub(crate) fn round_trip_ms(&self, within_a_region: bool) -> f64 {
        2.0 * self.one_way_ms(within_a_region)
    }

    /// Returns the key of these distances in the figures.
    pub(crate) fn key(&self) -> String {
        format!(
            "inside_{}_ms_across_{}_ms",
            self.inside_one_way_ms, self.across_one_way_ms
        )
    }
}

/// Returns the number of a member's region, counted from 0.
pub(crate) fn region_number(id: MemberId) -> u64 {
    id.0.saturating_sub(1) / MEMBERS_OF_A_REGION
}
