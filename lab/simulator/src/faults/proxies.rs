//! Faults of a relaying proxy.

use std::time::Duration;

use fastrand::Rng;
use raft_types::MemberId;
use testkit::disk::Survival;

use super::{Crash, Fault};
use crate::network::Relayed;

/// Affects one session: the proxy itself, one of its two links, or entries that arrive later than their op ids.
pub(super) fn strike(session: &Relayed, time: Duration, dice: &mut Rng) -> Fault {
    let Relayed { from, proxy, next } = *session;
    let cut = |one: MemberId, other: MemberId, both: bool| Fault::Cut {
        from: vec![one],
        to: vec![other],
        both,
        time,
    };
    match dice.u32(0..12) {
        0 => cut(from, proxy, dice.bool()),
        1 => cut(proxy, from, dice.bool()),
        2 => cut(proxy, next, dice.bool()),
        3 => cut(next, proxy, dice.bool()),
        4..=5 => Fault::Pause {
            member: proxy,
            time,
        },
        6..=7 => Fault::SlowDisk {
            member: proxy,
            delay: Duration::from_millis(dice.u64(1..300)),
            time,
        },
        8..=9 => Fault::Lag {
            member: from,
            delay: Duration::from_millis(dice.u64(20..300)),
            time,
        },
        drawn => Fault::Crash {
            member: proxy,
            crash: match drawn {
                10 => Crash::Kill,
                _ => Crash::PowerCut(Survival::Seeded(dice.u64(..))),
            },
            after_calls: dice.u64(0..12),
            down: time,
        },
    }
}
