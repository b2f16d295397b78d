//! Where an IPv4 packet says that it goes.

use std::net::Ipv4Addr;

const VERSION_4: u8 = 4;
const DESTINATION: std::ops::Range<usize> = 16..20;

/// The destination of an IPv4 packet; of anything else (the kernel also sends IPv6 housekeeping) nothing.
pub(super) fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    if packet.first()? >> 4 != VERSION_4 {
        return None;
    }
    let octets: [u8; 4] = packet.get(DESTINATION)?.try_into().ok()?;
    Some(octets.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_ipv4_header_has_a_destination() {
        let mut packet = [0_u8; 20];
        packet[0] = 0x45;
        packet[DESTINATION].copy_from_slice(&[198, 18, 7, 9]);
        assert_eq!(destination(&packet), Some(Ipv4Addr::new(198, 18, 7, 9)));
        assert_eq!(destination(&packet[..19]), None);
        packet[0] = 0x60;
        assert_eq!(destination(&packet), None);
        assert_eq!(destination(&[]), None);
    }
}
