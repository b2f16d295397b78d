//! A command's results for its caller: an exit code with a message, and text or JSON.

mod exit;
mod output;

pub use exit::{Exit, Failure};
pub use output::{Format, Table, colours, print, print_json, print_json_line, print_text};
pub(crate) use output::{bytes_bar, cell, sentence, yes_no};
