//! What Kafka 4.3.0's own `LogConfig` said to some 800 sets of settings, asked of ours.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test"
)]

use offsetlog::format::Codec;
use offsetlog::{CompressionType, LogConfig, settings};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Accepted by Kafka, refused here; the reasons are in the documentation of the module.
const REFUSED_HERE: [(&str, &str); 15] = [
    ("flush.ms", "\u{0663}"),
    ("index.interval.bytes", "\u{0663}"),
    ("internal.segment.bytes", "-1"),
    ("internal.segment.bytes", "-2"),
    ("internal.segment.bytes", "-2147483648"),
    ("min.cleanable.dirty.ratio", "+NaN"),
    ("min.cleanable.dirty.ratio", "0x.8p0"),
    ("min.cleanable.dirty.ratio", "0x1p-1"),
    ("min.cleanable.dirty.ratio", "NaN"),
    ("preallocate", "fal\u{017f}e"),
    ("segment.index.bytes", " 5 "),
    ("segment.index.bytes", "11"),
    ("segment.index.bytes", "4"),
    ("segment.index.bytes", "5"),
    ("segment.index.bytes", "8"),
];

fn answers() -> Map<String, Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/settings/kafka-4.3.0.json");
    let text = std::fs::read_to_string(path).unwrap();
    match serde_json::from_str(&text).unwrap() {
        Value::Object(answers) => answers,
        other => panic!("{other}"),
    }
}

/// Whether a canonical text of ours is Kafka's value.
fn same(ours: &str, kafka: &Value) -> bool {
    match kafka {
        Value::Null => ours.is_empty(),
        Value::Bool(truth) => ours == truth.to_string(),
        Value::String(text) => ours == text,
        Value::Number(number) if number.is_f64() => {
            (ours.parse::<f64>().unwrap() - number.as_f64().unwrap()).abs() < 1e-15
        }
        Value::Number(number) => ours == number.to_string(),
        Value::Array(items) => {
            let items = items.iter().map(|item| item.as_str().unwrap());
            // Empty items name no replica and are not kept.
            ours == items
                .filter(|item| !item.is_empty())
                .collect::<Vec<_>>()
                .join(",")
        }
        Value::Object(_) => false,
    }
}

#[test]
fn names_and_defaults_are_kafkas() {
    let answers = answers();
    let defaults = answers["defaults"].as_object().unwrap();
    let kafka: Vec<_> = defaults.keys().map(String::as_str).collect();
    let mut ours: Vec<_> = settings().iter().map(|setting| setting.name).collect();
    ours.sort_by_key(|name| kafka.iter().position(|known| known == name));
    assert_eq!(ours, kafka);
    for setting in settings() {
        let kafka = &defaults[setting.name];
        assert!(same(setting.default, kafka), "{} {kafka}", setting.name);
        assert_eq!(
            LogConfig::default().text(setting.name),
            Some(setting.default)
        );
    }
    for name in answers["unknown"].as_array().unwrap() {
        let name = name.as_str().unwrap();
        assert!(LogConfig::parse([(name, "1")]).is_err(), "{name:?}");
    }
}

#[test]
fn each_value_is_judged_and_read_as_by_kafka() {
    let answers = answers();
    let mut refused_here = Vec::new();
    for (name, said) in answers["single"].as_object().unwrap() {
        for (text, value) in said["accepted"].as_object().unwrap() {
            match LogConfig::parse([(name.as_str(), text.as_str())]) {
                Ok(config) => {
                    let ours = config.text(name).unwrap();
                    assert!(same(ours, value), "{name}={text:?}: {ours} {value}");
                }
                Err(_) => refused_here.push((name.as_str(), text.as_str())),
            }
        }
        for text in said["refused"].as_array().unwrap() {
            let text = text.as_str().unwrap();
            let ours = LogConfig::parse([(name.as_str(), text)]);
            assert!(ours.is_err(), "{name}={text:?}: {ours:?}");
        }
    }
    refused_here.sort_unstable();
    assert_eq!(refused_here, REFUSED_HERE);
}

#[test]
fn settings_together_are_judged_and_resolved_as_by_kafka() {
    let answers = answers();
    for row in answers["combined"].as_array().unwrap() {
        let pairs = row[0].as_object().unwrap();
        let ours = LogConfig::parse(
            pairs
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str().unwrap())),
        );
        assert_eq!(
            ours.is_ok(),
            row[1].as_bool().unwrap(),
            "{pairs:?} {ours:?}"
        );
        let Ok(config) = ours else { continue };
        let number = |key: &str, default: i64| row[2][key].as_i64().unwrap_or(default);
        let truth = |key: &str, default: bool| row[2][key].as_bool().unwrap_or(default);
        assert_eq!(
            i64::from(config.segment_bytes()),
            number("segmentSize", 1 << 30)
        );
        assert_eq!(config.segment_ms(), number("maxSegmentMs", 604_800_000));
        assert_eq!(config.is_compacted(), truth("compact", false));
        assert_eq!(config.is_deleting(), truth("delete", true));
        let compression = row[2]["compression"].as_str().unwrap_or("Optional.empty");
        assert_eq!(compression_as_java(&config), compression, "{pairs:?}");
    }
}

fn compression_as_java(config: &LogConfig) -> String {
    let level = |codec, default| config.compression_level(codec).unwrap_or(default);
    match config.compression_type() {
        CompressionType::Producer => "Optional.empty".to_owned(),
        CompressionType::Uncompressed => "Optional[NoCompression]".to_owned(),
        CompressionType::Codec(Codec::Gzip) => {
            format!("Optional[GzipCompression level={}]", level(Codec::Gzip, -1))
        }
        CompressionType::Codec(Codec::Lz4) => {
            format!("Optional[Lz4Compression level={}]", level(Codec::Lz4, 0))
        }
        CompressionType::Codec(Codec::Zstd) => {
            format!("Optional[ZstdCompression level={}]", level(Codec::Zstd, 0))
        }
        CompressionType::Codec(codec) => {
            assert_eq!(codec, Codec::Snappy);
            "Optional[SnappyCompression]".to_owned()
        }
    }
}
