//! A server that offers TLS and fails in the handshake, as an old server does with a protocol or certificate that is no longer accepted. A
//! script plays this server, since no current server behaves so.

use anyhow::{Context, Result};
use mysql_link::wire::{ByteStream, PacketReader, PacketWriter};
use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError, TlsMode};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// The server's capability flag (TLS is offered) and the client's flag (TLS is wanted).
const TLS: u32 = 1 << 11;
const COMPRESSION: u32 = 1 << 5;

fn greeting() -> Vec<u8> {
    let [c0, c1, c2, c3] = (!COMPRESSION).to_le_bytes();
    let mut packet = b"\x0a8.0.15\0".to_vec();
    packet.extend_from_slice(&[9, 0, 0, 0]);
    packet.extend_from_slice(b"AAAAAAAA\0");
    packet.extend_from_slice(&[c0, c1, 45, 2, 0, c2, c3, 21]);
    packet.extend_from_slice(&[0; 10]);
    packet.extend_from_slice(b"BBBBBBBBBBBB\0caching_sha2_password\0");
    packet
}

/// Serves one client. Returns whether the client wanted TLS, which it does not get.
async fn serve(stream: TcpStream) -> Result<bool> {
    let (reader, writer) = ByteStream::Tcp(stream).into_split();
    let (mut reader, mut writer) = (
        PacketReader::new(reader, 1 << 20),
        PacketWriter::new(writer),
    );
    writer.write(0, &greeting()).await?;
    let asked = reader.read().await?;
    let flags = asked
        .payload
        .first_chunk()
        .map(|bytes| u32::from_le_bytes(*bytes));
    if flags.is_some_and(|flags| flags & TLS != 0) {
        // The TLS 1.0 alert for a failed handshake.
        let (mut stream, _) = (writer.into_inner(), reader);
        stream.write_all(&[21, 3, 1, 0, 2, 2, 40]).await?;
        stream.flush().await?;
        return Ok(true);
    }
    // Authentication succeeded, without a further challenge.
    writer.write(2, &[0, 0, 0, 2, 0, 0, 0]).await?;
    Ok(false)
}

/// Connects in this mode. Returns the result, and for each connection whether it requested TLS.
async fn connect(mode: TlsMode) -> Result<(Result<Connection, LinkError>, Vec<bool>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let mut options = ConnectOptions::new(Endpoint::tcp("127.0.0.1", port), "w", "secret");
    options.tls.mode = mode;
    let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // The receiver may be gone.
            let _ = told.send(serve(stream).await);
        }
    });
    let connected = Connection::open(&options).await;
    let mut asked = vec![hears.recv().await.context("no client connected")??];
    server.abort();
    // The channel closes when the server ends.
    while let Some(next) = hears.recv().await {
        asked.push(next?);
    }
    Ok((connected, asked))
}

#[tokio::test]
async fn a_handshake_that_fails_is_done_without_where_tls_is_only_preferred() -> Result<()> {
    let (connected, asked) = connect(TlsMode::Preferred).await?;
    assert!(!connected?.is_tls());
    assert_eq!(asked, [true, false]);
    Ok(())
}

#[tokio::test]
async fn a_handshake_that_fails_is_an_error_where_tls_is_demanded() -> Result<()> {
    let (connected, asked) = connect(TlsMode::Required).await?;
    let error = connected.map(drop).unwrap_err();
    assert!(matches!(error, LinkError::Tls { .. }), "{error}");
    assert_eq!(asked, [true]);
    Ok(())
}
