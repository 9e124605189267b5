//! The text of the file in which a partition keeps its own state.

use super::{CleanMark, State};
use std::fmt::Write as _;

impl State {
    pub(in crate::log::appender) const fn new(recovery_point: i64, log_start: i64) -> Self {
        Self {
            recovery_point,
            log_start,
            clean: None,
            cleaner: None,
            boot: None,
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "version: 0\nrecovery_point: {}\nlog_start_offset: {}\n",
            self.recovery_point, self.log_start
        );
        if let Some(mark) = &self.clean {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "clean: {} {} {}",
                mark.active_base, mark.size, mark.modified_ns
            );
        }
        if let Some(offset) = self.cleaner {
            let _ = writeln!(text, "cleaner_offset: {offset}");
        }
        if let Some(boot) = self.boot {
            let _ = writeln!(text, "boot: {boot:032x}");
        }
        text
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        if lines.next()? != "version: 0" {
            return None;
        }
        let offset = |line: &str, name: &str| -> Option<i64> {
            let value = line.strip_prefix(name)?.strip_prefix(": ")?;
            value.parse().ok().filter(|&offset: &i64| offset >= 0)
        };
        let recovery_point = offset(lines.next()?, "recovery_point")?;
        let log_start = offset(lines.next()?, "log_start_offset")?;
        let (mut clean, mut cleaner, mut boot) = (None, None, None);
        for line in lines {
            if let Some(fields) = line.strip_prefix("clean: ") {
                let mut fields = fields.split(' ');
                clean = Some(CleanMark {
                    active_base: fields.next()?.parse().ok()?,
                    size: fields.next()?.parse().ok()?,
                    modified_ns: fields.next()?.parse().ok()?,
                });
            } else if line.starts_with("cleaner_offset") {
                cleaner = Some(offset(line, "cleaner_offset")?);
            } else {
                let id = line.strip_prefix("boot: ")?;
                boot = Some(u128::from_str_radix(id, 16).ok()?);
            }
        }
        Some(Self {
            recovery_point,
            log_start,
            clean,
            cleaner,
            boot,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_reads_back() {
        let plain = State::new(7, 3);
        assert_eq!(State::parse(plain.text().as_bytes()), Some(plain));
        let clean = State {
            clean: Some(CleanMark {
                active_base: 5,
                size: 12,
                modified_ns: 1_700_000_000_123_456_789,
            }),
            cleaner: Some(6),
            ..plain
        };
        assert_eq!(State::parse(clean.text().as_bytes()), Some(clean));
        for bad in [
            "",
            "version: 1\n",
            "version: 0\nrecovery_point: -1\nlog_start_offset: 0\n",
            "version: 0\nrecovery_point: 1\n",
        ] {
            assert_eq!(State::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
