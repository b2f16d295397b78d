//! Fuzzing entry points for the input from other members. The product does not call them.

use std::path::Path;

use consensus::log_probe::Asked;
use consensus::{Answer, Question};
use openraft::raft::AppendEntriesRequest;
use prost::Message;
use raft_types::{MemberId, TypeConfig, Vote};
use tonic::metadata::{MetadataKey, MetadataMap, MetadataValue};

use crate::callers::{Holder, NamedRoles};
use crate::client::introduction;
use crate::envelope;
use crate::schema;
use crate::tls::server_tls_of;
use crate::wire::{self, AnswerReader, AnswerWriter, RequestReader, RequestWriter};
use crate::{TlsFiles, TlsMaterial};

/// Reads a stream of entries: messages, each after its length. Then sends the same requests in messages of several sizes, in which they
/// must arrive unchanged. Returns the number of requests up to the first fault. With `repaired`, first corrects the checksums of complete
/// entries.
pub fn append_stream(mut bytes: &[u8], repaired: bool) -> usize {
    let mut assembly = wire::Assembly::default();
    let mut requests = 0;
    while !bytes.is_empty() {
        let Ok(mut part) = schema::AppendPart::decode_length_delimited(&mut bytes) else {
            break;
        };
        if repaired {
            for entry in &mut part.entries {
                entry.crc32c = crc32c::crc32c(&entry.body);
                entry.body_length = entry.body.len() as u64;
            }
        }
        match assembly.push(part) {
            Ok(None) => {}
            Ok(Some(request)) => {
                requests += 1;
                sent_again(&request);
            }
            Err(_) => break,
        }
    }
    requests
}

fn sent_again(request: &AppendEntriesRequest<TypeConfig>) {
    for most in [2 * wire::ENTRY_OVERHEAD, wire::PART_BYTES] {
        let asked = Asked::new(request.clone(), false);
        let mut splitter = wire::Splitter::new(asked.into(), most);
        let mut assembly = wire::Assembly::default();
        let mut arrived = Vec::new();
        while let Some(part) = splitter.next_part() {
            let pushed = assembly.push(part.message);
            arrived.extend(pushed.expect("what was written is read"));
        }
        let entries = arrived.iter().flat_map(|request| &request.entries);
        assert!(entries.eq(&request.entries));
        assert!(arrived.iter().all(|part| part.vote == request.vote));
    }
}

/// Reads one of the small messages, selected by the first byte. Returns the message as written again.
pub fn message(bytes: &[u8]) -> Option<Vec<u8>> {
    let (kind, mut body) = bytes.split_first()?;
    let written = match kind % 11 {
        0 => {
            let read = wire::vote_request_from(decoded(&mut body)?).ok()?;
            wire::vote_request(&read).encode_to_vec()
        }
        1 => {
            let read = wire::vote_response(decoded(&mut body)?).ok()?;
            wire::vote_answer(&read).encode_to_vec()
        }
        2 => {
            let read = wire::transfer_request_from(decoded(&mut body)?).ok()?;
            wire::transfer_request(&read).encode_to_vec()
        }
        3 => {
            let read = wire::transfer_response(decoded(&mut body)?).ok()?;
            wire::transfer_answer(read).encode_to_vec()
        }
        4 => {
            let (vote, start) = wire::begin_request_from(decoded(&mut body)?).ok()?;
            wire::begin_request(&vote, &start).ok()?.encode_to_vec()
        }
        5 => {
            let read: schema::BeginAnswer = decoded(&mut body)?;
            let vote = Some(wire::vote_to(&wire::required_vote(read.vote).ok()?));
            schema::BeginAnswer { vote }.encode_to_vec()
        }
        6 => {
            let read = wire::answered_from(decoded(&mut body)?).ok()?;
            wire::append_answer(read.result, read.report.as_ref()).encode_to_vec()
        }
        7 => {
            let read = wire::heartbeat_request(decoded(&mut body)?).ok()?;
            wire::head_of(&read.vote, read.prev_log_id, read.leader_commit).encode_to_vec()
        }
        8 => {
            let read: Question = wire::decode("question", body).ok()?;
            wire::encode(&read).to_vec()
        }
        9 => {
            let read: Answer = wire::decode("answer", body).ok()?;
            wire::encode(&read).to_vec()
        }
        _ => {
            let answer: schema::IdentifyAnswer = decoded(&mut body)?;
            introduction(&answer)?;
            answer.encode_to_vec()
        }
    };
    Some([&[*kind], written.as_slice()].concat())
}

fn decoded<T: Message + Default>(body: &mut &[u8]) -> Option<T> {
    T::decode(body).ok()
}

/// Reads a leader's messages to a proxy in one session, and writes them. Reading the written messages must return the same. Returns the
/// number of requests up to the first fault.
pub fn proxy_requests(bytes: &[u8]) -> usize {
    let parts = schema::ProxyFrame::decode(bytes).map(|frame| frame.parts);
    let parts = parts.unwrap_or_default();
    let open = parts.first().and_then(|part| part.open.as_ref());
    let Some(Ok((mut reader, onward))) = open.map(RequestReader::open) else {
        return 0;
    };
    let mut writer = RequestWriter::new(7, onward.clone());
    let mut again: Option<RequestReader> = None;
    let requests = parts.iter().map_while(|part| reader.read(part).ok());
    let mut count = 0;
    for request in requests {
        let part = writer.write(&request).expect("it is of the session's vote");
        let again = again.get_or_insert_with(|| {
            let open = part.open.as_ref().expect("the first part opens");
            let (again, onward_again) = RequestReader::open(open).expect("it was written");
            assert_eq!(onward_again, onward);
            again
        });
        let read = again.read(&part).expect("what was written is read");
        assert_eq!(read, request);
        count += 1;
    }
    count
}

/// Reads and writes a proxy's answers, as `proxy_requests` does with the requests.
pub fn proxy_answers(bytes: &[u8]) -> usize {
    let parts = schema::ProxyAnswerFrame::decode(bytes).map(|frame| frame.parts);
    let vote = Vote::new_committed(3, MemberId(1));
    let (mut reader, mut again) = (AnswerReader::new(&vote), AnswerReader::new(&vote));
    let mut writer = AnswerWriter::new(7, &vote);
    let mut count = 0;
    for part in parts.unwrap_or_default() {
        let Ok(Some(answer)) = reader.read(part) else {
            break;
        };
        let written = writer.write(answer.clone());
        let read = again.read(written).expect("what was written is read");
        assert_eq!(format!("{read:?}"), format!("{:?}", Some(answer)));
        count += 1;
    }
    count
}

/// Reads a call's metadata, with one `name: value` per line. Returns whether the metadata is an envelope or identifies the connection of a
/// stream.
pub fn call_metadata(bytes: &[u8]) -> bool {
    let mut metadata = MetadataMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Some(at) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let (name, value) = (&line[..at], line[at + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (
            MetadataKey::from_bytes(name),
            MetadataValue::try_from(value),
        ) {
            metadata.insert(name, value);
        }
    }
    let opened = envelope::open(&metadata).ok();
    if let Some(envelope) = &opened {
        let mut sealed = MetadataMap::new();
        envelope::seal(envelope, &mut sealed);
        assert_eq!(envelope::open(&sealed).as_ref(), Ok(envelope));
    }
    let stripes = envelope::stripes(&metadata).ok();
    if let Some(stripes) = stripes {
        let mut sealed = MetadataMap::new();
        envelope::seal_stripe(stripes, &mut sealed);
        assert_eq!(envelope::stripes(&sealed), Ok(stripes));
    }
    opened.is_some() || stripes.is_some()
}

/// Reads a certificate in DER. Returns whether the certificate names a role with any rights.
pub fn certificate(bytes: &[u8]) -> bool {
    let named = NamedRoles {
        members: vec!["witness".to_owned()],
        ..NamedRoles::default()
    };
    let holder = Holder::of(bytes, &named);
    holder.may(crate::Right::Read).is_ok()
}

/// Reads a PEM file as a certificate with its key and as the signing authority, for members and for HTTP. Returns whether the file is valid
/// for all of these.
pub fn tls_files(pem: &[u8]) -> bool {
    let file = Path::new("all.pem");
    let files = TlsFiles {
        certificate: file.to_owned(),
        key: file.to_owned(),
        authority: file.to_owned(),
        peer_name: None,
        roles: NamedRoles::default(),
    };
    let members = TlsMaterial::of(&files, pem, pem, pem);
    let http = server_tls_of((file, pem), (file, pem));
    // The HTTP port ignores an invalid authority.
    assert!(members.is_err() || http.is_ok());
    for told in [members.as_ref().err(), http.as_ref().err()] {
        let told = told.map(ToString::to_string);
        assert!(told.is_none_or(|told| told.contains("`all.pem`")));
    }
    members.is_ok()
}
