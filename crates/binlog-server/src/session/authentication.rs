//! Whether a client knows the password. Pure.
//!
//! The server knows the password, so the short way of `caching_sha2_password` is always open: an answer to the
//! challenge proves everything, and no password ever travels, with TLS or without. See decision 23.

use mysql_common::auth::plugins::caching_sha2_password::scramble_sha256;
use mysql_common::auth::plugins::mysql_native_password::scramble_native;

use super::greeting::{CACHING_SHA2, Challenge};

/// The plugins whose answers are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plugin {
    CachingSha2,
    /// Clients up to 8.x may still ask for it.
    Native,
}

impl Plugin {
    pub(super) fn of(name: &[u8]) -> Option<Self> {
        match name {
            name if name == CACHING_SHA2.as_bytes() => Some(Self::CachingSha2),
            b"mysql_native_password" => Some(Self::Native),
            _ => None,
        }
    }
}

/// Whether `answer` is that of somebody who knows the password.
pub(super) fn knows(plugin: Plugin, challenge: &Challenge, answer: &[u8], password: &str) -> bool {
    let password = password.as_bytes();
    let expected = match plugin {
        Plugin::CachingSha2 => {
            scramble_sha256(&challenge.0, password).map(|answer| answer.to_vec())
        }
        Plugin::Native => scramble_native(&challenge.0, password).map(|answer| answer.to_vec()),
    };
    expected.is_some_and(|expected| same(&expected, answer))
}

/// Compares without telling by the time it takes where the difference is.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .fold(0, |different, (one, other)| different | (one ^ other))
            == 0
}

/// The request to answer another challenge, by the plugin that everybody has.
pub(super) fn switch_packet(challenge: &Challenge) -> Vec<u8> {
    let mut packet = vec![0xfe];
    packet.extend_from_slice(CACHING_SHA2.as_bytes());
    packet.push(0);
    packet.extend_from_slice(&challenge.0);
    packet.push(0);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_answer_is_right() {
        let challenge = Challenge(*b"0123456789abcdefghij");
        // SHA1(password) XOR SHA1(challenge, SHA1(SHA1(password))) for "secret".
        let native = [
            0xf5, 0xca, 0xc3, 0xf3, 0xb3, 0xdf, 0x21, 0x33, 0xfe, 0xb5, 0x7d, 0xb6, 0x82, 0xc7,
            0x1e, 0x6e, 0xd4, 0x33, 0xa9, 0x88,
        ];
        assert!(knows(Plugin::Native, &challenge, &native, "secret"));
        let sha2 = scramble_sha256(&challenge.0, b"secret").unwrap();
        assert!(knows(Plugin::CachingSha2, &challenge, &sha2, "secret"));
        for plugin in [Plugin::Native, Plugin::CachingSha2] {
            assert!(!knows(plugin, &challenge, &[], "secret"));
            assert!(!knows(plugin, &challenge, &sha2[..20], "secret"));
            assert!(!knows(plugin, &challenge, &[], ""));
            let other = Challenge(*b"abcdefghij0123456789");
            assert!(!knows(plugin, &other, &sha2, "secret"));
            assert!(!knows(plugin, &other, &native, "secret"));
        }
    }
}
