//! The compared variants.

use proxy::{ProxyMode, ProxyOptions};
use serde::Serialize;

/// How entries reach other regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Variant {
    /// Every member receives entries from the leader.
    Vanilla,
    /// One member of each region receives entries from the leader, and relays them.
    Proxied,
}

impl Variant {
    pub(crate) const BOTH: [Self; 2] = [Self::Vanilla, Self::Proxied];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::Proxied => "proxied",
        }
    }

    pub(crate) fn options(self) -> ProxyOptions {
        match self {
            Self::Vanilla => ProxyOptions {
                mode: ProxyMode::Off,
                ..ProxyOptions::default()
            },
            Self::Proxied => ProxyOptions::default(),
        }
    }
}
