//! Liveness probe: whether any process listens at an address. It uses its own connection, which is dropped unused: the connections for
//! calls do not report how connecting failed.

use std::io::{self, ErrorKind};

use consensus::Knock;
use sockets::Names;
use tokio::net::TcpStream;

/// The two parts of `HOST:PORT`; an IPv6 address without its brackets.
pub(super) fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']), port.parse().ok()?))
}

/// Probes all addresses of a name in turn. Each has to refuse, except those without a route from this host, as IPv6 without support.
/// Earlier addresses of the name do not count: a moved member is not dead.
pub(super) async fn knock(address: &str, names: &Names) -> Knock {
    let Some((host, port)) = host_and_port(address) else {
        return Knock::Silent;
    };
    let Ok(addresses) = names.find_anew(host, port).await else {
        return Knock::Silent;
    };
    let mut knocked = Knock::Silent;
    for address in addresses {
        match self::knocked(TcpStream::connect(address).await.err()) {
            Some(Knock::Refused) => knocked = Knock::Refused,
            Some(answer) => return answer,
            None => {}
        }
    }
    knocked
}

/// The outcome of a connection attempt; `None`: no route to the address.
pub(super) fn knocked(error: Option<io::Error>) -> Option<Knock> {
    match error.map(|error| error.kind()) {
        None => Some(Knock::Answers),
        Some(ErrorKind::ConnectionRefused) => Some(Knock::Refused),
        Some(ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable) => None,
        Some(_) => Some(Knock::Silent),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_address_answers_refuses_or_says_nothing() {
        let names = Names::of_the_system();
        let knock = async |address: &str| knock(address, &names).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(knock(&address.to_string()).await, Knock::Answers);
        drop(listener);
        assert_eq!(knock(&address.to_string()).await, Knock::Refused);
        assert_eq!(knock("no.such.name.invalid:1").await, Knock::Silent);
        assert_eq!(knock("not an address").await, Knock::Silent);
    }
}
