//! The compared variants.

use proxy::{ProxyMode, ProxyOptions};
use serde::Serialize;

/// The route of entries to other regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Variant {
    /// Every member gets them from the leader.
    Vanilla,
    /// One of each region does, and relays them.
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
