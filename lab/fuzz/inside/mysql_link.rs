//! Fuzzing entry points for the input from a mysqld. The product does not call them.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use mysql_common::packets::AuthPlugin;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::client::{
    Answer, Authentication, TransportSecurity, check_public_key, connect, foreign_in, parse_answer,
    parse_column_name, parse_greeting, parse_row, parse_switch,
};
use crate::error::{LinkError, ServerError};
use crate::replication::{SEMI_SYNC_HEADER, ack_wanted};
use crate::tls::certificates_in;
use crate::wire::{ByteStream, Packet, PacketDecoder, encode_packet};
use crate::{ConnectOptions, Dial, Dialer, Endpoint, Row, TlsMode};

/// Reads a server's first packet; returns whether it is a greeting.
pub fn greeting(bytes: &[u8]) -> bool {
    let packet = Packet {
        first_sequence: 0,
        last_sequence: 0,
        payload: Bytes::copy_from_slice(bytes),
    };
    let greeting = parse_greeting(&packet);
    let foreign = foreign_in(bytes);
    greeting.is_ok() || foreign.is_some()
}

/// Reads a server's packet during a login: a switch to another plugin, the server's public key, or an error. Returns whether the packet is
/// one of the three.
pub fn login_answer(bytes: &[u8]) -> bool {
    let switch = parse_switch(bytes).is_ok();
    let key = check_public_key(bytes).is_ok();
    switch || key || ServerError::parse(bytes).is_ok()
}

/// Reads packets as the answer to a statement. Returns the number of rows; `None`: the packets are no answer.
pub fn answer(bytes: &[u8]) -> Option<usize> {
    let mut packets = PacketDecoder::new(1 << 20);
    packets.buffer_mut().extend_from_slice(bytes);
    let mut next = || packets.next_packet().ok()?.map(|packet| packet.payload);
    let first = next()?;
    if first.first() == Some(&0xff) {
        return ServerError::parse(&first).ok().map(|_| 0);
    }
    let Answer::Columns(count) = parse_answer(first).ok()? else {
        return Some(0);
    };
    let names: Option<Vec<_>> = (0..count)
        .map(|_| parse_column_name(next()?).ok())
        .collect();
    let names: Arc<[String]> = names?.into();
    let mut rows = 0;
    while let Some(row) = parse_row(next()?, &names).ok()? {
        assert_eq!(row.values().len(), count);
        rows += 1;
    }
    Some(rows)
}

/// Returns the length of the semi-sync header before an event of a dump; 0 if the dump is not semi-synchronous.
pub fn dump_prefix(event: &[u8]) -> usize {
    ack_wanted(event).map_or(0, |_| SEMI_SYNC_HEADER)
}

/// Builds an answer with these columns. Each line of `text` is a row with tab-separated values; `NULL` is NULL.
pub fn rows(columns: &[&str], text: &str) -> Vec<Row> {
    let columns: Arc<[String]> = columns.iter().map(|name| (*name).to_owned()).collect();
    let value = |value: &str| (value != "NULL").then(|| Bytes::copy_from_slice(value.as_bytes()));
    let rows = text.lines().map(|line| {
        let mut values: Vec<_> = line.split('\t').take(columns.len()).map(value).collect();
        values.resize(columns.len(), None);
        Row::of(Arc::clone(&columns), values)
    });
    rows.collect()
}

/// The client's password, which it must never send in clear text.
const PASSWORD: &str = "an unread password";

/// Logs in to a server that sends these packets in turn with the client. Each packet is its length in two bytes and its payload. The
/// connection is in memory, which counts as secure. The authentication packets are then sent over an insecure connection, too. Returns
/// whether one of the two logins succeeded.
pub fn login(bytes: &[u8]) -> bool {
    let mut says = Vec::new();
    let mut rest = bytes;
    while let Some(([low, high], after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        let (payload, after) = after.split_at(length.min(after.len()));
        says.push(payload.to_vec());
        rest = after;
    }
    let in_clear = is_let_in_over_a_plain_way(&says);
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build();
    let whole = runtime.expect("a runtime").block_on(async {
        let (ours, theirs) = tokio::io::duplex(256 << 10);
        let mut options = ConnectOptions::new(Endpoint::tcp("mysqld", 3306), "witness", PASSWORD);
        options.tls.mode = TlsMode::Disabled;
        options.dialer = Dialer::new(Arc::new(InMemory(Mutex::new(Some(ours)))));
        let server = serve(theirs, says);
        let (logged_in, ()) = tokio::join!(connect(&options), server);
        logged_in.is_ok()
    });
    whole || in_clear
}

/// The client's end of a connection in memory.
struct InMemory(Mutex<Option<DuplexStream>>);

impl Dial for InMemory {
    fn dial(&self, _: &Endpoint) -> BoxFuture<'_, io::Result<ByteStream>> {
        let stream = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stream = stream.ok_or_else(|| io::Error::other("only one call is expected"));
        Box::pin(async { stream.map(ByteStream::Memory) })
    }
}

/// Sends the packets in order. Before each following packet, waits for the client's answer, if the client sends one. Packet numbers
/// continue after the last received packet.
async fn serve(mut stream: DuplexStream, says: Vec<Vec<u8>>) {
    let mut next = 0;
    for payload in says {
        let mut bytes = Vec::new();
        next = encode_packet(next, &payload, &mut bytes);
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
        let answered = tokio::select! {
            biased;
            answered = reply(&mut stream) => Some(answered),
            () = silence() => None,
        };
        match answered {
            None => {}
            Some(Ok(number)) => next = number.wrapping_add(1),
            Some(Err(_)) => return,
        }
    }
}

/// Reads the client's packet; returns its number.
async fn reply(stream: &mut DuplexStream) -> io::Result<u8> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [low, middle, high, number] = head;
    let mut payload = vec![0; u32::from_le_bytes([low, middle, high, 0]) as usize];
    stream.read_exact(&mut payload).await?;
    Ok(number)
}

/// Waits until a client in the same thread has certainly run, unless the client waits for something else.
async fn silence() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
}

/// Sends the packets after the server's greeting to a client on a network without TLS. Asserts that no answer of the client contains the
/// password. Returns whether the authentication completed.
fn is_let_in_over_a_plain_way(says: &[Vec<u8>]) -> bool {
    let plain = TransportSecurity {
        tls: false,
        local_socket: false,
    };
    let options = ConnectOptions::new(Endpoint::tcp("mysqld", 3306), "witness", PASSWORD);
    let Some((greeting, after)) = says.split_first() else {
        return false;
    };
    let packet = Packet {
        first_sequence: 0,
        last_sequence: 0,
        payload: Bytes::copy_from_slice(greeting),
    };
    let Ok(greeting) = parse_greeting(&packet) else {
        return false;
    };
    let offered = greeting.plugin.as_deref().map(AuthPlugin::from_bytes);
    let Ok(mut authentication) = Authentication::new(&options, plain, offered, greeting.scramble)
    else {
        return false;
    };
    let hidden = |answer: Result<Option<Vec<u8>>, LinkError>| {
        let answer = answer.ok()?.unwrap_or_default();
        let mut windows = answer.windows(PASSWORD.len());
        assert!(windows.all(|window| window != PASSWORD.as_bytes()));
        Some(())
    };
    if hidden(authentication.first_answer().map(Some)).is_none() {
        return false;
    }
    for payload in after {
        let answer = match payload.first() {
            Some(0) => return true,
            Some(1) => authentication.answer(&payload[1..]),
            Some(0xfe) => match parse_switch(payload) {
                Ok(request) => authentication
                    .switch(request.auth_plugin(), request.plugin_data())
                    .map(Some),
                Err(_) => return false,
            },
            _ => return false,
        };
        if hidden(answer).is_none() {
            return false;
        }
    }
    false
}

/// Reads a PEM file of certificates. Returns the number of certificates.
pub fn certificates(pem: &[u8]) -> usize {
    let found = certificates_in(pem, "certificates", Path::new("ca.pem"));
    found.map_or(0, |found| found.len())
}
