//! Which settings are secrets, as Kafka decides it for `DescribeConfigs`: those of type `PASSWORD`, and those that it does not know.

use super::MetadataImage;

/// The text shown in place of a secret: Kafka's own.
pub const HIDDEN: &str = "[hidden]";

/// Every setting of a broker, topic, group or client metrics that is no password, by the definitions in Kafka 2.8.2, 3.9.2 and 4.3.0.
const KNOWN: &str = include_str!("known_settings.txt");

/// Settings that a listener may have for one mechanism, as `listener.name.external.plain.sasl.jaas.config`.
const OF_MECHANISMS: [&str; 5] = [
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
];

/// Whether the value of a dynamic setting is to be hidden: it is a password, or nobody knows what it is. Takes the type as
/// [`MetadataImage::configs`] has it. Costs a walk over some 450 names.
///
/// ```
/// use offsetlog::is_secret;
///
/// assert!(!is_secret("topic", "retention.ms"));
/// assert!(is_secret("broker", "listener.name.external.ssl.keystore.password"));
/// assert!(is_secret("broker", "setting.of.a.plugin"));
/// ```
#[must_use]
pub fn is_secret(resource_type: &str, name: &str) -> bool {
    let is_known = |name: &str| KNOWN.lines().any(|known| known == name);
    match resource_type {
        // The name of a logger, and its level.
        "broker-logger" => false,
        "broker" => !is_known(name) && !of_listener(name).is_some_and(is_known),
        "topic" | "group" | "client-metrics" => !is_known(name),
        _ => true,
    }
}

/// The setting that `listener.name.<listener>.<setting>` is for.
fn of_listener(name: &str) -> Option<&str> {
    let (_, setting) = name.strip_prefix("listener.name.")?.split_once('.')?;
    let of_mechanism = OF_MECHANISMS.iter().find(|each| setting.ends_with(*each));
    Some(of_mechanism.copied().unwrap_or(setting))
}

impl MetadataImage {
    /// Puts [`HIDDEN`] in the place of each setting's value that [`is_secret`]. Returns how many there were.
    pub fn hide_secrets(&mut self) -> usize {
        let mut count = 0;
        for ((resource_type, _), configs) in &mut self.configs {
            for (name, value) in configs {
                if is_secret(resource_type, name) {
                    HIDDEN.clone_into(value);
                    count += 1;
                }
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_what_is_not_known_are_secrets() {
        for name in [
            "ssl.key.password",
            "ssl.keystore.password",
            "ssl.keystore.key",
            "ssl.keystore.certificate.chain",
            "ssl.truststore.password",
            "ssl.truststore.certificates",
            "sasl.jaas.config",
            "delegation.token.secret.key",
            "password.encoder.secret",
            "listener.name.x.ssl.key.password",
            "listener.name.x.plain.sasl.jaas.config",
            "listener.name.x.y.ssl.keystore.type",
            "listener.name.",
            "listener.name.retention.ms",
            "",
            "\n",
            "my.plugin.user",
        ] {
            assert!(is_secret("broker", name), "{name:?}");
        }
        for name in [
            "log.retention.ms",
            "ssl.keystore.type",
            "ssl.keystore.location",
            "leader.replication.throttled.rate",
            "listener.name.x.ssl.keystore.location",
            "listener.name.x.plain.sasl.login.class",
            "message.max.bytes",
        ] {
            assert!(!is_secret("broker", name), "{name:?}");
        }
        assert!(!is_secret("topic", "message.format.version"));
        assert!(!is_secret("group", "consumer.session.timeout.ms"));
        assert!(!is_secret("client-metrics", "interval.ms"));
        assert!(!is_secret("broker-logger", "kafka.server"));
        assert!(is_secret("unknown(3)", "retention.ms"));
        let names: Vec<_> = KNOWN.lines().collect();
        assert!(names.is_sorted());
        for setting in crate::config::settings() {
            assert!(names.contains(&setting.name), "{}", setting.name);
        }
    }
}
