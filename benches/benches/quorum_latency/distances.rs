//! The distances between members. Every distance is one way; a round trip is twice that.

use std::time::Duration;

use raft_types::MemberId;
use serde::Serialize;

/// Members of each region: one database member and two witnesses.
pub(crate) const MEMBERS_OF_A_REGION: u64 = 3;

/// One measured pair of distances, in milliseconds one way.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Distances {
    /// Between two members of one region.
    pub(crate) inside_one_way_ms: f64,
    /// Between two members of different regions.
    pub(crate) across_one_way_ms: f64,
}

impl Distances {
    /// Members are numbered from 1, region by region.
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

    /// The round trip within a region, or between two, in milliseconds.
    pub(crate) fn round_trip_ms(&self, within_a_region: bool) -> f64 {
        2.0 * self.one_way_ms(within_a_region)
    }

    /// As a key of the figures.
    pub(crate) fn key(&self) -> String {
        format!(
            "inside_{}_ms_across_{}_ms",
            self.inside_one_way_ms, self.across_one_way_ms
        )
    }
}

/// Counted from 0.
pub(crate) fn region_number(id: MemberId) -> u64 {
    id.0.saturating_sub(1) / MEMBERS_OF_A_REGION
}
