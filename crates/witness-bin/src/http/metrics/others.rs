//! What a leader knows of the others: how far each peer and each region is.

use std::fmt::Error;

use consensus::quorum::RegionQuorum;
use member::status::{MemberView, PeerView};
use prometheus_client::registry::Unit;
use raft_types::OpId;

use crate::openmetrics::Sheet;

/// Writes them; nothing on a member that does not lead.
pub(super) fn write(sheet: &mut Sheet<'_, '_>, view: &MemberView) -> Result<(), Error> {
    peers(sheet, &view.peers)?;
    regions(sheet, &view.regions)
}

fn peers(sheet: &mut Sheet<'_, '_>, peers: &[PeerView]) -> Result<(), Error> {
    let behind = peers.iter().filter_map(|peer| {
        let behind = peer.behind_entries?;
        Some(([("peer", peer.name.as_str())], behind as f64))
    });
    sheet.gauges(
        "peer_behind_entries",
        None,
        "Entries that the peer is behind this leader",
        behind,
    )?;
    let answered = peers
        .iter()
        .filter_map(|peer| Some(([("peer", peer.name.as_str())], peer.answered_seconds?)));
    sheet.gauges(
        "peer_answered",
        Some(&Unit::Seconds),
        "Since the peer's last answer to this leader",
        answered,
    )
}

/// How far each region holds the log.
fn regions(sheet: &mut Sheet<'_, '_>, regions: &[RegionQuorum]) -> Result<(), Error> {
    type Held = fn(&RegionQuorum) -> Option<OpId>;
    let watermarks: [(&str, &str, Held); 2] = [
        (
            "region_majority_index",
            "Index of the last entry that a majority of the region's voting members holds durably",
            |region| region.held_by_majority,
        ),
        (
            "region_any_index",
            "Index of the last entry that any member of the region holds durably",
            |region| region.held_by_any,
        ),
    ];
    for (name, help, held) in watermarks {
        let known = regions.iter().filter_map(|region| {
            let held = held(region)?;
            Some(([("region", region.region.0.as_str())], held.index as f64))
        });
        sheet.gauges(name, None, help, known)?;
    }
    Ok(())
}
