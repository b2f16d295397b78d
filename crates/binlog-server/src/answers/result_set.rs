//! Rows with named columns, as text.

use super::packets::{Outgoing, count_packet, eof_packet, ok_packet, put_text};

/// `utf8mb4_general_ci`, the same number in every version.
const UTF8MB4: u16 = 45;
const BINARY: u16 = 63;
const NULL: u8 = 0xfb;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Text(String),
    Number(u64),
    /// 1 and 0 to SELECT, ON and OFF to SHOW VARIABLES.
    Switch(bool),
}

impl Value {
    /// As SELECT gives it; `None` for NULL.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.clone()),
            Self::Number(number) => Some(number.to_string()),
            Self::Switch(on) => Some(u8::from(*on).to_string()),
        }
    }

    /// As SHOW VARIABLES shows it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Switch(true) => "ON".to_owned(),
            Self::Switch(false) => "OFF".to_owned(),
            other => other.text().unwrap_or_default(),
        }
    }

    fn kind(&self) -> ColumnKind {
        match self {
            Self::Number(_) | Self::Switch(_) => ColumnKind::Number,
            Self::Null | Self::Text(_) => ColumnKind::Text,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Text,
    Number,
}

/// A result: columns, then rows as they come, then its end.
#[derive(Debug)]
pub(crate) struct ResultSet {
    /// Whether the client knows that results end with an OK packet.
    deprecate_eof: bool,
}

impl ResultSet {
    /// Writes the columns.
    pub(crate) fn begin<'a>(
        out: &mut Outgoing,
        deprecate_eof: bool,
        columns: impl ExactSizeIterator<Item = (&'a str, ColumnKind)>,
    ) -> Self {
        out.push(&count_packet(columns.len()));
        for (name, kind) in columns {
            out.push(&column_packet(name, kind));
        }
        if !deprecate_eof {
            out.push(&eof_packet());
        }
        Self { deprecate_eof }
    }

    /// Writes a row.
    pub(crate) fn row(&self, out: &mut Outgoing, values: &[Value]) {
        let mut row = Vec::new();
        for value in values {
            match value.text() {
                None => row.push(NULL),
                Some(text) => put_text(&mut row, text.as_bytes()),
            }
        }
        out.push(&row);
    }

    /// Writes the end.
    pub(crate) fn end(self, out: &mut Outgoing) {
        if self.deprecate_eof {
            out.push(&ok_packet(0xfe, ""));
        } else {
            out.push(&eof_packet());
        }
    }

    /// A whole result of text columns.
    pub(crate) fn of(out: &mut Outgoing, deprecate_eof: bool, names: &[&str], rows: &[Vec<Value>]) {
        let kinds = names.iter().enumerate().map(|(at, name)| {
            let value = rows.first().and_then(|row| row.get(at));
            (*name, value.map_or(ColumnKind::Text, Value::kind))
        });
        let result = Self::begin(out, deprecate_eof, kinds);
        for row in rows {
            result.row(out, row);
        }
        result.end(out);
    }
}

fn column_packet(name: &str, kind: ColumnKind) -> Vec<u8> {
    let mut packet = Vec::new();
    put_text(&mut packet, b"def");
    for part in ["", "", "", name, ""] {
        put_text(&mut packet, part.as_bytes());
    }
    packet.push(0x0c);
    let (charset, length, code, flags) = match kind {
        ColumnKind::Text => (UTF8MB4, 1 << 20, 0xfd, 0_u16),
        // Not null, binary, a number, unsigned.
        ColumnKind::Number => (BINARY, 21_u32, 0x08, 0x80a1),
    };
    packet.extend_from_slice(&charset.to_le_bytes());
    packet.extend_from_slice(&length.to_le_bytes());
    packet.push(code);
    packet.extend_from_slice(&flags.to_le_bytes());
    packet.extend_from_slice(&[0, 0, 0]);
    packet
}
