//! What may be ordered over HTTP: by POST, with the token of `http.token_file`, and on the member that leads. The status code
//! is the answer: 200 done, 401 and 403 not allowed, 409 something else is under way, 412 refused, 503 not the leader.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use consensus::{PauseError, PauseWish, RingPause};
use futures::future::BoxFuture;
use raft_types::OpId;
use serde::Deserialize;
use serde_json::json;

use super::Endpoints;

/// Who carries orders out.
pub trait RingOrders: Send + Sync + 'static {
    /// Pauses failover.
    fn pause(&self, wish: PauseWish) -> BoxFuture<'_, Result<(RingPause, OpId), PauseError>>;

    /// Ends the pause.
    fn resume(&self) -> BoxFuture<'_, Result<(RingPause, OpId), PauseError>>;
}

/// Orders and the token that they need.
#[derive(Clone)]
pub struct OrderDesk {
    orders: Arc<dyn RingOrders>,
    token: Option<Arc<str>>,
}

impl OrderDesk {
    /// Without a token nobody may order anything.
    pub fn new(orders: Arc<dyn RingOrders>, token: Option<String>) -> Self {
        Self {
            orders,
            token: token.map(Arc::from),
        }
    }

    fn allows(&self, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        let Some(token) = &self.token else {
            let why = "orders over HTTP are off; name a file with a token in `http.token_file`";
            return Err((StatusCode::FORBIDDEN, why));
        };
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        match given {
            Some(given) if same(given, token.as_bytes()) => Ok(()),
            _ => Err((
                StatusCode::UNAUTHORIZED,
                "the token is missing or another one; send `Authorization: Bearer TOKEN`",
            )),
        }
    }
}

/// Compares in a time that does not tell how much of it is the same.
fn same(given: &[u8], expected: &[u8]) -> bool {
    let different = given
        .iter()
        .zip(expected)
        .fold(0, |so_far, (a, b)| so_far | (a ^ b));
    given.len() == expected.len() && different == 0
}

/// The body of `POST /pause`; everything in it may be left out, and the body as well.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PauseBody {
    for_seconds: Option<u64>,
    #[serde(default)]
    by: Option<String>,
    #[serde(default)]
    reason: String,
}

pub(super) async fn pause(
    State(endpoints): State<Endpoints>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Err(refused) = endpoints.orders.allows(&headers) {
        return no(refused.0, refused.1);
    }
    let body = match body.is_empty() {
        true => Ok(PauseBody::default()),
        false => serde_json::from_slice::<PauseBody>(&body),
    };
    let body = match body {
        Ok(body) if body.for_seconds != Some(0) => body,
        Ok(_) => {
            return no(
                StatusCode::BAD_REQUEST,
                "for_seconds is 0; leave it out for a pause without an end",
            );
        }
        Err(error) => return no(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let wish = PauseWish {
        for_seconds: body.for_seconds,
        by: body.by.unwrap_or_else(|| "somebody over HTTP".to_owned()),
        reason: body.reason,
    };
    tracing::info!(target: "audit", "ordered over HTTP: a pause of failover: {wish:?}");
    answered(
        "a pause of failover",
        endpoints.orders.orders.pause(wish).await,
    )
}

pub(super) async fn resume(State(endpoints): State<Endpoints>, headers: HeaderMap) -> Response {
    if let Err(refused) = endpoints.orders.allows(&headers) {
        return no(refused.0, refused.1);
    }
    tracing::info!(target: "audit", "ordered over HTTP: the end of the pause");
    answered(
        "the end of the pause",
        endpoints.orders.orders.resume().await,
    )
}

fn no(code: StatusCode, reason: &str) -> Response {
    (code, Json(json!({ "ok": false, "reason": reason }))).into_response()
}

fn answered(what: &str, outcome: Result<(RingPause, OpId), PauseError>) -> Response {
    match outcome {
        Ok((paused, entry)) => {
            tracing::info!(target: "audit", "done: {what}: {paused:?}");
            Json(json!({ "ok": true, "pause": paused, "entry": entry })).into_response()
        }
        Err(error) => {
            tracing::warn!(target: "audit", "not done: {what}: {error}");
            let leader = match &error {
                PauseError::NotLeader { leader } => *leader,
                _ => None,
            };
            let detail = json!({ "ok": false, "reason": error.to_string(), "leader": leader });
            (code_of(&error), Json(detail)).into_response()
        }
    }
}

fn code_of(error: &PauseError) -> StatusCode {
    match error {
        PauseError::NotLeader { .. } | PauseError::NotServing(_) | PauseError::Move(_) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        PauseError::Busy => StatusCode::CONFLICT,
        PauseError::NoPrimary(_) | PauseError::NotPaused => StatusCode::PRECONDITION_FAILED,
        PauseError::TooLong { .. } => StatusCode::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use raft_types::MemberId;

    use super::*;

    struct Nobody;

    impl RingOrders for Nobody {
        fn pause(&self, _: PauseWish) -> BoxFuture<'_, Result<(RingPause, OpId), PauseError>> {
            Box::pin(std::future::ready(Err(PauseError::Busy)))
        }

        fn resume(&self) -> BoxFuture<'_, Result<(RingPause, OpId), PauseError>> {
            Box::pin(std::future::ready(Err(PauseError::NotPaused)))
        }
    }

    #[test]
    fn only_the_token_opens() {
        let allowed = |token: Option<&str>, given: Option<&str>| {
            let desk = OrderDesk::new(Arc::new(Nobody), token.map(str::to_owned));
            let mut headers = HeaderMap::new();
            if let Some(given) = given {
                headers.insert(header::AUTHORIZATION, given.parse().unwrap());
            }
            desk.allows(&headers).err().map(|(code, _)| code.as_u16())
        };
        let table = [
            (None, None, Some(403)),
            (None, Some("Bearer secret"), Some(403)),
            (Some("secret"), None, Some(401)),
            (Some("secret"), Some("secret"), Some(401)),
            (Some("secret"), Some("Bearer secre"), Some(401)),
            (Some("secret"), Some("Bearer secret2"), Some(401)),
            (Some("secret"), Some("Bearer "), Some(401)),
            (Some("secret"), Some("Bearer secret"), None),
        ];
        for (token, given, expected) in table {
            assert_eq!(allowed(token, given), expected, "{token:?} {given:?}");
        }
    }

    #[test]
    fn the_code_is_the_answer() {
        let codes = [
            (PauseError::NotLeader { leader: None }, 503),
            (PauseError::Busy, 409),
            (PauseError::NotPaused, 412),
            (PauseError::NoPrimary(MemberId(2)), 412),
        ];
        for (error, code) in codes {
            assert_eq!(code_of(&error).as_u16(), code, "{error}");
        }
    }
}
