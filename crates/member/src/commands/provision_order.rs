//! The donor's end of a copy: makes the account for it, and takes it away.

use mysql_link::ConnectOptions;
use mysqld_controller::provision::{self, CloneAccount, CloneOffer, ProvisionError};
use raft_types::MemberId;

use crate::mysqld::connect_options;
use crate::protocol::{Refusal, RefusalKind};
use crate::state::MemberState;

/// Makes an account for a copy by this member.
///
/// # Errors
/// When there is no mysqld here, or it refuses.
pub(crate) async fn offer(
    member_state: &MemberState,
    recipient: MemberId,
) -> Result<CloneOffer, Refusal> {
    let connect = account(member_state)?;
    provision::offer(&connect, recipient).await.map_err(refused)
}

/// Takes an account away.
///
/// # Errors
/// As [`offer`].
pub(crate) async fn withdraw(
    member_state: &MemberState,
    account_of: &CloneAccount,
) -> Result<(), Refusal> {
    let connect = account(member_state)?;
    provision::withdraw(&connect, account_of)
        .await
        .map_err(refused)
}

/// There is nothing to copy from or to.
pub(crate) fn no_mysqld() -> Refusal {
    Refusal::new(
        RefusalKind::Refused,
        "this member has no mysqld",
        "name a database member",
    )
}

fn account(member_state: &MemberState) -> Result<ConnectOptions, Refusal> {
    let settings = member_state.settings.mysql.as_ref().ok_or_else(no_mysqld)?;
    connect_options(settings).map_err(|error| {
        Refusal::new(
            RefusalKind::Failed,
            format!("the file of `mysql.password_file` cannot be read: {error}"),
            "mend it on that member; nothing was changed",
        )
    })
}

fn refused(error: ProvisionError) -> Refusal {
    Refusal::new(
        RefusalKind::Failed,
        error.to_string(),
        "mend that and try again",
    )
}
