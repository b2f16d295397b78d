//! MySQL 9.0 removed `mysql_native_password`, so a scripted server plays an 8.0 that requests it.

use std::net::SocketAddr;

use anyhow::Result;
use mysql_link::wire::{ByteStream, PacketReader, PacketWriter};
use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError, ServerVersion, TlsMode};
use tokio::net::{TcpListener, TcpStream};

/// `SHA1(password) XOR SHA1(challenge, SHA1(SHA1(password)))` for the password and the challenge below.
const EXPECTED: [u8; 20] = [
    0xf5, 0xca, 0xc3, 0xf3, 0xb3, 0xdf, 0x21, 0x33, 0xfe, 0xb5, 0x7d, 0xb6, 0x82, 0xc7, 0x1e, 0x6e,
    0xd4, 0x33, 0xa9, 0x88,
];
const PASSWORD: &str = "secret";
const CHALLENGE: &[u8; 20] = b"0123456789abcdefghij";

fn greeting() -> Vec<u8> {
    // All capabilities except TLS and compression, which this server does not have.
    let capabilities = !(1_u32 << 11 | 1 << 5);
    let [c0, c1, c2, c3] = capabilities.to_le_bytes();
    let mut packet = b"\x0a8.0.25-log\0".to_vec();
    packet.extend_from_slice(&[9, 0, 0, 0]);
    packet.extend_from_slice(b"AAAAAAAA\0");
    packet.extend_from_slice(&[c0, c1, 45, 2, 0, c2, c3, 21]);
    packet.extend_from_slice(&[0; 10]);
    packet.extend_from_slice(b"BBBBBBBBBBBB\0caching_sha2_password\0");
    packet
}

/// Serves one login. Returns the client's answer to the request to switch.
async fn serve_login(stream: TcpStream) -> Result<Vec<u8>> {
    let (reader, writer) = ByteStream::Tcp(stream).into_split();
    let (mut reader, mut writer) = (
        PacketReader::new(reader, 1 << 20),
        PacketWriter::new(writer),
    );
    writer.write(0, &greeting()).await?;
    reader.read().await?;
    let mut switch = b"\xfemysql_native_password\0".to_vec();
    switch.extend_from_slice(CHALLENGE);
    switch.push(0);
    writer.write(2, &switch).await?;
    let answer = reader.read().await?;
    assert_eq!(answer.first_sequence, 3);
    if answer.payload == EXPECTED[..] {
        writer.write(4, &[0, 0, 0, 2, 0, 0, 0]).await?;
    } else {
        writer
            .write(
                4,
                b"\xff\x15\x04#28000Access denied for user 'w'@'localhost' (using password: YES)",
            )
            .await?;
    }
    Ok(answer.payload.to_vec())
}

async fn log_in(password: &str) -> Result<(Result<Connection, LinkError>, Vec<u8>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address: SocketAddr = listener.local_addr()?;
    let server = tokio::spawn(async move { serve_login(listener.accept().await?.0).await });
    let mut options =
        ConnectOptions::new(Endpoint::tcp("127.0.0.1", address.port()), "w", password);
    options.tls.mode = TlsMode::Preferred;
    Ok((Connection::open(&options).await, server.await??))
}

#[tokio::test]
async fn the_switch_is_answered_with_the_right_digest() -> Result<()> {
    let (connection, answer) = log_in(PASSWORD).await?;
    assert_eq!(answer, EXPECTED);
    let connection = connection?;
    assert_eq!(connection.version(), ServerVersion::new(8, 0, 25));
    assert_eq!(connection.id(), 9);
    assert!(!connection.is_tls());
    Ok(())
}

#[tokio::test]
async fn a_wrong_password_is_told() -> Result<()> {
    let (connection, answer) = log_in("wrong").await?;
    assert_ne!(answer, EXPECTED);
    assert!(matches!(connection, Err(LinkError::AccessDenied { .. })));
    Ok(())
}

#[tokio::test]
async fn no_password_is_an_empty_answer() -> Result<()> {
    let (_, answer) = log_in("").await?;
    assert!(answer.is_empty());
    Ok(())
}
