//! Questions and answers between members: JSON documents of the crate `consensus`.

use consensus::{Answer, Question};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::WireError;
use crate::schema;

pub(crate) fn question(question: &Question) -> schema::Question {
    let json = encode(question);
    schema::Question { json }
}

pub(crate) fn question_from(message: &schema::Question) -> Result<Question, WireError> {
    decode("question", &message.json)
}

pub(crate) fn answer(answer: &Answer) -> schema::Answer {
    let json = encode(answer);
    schema::Answer { json }
}

pub(crate) fn answer_from(message: &schema::Answer) -> Result<Answer, WireError> {
    decode("answer", &message.json)
}

fn encode(value: &impl Serialize) -> bytes::Bytes {
    // Plain values with text keys, which always have a JSON form.
    serde_json::to_vec(value).unwrap_or_default().into()
}

fn decode<T: DeserializeOwned>(what: &'static str, json: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(json).map_err(|error| WireError::Document {
        what,
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use consensus::FileBytes;
    use raft_types::OpId;

    use super::*;

    /// An answer whose shape has no JSON form went out as nothing, and the asker asked for ever.
    #[test]
    fn pieces_of_files_have_a_form() {
        let bytes: Vec<u8> = (0..=255).collect();
        let said = Answer::FilePart(FileBytes(bytes.into()));
        assert_eq!(answer_from(&answer(&said)).unwrap(), said);
        let asked = Question::FilePart(raft_types::FilePart {
            file: 7,
            before: None,
            last: OpId::new(2, 9),
            offset: 4,
        });
        assert_eq!(question_from(&question(&asked)).unwrap(), asked);
    }

    #[test]
    fn answers_about_the_committed_end_have_a_form() {
        for up_to in [None, Some(OpId::new(3, 7))] {
            let said = Answer::Committed { up_to };
            assert_eq!(answer_from(&answer(&said)).unwrap(), said);
        }
        let asked = Question::Committed;
        assert_eq!(question_from(&question(&asked)).unwrap(), asked);
    }
}
