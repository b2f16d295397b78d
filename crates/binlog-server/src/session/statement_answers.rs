//! Answers to statements.

use bytes::Bytes;
use mysql_link::wire::Outgoing;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

use crate::answers::{ErrorAnswer, ResultSet, Value, code, ok_packet};
use crate::committed_files::PurgeTo;
use crate::session::client::{Client, Ended};
use crate::session::values::Surroundings;
use crate::statement::{Column, Expression, Names, Other, Statement};

const TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
const DAY: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]");

impl Client<'_> {
    pub(super) async fn answer(&mut self, text: &Bytes, mut out: Outgoing) -> Result<(), Ended> {
        let statement = Statement::recognise(text);
        let answered = match statement {
            Statement::ShowBinlogEvents(range) => return self.show_events(range, out).await,
            Statement::Empty => Err(ErrorAnswer::new(code::EMPTY_QUERY, "Query was empty")),
            Statement::Select(columns) => self.select(&columns, &mut out),
            Statement::Set(variables) => self.set(variables).map(|()| out.push(&ok_packet(0, ""))),
            Statement::ShowBinaryLogs => {
                self.show_logs(&mut out);
                Ok(())
            }
            Statement::ShowBinaryLogStatus => {
                self.show_status(&mut out);
                Ok(())
            }
            Statement::ShowReplicas(names) => {
                self.show_replicas(names, &mut out);
                Ok(())
            }
            Statement::ShowVariables(filter) => {
                let rows = self.surroundings().shown(&filter);
                self.rows(&mut out, &["Variable_name", "Value"], &rows);
                Ok(())
            }
            Statement::ShowNothing(columns) => {
                self.rows(&mut out, columns, &[]);
                Ok(())
            }
            Statement::FlushBinaryLogs => self.order(self.shared.commands.flush().await, &mut out),
            Statement::PurgeTo(name) => self.purge_to(name, &mut out).await,
            Statement::PurgeBefore(time) => match closed_before(time.as_deref()) {
                Some(time) => {
                    let purged = self.shared.commands.purge(PurgeTo::Time(time)).await;
                    self.order(purged, &mut out)
                }
                None => {
                    let message = "Incorrect DATETIME value: write PURGE BINARY LOGS BEFORE 'YYYY-MM-DD hh:mm:ss' (UTC)";
                    Err(ErrorAnswer::new(code::WRONG_VALUE, message))
                }
            },
            Statement::Other(other) => Err(self.not_here(other, text)),
        };
        if let Err(error) = answered {
            out.push(&error.packet());
        }
        self.send(&out.bytes).await
    }

    /// What this server is, and who does what was asked for.
    fn not_here(&self, other: Other, text: &Bytes) -> ErrorAnswer {
        let name = &self.shared.options.identity.name;
        let shown = Self::shown(text);
        let message = match other {
            Other::Ring => format!(
                "this is the binlog server of ring member `{name}`; who leads, who follows and what is in the log is \
                 decided by the ring: use `witness switchover`, `witness status` and the like, not `{shown}`"
            ),
            Other::Unknown => format!(
                "this is the binlog server of ring member `{name}`: it serves the ring's log and has no tables; ask the \
                 ring's primary (`witness status` names it). Not understood: `{shown}`"
            ),
        };
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

    fn rows(&self, out: &mut Outgoing, columns: &[&str], rows: &[Vec<Value>]) {
        ResultSet::of(out, self.deprecate_eof, columns, rows);
    }

    fn select(&self, columns: &[Column], out: &mut Outgoing) -> Result<(), ErrorAnswer> {
        let surroundings = self.surroundings();
        let values = columns
            .iter()
            .map(|column| surroundings.value(&column.expression));
        let row = values.collect::<Result<Vec<_>, _>>()?;
        let names: Vec<&str> = columns.iter().map(|column| &column.name[..]).collect();
        self.rows(out, &names, &[row]);
        Ok(())
    }

    fn set(&mut self, variables: Vec<(String, Expression)>) -> Result<(), ErrorAnswer> {
        for (name, expression) in variables {
            let value = self.surroundings().value(&expression)?;
            self.variables.set(name, value)?;
        }
        Ok(())
    }

    fn show_logs(&self, out: &mut Outgoing) {
        let mut files = self.shared.log.older_files();
        files.extend(self.shared.log.files());
        let row = |file: &crate::committed_files::LogFile| {
            let name = Value::from(&file.name[..]);
            vec![name, Value::Number(file.bytes), Value::from("No")]
        };
        let rows: Vec<_> = files.iter().map(row).collect();
        self.rows(out, &["Log_name", "File_size", "Encrypted"], &rows);
    }

    fn show_status(&self, out: &mut Outgoing) {
        let log = &self.shared.log;
        let position = *log.committed().borrow();
        let row = vec![
            Value::Text(log.name_of(position.file)),
            Value::Number(position.offset),
            Value::from(""),
            Value::from(""),
            Value::Text(log.gtids().to_string()),
        ];
        let columns = [
            "File",
            "Position",
            "Binlog_Do_DB",
            "Binlog_Ignore_DB",
            "Executed_Gtid_Set",
        ];
        self.rows(out, &columns, &[row]);
    }

    fn show_replicas(&self, names: Names, out: &mut Outgoing) {
        let columns = match names {
            Names::Replica => ["Server_Id", "Host", "Port", "Source_Id", "Replica_UUID"],
            Names::Slave => ["Server_id", "Host", "Port", "Master_id", "Slave_UUID"],
        };
        let own = u64::from(self.shared.options.identity.server_id);
        let replicas = self.shared.consumers.replicas();
        let rows = replicas.into_iter().map(|(id, host, port, uuid)| {
            vec![
                Value::Number(u64::from(id)),
                Value::Text(host),
                Value::Number(u64::from(port)),
                Value::Number(own),
                Value::Text(uuid.map(|uuid| uuid.to_string()).unwrap_or_default()),
            ]
        });
        let rows: Vec<_> = rows.collect();
        self.rows(out, &columns, &rows);
    }

    async fn purge_to(&self, name: String, out: &mut Outgoing) -> Result<(), ErrorAnswer> {
        let log = &self.shared.log;
        // Those before one that is older are gone already, which is no mistake of whoever asks.
        let files = [log.older_files(), log.files()].concat();
        if !files.iter().any(|file| file.name == name) {
            let message = format!("Target log {name} not found; SHOW BINARY LOGS lists the files");
            return Err(ErrorAnswer::new(code::UNKNOWN_FILE, message));
        }
        let purged = self.shared.commands.purge(PurgeTo::File(name)).await;
        self.order(purged, out)
    }

    /// The outcome of an order; a `mysql` client shows the words behind `Query OK`.
    fn order(&self, done: Result<String, String>, out: &mut Outgoing) -> Result<(), ErrorAnswer> {
        let words = done.map_err(|why| ErrorAnswer::new(code::UNKNOWN, why))?;
        out.push(&ok_packet(0, &words));
        Ok(())
    }
}

/// Seconds since the epoch of a time in UTC; now for `None`. `None` where the text is no time.
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
