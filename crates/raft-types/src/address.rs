//! The format of a member's address in its record, in configurations and on command lines.

use thiserror::Error;

/// Why a text is not the address of a host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AddressMistake {
    /// The port is missing.
    #[error("`{0}` has no port")]
    NoPort(String),
    /// The host is missing. An IPv6 address is written in brackets, or its end would be read as a port.
    #[error("`{0}` has no host")]
    NoHost(String),
    /// The text after the last colon.
    #[error("`{0}` is not a port")]
    NotAPort(String),
}

/// The host and the port of an address, which is written `HOST:PORT`; an IPv6 host in brackets.
///
/// # Errors
/// [`AddressMistake`]. Port 0 is invalid.
pub fn host_and_port(address: &str) -> Result<(&str, u16), AddressMistake> {
    let Some((host, port)) = address.rsplit_once(':') else {
        return Err(AddressMistake::NoPort(address.to_owned()));
    };
    let in_brackets = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || (host.contains(':') && !in_brackets) {
        return Err(AddressMistake::NoHost(address.to_owned()));
    }
    match port.parse() {
        Ok(port) => Ok((host, port)),
        Err(_) => Err(AddressMistake::NotAPort(port.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv6_stands_in_brackets() {
        let read = |text| host_and_port(text).map_err(|mistake| mistake.to_string());
        assert_eq!(read("db-1:7400"), Ok(("db-1", 7400)));
        assert_eq!(read("[::1]:7400"), Ok(("[::1]", 7400)));
        for (wrong, why) in [
            ("db-1", "`db-1` has no port"),
            (":7400", "`:7400` has no host"),
            ("2001:db8::12:7432", "`2001:db8::12:7432` has no host"),
            ("[::1:7400", "`[::1:7400` has no host"),
            ("[2001:db8::12]", "`[2001:db8::12]` has no host"),
            ("db-1:65536", "`65536` is not a port"),
            ("db-1:", "`` is not a port"),
        ] {
            assert_eq!(read(wrong), Err(why.to_owned()));
        }
    }
}
