//! A short life of a log, made from a seed or read from a line of text.

use crate::sim::{Fill, Names};
use std::fmt;

/// One step.
#[allow(missing_docs, reason = "as their names say")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many batches; the seed says which. In one call if it is odd.
    Append {
        batches: u8,
        seed: u16,
    },
    /// An append that is on the disk when it returns.
    Durable {
        seed: u16,
    },
    Flush,
    Roll,
    /// Back by so many records.
    Truncate {
        records: u8,
    },
    /// Deletes all but so many records.
    Delete {
        kept: u8,
    },
    /// Writes the settings and waits for what a roll began; a minute goes by.
    Checkpoint,
    /// Segments that retention is done with go, and files whose delay is over.
    Maintain,
    /// One pass of the cleaner, which knows so many keys; 0 for as many as there are.
    Compact {
        keys: u8,
    },
    /// Closes and opens again.
    Close,
    /// Dies and is opened again.
    Kill,
}

/// Where, how, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// How names survive.
    pub names: Names,
    /// What grown files hold.
    pub fill: Fill,
    /// Whether the folder around is a log dir, with checkpoints of a broker.
    pub log_dir: bool,
    /// `internal.segment.bytes`.
    pub segment_bytes: u32,
    /// `segment.index.bytes`.
    pub index_bytes: u32,
    /// `index.interval.bytes`.
    pub index_interval: u32,
    /// Whether segments are preallocated.
    pub preallocate: bool,
    /// Whether what a roll leaves to the background is done late.
    pub late: bool,
    /// `retention.bytes`, -1 for no limit.
    pub retention_bytes: i32,
    /// Whether `cleanup.policy` asks for compaction.
    pub compact: bool,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Script {
    /// A script of at most twelve steps.
    #[must_use]
    pub fn random(rng: &mut fastrand::Rng) -> Self {
        let count = rng.usize(1..=12);
        // A third of the logs are kept up.
        let is_kept_up = rng.u8(0..3) == 0;
        let steps = (0..count).map(|_| Step::random(rng, is_kept_up)).collect();
        Self {
            names: if rng.u8(0..4) == 0 {
                Names::Strict
            } else {
                Names::Journal
            },
            fill: if rng.u8(0..3) == 0 {
                Fill::Stale
            } else {
                Fill::Zeros
            },
            log_dir: rng.u8(0..4) == 0,
            segment_bytes: *rng.choice(&[600, 1_500, 4_000, 20_000]).unwrap_or(&600),
            index_bytes: *rng.choice(&[24, 96, 600]).unwrap_or(&96),
            index_interval: *rng.choice(&[0, 100, 1_000]).unwrap_or(&0),
            preallocate: rng.u8(0..5) == 0,
            late: rng.bool(),
            retention_bytes: match rng.u8(0..4) {
                0..=1 if is_kept_up => rng.i32(0..6_000),
                _ => -1,
            },
            compact: is_kept_up && rng.bool(),
            steps,
        }
    }

    /// The same without the step at `slot`.
    #[must_use]
    pub fn without(&self, slot: usize) -> Self {
        let mut script = self.clone();
        script.steps.remove(slot);
        script
    }
}

impl Step {
    fn random(rng: &mut fastrand::Rng, is_kept_up: bool) -> Self {
        match rng.u8(0..if is_kept_up { 26 } else { 20 }) {
            0..=6 => Self::Append {
                batches: rng.u8(1..=5),
                seed: rng.u16(..),
            },
            7 => Self::Durable { seed: rng.u16(..) },
            8..=10 => Self::Flush,
            11..=12 => Self::Roll,
            13..=14 => Self::Truncate {
                records: rng.u8(0..12),
            },
            15 => Self::Delete { kept: rng.u8(0..8) },
            16 => Self::Checkpoint,
            17 => Self::Close,
            18..=19 => Self::Kill,
            20..=22 => Self::Maintain,
            _ => Self::Compact {
                keys: *rng.choice(&[0, 0, 2, 5]).unwrap_or(&0),
            },
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Append { batches, seed } => write!(f, "append {batches} {seed}"),
            Self::Durable { seed } => write!(f, "durable {seed}"),
            Self::Flush => f.write_str("flush"),
            Self::Roll => f.write_str("roll"),
            Self::Truncate { records } => write!(f, "truncate {records}"),
            Self::Delete { kept } => write!(f, "delete {kept}"),
            Self::Checkpoint => f.write_str("checkpoint"),
            Self::Maintain => f.write_str("maintain"),
            Self::Compact { keys } => write!(f, "compact {keys}"),
            Self::Close => f.write_str("close"),
            Self::Kill => f.write_str("kill"),
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            log_dir,
            segment_bytes,
            index_bytes,
            index_interval,
            preallocate,
            late,
            retention_bytes,
            compact,
            ..
        } = self;
        let strict = self.names == Names::Strict;
        let stale = self.fill == Fill::Stale;
        write!(
            f,
            "strict={strict} stale={stale} log_dir={log_dir} segment={segment_bytes} index={index_bytes} \
             interval={index_interval} preallocate={preallocate} late={late}"
        )?;
        if *retention_bytes >= 0 {
            write!(f, " retention={retention_bytes}")?;
        }
        if *compact {
            f.write_str(" compact=true")?;
        }
        f.write_str(":")?;
        for step in &self.steps {
            write!(f, " {step};")?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (head, steps) = text.split_once(':').ok_or("no colon")?;
        let value = |name: &str| {
            head.split_whitespace()
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
                .ok_or_else(|| format!("no {name}"))
        };
        let number = |name: &str| {
            value(name)?
                .parse()
                .map_err(|error| format!("{name}: {error}"))
        };
        let flag = |name: &str| value(name).map(|value| value == "true");
        Ok(Self {
            names: if flag("strict")? {
                Names::Strict
            } else {
                Names::Journal
            },
            fill: if flag("stale")? {
                Fill::Stale
            } else {
                Fill::Zeros
            },
            log_dir: flag("log_dir")?,
            segment_bytes: number("segment")?,
            index_bytes: number("index")?,
            index_interval: number("interval")?,
            preallocate: flag("preallocate")?,
            late: flag("late")?,
            // Scripts that know nothing of them are older.
            retention_bytes: value("retention").map_or(Ok(-1), |value| {
                value.parse().map_err(|error| format!("retention: {error}"))
            })?,
            compact: flag("compact").unwrap_or(false),
            steps: steps
                .split(';')
                .map(str::trim)
                .filter(|step| !step.is_empty())
                .map(step)
                .collect::<Result<_, _>>()?,
        })
    }
}

fn step(text: &str) -> Result<Step, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |slot: usize| -> Result<u16, String> {
        let word = words
            .get(slot)
            .ok_or_else(|| format!("{text}: too short"))?;
        word.parse().map_err(|error| format!("{text}: {error}"))
    };
    Ok(match *words.first().unwrap_or(&"") {
        "append" => Step::Append {
            batches: number(1)? as u8,
            seed: number(2)?,
        },
        "durable" => Step::Durable { seed: number(1)? },
        "flush" => Step::Flush,
        "roll" => Step::Roll,
        "truncate" => Step::Truncate {
            records: number(1)? as u8,
        },
        "delete" => Step::Delete {
            kept: number(1)? as u8,
        },
        "checkpoint" => Step::Checkpoint,
        "maintain" => Step::Maintain,
        "compact" => Step::Compact {
            keys: number(1)? as u8,
        },
        "close" => Step::Close,
        "kill" => Step::Kill,
        _ => return Err(format!("{text}: no step")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_read_back() {
        for seed in 0..200 {
            let script = Script::random(&mut fastrand::Rng::with_seed(seed));
            assert_eq!(script.to_string().parse(), Ok(script));
        }
    }
}
