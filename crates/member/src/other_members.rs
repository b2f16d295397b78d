//! Requests the views of the other members, over the ring's connections.

use std::iter;
use std::sync::Arc;

use futures::future::select_ok;
use raft_types::{MemberId, MemberRecord};
use transport::{AdminClient, AdminError, TransportConfig};

use crate::state::MemberState;
use crate::status::MemberView;

/// The addresses of the other members, and how to connect to them.
pub(crate) struct OtherMembers {
    /// Contains their addresses in this member's configuration.
    pub(crate) state: Arc<MemberState>,
    pub(crate) transport: TransportConfig,
}

/// A member that answered.
pub(crate) struct Answering {
    /// The address that answered.
    pub(crate) address: String,
    pub(crate) client: AdminClient,
    pub(crate) view: MemberView,
}

impl OtherMembers {
    /// Returns the view of the member with this number and `record` in the ring. Calls the address in the record; if that fails, calls the
    /// address in this member's configuration, if it is different.
    ///
    /// # Errors
    /// If the member answers at neither address. The answer of another member does not count.
    pub(crate) async fn view_of(
        &self,
        id: MemberId,
        record: &MemberRecord,
    ) -> Result<Answering, AdminError> {
        let mut members = self.state.settings.members.iter();
        let configured = members.find(|one| one.id == id).map(|one| &one.address);
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
        let tls = self.state.credentials.tls.as_ref();
        let client = AdminClient::new(address, tls, self.transport)?;
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

/// If another member gave this view, returns a text about that member. An address may belong to another member by now.
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
