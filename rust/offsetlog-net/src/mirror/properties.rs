//! Kafka's `client.properties`: the keys that a mirror knows. Every other key, and every mechanism that is not there, is refused by name.

use super::run::Source;
#[cfg(feature = "tls")]
use crate::client::ClientOptions;
use crate::sasl::{Credentials, Mechanism};
use offsetlog::format::meta_properties::read_properties;
use std::collections::BTreeMap;
#[cfg(feature = "tls")]
use std::io::Read;
#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::time::Duration;

/// Keys that Kafka's clients have, and what to do where a mirror refuses them.
const ADVICE: [(&str, &str); 11] = [
    (
        "ssl.truststore.certificates",
        "write the certificates into a file, and name it in ssl.truststore.location",
    ),
    (
        "ssl.keystore.key",
        "write key and certificates into a file, and name it in ssl.keystore.location",
    ),
    (
        "ssl.keystore.certificate.chain",
        "write key and certificates into a file, and name it in ssl.keystore.location",
    ),
    (
        "sasl.login.callback.handler.class",
        "a mirror runs no Java classes: use SCRAM or PLAIN, or mTLS",
    ),
    (
        "sasl.kerberos.service.name",
        "GSSAPI is not there: use SCRAM or PLAIN, or mTLS",
    ),
    (
        "sasl.oauthbearer.token.endpoint.url",
        "OAUTHBEARER is not there: use SCRAM or PLAIN, or mTLS",
    ),
    (
        "ssl.cipher.suites",
        "a mirror offers the suites of TLS 1.3, and those of TLS 1.2 with AES-GCM or ChaCha20 and forward secrecy; if that is enough, \
         take it out, or else forbid a suite at the brokers",
    ),
    (
        "ssl.provider",
        "a mirror has its own TLS, and loads none for Java; if that is allowed, take it out",
    ),
    (
        "ssl.trustmanager.algorithm",
        "a mirror has its own check of certificates: name a PEM or PKCS12 store in ssl.truststore.location, and take this out",
    ),
    (
        "ssl.engine.factory.class",
        "a mirror runs no Java classes: name the stores in ssl.truststore.location and ssl.keystore.location",
    ),
    (
        "ssl.secure.random.implementation",
        "a mirror takes random numbers of the operating system; if that is allowed, take it out",
    ),
];

/// What of the keys is used.
const KNOWN: [&str; 17] = [
    "bootstrap.servers",
    "client.id",
    "request.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.protocol",
    "ssl.enabled.protocols",
];

impl Source {
    /// Reads the brokers of a list `host:port,host:port`.
    ///
    /// # Errors
    /// In words: what is no host and port.
    pub fn add_bootstrap(&mut self, list: &str) -> Result<(), String> {
        for each in list
            .split(',')
            .map(str::trim)
            .filter(|each| !each.is_empty())
        {
            let found = each.rsplit_once(':').and_then(|(host, port)| {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let port = port.parse::<u16>().ok().filter(|&port| port > 0)?;
                (!host.is_empty()).then(|| (host.to_owned(), port))
            });
            match found {
                Some(address) => self.bootstrap.push(address),
                None => return Err(format!("{each:?} found, HOST:PORT expected")),
            }
        }
        Ok(())
    }

    /// Takes the settings of a `client.properties`.
    ///
    /// # Errors
    /// In words: a key or value that a mirror does not know, and what to do.
    pub fn read_properties(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut given: BTreeMap<String, String> = BTreeMap::new();
        let read = read_properties(bytes).map_err(|error| error.to_string())?;
        for property in read {
            known(&property.key).map_err(|reason| format!("line {}: {reason}", property.line))?;
            given.insert(property.key, property.value.trim().to_owned());
        }
        self.take_given(&given)
    }

    /// Takes settings of Kafka's clients by name.
    ///
    /// # Errors
    /// In words: a key or value that a mirror does not know, and what to do.
    pub fn take_settings(&mut self, settings: &[(String, String)]) -> Result<(), String> {
        let mut given: BTreeMap<String, String> = BTreeMap::new();
        for (key, value) in settings {
            known(key)?;
            given.insert(key.clone(), value.trim().to_owned());
        }
        self.take_given(&given)
    }

    fn take_given(&mut self, given: &BTreeMap<String, String>) -> Result<(), String> {
        let get = |key: &str| {
            given
                .get(key)
                .map(String::as_str)
                .filter(|value| !value.is_empty())
        };
        if let Some(list) = get("bootstrap.servers")
            && self.bootstrap.is_empty()
        {
            self.add_bootstrap(list)?;
        }
        if let Some(id) = get("client.id") {
            id.clone_into(&mut self.client.client_id);
        }
        for (key, place) in [
            ("request.timeout.ms", &mut self.client.request_timeout),
            (
                "socket.connection.setup.timeout.ms",
                &mut self.client.connect_timeout,
            ),
        ] {
            if let Some(text) = get(key) {
                let number = text.parse::<u64>().ok().filter(|&number| number > 0);
                let number =
                    number.ok_or_else(|| format!("{key}={text}: milliseconds expected"))?;
                *place = Duration::from_millis(number);
            }
        }
        let protocol = get("security.protocol")
            .unwrap_or("PLAINTEXT")
            .to_uppercase();
        let (has_tls, has_sasl) = match protocol.as_str() {
            "PLAINTEXT" => (false, false),
            "SSL" => (true, false),
            "SASL_PLAINTEXT" => (false, true),
            "SASL_SSL" => (true, true),
            other => {
                return Err(format!(
                    "security.protocol={other}: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL expected"
                ));
            }
        };
        if has_tls {
            self.take_tls(given)?;
        } else if let Some((key, _)) = given.iter().find(|(key, _)| key.starts_with("ssl.")) {
            return Err(format!(
                "{key} is given, and security.protocol={protocol} has no TLS: SSL or SASL_SSL expected"
            ));
        }
        if has_sasl {
            self.client.credentials = Some(credentials(&get)?);
        } else if let Some((key, _)) = given.iter().find(|(key, _)| key.starts_with("sasl.")) {
            return Err(format!(
                "{key} is given, and security.protocol={protocol} has no SASL: SASL_SSL or SASL_PLAINTEXT expected"
            ));
        }
        Ok(())
    }

    #[cfg(feature = "tls")]
    fn take_tls(&mut self, given: &BTreeMap<String, String>) -> Result<(), String> {
        check_tls(given)?;
        let trust = store(given, "ssl.truststore")?.ok_or(
            "security.protocol has TLS, and ssl.truststore.location is missing: name a PEM file or PKCS12 store with the certificates that sign the brokers'",
        )?;
        let identity = store(given, "ssl.keystore")?;
        let key_password = given.get("ssl.key.password");
        match (&identity, key_password) {
            (_, None) => {}
            (Some((_, Some(store))), Some(key)) if store == key => {}
            (Some((_, Some(_))), Some(_)) => {
                return Err("ssl.key.password: a PKCS12 store has one password for all, that of ssl.keystore.password: take it out".to_owned());
            }
            _ => {
                return Err(
                    "ssl.key.password: decrypt the key first: openssl pkcs8 -in KEY -out PLAIN"
                        .to_owned(),
                );
            }
        }
        let of = |(path, password): &(PathBuf, Option<String>)| (path.clone(), password.clone());
        let tls = crate::tls::TlsClient::load_stores(of(&trust), identity.as_ref().map(of));
        let client: &mut ClientOptions = &mut self.client;
        client.tls = Some(tls.map_err(|error| error.to_string())?);
        Ok(())
    }

    #[cfg(not(feature = "tls"))]
    #[allow(clippy::unused_self, reason = "the same as with TLS")]
    fn take_tls(&mut self, _: &BTreeMap<String, String>) -> Result<(), String> {
        Err(
            "this build has no TLS: security.protocol=PLAINTEXT or SASL_PLAINTEXT expected"
                .to_owned(),
        )
    }
}

/// Fails for TLS settings that a mirror does not support.
#[cfg(feature = "tls")]
fn check_tls(given: &BTreeMap<String, String>) -> Result<(), String> {
    let algorithm = given.get("ssl.endpoint.identification.algorithm");
    if let Some(other) = algorithm.filter(|other| *other != "https") {
        return Err(format!(
            "ssl.endpoint.identification.algorithm={other}: a mirror always compares the broker's name with its certificate; take it out"
        ));
    }
    let advice = "a mirror speaks TLS 1.3, and 1.2 with brokers that have no more; take it out, or forbid a version at the brokers";
    if let Some(other) = given
        .get("ssl.protocol")
        .filter(|other| *other != "TLSv1.3")
    {
        return Err(format!("ssl.protocol={other}: {advice}"));
    }
    if let Some(list) = given.get("ssl.enabled.protocols") {
        let mut found: Vec<&str> = list.split(',').map(str::trim).collect();
        found.sort_unstable();
        if found != ["TLSv1.2", "TLSv1.3"] {
            return Err(format!("ssl.enabled.protocols={list}: {advice}"));
        }
    }
    Ok(())
}

/// Where a store of certificates is, with its password if it is PKCS12. Without a type, and as Java does with JKS, the file tells which it is.
#[cfg(feature = "tls")]
fn store(
    given: &BTreeMap<String, String>,
    prefix: &str,
) -> Result<Option<(PathBuf, Option<String>)>, String> {
    let get = |name: &str| {
        let key = format!("{prefix}.{name}");
        given.get(&key).filter(|value| !value.is_empty())
    };
    let password = get("password");
    let Some(path) = get("location") else {
        return match given.keys().find(|key| key.starts_with(prefix)) {
            Some(key) if prefix == "ssl.keystore" => Err(format!(
                "{key} is given, and {prefix}.location is missing: name a PEM file or PKCS12 store with key and certificates"
            )),
            _ => Ok(None),
        };
    };
    let path = PathBuf::from(path);
    let is_pem = match get("type").map(String::as_str) {
        Some("PEM") => true,
        Some("PKCS12") => false,
        None | Some("JKS") => {
            let mut start = [0; 4];
            let read = std::fs::File::open(&path).and_then(|mut file| file.read(&mut start));
            read.map_err(|error| format!("{}: {error}", path.display()))?;
            if start == [0xfe, 0xed, 0xfe, 0xed] {
                return Err(format!(
                    "{}: a JKS store, and PEM or PKCS12 is expected. Convert it: keytool -importkeystore -srckeystore STORE \
                     -destkeystore store.p12 -deststoretype PKCS12",
                    path.display()
                ));
            }
            start[0] != 0x30
        }
        Some(other) => {
            return Err(format!("{prefix}.type={other}: PEM or PKCS12 expected"));
        }
    };
    if is_pem && password.is_some() {
        return Err(format!(
            "{prefix}.password: a PEM file needs none: take it out, or name a PKCS12 store"
        ));
    }
    let password = (!is_pem).then(|| password.cloned().unwrap_or_default());
    Ok(Some((path, password)))
}

/// Fails for a key that is not a setting of a mirror.
fn known(key: &str) -> Result<(), String> {
    if KNOWN.contains(&key) {
        return Ok(());
    }
    let known = ADVICE.iter().find(|(known, _)| *known == key);
    let advice = known.map_or("take it out", |(_, advice)| advice);
    Err(format!("{key} is no setting of a mirror: {advice}"))
}

fn credentials<'g>(get: &impl Fn(&str) -> Option<&'g str>) -> Result<Credentials, String> {
    let mechanism = match get("sasl.mechanism") {
        Some("PLAIN") => Mechanism::Plain,
        Some("SCRAM-SHA-256") => Mechanism::ScramSha256,
        Some("SCRAM-SHA-512") => Mechanism::ScramSha512,
        other => {
            return Err(format!(
                "sasl.mechanism={}: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 expected; make a SCRAM user for the mirror",
                other.unwrap_or("")
            ));
        }
    };
    let config = get("sasl.jaas.config")
        .ok_or("sasl.jaas.config is missing: it has the user's name and password")?;
    let fields = jaas(config)?;
    let field = |name: &str| {
        let found = fields.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.clone())
    };
    let missing = |name: &str| format!("sasl.jaas.config has no {name}");
    Ok(Credentials::new(
        mechanism,
        field("username").ok_or_else(|| missing("username"))?,
        field("password").ok_or_else(|| missing("password"))?,
    ))
}

/// The options of a login module: `org…ScramLoginModule required username="u" password="p";`
fn jaas(text: &str) -> Result<Vec<(String, String)>, String> {
    let wrong = || {
        "sasl.jaas.config: a login module, required, username=\"…\" password=\"…\"; expected"
            .to_owned()
    };
    let mut rest = text.trim();
    let module = rest.split_whitespace().next().ok_or_else(wrong)?;
    let is_known = ["PlainLoginModule", "ScramLoginModule"]
        .iter()
        .any(|known| module.ends_with(known));
    if !is_known {
        return Err(format!(
            "sasl.jaas.config: {module} found, PlainLoginModule or ScramLoginModule expected"
        ));
    }
    rest = rest.get(module.len()..).unwrap_or_default().trim_start();
    let flag = rest.split_whitespace().next().ok_or_else(wrong)?;
    rest = rest.get(flag.len()..).unwrap_or_default().trim_start();
    let mut fields = Vec::new();
    while !rest.is_empty() && rest != ";" {
        let (key, behind) = rest.split_once('=').ok_or_else(wrong)?;
        let mut value = String::new();
        let mut characters = behind.trim_start().char_indices();
        let Some((_, quote @ ('"' | '\''))) = characters.next() else {
            return Err(wrong());
        };
        let behind = behind.trim_start();
        let mut end = None;
        while let Some((at, character)) = characters.next() {
            match character {
                '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
                found if found == quote => {
                    end = Some(at + 1);
                    break;
                }
                other => value.push(other),
            }
        }
        let end = end.ok_or_else(wrong)?;
        fields.push((key.trim().to_owned(), value));
        rest = behind.get(end..).unwrap_or_default().trim_start();
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Source, String> {
        let mut source = Source::default();
        source.read_properties(text.as_bytes()).map(|()| source)
    }

    #[test]
    fn kafkas_names_are_understood() {
        let source = read(
            "bootstrap.servers=one:9092, [::1]:9093\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n\
             sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"me\" password=\"a \\\\\"b\";\n",
        )
        .unwrap();
        assert_eq!(
            source.bootstrap,
            [("one".to_owned(), 9092), ("::1".to_owned(), 9093)]
        );
        let credentials = source.client.credentials.unwrap();
        assert_eq!(
            (credentials.username.as_str(), credentials.password.as_str()),
            ("me", "a \"b")
        );
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for (text, expected) in [
            ("group.id=x", "line 1: group.id is no setting of a mirror"),
            // To take it out changes what is safe: it says what is so instead.
            ("ssl.cipher.suites=x", "forbid a suite at the brokers"),
            (
                "ssl.engine.factory.class=x",
                "name the stores in ssl.truststore.location",
            ),
            ("security.protocol=TLS", "SASL_SSL expected"),
            (
                "security.protocol=SASL_SSL",
                "ssl.truststore.location is missing",
            ),
            (
                "security.protocol=SSL\nssl.truststore.location=x\nssl.truststore.type=BCFKS",
                "ssl.truststore.type=BCFKS: PEM or PKCS12 expected",
            ),
            (
                "security.protocol=SSL\nssl.endpoint.identification.algorithm=",
                "always compares the broker's name",
            ),
            (
                "security.protocol=SSL\nssl.enabled.protocols=TLSv1.3",
                "ssl.enabled.protocols=TLSv1.3: a mirror speaks TLS 1.3, and 1.2",
            ),
            (
                "security.protocol=SSL\nssl.protocol=TLSv1.2",
                "ssl.protocol=TLSv1.2: a mirror speaks",
            ),
            (
                "security.protocol=SSL\nssl.truststore.location=tests/tls/ca.pem\nssl.truststore.password=x",
                "a PEM file needs none",
            ),
            (
                "security.protocol=SSL\nssl.truststore.location=tests/tls/ca.pem\nssl.keystore.password=x",
                "ssl.keystore.location is missing",
            ),
            (
                "security.protocol=SSL\nssl.truststore.location=tests/tls/ca.p12\nssl.truststore.password=wrong",
                "a PKCS12 store is expected, and its password",
            ),
            (
                "security.protocol=SSL\nssl.truststore.location=tests/tls/ca.pem\nssl.keystore.location=tests/tls/client.pem\nssl.key.password=x",
                "openssl pkcs8",
            ),
            (
                "security.protocol=SSL\nssl.truststore.location=tests/tls/ca.pem\nssl.keystore.location=tests/tls/client.p12\n\
                 ssl.keystore.password=x\nssl.key.password=y",
                "one password for all",
            ),
            (
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI",
                "sasl.mechanism=GSSAPI: PLAIN, SCRAM-SHA-256",
            ),
            ("sasl.mechanism=PLAIN", "has no SASL"),
            (
                "bootstrap.servers=kafka",
                "\"kafka\" found, HOST:PORT expected",
            ),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }

    /// Keys of Kafka's clients whose loss changes what is safe, and a word of what to do instead.
    const REFUSED: [(&str, &str); 11] = [
        ("ssl.truststore.certificates", "ssl.truststore.location"),
        ("ssl.keystore.key", "ssl.keystore.location"),
        ("ssl.keystore.certificate.chain", "ssl.keystore.location"),
        (
            "sasl.login.callback.handler.class",
            "SCRAM or PLAIN, or mTLS",
        ),
        ("sasl.kerberos.service.name", "SCRAM or PLAIN, or mTLS"),
        (
            "sasl.oauthbearer.token.endpoint.url",
            "SCRAM or PLAIN, or mTLS",
        ),
        ("ssl.cipher.suites", "forbid a suite at the brokers"),
        ("ssl.provider", "take it out"),
        ("ssl.trustmanager.algorithm", "ssl.truststore.location"),
        ("ssl.engine.factory.class", "ssl.keystore.location"),
        ("ssl.secure.random.implementation", "take it out"),
    ];

    #[test]
    fn each_key_with_advice_is_refused_by_name_with_it() {
        let keys = |all: &[(&str, &str)]| -> std::collections::BTreeSet<String> {
            all.iter().map(|(key, _)| (*key).to_owned()).collect()
        };
        assert_eq!(keys(&ADVICE), keys(&REFUSED), "a row here for each there");
        for (key, advice) in REFUSED {
            let name = format!("{key} is no setting of a mirror: ");
            // Beside settings that need it: the key itself is what is told.
            let beside = "bootstrap.servers=one:9092\nsecurity.protocol=SASL_SSL";
            let refused = read(&format!("{beside}\n{key}=x\n")).unwrap_err();
            let told = refused.strip_prefix(&format!("line 3: {name}"));
            assert!(told.is_some_and(|told| told.contains(advice)), "{refused}");
            let settings = [(key.to_owned(), "x".to_owned())];
            let refused = Source::default().take_settings(&settings).unwrap_err();
            let told = refused.strip_prefix(&name);
            assert!(told.is_some_and(|told| told.contains(advice)), "{refused}");
        }
    }

    #[test]
    fn mechanisms_that_are_not_there_are_refused_with_what_to_do() {
        for mechanism in ["OAUTHBEARER", "GSSAPI", "SCRAM-SHA-1", "scram-sha-512", ""] {
            for protocol in ["SASL_PLAINTEXT", "SASL_SSL"] {
                let trust = match protocol {
                    "SASL_SSL" => "ssl.truststore.location=tests/tls/ca.pem\n",
                    _ => "",
                };
                let refused = read(&format!(
                    "security.protocol={protocol}\n{trust}sasl.mechanism={mechanism}\n"
                ));
                assert_eq!(
                    refused.unwrap_err(),
                    format!(
                        "sasl.mechanism={mechanism}: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 expected; make a SCRAM user for the mirror"
                    )
                );
            }
        }
        // A token's login module beside a mechanism that is there.
        let module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";
        let refused = read(&format!(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={module} required;\n"
        ));
        assert_eq!(
            refused.unwrap_err(),
            format!(
                "sasl.jaas.config: {module} found, PlainLoginModule or ScramLoginModule expected"
            )
        );
    }

    /// Java 8's own format, which begins with 0xFEEDFEED and the version 2, whatever the type says that it is.
    #[test]
    fn a_jks_store_is_refused_with_how_to_convert_it() {
        let folder = tempfile::tempdir().unwrap();
        let jks = folder.path().join("kafka.jks");
        std::fs::write(
            &jks,
            [&[0xfe, 0xed, 0xfe, 0xed][..], &[0, 0, 0, 2], &[0; 24]].concat(),
        )
        .unwrap();
        let jks = jks.display();
        for store in ["truststore", "keystore"] {
            let trust = match store {
                "keystore" => "ssl.truststore.location=tests/tls/ca.pem\n",
                _ => "",
            };
            for kind in ["", "JKS", "PKCS12"] {
                let refused = read(&format!(
                    "security.protocol=SSL\n{trust}ssl.{store}.location={jks}\nssl.{store}.type={kind}\n\
                     ssl.{store}.password=changeit\n"
                ))
                .unwrap_err();
                assert!(refused.starts_with(&format!("{jks}: ")), "{refused}");
                let refused = refused.to_lowercase();
                for word in ["jks store", "keytool -importkeystore", "pkcs12"] {
                    assert!(refused.contains(word), "{store} {kind}: {refused}");
                }
            }
        }
    }
}
