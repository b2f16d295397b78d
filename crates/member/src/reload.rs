//! What a running member takes anew from its configuration, without a restart. The program reads the configuration ([`Reload`]);
//! whatever the member takes is read and checked first ([`Renewed::read`]), and taking it cannot fail.

use crate::credentials::Credentials;
use crate::error::MemberError;
use crate::protocol::{Refusal, Reloaded};
use crate::settings::{HookSettings, Settings};

/// The program's part of a reload.
pub trait Reload: Send + Sync + 'static {
    /// Reads the configuration again, and takes what can be taken while the member runs; a dry run takes nothing.
    ///
    /// # Errors
    /// Everything that is wrong with it; nothing was changed then.
    fn reload(&self, dry_run: bool) -> Result<Reloaded, Refusal>;
}

/// What a configuration says of certificates, passwords and hooks, for a member to take.
pub struct Renewed {
    pub(crate) credentials: Credentials,
    pub(crate) hooks: HookSettings,
}

impl Renewed {
    /// Reads every file, and checks it; the member's own certificate as the other members will.
    ///
    /// # Errors
    /// Which one cannot be used, and why.
    pub fn read(settings: &Settings) -> Result<Self, MemberError> {
        let credentials = Credentials::read(settings)?;
        if let Some(tls) = &credentials.tls {
            settings.check_shown(tls)?;
        }
        Ok(Self {
            credentials,
            hooks: settings.hooks.clone(),
        })
    }
}
