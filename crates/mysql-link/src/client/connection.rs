//! An authenticated connection for statements. If a statement is interrupted (by its time limit, or because its future was dropped), the
//! connection becomes unusable: the next statement would read the old answer. [`Connection::kill`] ends a statement that mysqld still
//! executes.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio::time::error::Elapsed;

use crate::client::connect::{Greeting, connect, wire_error};
use crate::client::result_set::{
    Answer, AnswerPackets, QueryResult, parse_answer, parse_column_name, parse_row,
};
use crate::client::{ConnectOptions, Endpoint};
use crate::error::{LinkError, ProtocolError, ServerError, Step, server_code};
use crate::versions::ServerVersion;
use crate::wire::{ByteReader, ByteWriter, PacketReader, PacketWriter, WireError};

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_PING: u8 = 0x0e;

/// Returns the statement that sets the session's own values. With them:
///
/// * a transaction ends with its statement, is not read only, and reads no old snapshot;
/// * no answer is truncated, or refused for the number of examined rows (`max_join_size`);
/// * text is read as [`literal`] writes it;
/// * mysqld itself ends a SELECT after `limit`, the client's own limit. That works even if the client is gone or cannot send a KILL.
///
/// The variables need no privilege, and exist in MySQL 8.0 to 9.7.
fn own_settings(limit: Duration) -> String {
    let milliseconds = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX).max(1);
    format!(
        "SET SESSION autocommit = 1, completion_type = 0, transaction_isolation = 'READ-COMMITTED', transaction_read_only = 0, \
         max_execution_time = {milliseconds}, sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_safe_updates = 0, \
         sql_mode = ''"
    )
}

/// A connection to a mysqld.
#[derive(Debug)]
pub struct Connection {
    endpoint: Endpoint,
    reader: PacketReader<ByteReader>,
    writer: PacketWriter<ByteWriter>,
    greeting: Greeting,
    tls: bool,
    statement_limit: Duration,
    max_result_bytes: usize,
    several_statements: bool,
    /// The server's `max_allowed_packet`; `None` before the first query for it.
    packet_limit: Option<usize>,
    /// False between the first and the last byte of an exchange.
    in_step: bool,
    /// Options of a connection that kills an abandoned statement; `None` if the owner ends the statement or lets it run.
    killed_by: Option<Box<ConnectOptions>>,
}

impl Connection {
    /// Resolves the host name, then connects and authenticates within `options.timeouts.connect`.
    ///
    /// # Errors
    /// Every kind of failure has its own [`LinkError`].
    pub async fn open(options: &ConnectOptions) -> Result<Self, LinkError> {
        let (stream, greeting) = connect(options).await?;
        let tls = stream.is_tls();
        let (reader, writer) = stream.into_split();
        Ok(Self {
            endpoint: options.endpoint.clone(),
            reader: PacketReader::new(reader, options.max_packet_bytes),
            writer: PacketWriter::new(writer),
            greeting,
            tls,
            statement_limit: options.timeouts.statement,
            max_result_bytes: options.max_packet_bytes,
            several_statements: options.several_statements,
            packet_limit: None,
            in_step: true,
            killed_by: None,
        })
    }

    /// Connects as [`Connection::open`], then sets the session variables that change the effect of statements. The server's defaults do not
    /// apply, and neither does its `init_connect`, which runs for accounts without CONNECTION_ADMIN. Needs one more round trip within the
    /// same time limit.
    ///
    /// A statement that reaches its time limit does not continue in mysqld. mysqld itself ends a SELECT at `options.timeouts.statement`
    /// (`max_execution_time`), and this client kills the session of any statement.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub async fn open_with_own_settings(options: &ConnectOptions) -> Result<Self, LinkError> {
        let until = Instant::now() + options.timeouts.connect;
        let mut connection = Self::open(options).await?;
        let left = until.saturating_duration_since(Instant::now());
        let settings = own_settings(options.timeouts.statement);
        match connection.query_within(settings, left).await {
            // Reported as a login timeout: the session is not ready for its owner's statements yet.
            Err(LinkError::Timeout { endpoint, .. }) => Err(LinkError::Timeout {
                endpoint,
                step: Step::Authentication,
                limit: options.timeouts.connect,
            }),
            set => {
                set?;
                connection.killed_by = Some(Box::new(options.clone()));
                Ok(connection)
            }
        }
    }

    /// The server's version, from its greeting.
    pub fn version(&self) -> ServerVersion {
        self.greeting.version
    }

    /// The server's version as the server writes it, as in `9.7.4-2`.
    pub fn version_text(&self) -> &str {
        &self.greeting.version_text
    }

    /// The server's number for this connection.
    pub fn id(&self) -> u32 {
        self.greeting.connection_id
    }

    /// Whether the connection uses TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Whether another statement may be sent.
    pub fn is_usable(&self) -> bool {
        self.in_step
    }

    /// Runs a statement and collects its rows.
    ///
    /// # Errors
    /// [`LinkError::Server`] leaves the connection usable; after any other error it is not.
    pub async fn query(&mut self, sql: impl AsRef<[u8]>) -> Result<QueryResult, LinkError> {
        self.query_within(sql, self.statement_limit).await
    }

    /// Runs [`Connection::query`] with this time limit. In a session of [`Connection::open_with_own_settings`], a SELECT still ends after
    /// `timeouts.statement`.
    ///
    /// # Errors
    /// As [`Connection::query`].
    pub async fn query_within(
        &mut self,
        sql: impl AsRef<[u8]>,
        limit: Duration,
    ) -> Result<QueryResult, LinkError> {
        let sql = sql.as_ref();
        let mut command = Vec::with_capacity(1 + sql.len());
        command.push(COM_QUERY);
        command.extend_from_slice(sql);
        self.exchange(&command, limit).await
    }

    /// Runs a statement for its effect; returns how many rows it changed.
    ///
    /// # Errors
    /// As [`Connection::query`].
    pub async fn execute(&mut self, sql: impl AsRef<[u8]>) -> Result<u64, LinkError> {
        Ok(self.query(sql).await?.affected_rows)
    }

    /// Runs statements that return no rows, each only if the previous one succeeded, and removes them from `statements`. If
    /// [`ConnectOptions::several_statements`] is set, one packet carries all of them, or as many as the server's `max_allowed_packet`
    /// allows. The next packet is sent after the previous one was answered without an error.
    ///
    /// Counts the answers, because mysqld reports that a `BINLOG` statement is the last one even when another follows. `limit` is for all
    /// statements together. Calls `note` for each statement when its answer has arrived, while later statements run. Its arguments are the
    /// statement's index in `statements` and the number of changed rows.
    ///
    /// # Errors
    /// A statement's own error is returned in [`Ran`], not as an error here. A statement larger than `max_allowed_packet` is not sent; it
    /// fails as if the server had refused it ([`server_code::PACKET_TOO_LARGE`]). After an error the connection is not usable.
    pub async fn run_all(
        &mut self,
        statements: &mut Statements,
        limit: Duration,
        note: impl FnMut(usize, u64) + Send,
    ) -> Result<Ran, LinkError> {
        let packet_limit = self.packet_limit().await?;
        self.begin()?;
        let conversation = self.converse_all(statements, packet_limit, note);
        let ended = tokio::time::timeout(limit, conversation).await;
        statements.clear();
        self.ended(ended, limit)
    }

    /// Runs one statement that returns no rows, with a text of `length` bytes that is created while it is sent. Returns the number of
    /// changed rows. For text that must not be in memory as a whole.
    ///
    /// # Errors
    /// As [`Connection::query`]. If the text is larger than the server accepts, fails with [`server_code::PACKET_TOO_LARGE`] and sends
    /// nothing.
    pub async fn execute_pieces(
        &mut self,
        length: usize,
        text: impl Iterator<Item = Vec<u8>> + Send,
        limit: Duration,
    ) -> Result<u64, LinkError> {
        let packet_limit = self.packet_limit().await?;
        let size = 1 + length;
        if size > packet_limit {
            return Err(LinkError::Server(too_large(size, packet_limit)));
        }
        self.begin()?;
        let conversation = async {
            let command = std::iter::once(vec![COM_QUERY]).chain(text);
            let next = self.writer.write_pieces(size, command).await;
            self.answer(next.map_err(WireError::Io)?).await
        };
        let ended = tokio::time::timeout(limit, conversation).await;
        let answer = self.ended(ended, limit)?;
        Ok(self.answered(answer, limit)?.affected_rows)
    }

    /// Returns the largest statement that the server accepts, in bytes.
    ///
    /// # Errors
    /// As [`Connection::query`].
    pub async fn packet_limit(&mut self) -> Result<usize, LinkError> {
        if let Some(limit) = self.packet_limit {
            return Ok(limit);
        }
        let answer = self.query("SELECT @@max_allowed_packet").await?;
        let limit = answer.value().and_then(|limit| limit.parse().ok());
        let limit = limit.ok_or_else(|| {
            LinkError::Protocol(
                self.endpoint.clone(),
                ProtocolError::malformed("max_allowed_packet", "it is no number"),
            )
        })?;
        self.packet_limit = Some(limit);
        Ok(limit)
    }

    /// Checks that the server answers.
    ///
    /// # Errors
    /// As [`Connection::query`].
    pub async fn ping(&mut self) -> Result<(), LinkError> {
        self.command(&[COM_PING]).await
    }

    /// Sends a command that is answered with one OK or error packet.
    pub(crate) async fn command(&mut self, command: &[u8]) -> Result<(), LinkError> {
        self.exchange(command, self.statement_limit)
            .await
            .map(|_| ())
    }

    /// Kills the connection with this [`Connection::id`], together with its running statement. For a statement that this client has
    /// abandoned and mysqld still executes.
    ///
    /// # Errors
    /// Errors of connecting and of a statement. A connection that no longer exists is not an error.
    pub async fn kill(options: &ConnectOptions, id: u32) -> Result<(), LinkError> {
        let mut connection = Self::open(options).await?;
        match connection.execute(&format!("KILL CONNECTION {id}")).await {
            Err(LinkError::Server(error)) if error.code == server_code::NO_SUCH_THREAD => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Closes the connection in order. A dropped connection is closed too, with a note in mysqld's error log.
    pub async fn close(mut self) {
        if self.in_step {
            let goodbye = self.writer.write(0, &[COM_QUIT]);
            // A lost goodbye has no consequence.
            let _ = tokio::time::timeout(Duration::from_millis(200), goodbye).await;
        }
    }

    /// Returns the reading and writing halves, for a protocol phase other than statements.
    pub(crate) fn into_parts(
        self,
    ) -> (Endpoint, PacketReader<ByteReader>, PacketWriter<ByteWriter>) {
        (self.endpoint, self.reader, self.writer)
    }

    /// Sends a command without reading an answer.
    pub(crate) async fn send_only(&mut self, command: &[u8]) -> Result<(), LinkError> {
        self.begin()?;
        let limit = self.statement_limit;
        let step = Step::DumpRequest;
        match tokio::time::timeout(limit, self.writer.write(0, command)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(wire_error(&self.endpoint, step, WireError::Io(error))),
            Err(_) => Err(self.timeout(step, limit)),
        }
    }

    fn begin(&mut self) -> Result<(), LinkError> {
        if !self.in_step {
            return Err(LinkError::GivenUp(self.endpoint.clone()));
        }
        self.in_step = false;
        Ok(())
    }

    async fn exchange(
        &mut self,
        command: &[u8],
        limit: Duration,
    ) -> Result<QueryResult, LinkError> {
        self.begin()?;
        let conversation = async {
            let next = self.writer.write(0, command).await;
            self.answer(next.map_err(WireError::Io)?).await
        };
        let ended = tokio::time::timeout(limit, conversation).await;
        let answer = self.ended(ended, limit)?;
        self.answered(answer, limit)
    }

    /// Returns the result of an exchange, or the error of its time limit.
    fn ended<T>(
        &mut self,
        ended: Result<Result<T, WireError>, Elapsed>,
        limit: Duration,
    ) -> Result<T, LinkError> {
        match ended {
            Ok(Ok(answer)) => {
                self.in_step = true;
                Ok(answer)
            }
            Ok(Err(error)) => Err(wire_error(&self.endpoint, Step::Statement, error)),
            Err(_) => {
                self.kill_given_up();
                Err(self.timeout(Step::Statement, limit))
            }
        }
    }

    /// Returns the server's answer. If the server ended a SELECT at its limit, returns the error of the client's own limit.
    fn answered(
        &self,
        answer: Result<QueryResult, ServerError>,
        limit: Duration,
    ) -> Result<QueryResult, LinkError> {
        answer.map_err(|error| match error.code {
            server_code::QUERY_TIMEOUT if self.killed_by.is_some() => {
                self.timeout(Step::Statement, limit)
            }
            _ => LinkError::Server(error),
        })
    }

    fn timeout(&self, step: Step, limit: Duration) -> LinkError {
        LinkError::Timeout {
            endpoint: self.endpoint.clone(),
            step,
            limit,
        }
    }

    /// Kills the abandoned statement in the background: the caller does not wait, because mysqld may not answer.
    fn kill_given_up(&self) {
        let (id, Some(options)) = (self.id(), self.killed_by.clone()) else {
            return;
        };
        tokio::spawn(async move {
            if let Err(error) = Self::kill(&options, id).await {
                tracing::debug!(session = id, %error, "a statement that was given up could not be killed");
            }
        });
    }

    async fn converse_all(
        &mut self,
        statements: &mut Statements,
        packet_limit: usize,
        mut note: impl FnMut(usize, u64) + Send,
    ) -> Result<Ran, WireError> {
        let together = match self.several_statements {
            true => packet_limit,
            false => 0,
        };
        let mut done = 0;
        while done < statements.len() {
            let run = statements.run_from(done, together);
            let size = statements.packet_bytes(run.clone());
            if size > packet_limit {
                let error = Some(too_large(size, packet_limit));
                return Ok(Ran { done, error });
            }
            let next = self.writer.write(0, statements.command(run.clone())).await;
            let mut packets = self.packets(next.map_err(WireError::Io)?);
            for _ in run {
                let answer = packets.next().await?;
                if answer.first() == Some(&0xff) {
                    let error = Some(ServerError::parse(&answer)?);
                    return Ok(Ran { done, error });
                }
                match parse_answer(answer)? {
                    Answer::Done { affected_rows, .. } => {
                        note(done, affected_rows);
                        done += 1;
                    }
                    Answer::Columns(_) => {
                        let what = "the answer to one of several statements";
                        return Err(ProtocolError::malformed(what, "it has rows").into());
                    }
                }
            }
        }
        Ok(Ran { done, error: None })
    }

    fn packets(&mut self, next: u8) -> AnswerPackets<'_> {
        AnswerPackets {
            next,
            reader: &mut self.reader,
            bytes: 0,
            max_bytes: self.max_result_bytes,
        }
    }

    /// Reads the answer to a command; `next` is the number of its first packet. The outer error ends the connection. The inner error is the
    /// statement's.
    async fn answer(&mut self, next: u8) -> Result<Result<QueryResult, ServerError>, WireError> {
        let mut packets = self.packets(next);
        let first = packets.next().await?;
        if first.first() == Some(&0xff) {
            return Ok(Err(ServerError::parse(&first)?));
        }
        let count = match parse_answer(first)? {
            Answer::Done { more: true, .. } => {
                let reason = "another one follows: its text is more than one statement";
                return Err(ProtocolError::malformed("the answer to a statement", reason).into());
            }
            Answer::Done { affected_rows, .. } => {
                return Ok(Ok(QueryResult {
                    affected_rows,
                    ..QueryResult::default()
                }));
            }
            Answer::Columns(count) => count,
        };
        let mut names = Vec::with_capacity(count);
        for _ in 0..count {
            names.push(parse_column_name(packets.next().await?)?);
        }
        let columns: Arc<[String]> = names.into();
        let mut rows = Vec::new();
        loop {
            let payload = packets.next().await?;
            if payload.first() == Some(&0xff) {
                return Ok(Err(ServerError::parse(&payload)?));
            }
            match parse_row(payload, &columns)? {
                Some(row) => rows.push(row),
                None => {
                    return Ok(Ok(QueryResult {
                        columns,
                        rows,
                        affected_rows: 0,
                    }));
                }
            }
        }
    }
}

fn too_large(size: usize, limit: usize) -> ServerError {
    ServerError {
        code: server_code::PACKET_TOO_LARGE,
        sqlstate: "08S01".to_owned(),
        message: format!(
            "A statement of {size} bytes is more than max_allowed_packet ({limit}): \
             SET GLOBAL max_allowed_packet = {} or more, and connect again",
            size.next_multiple_of(1024)
        ),
    }
}

/// The result of running a list of statements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// The number of statements that succeeded, counted from the first.
    pub done: usize,
    /// The error of the next statement; the statements after it were not run.
    pub error: Option<ServerError>,
}

// Statements that are sent together, as the text of one packet. The owner reuses the buffer from call to call, so neither the text nor the
// packet is copied or allocated again.

/// A buffer larger than this is freed when the statements are done.
const KEPT: usize = 4 << 20;

/// A list of statements in order.
///
/// ```text
/// command | statement ; statement ; statement
///           starts[0]   starts[1]   starts[2]
/// ```
/// When a packet starts with a statement, the text before that statement has already been sent. So the packet's command byte overwrites the
/// byte before the statement.
#[derive(Debug)]
pub struct Statements {
    text: Vec<u8>,
    starts: Vec<usize>,
}

impl Default for Statements {
    fn default() -> Self {
        Self {
            text: vec![COM_QUERY],
            starts: Vec::new(),
        }
    }
}

impl Statements {
    /// The number of statements.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// True if no statement was added.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Bytes of all statements, without the packet's header.
    pub fn bytes(&self) -> usize {
        self.text.len() - 1
    }

    /// Adds a statement after the others.
    pub fn push(&mut self, sql: impl AsRef<[u8]>) {
        self.begin().extend_from_slice(sql.as_ref());
    }

    /// Begins a statement, whose text the caller appends. It must be one statement without a semicolon at its end.
    pub fn begin(&mut self) -> &mut Vec<u8> {
        if !self.starts.is_empty() {
            self.text.push(b';');
        }
        self.starts.push(self.text.len());
        &mut self.text
    }

    /// Removes all statements.
    pub fn clear(&mut self) {
        self.starts.clear();
        if self.text.capacity() > KEPT {
            self.text = vec![COM_QUERY];
        } else {
            self.text.truncate(1);
        }
    }

    /// Bytes of the packet that runs these statements.
    fn packet_bytes(&self, run: Range<usize>) -> usize {
        1 + self.place(run).len()
    }

    /// Returns the longest run of statements from `first` on that fits into a packet of `limit` bytes; at least one statement.
    fn run_from(&self, first: usize, limit: usize) -> Range<usize> {
        let mut end = first + 1;
        while end < self.len() && self.packet_bytes(first..end + 1) <= limit {
            end += 1;
        }
        first..end.min(self.len())
    }

    /// Returns the command that runs these statements. Overwrites the byte before them.
    fn command(&mut self, run: Range<usize>) -> &[u8] {
        let place = self.place(run);
        let command = place.start - 1..place.end;
        if let Some(first) = self.text.get_mut(command.start) {
            *first = COM_QUERY;
        }
        self.text.get(command).unwrap_or_default()
    }

    /// Returns the byte range of these statements, without the semicolon after the last one.
    fn place(&self, run: Range<usize>) -> Range<usize> {
        let start = self.starts.get(run.start).copied().unwrap_or(1);
        let end = self
            .starts
            .get(run.end)
            .map_or(self.text.len(), |next| next - 1);
        start..end
    }
}

// Literals in a statement's text.

/// Returns the text as a literal with quotes, for a session without `NO_BACKSLASH_ESCAPES` in its `sql_mode`.
#[must_use]
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_escaped() {
        assert_eq!(literal(r"a'b\c"), r"'a''b\\c'");
        assert_eq!(literal(""), "''");
    }
}

#[cfg(test)]
mod statements_tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(statements: &mut Statements, limit: usize) -> Vec<(Range<usize>, String)> {
        let (mut first, mut sent) = (0, Vec::new());
        while first < statements.len() {
            let run = statements.run_from(first, limit);
            let command = statements.command(run.clone());
            assert_eq!(command[0], COM_QUERY);
            first = run.end;
            let text = String::from_utf8(command[1..].to_vec()).unwrap();
            sent.push((run, text));
        }
        sent
    }

    #[test]
    fn statements_share_a_packet_as_long_as_they_fit() {
        let mut statements = Statements::default();
        for sql in ["A1", "B22", "C", "D"] {
            statements.push(sql);
        }
        assert_eq!(statements.packet_bytes(1..2), 4);
        assert_eq!(
            texts(&mut statements, 7),
            [(0..2, "A1;B22".to_owned()), (2..4, "C;D".to_owned())]
        );
        statements.clear();
        assert!(statements.is_empty());
        statements.push("E");
        assert_eq!(texts(&mut statements, 100), [(0..1, "E".to_owned())]);
        assert_eq!(statements.bytes(), 1);
    }

    proptest! {
        #[test]
        fn every_statement_is_sent_once_in_order(
            sizes in prop::collection::vec(1_usize..9, 1..20),
            limit in 1_usize..40,
        ) {
            let all: Vec<String> = sizes.iter().enumerate().map(|(at, size)| char::from(b'a' + at as u8).to_string().repeat(*size)).collect();
            let mut statements = Statements::default();
            all.iter().for_each(|sql| statements.push(sql));
            let sent = texts(&mut statements, limit);
            for (run, text) in &sent {
                prop_assert!(run.len() == 1 || text.len() < limit);
            }
            let joined: Vec<_> = sent.into_iter().map(|(_, text)| text).collect();
            prop_assert_eq!(joined.join(";"), all.join(";"));
        }
    }
}
