//! Texts of errors, the table's own order, the file. What Kafka accepts is held by `tests/settings.rs`.

use super::*;
use crate::ErrorKind;
use offsetlog_format::{Fault, FormatError};
use proptest::prelude::*;

fn refused(pairs: &[(&str, &str)]) -> String {
    LogConfig::parse(pairs.iter().copied())
        .unwrap_err()
        .to_string()
}

#[test]
fn table_is_sorted_and_its_defaults_are_values() {
    let names: Vec<_> = settings().iter().map(|setting| setting.name).collect();
    assert!(names.is_sorted_by(|one, next| one < next));
    for setting in settings() {
        if setting.name != "internal.segment.bytes" {
            assert_eq!(
                setting.kind.canonical(setting.default).as_deref(),
                Ok(setting.default),
                "{}",
                setting.name
            );
        }
    }
    for (name, text, agrees) in table::defaults() {
        assert!(agrees, "{name} {text}");
    }
}

#[test]
fn only_what_is_given_is_kept_sorted_and_canonical() {
    let config = LogConfig::parse([
        ("segment.ms", " +0100 "),
        ("preallocate", "TRUE"),
        ("cleanup.policy", "delete , compact,delete"),
        ("min.cleanable.dirty.ratio", "-0.0"),
        ("leader.replication.throttled.replicas", "0:1,,1:02"),
    ])
    .unwrap();
    let given: Vec<_> = config.given().collect();
    assert_eq!(
        given,
        [
            ("cleanup.policy", "delete,compact"),
            ("leader.replication.throttled.replicas", "0:1,1:02"),
            ("min.cleanable.dirty.ratio", "0"),
            ("preallocate", "true"),
            ("segment.ms", "100"),
        ]
    );
    assert_eq!(config.text("segment.ms"), Some("100"));
    assert_eq!(config.text("retention.ms"), Some("604800000"));
    assert_eq!(config.text("nothing"), None);
    assert_ne!(config, LogConfig::default());
    assert_eq!(config.segment_ms(), 100);
    assert!(config.preallocate());
}

#[test]
fn one_more_setting() {
    let config = LogConfig::parse([("min.compaction.lag.ms", "5")]).unwrap();
    let config = config.with("max.compaction.lag.ms", "7").unwrap();
    assert_eq!(config.max_compaction_lag_ms(), 7);
    assert!(config.with("max.compaction.lag.ms", "4").is_err());
    let config = config.with("max.compaction.lag.ms", "6").unwrap();
    assert_eq!(config.given().count(), 2);
}

#[test]
fn errors_name_the_setting_what_was_found_and_what_is_expected() {
    for (name, value, text) in [
        (
            "segment.bytes",
            "100",
            "segment.bytes: \"100\" found, a whole number (int), at least 1048576 expected",
        ),
        (
            "retention.bytes",
            "1GB",
            "retention.bytes: \"1GB\" found, a whole number (long) expected",
        ),
        (
            "compression.gzip.level",
            "0",
            "compression.gzip.level: \"0\" found, a whole number (int), 1 to 9, or -1 expected",
        ),
        (
            "min.cleanable.dirty.ratio",
            "NaN",
            "min.cleanable.dirty.ratio: \"NaN\" found, a number, 0 to 1 expected",
        ),
        (
            "preallocate",
            "yes",
            "preallocate: \"yes\" found, true or false expected",
        ),
        (
            "message.timestamp.type",
            "logappendtime\n",
            "message.timestamp.type: \"logappendtime\\n\" found, one of CreateTime, LogAppendTime expected",
        ),
        (
            "cleanup.policy",
            "Compact",
            "cleanup.policy: \"Compact\" found, any of compact, delete, or nothing expected",
        ),
        (
            "leader.replication.throttled.replicas",
            "0",
            "leader.replication.throttled.replicas: \"0\" found, partition:broker pairs, or * expected",
        ),
        (
            "segment.index.bytes",
            "11",
            "segment.index.bytes: \"11\" found, a whole number (int), at least 12 expected",
        ),
    ] {
        assert_eq!(refused(&[(name, value)]), text);
    }
    assert_eq!(
        refused(&[("segment.ms", "1"), ("segment.ms", "1")]),
        "segment.ms: given twice"
    );
    assert_eq!(
        refused(&[
            ("min.compaction.lag.ms", "2"),
            ("max.compaction.lag.ms", "1")
        ]),
        "min.compaction.lag.ms: 2 found, at most max.compaction.lag.ms of 1 expected"
    );
    let tiered = ("remote.storage.enable", "true");
    assert_eq!(
        refused(&[tiered, ("cleanup.policy", "compact")]),
        "cleanup.policy: compact found, delete or nothing expected for a topic with remote.storage.enable"
    );
    assert_eq!(
        refused(&[tiered, ("local.retention.ms", "6"), ("retention.ms", "5")]),
        "local.retention.ms: 6 found, -2 or 0 to retention.ms of 5 expected with remote.storage.enable"
    );
    let disabled = ("remote.log.copy.disable", "true");
    assert_eq!(
        refused(&[tiered, disabled, ("local.retention.bytes", "6")]),
        "local.retention.bytes: 6 found, -2 or retention.bytes of -1 expected with remote.log.copy.disable"
    );
    let long = "9".repeat(5000);
    assert!(refused(&[("segment.ms", &long)]).len() < 200);
    assert!(refused(&[(&long, "1")]).len() < 200);
}

#[test]
fn unknown_names_are_told_the_nearest() {
    for (name, nearest) in [
        ("segmnt.ms", "did you mean segment.ms?"),
        ("segment_bytes", "did you mean segment.bytes?"),
        ("Retention.MS", "did you mean retention.ms?"),
        ("log.retention.hours", "did you mean retention.ms?"),
        ("log.roll.ms", "did you mean segment.ms?"),
        ("min.insync.replica", "did you mean min.insync.replicas?"),
        ("message.format.version", "Kafka dropped it with 4.0"),
        ("bootstrap.servers", "docs/settings.md lists them all"),
        ("", "docs/settings.md lists them all"),
    ] {
        let text = refused(&[(name, "1")]);
        assert_eq!(
            text,
            format!("config: no topic setting is called {name:?}; {nearest}")
        );
    }
    // Every name of ours and of brokers leads to its own setting.
    for setting in settings() {
        assert_eq!(
            nearest_setting(&setting.name.replace('.', "_")),
            Some(setting.name)
        );
    }
}

#[test]
fn values_that_hold() {
    let config = LogConfig::default();
    assert_eq!(config.segment_bytes(), 1 << 30);
    assert_eq!(config.internal_segment_bytes(), None);
    assert_eq!(config.codec_for(Codec::Zstd), Codec::Zstd);
    assert_eq!(config.compression_level(Codec::Gzip), None);
    assert_eq!(config.compression_level(Codec::Lz4), Some(9));
    assert_eq!(config.compression_level(Codec::Zstd), Some(3));
    assert_eq!(config.compression_level(Codec::Snappy), None);
    assert!(!config.is_log_append_time());
    assert_eq!(config.leader_throttled_replicas(), ThrottledReplicas::None);

    let config = LogConfig::parse([
        ("compression.type", "gzip"),
        ("compression.gzip.level", "4"),
        ("message.timestamp.type", "LogAppendTime"),
        ("internal.segment.bytes", "100"),
        ("segment.bytes", "2000000"),
        ("leader.replication.throttled.replicas", "*"),
        ("follower.replication.throttled.replicas", "0:1"),
    ])
    .unwrap();
    assert_eq!(config.segment_bytes(), 100);
    assert_eq!(config.codec_for(Codec::Zstd), Codec::Gzip);
    assert_eq!(config.compression_type().to_string(), "gzip");
    assert_eq!(config.compression_level(Codec::Gzip), Some(4));
    assert!(config.is_log_append_time());
    assert_eq!(config.leader_throttled_replicas(), ThrottledReplicas::All);
    assert_eq!(
        config.follower_throttled_replicas(),
        ThrottledReplicas::Listed
    );
}

#[test]
fn file_is_a_line_with_the_version_and_a_line_each() {
    assert_eq!(LogConfig::default().write_file(), b"version: 0\n");
    let config = LogConfig::parse([("segment.ms", "5"), ("cleanup.policy", "")]).unwrap();
    let bytes = config.write_file();
    assert_eq!(bytes, b"version: 0\ncleanup.policy=\nsegment.ms=5\n");
    assert_eq!(LogConfig::read_file(&bytes).unwrap(), config);
}

#[test]
fn file_that_is_none_is_told_by_line_and_position() {
    let line = |text: &str| {
        let error = LogConfig::read_file(text.as_bytes()).unwrap_err();
        assert!(error.is_corruption(), "{text:?}");
        match error.kind() {
            ErrorKind::MetadataFile(FormatError {
                fault: Fault::Line { line, .. },
                ..
            }) => (*line, error.position().unwrap()),
            other => panic!("{text:?} {other:?}"),
        }
    };
    assert_eq!(line("version:0\n"), (1, 0));
    assert_eq!(line("version: 00\n"), (1, 0));
    assert_eq!(line("segment.ms=5\n"), (1, 0));
    assert_eq!(line("version: 0"), (1, 0));
    assert_eq!(line("version: 0\nsegment.ms=5"), (2, 11));
    assert_eq!(line("version: 0\r\n"), (1, 0));
    assert_eq!(line("version: 0\nsegment.ms\n"), (2, 11));
    assert_eq!(line("version: 0\nsegment.ms= 5\n"), (2, 11));
    assert_eq!(line("version: 0\nsegment.ms=0\n"), (2, 11));
    assert_eq!(line("version: 0\nsegmnt.ms=5\n"), (2, 11));
    assert_eq!(line("version: 0\npreallocate=true\n\n"), (3, 28));
    assert_eq!(line("version: 0\nsegment.ms=5\nsegment.ms=5\n"), (3, 24));

    let kind = |bytes: &[u8]| LogConfig::read_file(bytes).unwrap_err();
    assert_eq!(
        kind(b"version: 1\n").to_string(),
        "settings file version 1 found, up to 0 can be read; position 0"
    );
    assert!(matches!(
        kind(b"version: 1\nx").kind(),
        ErrorKind::UnsupportedVersion(_)
    ));
    for bytes in [
        b"".as_slice(),
        b"version: 0\n\xff",
        b"version: 0\nmax.compaction.lag.ms=1\nmin.compaction.lag.ms=2\n",
        &vec![b'a'; 2 << 20],
    ] {
        assert!(matches!(kind(bytes).kind(), ErrorKind::MetadataFile(_)));
    }
}

fn any_config() -> impl Strategy<Value = LogConfig> {
    let value = prop_oneof![
        any::<i32>().prop_map(|number| number.to_string()),
        (0.0..=1.0).prop_map(|number: f64| number.to_string()),
        (0..2000000000_i64).prop_map(|number| number.to_string()),
        prop::sample::select(vec![
            "true",
            "FALSE",
            "compact",
            "delete, compact",
            "",
            "gzip",
            "LogAppendTime",
            "*",
            "0:1,7:8",
        ])
        .prop_map(str::to_owned),
    ];
    let slot = 0..settings().len();
    prop::collection::vec((slot, value), 0..40).prop_map(|pairs| {
        pairs
            .into_iter()
            .fold(LogConfig::default(), |config, (slot, value)| {
                let setting = &settings()[slot];
                config.with(setting.name, &value).unwrap_or(config)
            })
    })
}

proptest! {
    #[test]
    fn written_files_read_back(config in any_config()) {
        let bytes = config.write_file();
        prop_assert_eq!(LogConfig::read_file(&bytes).unwrap(), config.clone());
        prop_assert_eq!(LogConfig::parse(config.given()).unwrap(), config.clone());
        for (_, value) in config.given() {
            prop_assert!(value.bytes().all(|byte| byte.is_ascii_graphic()), "{value:?}");
        }
        for cut in 0..bytes.len() {
            // A cut file is refused unless whole lines are missing, and then too where the rest contradicts itself.
            let kept = LogConfig::read_file(&bytes[..cut]);
            prop_assert!(kept.is_err() || (cut > 0 && bytes[cut - 1] == b'\n'));
        }
    }

    #[test]
    fn any_text_is_judged_without_panic(name in "[a-zA-Z._]{0,20}|segment.ms|cleanup.policy", value in any::<String>(), bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = LogConfig::parse([(name.as_str(), value.as_str())]);
        for setting in settings() {
            let _ = LogConfig::parse([(setting.name, value.as_str())]);
        }
        let _ = LogConfig::read_file(&bytes);
        let _ = LogConfig::read_file(&[b"version: 0\n".as_slice(), &bytes].concat());
    }
}
