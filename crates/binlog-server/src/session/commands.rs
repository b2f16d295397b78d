//! Receives the commands of a client in turn, and answers its statements.

use std::net::SocketAddr;

use binlog_format::events::shown_statement;
use bytes::{Buf, Bytes};
use mysql_link::wire::{Outgoing, PacketReader};
use sockets::Place;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::answers::{ErrorAnswer, ResultSet, Value, code, eof_packet, ok_packet};
use crate::committed_files::PurgeTo;
use crate::dump;
use crate::session::login::{LoggedIn, log_in};
use crate::session::values::{Surroundings, UserVariables};
use crate::session::{Client, Ended, Shared};
use crate::statement::Statement;

const TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
const DAY: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]");

/// Maximum size of a command. A dump request contains a GTID set, in which each interval takes 16 bytes: a million intervals fit.
const MAX_COMMAND: usize = 16 << 20;

mod command {
    pub(super) const QUIT: u8 = 0x01;
    pub(super) const QUERY: u8 = 0x03;
    pub(super) const STATISTICS: u8 = 0x09;
    pub(super) const PING: u8 = 0x0e;
    pub(super) const BINLOG_DUMP: u8 = 0x12;
    pub(super) const REGISTER: u8 = 0x15;
    pub(super) const STATEMENT_CLOSE: u8 = 0x19;
    pub(super) const SET_OPTION: u8 = 0x1b;
    pub(super) const BINLOG_DUMP_GTID: u8 = 0x1e;
    pub(super) const RESET_CONNECTION: u8 = 0x1f;
}

impl<'a> Client<'a> {
    /// Serves a connection until it ends.
    pub(crate) async fn serve(
        shared: &'a Shared,
        stream: TcpStream,
        address: SocketAddr,
        connection: u32,
        login: Place,
    ) -> Ended {
        let logged_in = tokio::select! {
            logged_in = log_in(shared, stream, address, connection) => logged_in,
            () = login.lost() => return Ended::Crowded,
            () = shared.stop.cancelled() => return Ended::Stopping,
        };
        drop(login);
        let LoggedIn {
            stream,
            user,
            deprecate_eof,
            place: _place,
        } = match logged_in {
            Ok(logged_in) => logged_in,
            Err(ended) => return ended,
        };
        let (reader, writer) = stream.into_split();
        let mut client = Self {
            shared,
            connection,
            address,
            user,
            deprecate_eof,
            variables: UserVariables::default(),
            reader: PacketReader::new(reader, MAX_COMMAND),
            writer,
        };
        let ended = loop {
            if let Err(ended) = client.command().await {
                break ended;
            }
        };
        shared.consumers.leave(connection);
        ended
    }

    async fn command(&mut self) -> Result<(), Ended> {
        let (limit, stop) = (self.shared.options.idle_limit, self.shared.stop.clone());
        let packet = tokio::select! {
            packet = timeout(limit, self.reader.read()) => packet.map_err(|_| Ended::Idle)??,
            () = stop.cancelled() => return Err(Ended::Stopping),
        };
        let mut body = packet.payload;
        let mut out = Outgoing::answer_to(packet.last_sequence);
        let kind = (!body.is_empty()).then(|| body.get_u8());
        let malformed = || {
            let message = "Malformed communication packet";
            ErrorAnswer::new(code::MALFORMED_PACKET, message).packet()
        };
        // A connection ends with its dump.
        let request = match kind {
            Some(command::BINLOG_DUMP) => dump::Request::by_position(&body),
            Some(command::BINLOG_DUMP_GTID) => dump::Request::by_gtids(&body),
            _ => None,
        };
        if let Some(request) = request {
            return Err(dump::run(self, request, out.sequence).await);
        }
        match kind {
            Some(command::QUIT) => return Err(Ended::Goodbye),
            Some(command::STATEMENT_CLOSE) => return Ok(()),
            Some(command::QUERY) => return self.answer(&body, out).await,
            Some(command::PING) => out.push(&ok_packet(0, "")),
            Some(command::STATISTICS) => out.push(b"witness: the binlog of a ring"),
            Some(command::SET_OPTION) => out.push(&eof_packet()),
            Some(command::RESET_CONNECTION) => {
                self.variables = UserVariables::default();
                out.push(&ok_packet(0, ""));
            }
            Some(command::REGISTER) => match dump::parse_register(&body) {
                Some(registration) => {
                    let uuid = self.variables.replica_uuid();
                    let consumers = &self.shared.consumers;
                    consumers.register(self.connection, self.address, uuid, registration);
                    out.push(&ok_packet(0, ""));
                }
                None => out.push(&malformed()),
            },
            Some(command::BINLOG_DUMP | command::BINLOG_DUMP_GTID) => out.push(&malformed()),
            unknown => {
                let message = match unknown {
                    Some(_) => "this command is not known to a server of binlogs",
                    None => "an empty command",
                };
                out.push(&ErrorAnswer::new(code::UNKNOWN_COMMAND, message).packet());
            }
        }
        self.send(&out.bytes).await
    }
}

/// The answer to a statement.
enum Answer<'s> {
    /// A result set: its columns, and its rows.
    Rows(Vec<&'s str>, Vec<Vec<Value>>),
    /// An OK packet with a text, which the `mysql` client prints after `Query OK`.
    Done(String),
}

impl Client<'_> {
    async fn answer(&mut self, text: &Bytes, mut out: Outgoing) -> Result<(), Ended> {
        let statement = Statement::recognise(text);
        if let Statement::ShowBinlogEvents(range) = statement {
            return self.show_events(range, out).await;
        }
        match self.answer_to(&statement, text).await {
            Ok(Answer::Rows(columns, rows)) => {
                ResultSet::of(&mut out, self.deprecate_eof, &columns, &rows);
            }
            Ok(Answer::Done(text)) => out.push(&ok_packet(0, &text)),
            Err(error) => out.push(&error.packet()),
        }
        self.send(&out.bytes).await
    }

    async fn answer_to<'s>(
        &mut self,
        statement: &'s Statement,
        text: &Bytes,
    ) -> Result<Answer<'s>, ErrorAnswer> {
        let (log, commands) = (&self.shared.log, &self.shared.commands);
        let executed = match statement {
            Statement::Select(columns) => {
                let surroundings = self.surroundings();
                let values = columns
                    .iter()
                    .map(|column| surroundings.value(&column.expression));
                let row = values.collect::<Result<Vec<_>, _>>()?;
                let names = columns.iter().map(|column| &column.name[..]);
                return Ok(Answer::Rows(names.collect(), vec![row]));
            }
            Statement::Set(variables) => {
                for (name, expression) in variables {
                    let value = self.surroundings().value(expression)?;
                    self.variables.set(name.clone(), value)?;
                }
                return Ok(Answer::Done(String::new()));
            }
            Statement::ShowBinaryLogs => {
                let files = [log.older_files(), log.files()].concat();
                let rows = files.into_iter().map(|file| {
                    vec![
                        Value::text(file.name),
                        Value::Number(file.bytes),
                        Value::constant("No"),
                    ]
                });
                let columns = vec!["Log_name", "File_size", "Encrypted"];
                return Ok(Answer::Rows(columns, rows.collect()));
            }
            Statement::ShowBinaryLogStatus => return Ok(self.status()),
            Statement::ShowReplicas(columns) => {
                return Ok(Answer::Rows(columns.to_vec(), self.replicas()));
            }
            Statement::ShowVariables(filter) => {
                let columns = vec!["Variable_name", "Value"];
                return Ok(Answer::Rows(columns, self.surroundings().shown(filter)));
            }
            Statement::ShowNothing(columns) => {
                return Ok(Answer::Rows(columns.to_vec(), Vec::new()));
            }
            Statement::FlushBinaryLogs => commands.flush().await,
            Statement::PurgeTo(name) => {
                // If an older file is named, the files before it are already removed; that is no error.
                let files = [log.older_files(), log.files()].concat();
                if !files.iter().any(|file| file.name == *name) {
                    let message =
                        format!("Target log {name} not found; SHOW BINARY LOGS lists the files");
                    return Err(ErrorAnswer::new(code::UNKNOWN_FILE, message));
                }
                commands.purge(PurgeTo::File(name.clone())).await
            }
            Statement::PurgeBefore(time) => {
                let time = closed_before(time.as_deref()).ok_or_else(|| {
                    let message = "Incorrect DATETIME value: write PURGE BINARY LOGS BEFORE 'YYYY-MM-DD hh:mm:ss' (UTC)";
                    ErrorAnswer::new(code::WRONG_VALUE, message)
                })?;
                commands.purge(PurgeTo::Time(time)).await
            }
            Statement::Empty => return Err(ErrorAnswer::new(code::EMPTY_QUERY, "Query was empty")),
            Statement::DecidedByRing => {
                return Err(self.not_here(
                    text,
                    "who leads, who follows and what is in the log is decided by the ring: use `witness switchover`, \
                     `witness status` and the like, not",
                ));
            }
            Statement::ShowBinlogEvents(_) | Statement::Unknown => {
                return Err(self.not_here(
                    text,
                    "it serves the ring's log and has no tables; ask the ring's primary (`witness status` names it). \
                     Not understood:",
                ));
            }
        };
        let done = executed.map(Answer::Done);
        done.map_err(|error| ErrorAnswer::new(code::UNKNOWN, error.to_string()))
    }

    fn not_here(&self, text: &Bytes, why: &str) -> ErrorAnswer {
        let name = &self.shared.options.identity.name;
        let shown = shown_statement(text, 80);
        let message = format!("this is the binlog server of ring member `{name}`: {why} `{shown}`");
        ErrorAnswer::new(code::NOT_SUPPORTED, message)
    }

    fn surroundings(&self) -> Surroundings<'_> {
        Surroundings {
            log: &*self.shared.log,
            identity: &self.shared.options.identity,
            variables: &self.variables,
            user: &self.user,
            address: self.address,
            port: self.shared.address.port(),
            connection: self.connection,
        }
    }

    fn status(&self) -> Answer<'static> {
        let log = &self.shared.log;
        let position = *log.committed().borrow();
        let (columns, row) = [
            ("File", Value::text(log.name_of(position.file))),
            ("Position", Value::Number(position.offset)),
            ("Binlog_Do_DB", Value::constant("")),
            ("Binlog_Ignore_DB", Value::constant("")),
            ("Executed_Gtid_Set", Value::text(log.gtids())),
        ]
        .into_iter()
        .unzip();
        Answer::Rows(columns, vec![row])
    }

    fn replicas(&self) -> Vec<Vec<Value>> {
        let own = u64::from(self.shared.options.identity.server_id);
        let replicas = self.shared.consumers.replicas();
        let rows = replicas.into_iter().map(|(id, host, port, uuid)| {
            vec![
                Value::Number(u64::from(id)),
                Value::text(host),
                Value::Number(u64::from(port)),
                Value::Number(own),
                uuid.map_or(Value::constant(""), Value::text),
            ]
        });
        rows.collect()
    }
}

/// Parses a time in UTC to seconds since the epoch; without a text, the current time. `None` if the text is not a time.
fn closed_before(text: Option<&str>) -> Option<u32> {
    let time = match text {
        None => OffsetDateTime::now_utc(),
        Some(text) => {
            let text = text.trim();
            let midnight = || {
                let day = time::Date::parse(text, DAY).ok()?;
                Some(PrimitiveDateTime::new(day, time::Time::MIDNIGHT))
            };
            let parsed = PrimitiveDateTime::parse(text, TIME).ok();
            parsed.or_else(midnight)?.assume_utc()
        }
    };
    u32::try_from(time.unix_timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc() {
        assert_eq!(closed_before(Some("1970-01-01 00:01:00")), Some(60));
        assert_eq!(closed_before(Some("1970-01-02")), Some(86_400));
        for wrong in ["", "yesterday", "1970-13-01", "1960-01-01"] {
            assert_eq!(closed_before(Some(wrong)), None, "{wrong}");
        }
        assert!(closed_before(None) > Some(1_700_000_000));
    }
}
