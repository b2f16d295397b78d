//! Errors with MySQL's numbers, so that clients decide as they do with any source.

/// Error numbers that are sent.
pub(crate) mod code {
    /// Too many connections.
    pub(crate) const TOO_MANY_CONNECTIONS: u16 = 1040;
    /// The login's packets are not understood.
    pub(crate) const HANDSHAKE: u16 = 1043;
    /// Wrong user or password.
    pub(crate) const ACCESS_DENIED: u16 = 1045;
    /// A command that is not known.
    pub(crate) const UNKNOWN_COMMAND: u16 = 1047;
    /// No statement in the packet.
    pub(crate) const EMPTY_QUERY: u16 = 1065;
    /// Something else; a replica tries again.
    pub(crate) const UNKNOWN: u16 = 1105;
    /// There is no such system variable.
    pub(crate) const UNKNOWN_VARIABLE: u16 = 1193;
    /// SHOW BINLOG EVENTS failed.
    pub(crate) const SHOW_BINLOG_EVENTS: u16 = 1220;
    /// Not done here.
    pub(crate) const NOT_SUPPORTED: u16 = 1235;
    /// The dump cannot go on, and trying again does not help.
    pub(crate) const FATAL_READING_BINLOG: u16 = 1236;
    /// A statement's value is wrong.
    pub(crate) const WRONG_VALUE: u16 = 1525;
    /// PURGE names a file that is not there.
    pub(crate) const UNKNOWN_FILE: u16 = 1373;
    /// A packet that ends too early.
    pub(crate) const MALFORMED_PACKET: u16 = 1835;
    /// TLS is required.
    pub(crate) const INSECURE_TRANSPORT: u16 = 3159;
}

/// The longest message; MySQL's own bound.
const MAX_MESSAGE: usize = 511;

/// An error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ErrorAnswer {
    pub(crate) code: u16,
    pub(crate) message: String,
}

impl ErrorAnswer {
    pub(crate) fn new(code: u16, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// An error after which a replica stops asking.
    pub(crate) fn fatal(message: impl Into<String>) -> Self {
        Self::new(code::FATAL_READING_BINLOG, message)
    }

    fn sqlstate(&self) -> &'static [u8; 5] {
        match self.code {
            code::ACCESS_DENIED => b"28000",
            code::TOO_MANY_CONNECTIONS => b"08004",
            code::HANDSHAKE | code::UNKNOWN_COMMAND => b"08S01",
            code::EMPTY_QUERY | code::NOT_SUPPORTED => b"42000",
            _ => b"HY000",
        }
    }

    /// The packet.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0xff];
        packet.extend_from_slice(&self.code.to_le_bytes());
        packet.push(b'#');
        packet.extend_from_slice(self.sqlstate());
        let mut end = self.message.len().min(MAX_MESSAGE);
        while !self.message.is_char_boundary(end) {
            end -= 1;
        }
        packet.extend_from_slice(self.message.get(..end).unwrap_or_default().as_bytes());
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_between_characters() {
        let error = ErrorAnswer::new(code::UNKNOWN, "é".repeat(400));
        let packet = error.packet();
        assert_eq!(packet.len(), 9 + 510);
        assert!(std::str::from_utf8(&packet[9..]).is_ok());
    }
}
