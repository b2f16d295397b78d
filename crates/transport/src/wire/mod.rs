//! Between the engine's types and the schema's: votes and log ids, entries, and requests that are cut
//! into parts and put together again. Pure; nothing that arrives here is trusted.

mod assembly;
mod begin;
mod entry;
mod error;
mod proxy;
mod question;
mod report;
mod split;
#[cfg(test)]
mod tests;
mod vote;

pub(crate) use assembly::Assembly;
pub(crate) use begin::{begin_answer, begin_answer_from, begin_request, begin_request_from};
pub(crate) use entry::ENTRY_OVERHEAD;
pub(crate) use error::WireError;
pub(crate) use proxy::{AnswerReader, AnswerWriter, RequestReader, RequestWriter};
pub(crate) use question::{answer, answer_from, question, question_from};
pub(crate) use report::{answered_from, reported_answer};
pub(crate) use split::{PackedRequest, Splitter};
pub(crate) use vote::{
    append_answer, append_result, head_of, heartbeat_request, transfer_answer, transfer_request,
    transfer_request_from, transfer_response, vote_answer, vote_request, vote_request_from,
    vote_response,
};
