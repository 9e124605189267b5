//! `FindCoordinator`: this server is the coordinator of every group.

use super::Node;
use super::error::Code;
use super::fields::{distinct, int, texts};
use offsetlog::format::message::Struct;

const GROUP: i64 = 0;
const TRANSACTION: i64 = 1;
/// The first version that asks for several keys.
const SEVERAL: i16 = 4;

/// Refuses transactional producers as a broker that denies them authorization does: at once and for good.
pub(super) fn find(version: i16, request: &Struct<'_>, node: &Node) -> Struct<'static> {
    let code = match int(request, "keyType").unwrap_or(GROUP) {
        GROUP => Code::None,
        TRANSACTION => Code::TransactionalIdAuthorizationFailed,
        _ => Code::InvalidRequest,
    };
    let found = || {
        let absent = Node {
            id: -1,
            host: String::new(),
            port: -1,
        };
        let node = if code == Code::None { node } else { &absent };
        Struct::new()
            .with("errorCode", code)
            .with("nodeId", node.id)
            .with("host", node.host.clone())
            .with("port", node.port)
    };
    if version < SEVERAL {
        let message = match code {
            Code::None => "NONE",
            Code::TransactionalIdAuthorizationFailed => "Transactional Id authorization failed.",
            _ => "This server knows coordinators of groups only.",
        };
        return found()
            .with("throttleTimeMs", 0)
            .with("errorMessage", message);
    }
    // The same answer again and again would only cost memory.
    let keys = distinct(texts(request, "coordinatorKeys")).into_iter();
    let found = keys.map(|key| found().with("errorMessage", "").with("key", key));
    Struct::new()
        .with("throttleTimeMs", 0)
        .with("coordinators", found.collect::<Vec<_>>())
}
