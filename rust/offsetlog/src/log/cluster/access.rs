//! Who may do what in a cluster, and how much of it: access control, quotas, and who has a password.
//!
//! Source: Kafka's `AclsImage`, `ClientQuotasImage` and `ScramImage`. Salts and keys of passwords are not kept.

use super::metadata::MetadataImage;
use super::replay::{int, optional, structs, text};
use offsetlog_format::Uuid;
use offsetlog_format::message::{Struct, Value};
use std::collections::BTreeMap;

/// An entry of an access control list. Numbers are Kafka's, as the record has them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessControlEntry {
    /// What kind of thing it is about: 2 a topic, 3 a group, 4 the cluster, 5 a transactional id, 6 a delegation token, 7 a user.
    pub resource_type: i32,
    /// Which one: its name, a part of it, or `*`.
    pub resource_name: String,
    /// 3 is the whole name, 4 its beginning.
    pub pattern_type: i32,
    /// Type and name of whom it is about, such as `User:alice`.
    pub principal: String,
    /// From where; `*` is anywhere.
    pub host: String,
    /// What is done: 2 anything, 3 read, 4 write, and so on.
    pub operation: i32,
    /// 2 forbids it, 3 allows it.
    pub permission_type: i32,
}

/// Limits of a user, a client, an address, or of several of these together.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientQuota {
    /// Type and name of each, in the order of their types: `user`, `client-id`, `ip`. Without a name it is the default for all others.
    pub entity: Vec<(String, Option<String>)>,
    /// Limits by name, such as `producer_byte_rate`.
    pub quotas: BTreeMap<String, f64>,
}

/// That a user has a password for SCRAM; what it is made of is left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScramCredential {
    /// The user.
    pub user: String,
    /// 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512.
    pub mechanism: i32,
    /// How often it is hashed.
    pub iterations: i32,
}

/// Types and names of what a quota is for.
type Entity = Vec<(String, Option<String>)>;

/// These, as records make them.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    acls: BTreeMap<[u8; 16], AccessControlEntry>,
    quotas: BTreeMap<Entity, BTreeMap<String, f64>>,
    credentials: BTreeMap<(String, i32), i32>,
}

impl Accesses {
    /// Applies a record; `None` if it changes what is not there. Of other types it says nothing.
    pub(super) fn apply(&mut self, name: &str, fields: &Struct<'_>) -> Option<()> {
        match name {
            "AccessControlEntryRecord" => {
                let entry = AccessControlEntry {
                    resource_type: int(fields, "resourceType"),
                    resource_name: text(fields, "resourceName"),
                    pattern_type: int(fields, "patternType"),
                    principal: text(fields, "principal"),
                    host: text(fields, "host"),
                    operation: int(fields, "operation"),
                    permission_type: int(fields, "permissionType"),
                };
                self.acls.insert(id(fields), entry);
            }
            "RemoveAccessControlEntryRecord" => {
                self.acls.remove(&id(fields))?;
            }
            "ClientQuotaRecord" => return self.quota(fields),
            "UserScramCredentialRecord" => {
                let key = (text(fields, "name"), int(fields, "mechanism"));
                self.credentials.insert(key, int(fields, "iterations"));
            }
            "RemoveUserScramCredentialRecord" => {
                let key = (text(fields, "name"), int(fields, "mechanism"));
                self.credentials.remove(&key)?;
            }
            _ => {}
        }
        Some(())
    }

    fn quota(&mut self, fields: &Struct<'_>) -> Option<()> {
        let named = structs(fields, "entity");
        let mut entity: Vec<_> = named
            .map(|each| (text(each, "entityType"), optional(each, "entityName")))
            .collect();
        // A user comes before its client, as in Kafka's own tools.
        entity.sort_by(|one, other| other.cmp(one));
        let key = text(fields, "key");
        if matches!(fields.get("remove"), Some(Value::Bool(true))) {
            let quotas = self.quotas.get_mut(&entity)?;
            quotas.remove(&key)?;
            if quotas.is_empty() {
                self.quotas.remove(&entity);
            }
            return Some(());
        }
        let Some(Value::Float(value)) = fields.get("value") else {
            return None;
        };
        self.quotas.entry(entity).or_default().insert(key, *value);
        Some(())
    }

    pub(super) fn finish(self, image: &mut MetadataImage) {
        image.acls = self.acls.into_values().collect();
        image.acls.sort_unstable();
        let quotas = self.quotas.into_iter();
        image.client_quotas = quotas
            .map(|(entity, quotas)| ClientQuota { entity, quotas })
            .collect();
        let credentials = self.credentials.into_iter();
        image.scram_credentials = credentials
            .map(|((user, mechanism), iterations)| ScramCredential {
                user,
                mechanism,
                iterations,
            })
            .collect();
    }
}

fn id(fields: &Struct<'_>) -> [u8; 16] {
    let id = fields.get("id").and_then(Value::as_uuid);
    id.map_or([0; 16], Uuid::to_bytes)
}
