//! Orders over HTTP: by POST, with the token of `http.token_file`, on the member that leads. The status code is the answer:
//! 200 done, 307 redirect to the leader, 401 and 403 not allowed, 409 another order is running, 412 refused, 503 not the leader,
//! 504 unknown whether the order was executed.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRef, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Json, Response};
use futures::future::BoxFuture;
use member::Commands;
use member::protocol::{CommandResult, OperatorCommand, Refusal, RefusalKind};
use member::status::{LoggedMember, MemberView, ViewSource};
use raft_types::{MemberId, MemberKind};
use ring_admin::PauseRequest;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::http::access::{Access, Denied};
use crate::http::reports::RingReports;
use crate::text::history::leaderships;
use crate::text::times::moment;

/// Executes orders that arrive over HTTP.
pub trait OrderTaker: Send + Sync + 'static {
    /// Executes an order. The execution continues if the client disconnects.
    fn order(&self, command: OperatorCommand)
    -> BoxFuture<'static, Result<CommandResult, Refusal>>;
}

impl OrderTaker for Commands {
    fn order(
        &self,
        command: OperatorCommand,
    ) -> BoxFuture<'static, Result<CommandResult, Refusal>> {
        let commands = self.clone();
        Box::pin(async move { commands.carry_out("over HTTP", command).await })
    }
}

/// The executor of orders, and the access rules.
#[derive(Clone)]
pub struct OrderApi {
    pub(super) taker: Arc<dyn OrderTaker>,
    pub(super) access: Access,
    pub(super) view: Arc<dyn ViewSource>,
}

type Answered = Result<Response, Denied>;

/// The executor of orders, for the handler of a request with the token. Any other request is rejected before its body is read.
pub(super) struct Allowed(OrderApi);

impl<S> FromRequestParts<S> for Allowed
where
    OrderApi: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Denied;

    async fn from_request_parts(parts: &mut Parts, served_from: &S) -> Result<Self, Denied> {
        let orders = OrderApi::from_ref(served_from);
        orders.access.may_order(&parts.headers)?;
        Ok(Self(orders))
    }
}

/// The body of `POST /pause`; the body and each field are optional.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PauseBody {
    for_seconds: Option<u64>,
    #[serde(default)]
    by: Option<String>,
    #[serde(default)]
    reason: String,
}

pub(super) async fn pause(Allowed(orders): Allowed, body: Bytes) -> Answered {
    let body: PauseBody = read(&body)?;
    if body.for_seconds == Some(0) {
        return Err(mistake(
            "for_seconds is 0; leave it out for a pause without an end",
        ));
    }
    let request = PauseRequest {
        for_seconds: body.for_seconds,
        by: body.by.unwrap_or_else(|| "an HTTP client".to_owned()),
        reason: body.reason,
    };
    Ok(orders.carry_out(OperatorCommand::Pause { request }).await)
}

pub(super) async fn resume(Allowed(orders): Allowed) -> Response {
    orders.carry_out(OperatorCommand::Resume).await
}

/// The body of `POST /switchover`; members are given by name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SwitchoverBody {
    /// The member that the client assumes to be the leader.
    leader: Option<String>,
    /// The member that is to lead; required.
    candidate: Option<String>,
    /// The time to start, such as `2026-11-24T03:00:00Z` or with an offset; without it, immediately.
    pub(super) scheduled_at: Option<String>,
    #[serde(default)]
    force: bool,
}

pub(super) async fn switchover(Allowed(orders): Allowed, body: Bytes) -> Answered {
    give_to(&orders, &read(&body)?).await
}

/// `DELETE /switchover`: cancels the scheduled switchover.
pub(super) async fn cancel_switchover(Allowed(orders): Allowed) -> Response {
    orders.carry_out(OperatorCommand::CancelSwitchover).await
}

/// `GET /history`: all leaderships with their reasons, in Patroni's format.
pub(super) async fn history(State(orders): State<OrderApi>) -> Answered {
    match orders.taker.order(OperatorCommand::History).await {
        Ok(CommandResult::History(entries)) => Ok(Json(leaderships(&entries)).into_response()),
        Ok(_) => Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
        Err(refusal) => Err(Denied::new(code_of(refusal.kind), refusal.what)),
    }
}

/// `POST /failover`: like a switchover, but with any current leader or none.
pub(super) async fn failover(Allowed(orders): Allowed, body: Bytes) -> Answered {
    let body = SwitchoverBody {
        leader: None,
        ..read(&body)?
    };
    give_to(&orders, &body).await
}

async fn give_to(orders: &OrderApi, body: &SwitchoverBody) -> Answered {
    let to = chosen(body, &orders.view.view())?;
    let force = body.force;
    let at = body.scheduled_at.as_deref().map(moment).transpose();
    let order = match at.map_err(|error| mistake(error.to_string()))? {
        None => OperatorCommand::Promote { to, force },
        Some(at) => OperatorCommand::ScheduleSwitchover { to, at },
    };
    Ok(orders.carry_out(order).await)
}

/// The body of `POST /reinitialize`, about the mysqld of the receiving member.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReinitializeBody {
    /// The name of the donor member; the leader by default.
    from: Option<String>,
    /// Proceed even if binlog files with errant transactions cannot be kept.
    #[serde(default)]
    force: bool,
}

pub(super) async fn reinitialize(Allowed(orders): Allowed, body: Bytes) -> Answered {
    let body: ReinitializeBody = read(&body)?;
    let order = OperatorCommand::Provision {
        donor: donor(&body, &orders.view.view())?,
        dry_run: false,
        force: body.force,
    };
    Ok(orders.carry_out(order).await)
}

/// The body of `POST /restart`, about the mysqld of the receiving member.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RestartBody {
    /// Restart even a primary.
    #[serde(default)]
    force: bool,
}

pub(super) async fn restart(Allowed(orders): Allowed, body: Bytes) -> Answered {
    let RestartBody { force } = read(&body)?;
    let order = OperatorCommand::RestartMysqld { force };
    Ok(orders.carry_out(order).await)
}

/// `POST /reload`: this member reads its configuration again.
pub(super) async fn reload(Allowed(orders): Allowed) -> Response {
    orders.carry_out(OperatorCommand::Reload).await
}

/// Returns the donor member: the named one; otherwise the leader, if it is another database member.
fn donor(body: &ReinitializeBody, view: &MemberView) -> Result<MemberId, Denied> {
    if let Some(name) = &body.from {
        return named(name, view);
    }
    let leader = view.leader.filter(|leader| *leader != view.member.id);
    let has_data = |logged: &&LoggedMember| {
        Some(logged.id) == leader && logged.record.kind == MemberKind::Database
    };
    let found = view.members.iter().find(has_data);
    found.map(|logged| logged.id).ok_or_else(|| {
        unmet("no other database member leads; say whose data to copy: {\"from\": \"NAME\"}")
    })
}

fn named(name: &str, view: &MemberView) -> Result<MemberId, Denied> {
    let mut members = view.members.iter();
    let logged = members.find(|logged| logged.record.name == name);
    logged.map(|logged| logged.id).ok_or_else(|| {
        unmet(format!(
            "the ring has no member `{name}`; GET /cluster names them"
        ))
    })
}

/// Returns the member that is to lead, if the client names the current leader correctly or not at all.
fn chosen(body: &SwitchoverBody, view: &MemberView) -> Result<MemberId, Denied> {
    let Some(candidate) = &body.candidate else {
        return Err(mistake("name the next leader: {\"candidate\": \"NAME\"}"));
    };
    if let Some(leader) = &body.leader
        && view.leader.is_some()
        && view.leader != Some(named(leader, view)?)
    {
        return Err(unmet(format!(
            "`{leader}` does not lead; GET /cluster names the leader"
        )));
    }
    named(candidate, view)
}

/// Returns the response to an order that cannot be parsed or lacks a field.
fn mistake(why: impl Into<String>) -> Denied {
    Denied::new(StatusCode::BAD_REQUEST, why)
}

/// Returns the response to an order that does not fit the current state of the ring.
fn unmet(why: impl Into<String>) -> Denied {
    Denied::new(StatusCode::PRECONDITION_FAILED, why)
}

impl OrderApi {
    async fn carry_out(&self, command: OperatorCommand) -> Response {
        use CommandResult::{Paused, Promoted, Reloaded, Resumed, Scheduled, Unscheduled};
        let done = match self.taker.order(command).await {
            Ok(done) => done,
            Err(refusal) => return refused(&refusal),
        };
        let code = match done {
            Scheduled { .. } => StatusCode::ACCEPTED,
            _ => StatusCode::OK,
        };
        let mut detail = match done {
            Paused { paused, entry } | Resumed { paused, entry } => {
                json!({ "pause": paused, "entry": entry })
            }
            Promoted(promoted) => json!({ "leader": promoted.leader, "term": promoted.term }),
            Scheduled { switchover, entry } => json!({ "scheduled": switchover, "entry": entry }),
            Unscheduled { switchover, entry } => json!({ "cancelled": switchover, "entry": entry }),
            Reloaded(reloaded) => json!(reloaded),
            _ => json!({}),
        };
        detail["ok"] = json!(true);
        (code, Json(detail)).into_response()
    }
}

fn refused(refusal: &Refusal) -> Response {
    let detail = json!({
        "ok": false,
        "reason": refusal.what,
        "advice": refusal.advice,
        "leader": refusal.leader,
    });
    let mut response = (code_of(refusal.kind), Json(detail)).into_response();
    if let Some(leader) = refusal.leader {
        response.extensions_mut().insert(ForTheLeader(leader));
    }
    response
}

/// Marks a response to an order that only the leader accepts. Contains the current leader, which is another member.
#[derive(Clone, Copy)]
struct ForTheLeader(MemberId);

/// Redirects an order to the leader, if the leader has reported its HTTP address.
pub(super) async fn to_the_leader(
    State(reports): State<RingReports>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    if let Some(ForTheLeader(leader)) = response.extensions().get().copied() {
        reports.report().await;
        let reached = reports.addresses().remove(&leader);
        send_on(&mut response, reached.and_then(|at| at.api_url), &path);
    }
    response
}

fn send_on(response: &mut Response, api_url: Option<String>, path: &str) {
    let there = api_url.and_then(|api| HeaderValue::try_from(api + path).ok());
    if let Some(there) = there {
        *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
        response.headers_mut().insert(header::LOCATION, there);
    }
}

/// Parses the body of an order. In an empty body, every field is omitted.
pub(super) fn read<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Denied> {
    if body.is_empty() {
        return Ok(T::default());
    }
    serde_json::from_slice(body).map_err(|error| mistake(error.to_string()))
}

fn code_of(kind: RefusalKind) -> StatusCode {
    match kind {
        RefusalKind::Busy => StatusCode::CONFLICT,
        RefusalKind::NoQuorum => StatusCode::SERVICE_UNAVAILABLE,
        RefusalKind::Refused => StatusCode::PRECONDITION_FAILED,
        RefusalKind::NotAllowed => StatusCode::FORBIDDEN,
        RefusalKind::Unknown => StatusCode::GATEWAY_TIMEOUT,
        RefusalKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use ring_admin::PromotionError;
    use ring_admin::PromotionRefusal;
    use ring_admin::ReconfigurationError;

    use super::*;
    use member::status::sample::database_leader;

    #[test]
    fn refusals_have_their_codes() {
        let codes: [(Refusal, u16); 6] = [
            (ReconfigurationError::NotLeader { leader: None }.into(), 503),
            (ReconfigurationError::Busy.into(), 409),
            (PromotionError::Refused(PromotionRefusal::Busy).into(), 409),
            (ReconfigurationError::NotPaused.into(), 412),
            (ReconfigurationError::NoPrimary(MemberId(2)).into(), 412),
            (Refusal::new(RefusalKind::Unknown, "who knows", ""), 504),
        ];
        for (refusal, code) in codes {
            assert_eq!(code_of(refusal.kind).as_u16(), code, "{refusal:?}");
        }
    }

    #[test]
    fn an_order_for_the_leader_is_redirected_to_a_known_address() {
        let mut response = unmet("it does not lead").into_response();
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        send_on(&mut response, None, "/pause");
        assert_eq!(response.status(), 503);
        let leader = "https://10.0.0.1:7480".to_owned();
        send_on(&mut response, Some(leader), "/pause");
        assert_eq!(response.status(), 307);
        let there = &response.headers()[header::LOCATION];
        assert_eq!(there, "https://10.0.0.1:7480/pause");
    }

    #[test]
    fn the_leader_is_the_default_donor() {
        let leader = database_leader();
        let mut follower = database_leader();
        follower.member.id = MemberId(9);
        let from = |name: &str| ReinitializeBody {
            from: Some(name.to_owned()),
            force: false,
        };
        let anybody = ReinitializeBody::default();
        let code = |donor: Result<MemberId, Denied>| donor.map_err(|denied| denied.code.as_u16());
        assert_eq!(code(donor(&anybody, &follower)), Ok(MemberId(1)));
        assert_eq!(code(donor(&anybody, &leader)), Err(412));
        assert_eq!(code(donor(&from("db-1"), &follower)), Ok(MemberId(1)));
        assert_eq!(code(donor(&from("unknown"), &follower)), Err(412));
    }

    #[test]
    fn a_switchover_names_members_of_the_ring() {
        let view = database_leader();
        let chosen = |leader: Option<&str>, candidate: Option<&str>| {
            let body = SwitchoverBody {
                leader: leader.map(str::to_owned),
                candidate: candidate.map(str::to_owned),
                force: false,
                scheduled_at: None,
            };
            chosen(&body, &view).map_err(|denied| denied.code.as_u16())
        };
        assert_eq!(chosen(None, Some("witness-1")), Ok(MemberId(2)));
        assert_eq!(chosen(Some("db-1"), Some("witness-1")), Ok(MemberId(2)));
        assert_eq!(chosen(Some("witness-1"), Some("db-1")), Err(412));
        assert_eq!(chosen(Some("unknown"), Some("db-1")), Err(412));
        assert_eq!(chosen(None, Some("unknown")), Err(412));
        assert_eq!(chosen(Some("db-1"), None), Err(400));
    }
}
