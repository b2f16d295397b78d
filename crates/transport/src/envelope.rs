//! The envelopes of calls in gRPC metadata, and the conversion of refusals to gRPC statuses and back.

use std::str::FromStr;

use raft_types::{FormatRange, FormatVersion, MemberId, RingId};
use ring_admin::{AdmissionRefusal, Envelope, Party};
use thiserror::Error;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::{Code, Status};

/// The format of the call.
const FORMAT_KEY: &str = "witness-protocol";
/// The formats that the caller supports. Programs that support only the first format omit this key.
const SPEAKS_KEY: &str = "witness-formats";
const RING_KEY: &str = "witness-ring";
const FROM_KEY: &str = "witness-from";
const TO_KEY: &str = "witness-to";
const REFUSAL_KEY: &str = "witness-refusal";
const STRIPES_KEY: &str = "witness-stripes";

/// Why a call's envelope cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum EnvelopeError {
    /// A field of the envelope is missing.
    #[error("the call has no `{0}` in its metadata; only members of a ring make such calls")]
    Missing(&'static str),
    /// A field's text is invalid.
    #[error("the call's `{key}` is `{value}`, which cannot be read")]
    Unreadable {
        /// Name of the metadata field.
        key: &'static str,
        /// The field's text.
        value: String,
    },
}

/// Writes the envelope of a call.
pub(crate) fn seal(envelope: &Envelope, metadata: &mut MetadataMap) {
    let party = |party: &Party| format!("{}/{}", party.member, party.incarnation);
    metadata.insert(FORMAT_KEY, ascii(&envelope.format.to_string()));
    metadata.insert(SPEAKS_KEY, ascii(&envelope.speaks.to_string()));
    metadata.insert(RING_KEY, ascii(&envelope.ring.to_string()));
    metadata.insert(FROM_KEY, ascii(&party(&envelope.from)));
    metadata.insert(TO_KEY, ascii(&party(&envelope.to)));
}

/// Reads the envelope of a call.
pub(crate) fn open(metadata: &MetadataMap) -> Result<Envelope, EnvelopeError> {
    let format = text(metadata, FORMAT_KEY)?;
    let number = format.parse().map_err(|_| unreadable(FORMAT_KEY, format))?;
    let format = FormatVersion(number);
    let speaks = match metadata.get(SPEAKS_KEY) {
        None => FormatRange::only(format),
        Some(_) => {
            let speaks = text(metadata, SPEAKS_KEY)?;
            speaks.parse().map_err(|_| unreadable(SPEAKS_KEY, speaks))?
        }
    };
    let ring = text(metadata, RING_KEY)?;
    let ring: RingId = ring.parse().map_err(|_| unreadable(RING_KEY, ring))?;
    Ok(Envelope {
        ring,
        from: party(metadata, FROM_KEY)?,
        to: party(metadata, TO_KEY)?,
        format,
        speaks,
    })
}

/// Identifies a connection of a stream of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stripes {
    /// The number of the stream.
    pub(crate) session: u64,
    /// If this connection opens the stream, the maximum number of connections; otherwise, this connection's number.
    pub(crate) number: u32,
}

/// Writes the connection's identification.
pub(crate) fn seal_stripe(stripes: Stripes, metadata: &mut MetadataMap) {
    let text = format!("{}/{}", stripes.session, stripes.number);
    metadata.insert(STRIPES_KEY, ascii(&text));
}

/// Reads the connection's identification.
pub(crate) fn stripes(metadata: &MetadataMap) -> Result<Stripes, EnvelopeError> {
    let (session, number) = pair(metadata, STRIPES_KEY)?;
    Ok(Stripes { session, number })
}

fn party(metadata: &MetadataMap, key: &'static str) -> Result<Party, EnvelopeError> {
    let (member, incarnation) = pair(metadata, key)?;
    Ok(Party {
        member: MemberId(member),
        incarnation,
    })
}

/// Reads two values, which are separated by a slash.
fn pair<A: FromStr, B: FromStr>(
    metadata: &MetadataMap,
    key: &'static str,
) -> Result<(A, B), EnvelopeError> {
    let value = text(metadata, key)?;
    let parsed = value
        .split_once('/')
        .and_then(|(one, other)| Some((one.parse().ok()?, other.parse().ok()?)));
    parsed.ok_or_else(|| unreadable(key, value))
}

fn text<'a>(metadata: &'a MetadataMap, key: &'static str) -> Result<&'a str, EnvelopeError> {
    let value = metadata.get(key).ok_or(EnvelopeError::Missing(key))?;
    value.to_str().map_err(|_| unreadable(key, "not text"))
}

fn unreadable(key: &'static str, value: &str) -> EnvelopeError {
    EnvelopeError::Unreadable {
        key,
        value: value.to_owned(),
    }
}

/// Converts a text to ASCII. Numbers and UUIDs are ASCII already; a text with other characters becomes `?`.
fn ascii(text: &str) -> MetadataValue<Ascii> {
    text.parse().unwrap_or(MetadataValue::from_static("?"))
}

impl From<EnvelopeError> for Status {
    fn from(error: EnvelopeError) -> Self {
        Status::new(Code::InvalidArgument, error.to_string())
    }
}

/// Returns the status of a refusal, with the refusal's code for programs.
pub(crate) fn refusal_status(refusal: &AdmissionRefusal) -> Status {
    let mut status = Status::new(Code::FailedPrecondition, refusal.to_string());
    let code = MetadataValue::from_static(refusal.code());
    status.metadata_mut().insert(REFUSAL_KEY, code);
    status
}

/// Returns the code of a refusal from a status; `None` if the status is not a refusal.
pub(crate) fn refusal_code(status: &Status) -> Option<&str> {
    let code = status.metadata().get(REFUSAL_KEY)?;
    code.to_str().ok()
}

#[cfg(test)]
mod tests {
    use raft_types::Incarnation;

    use super::*;

    #[test]
    fn connections_of_a_stream_are_identified() {
        let mut metadata = MetadataMap::new();
        assert_eq!(stripes(&metadata), Err(EnvelopeError::Missing(STRIPES_KEY)));
        let one = Stripes {
            session: u64::MAX,
            number: 3,
        };
        seal_stripe(one, &mut metadata);
        assert_eq!(stripes(&metadata), Ok(one));
        metadata.insert(STRIPES_KEY, ascii("7"));
        assert_eq!(stripes(&metadata), Err(unreadable(STRIPES_KEY, "7")));
    }

    fn envelope() -> Envelope {
        let party = |member| Party {
            member: MemberId(member),
            incarnation: Incarnation::random(),
        };
        Envelope {
            ring: RingId::random(),
            from: party(1),
            to: party(2),
            format: FormatVersion(2),
            speaks: "1-3".parse().unwrap(),
        }
    }

    #[test]
    fn an_envelope_round_trips() {
        let envelope = envelope();
        let mut metadata = MetadataMap::new();
        seal(&envelope, &mut metadata);
        assert_eq!(open(&metadata), Ok(envelope));
        // A program that supports only the first format sends this number, without a range.
        metadata.insert(FORMAT_KEY, MetadataValue::from_static("1"));
        metadata.remove(SPEAKS_KEY);
        let first = Envelope {
            format: FormatVersion::FIRST,
            speaks: FormatRange::only(FormatVersion::FIRST),
            ..envelope
        };
        assert_eq!(open(&metadata), Ok(first));
    }

    #[test]
    fn incomplete_envelopes_are_rejected() {
        let error = open(&MetadataMap::new()).unwrap_err();
        assert_eq!(error, EnvelopeError::Missing(FORMAT_KEY));
        for (key, value, message) in [
            (FORMAT_KEY, "new", "`witness-protocol` is `new`"),
            (SPEAKS_KEY, "3-1", "`witness-formats` is `3-1`"),
            (RING_KEY, "x", "`witness-ring` is `x`"),
            (FROM_KEY, "1", "`witness-from` is `1`"),
            (TO_KEY, "2/x", "`witness-to` is `2/x`"),
        ] {
            let mut metadata = MetadataMap::new();
            seal(&envelope(), &mut metadata);
            metadata.insert(key, MetadataValue::from_static(value));
            let error = open(&metadata).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn a_refusal_keeps_its_code_and_message() {
        let refusal = AdmissionRefusal::SameMember(MemberId(2));
        let status = refusal_status(&refusal);
        assert_eq!(refusal_code(&status), Some("same-member"));
        assert!(
            status
                .message()
                .contains("two processes use the same number")
        );
    }
}
