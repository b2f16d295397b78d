//! What the other members say of themselves, asked over the ring's own connections.

use std::collections::BTreeMap;
use std::iter;

use futures::future::select_ok;
use raft_types::{MemberId, MemberRecord};
use transport::{AdminClient, AdminError, TlsMaterial, TransportConfig};

use crate::settings::Settings;
use crate::status::MemberView;

/// Where they are, and how they are asked.
#[derive(Clone)]
pub(crate) struct OtherMembers {
    /// Where this member's configuration has them.
    configured: BTreeMap<MemberId, String>,
    tls: Option<TlsMaterial>,
    transport: TransportConfig,
}

/// One that answered.
pub(crate) struct Answering {
    /// Where it did.
    pub(crate) address: String,
    pub(crate) client: AdminClient,
    pub(crate) view: MemberView,
}

impl OtherMembers {
    pub(crate) fn of(
        settings: &Settings,
        tls: Option<&TlsMaterial>,
        transport: TransportConfig,
    ) -> Self {
        let members = settings.members.iter();
        Self {
            configured: members.map(|one| (one.id, one.address.clone())).collect(),
            tls: tls.cloned(),
            transport,
        }
    }

    /// The view of the member with this number, of which the ring has `record`: asked at the address there, and at the one of the
    /// configuration, where that is another one.
    ///
    /// # Errors
    /// When neither address gives an answer of that member; a stranger's says nothing of it.
    pub(crate) async fn view_of(
        &self,
        id: MemberId,
        record: &MemberRecord,
    ) -> Result<Answering, AdminError> {
        let configured = self.configured.get(&id);
        let configured = configured.filter(|address| **address != record.address);
        let addresses = iter::once(&record.address).chain(configured);
        let asked = addresses.map(|address| Box::pin(self.view_at(address, id, record)));
        select_ok(asked).await.map(|(answering, _)| answering)
    }

    async fn view_at(
        &self,
        address: &str,
        id: MemberId,
        record: &MemberRecord,
    ) -> Result<Answering, AdminError> {
        let client = AdminClient::new(address, self.tls.as_ref(), self.transport)?;
        let answer = client.status().await?;
        let view = serde_json::from_slice(&answer);
        let view = view.map_err(|error| AdminError::Unreadable {
            address: address.to_owned(),
            reason: error.to_string(),
        })?;
        if let Some(reason) = stranger(&view, id, record) {
            let address = address.to_owned();
            return Err(AdminError::Unreachable { address, reason });
        }
        Ok(Answering {
            address: address.to_owned(),
            client,
            view,
        })
    }
}

/// Who else gave this view, if somebody else did: an address may be another member's by now.
fn stranger(view: &MemberView, id: MemberId, record: &MemberRecord) -> Option<String> {
    let found = &view.member;
    ((found.id, found.incarnation) != (id, record.incarnation)).then(|| {
        format!(
            "member {} (`{}`) answers there, with the data directory {}",
            found.id, found.name, found.incarnation
        )
    })
}

#[cfg(test)]
mod tests {
    use raft_types::Incarnation;

    use super::*;
    use crate::status::sample::database_leader;

    #[test]
    fn another_member_or_data_directory_at_the_address_says_nothing_of_the_one_that_was_meant() {
        let view = database_leader();
        let record = MemberRecord {
            incarnation: view.member.incarnation,
            ..MemberRecord::default()
        };
        let id = view.member.id;
        assert_eq!(stranger(&view, id, &record), None);
        let another = stranger(&view, MemberId(id.0 + 1), &record);
        assert!(another.is_some_and(|who| who.contains(&view.member.name)));
        let before = MemberRecord {
            incarnation: Incarnation::random(),
            ..record
        };
        assert_ne!(before.incarnation, view.member.incarnation);
        assert!(stranger(&view, id, &before).is_some());
    }
}
