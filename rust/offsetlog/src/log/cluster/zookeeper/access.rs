//! Access control, quotas, and who has a password, out of Kafka's nodes in ZooKeeper.
//!
//! Source: Kafka's `ZkAclStore`, `AclEntry`, `Sanitizer` and `DynamicConfig`. Salts and keys of passwords are not kept. Entries that cannot
//! be read are left out with a warning: they must not keep anybody from the topics.

use super::nodes::{DEFAULT, Held, Members, Nodes, members, rule, text, value};
use crate::log::{AccessControlEntry, ClientQuota, ScramCredential};
use offsetlog_format::{FormatError, json};
use std::collections::BTreeMap;

/// Entries for literal names. Entries for prefixes are in `kafka-acl-extended`, whose name has the same beginning.
pub(super) const ACLS: &[u8] = b"/kafka-acl";
const PREFIXED_ACLS: &[u8] = b"/kafka-acl-extended/prefixed";
pub(super) const USERS: &[u8] = b"/config/users";
pub(super) const CLIENTS: &[u8] = b"/config/clients";
pub(super) const IPS: &[u8] = b"/config/ips";

const LITERAL: i32 = 3;
const PREFIXED: i32 = 4;
const RESOURCE_TYPES: [(&str, i32); 6] = [
    ("Topic", 2),
    ("Group", 3),
    ("Cluster", 4),
    ("TransactionalId", 5),
    ("DelegationToken", 6),
    ("User", 7),
];
/// Operations by Kafka's numbers, from 2 on.
const OPERATIONS: [&str; 14] = [
    "All",
    "Read",
    "Write",
    "Create",
    "Delete",
    "Alter",
    "Describe",
    "ClusterAction",
    "DescribeConfigs",
    "AlterConfigs",
    "IdempotentWrite",
    "CreateTokens",
    "DescribeTokens",
    "TwoPhaseCommit",
];
const MECHANISMS: [(&str, i32); 2] = [("SCRAM-SHA-256", 1), ("SCRAM-SHA-512", 2)];
/// Settings of users, clients and addresses that are quotas.
pub(super) const QUOTAS: [&str; 5] = [
    "connection_creation_rate",
    "consumer_byte_rate",
    "controller_mutation_rate",
    "producer_byte_rate",
    "request_percentage",
];

/// What stands of these.
#[derive(Debug, Default)]
pub(super) struct Access {
    pub(super) acls: Vec<AccessControlEntry>,
    pub(super) quotas: Vec<ClientQuota>,
    pub(super) credentials: Vec<ScramCredential>,
}

type Entity = Vec<(String, Option<String>)>;

impl Nodes {
    /// Access control, quotas and users of the cluster at `root`.
    pub(super) fn access(&self, root: &[u8], warnings: &mut Vec<String>) -> Access {
        let mut found = Access::default();
        for (place, pattern) in [(ACLS, LITERAL), (PREFIXED_ACLS, PREFIXED)] {
            for (kind, resource_type) in RESOURCE_TYPES {
                let below = [place, b"/", kind.as_bytes()].concat();
                for (name, held) in self.below(root, &below) {
                    match acls(held, resource_type, &name, pattern) {
                        Ok(all) => found.acls.extend(all),
                        Err(error) => warnings.push(format!(
                            "left out: access control of {kind} {name:?}: {error}"
                        )),
                    }
                }
            }
        }
        found.acls.sort_unstable();
        for (name, held) in self.below(root, CLIENTS) {
            found.entity(&[("client-id", &name)], held, warnings);
        }
        for (name, held) in self.below(root, IPS) {
            found.entity(&[("ip", &name)], held, warnings);
        }
        for (user, held) in self.below(root, USERS) {
            found.entity(&[("user", &user)], held, warnings);
            let clients = [USERS, b"/", user.as_bytes(), b"/clients"].concat();
            for (client, held) in self.below(root, &clients) {
                let entity = [("user", user.as_str()), ("client-id", &client)];
                found.entity(&entity, held, warnings);
            }
        }
        found
            .quotas
            .sort_by(|one, other| one.entity.cmp(&other.entity));
        found.credentials.sort_unstable();
        found
    }
}

impl Access {
    /// The settings of a user, a client, an address, or of a client of a user.
    fn entity(&mut self, named: &[(&str, &str)], held: &Held, warnings: &mut Vec<String>) {
        let mut taken = || -> Result<(), FormatError> {
            let entity = named
                .iter()
                .map(|(kind, name)| Ok(((*kind).to_owned(), plain(name)?)))
                .collect::<Result<Entity, FormatError>>()?;
            self.settings(entity, held, &mut *warnings)
        };
        if let Err(error) = taken() {
            warnings.push(format!("left out: settings of {named:?}: {error}"));
        }
    }

    fn settings(
        &mut self,
        entity: Entity,
        held: &Held,
        warnings: &mut Vec<String>,
    ) -> Result<(), FormatError> {
        let data = members(held.data.as_deref().unwrap_or_default())?;
        let Some(config) = value(&data, "config") else {
            return Ok(());
        };
        let mut quotas = BTreeMap::new();
        for (name, found) in json::members(config)? {
            let found = json::string(found)?;
            let mechanism = MECHANISMS.iter().find(|(known, _)| *known == name);
            if let (Some((_, mechanism)), [(kind, Some(user))]) = (mechanism, entity.as_slice())
                && kind == "user"
            {
                self.credentials.push(ScramCredential {
                    user: user.clone(),
                    mechanism: *mechanism,
                    iterations: iterations(&found)?,
                });
            } else if QUOTAS.contains(&name.as_str()) {
                let limit = found.trim().parse();
                quotas.insert(name, limit.map_err(|_| rule("a quota that is no number"))?);
            } else {
                warnings.push(format!("left out: setting {name:?} of {entity:?}"));
            }
        }
        if !quotas.is_empty() {
            self.quotas.push(ClientQuota { entity, quotas });
        }
        Ok(())
    }
}

fn acls(
    held: &Held,
    resource_type: i32,
    name: &str,
    pattern_type: i32,
) -> Result<Vec<AccessControlEntry>, FormatError> {
    let data = members(held.data.as_deref().unwrap_or_default())?;
    let Some(entries) = value(&data, "acls") else {
        return Ok(Vec::new());
    };
    json::elements(entries)?
        .into_iter()
        .map(|entry| {
            let entry = members(entry)?;
            let operation = needed(&entry, "operation")?;
            let mut numbered = (2..).zip(OPERATIONS);
            let operation = numbered.find(|(_, known)| *known == operation);
            let permission_type = match needed(&entry, "permissionType")?.as_str() {
                "Deny" => 2,
                "Allow" => 3,
                _ => return Err(rule("neither Allow nor Deny")),
            };
            Ok(AccessControlEntry {
                resource_type,
                resource_name: name.to_owned(),
                pattern_type,
                principal: needed(&entry, "principal")?,
                host: needed(&entry, "host")?,
                operation: operation.ok_or(rule("an operation that is not known"))?.0,
                permission_type,
            })
        })
        .collect()
}

fn needed(members: &Members<'_>, name: &str) -> Result<String, FormatError> {
    text(members, name)?.ok_or(rule("a member is missing"))
}

/// How often a password is hashed; the rest of the text is what it is made of.
fn iterations(credential: &str) -> Result<i32, FormatError> {
    let mut parts = credential.split(',');
    let found = parts.find_map(|part| part.trim().strip_prefix("iterations="));
    found
        .and_then(|number| number.parse().ok())
        .ok_or(rule("a password for SCRAM without its iterations"))
}

/// A name as it was before Kafka made it fit for a path; `None` for the default of all others.
fn plain(name: &str) -> Result<Option<String>, FormatError> {
    if name == DEFAULT {
        return Ok(None);
    }
    let bad = rule("a name that is not encoded as in a URL");
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'%' => {
                let (digits, behind) = rest.split_at_checked(2).ok_or(bad)?;
                let digits = core::str::from_utf8(digits).map_err(|_| bad)?;
                let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                let byte = u8::from_str_radix(digits, 16).ok().filter(|_| is_hex);
                bytes.push(byte.ok_or(bad)?);
                rest = behind;
            }
            b'+' => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(Some(text.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_before_kafka_encoded_them() {
        for (encoded, expected) in [
            ("alice", Some("alice")),
            ("a%27b%20%24x", Some("a'b $x")),
            ("CN%3Dx%2Co%3D%2A", Some("CN=x,o=*")),
            ("%C3%A9", Some("\u{e9}")),
            ("<default>", None),
        ] {
            assert_eq!(plain(encoded).unwrap().as_deref(), expected, "{encoded}");
        }
        for encoded in ["%", "%4", "%g0", "%+1", "a%\u{e9}"] {
            assert!(plain(encoded).is_err(), "{encoded}");
        }
    }
}
