//! The addresses of the places of one network: a /24 network of 198.18.0.0/15, which RFC 2544 reserves for benchmarks. It is chosen so
//! that the networks of several harnesses do not overlap.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::bounded_run;
use crate::distance::links::Place;

const BASE: u32 = u32::from_be_bytes([198, 18, 0, 0]);
/// The number of /24 networks in a /15 network.
const NETWORKS: u32 = 512;
/// The last octet of the harness's address. Members have the following ones.
const FIRST_HOST: u32 = 1;
/// The highest last octet of a member's address.
const LAST_HOST: u32 = 254;

/// The /24 network of one distance network, and its number of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressPlan {
    network: u32,
    places: u32,
}

impl AddressPlan {
    /// Chooses a network that no device of this machine uses.
    pub(super) fn choose(members: usize) -> Result<Self> {
        let places = u32::try_from(members).unwrap_or(u32::MAX).saturating_add(1);
        ensure!(
            places <= LAST_HOST - FIRST_HOST + 1,
            "a network of {members} members is too large; it may have {}",
            LAST_HOST - FIRST_HOST
        );
        let used = ip(&["-4", "-oneline", "address", "show"])?;
        // Harnesses that start at the same time do not see each other's network yet, so each starts its search at another number.
        let number = first_free(&used, process::id()).context(
            "all of 198.18.0.0/15 is in use on this machine; `ip address` shows by what",
        )?;
        Ok(Self {
            network: BASE + (number << 8),
            places,
        })
    }

    /// Returns the address of a place.
    pub(super) fn address(&self, place: Place) -> Ipv4Addr {
        let index = u32::try_from(place.0).unwrap_or(u32::MAX);
        Ipv4Addr::from(self.network.wrapping_add(FIRST_HOST).wrapping_add(index))
    }

    /// Returns the place with an address.
    pub(super) fn place(&self, address: Ipv4Addr) -> Option<Place> {
        let index = u32::from(address).checked_sub(self.network + FIRST_HOST)?;
        let place = usize::try_from(index).ok().map(Place);
        place.filter(|_| index < self.places)
    }
}

/// Returns the first /24 network from `start` on that is not in the output of `ip address show`.
fn first_free(used: &str, start: u32) -> Option<u32> {
    (0..NETWORKS)
        .map(|step| (start % NETWORKS + step) % NETWORKS)
        .find(|number| {
            let [a, b, c, _] = Ipv4Addr::from(BASE + (number << 8)).octets();
            !used.contains(&format!(" {a}.{b}.{c}."))
        })
}

// iproute2's program, which creates and removes devices and namespaces.

const LIMIT: Duration = Duration::from_secs(20);

/// Runs `ip` and returns its output.
pub(super) fn ip<S: AsRef<OsStr>>(arguments: &[S]) -> Result<String> {
    let mut command = Command::new("ip");
    command.args(arguments);
    let shown: Vec<_> = arguments
        .iter()
        .map(|argument| argument.as_ref().to_string_lossy())
        .collect();
    let what = format!("ip {}", shown.join(" "));
    bounded_run::text(&what, command, LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_places_are_each_others() {
        let plan = AddressPlan {
            network: BASE + (300 << 8),
            places: 3,
        };
        assert_eq!(plan.address(Place::HARNESS), Ipv4Addr::new(198, 19, 44, 1));
        for place in [Place::HARNESS, Place::member(0), Place::member(1)] {
            assert_eq!(plan.place(plan.address(place)), Some(place));
        }
        assert_eq!(plan.place(plan.address(Place::member(2))), None);
        assert_eq!(plan.place(Ipv4Addr::new(198, 19, 44, 0)), None);
        assert_eq!(plan.place(Ipv4Addr::new(10, 0, 0, 1)), None);
    }

    #[test]
    fn a_network_in_use_is_not_chosen() {
        let used = "7: witness0    inet 198.18.5.1/24 scope global witness0\n";
        assert_eq!(first_free(used, 5), Some(6));
        assert_eq!(first_free(used, 512 + 4), Some(4));
        assert_eq!(first_free("", 511), Some(511));
        let all: String = (0..512)
            .map(|number| format!(" 198.{}.{}.1/24", 18 + number / 256, number % 256))
            .collect();
        assert_eq!(first_free(&all, 3), None);
    }
}
