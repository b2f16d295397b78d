//! What the machine must have for a distance network, and what to do where it has not.

use std::fs::OpenOptions;
use std::process::Command;

/// What is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// The user is not root.
    Root,
    /// The program `ip` cannot be run.
    Ip(String),
    /// `/dev/net/tun` cannot be opened.
    Tun(String),
}

impl std::fmt::Display for Lacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the network with distance cannot be made: ")?;
        match self {
            Self::Root => f.write_str(
                "network namespaces and TUN devices take root; run the same command as root",
            ),
            Self::Ip(why) => {
                write!(f, "`ip` does not run ({why}); install the package iproute2")
            }
            Self::Tun(why) => write!(
                f,
                "/dev/net/tun does not open ({why}); load the module (`modprobe tun`), or start the container with \
                 `--device /dev/net/tun --cap-add NET_ADMIN --cap-add SYS_ADMIN`"
            ),
        }
    }
}

impl std::error::Error for Lacking {}

/// Whether a distance network can be made here.
///
/// # Errors
/// The first thing that is missing.
pub fn check_needs() -> Result<(), Lacking> {
    if !rustix::process::geteuid().is_root() {
        return Err(Lacking::Root);
    }
    let ip = Command::new("ip").arg("-Version").output();
    ip.map_err(|error| Lacking::Ip(error.to_string()))?;
    let tun = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    tun.map_err(|error| Lacking::Tun(error.to_string()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_says_what_to_do() {
        let why = || "no such file".to_owned();
        for (lacking, advice) in [
            (Lacking::Root, "as root"),
            (Lacking::Ip(why()), "install the package iproute2"),
            (Lacking::Tun(why()), "modprobe tun"),
        ] {
            assert!(lacking.to_string().contains(advice), "{lacking}");
        }
    }
}
