//! Keys and values of control records (FORMAT.md «Control records»).
//!
//! Markers (types 0 and 1) end transactions; the other types occur in the metadata log only and use Kafka's flexible encoding:
//! lengths are unsigned variable-length integers of the length plus one, and structures end with tagged fields, which are
//! skipped here.

use crate::cursor::Reader;
use crate::error::{Fault, FormatError, Part};
use crate::message::read_unsigned;
use crate::uuid::Uuid;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Bytes of a control record's key.
pub const CONTROL_KEY_BYTES: usize = 4;
/// Bytes of a marker's value.
pub const MARKER_VALUE_BYTES: usize = 6;

const PART: Part = Part::ControlRecord;

/// What a control record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ControlType {
    /// The producer's transaction was aborted.
    Abort,
    /// The producer's transaction was committed.
    Commit,
    /// A new leader of the metadata log.
    LeaderChange,
    /// First record of a metadata snapshot.
    SnapshotHeader,
    /// Last record of a metadata snapshot.
    SnapshotFooter,
    /// The version of the metadata log's protocol.
    KraftVersion,
    /// The voters of the metadata log.
    KraftVoters,
    /// A type that Kafka does not know and ignores.
    Unknown(i16),
}

impl ControlType {
    /// The type with this number.
    #[must_use]
    pub const fn from_number(number: i16) -> Self {
        match number {
            0 => Self::Abort,
            1 => Self::Commit,
            2 => Self::LeaderChange,
            3 => Self::SnapshotHeader,
            4 => Self::SnapshotFooter,
            5 => Self::KraftVersion,
            6 => Self::KraftVoters,
            unknown => Self::Unknown(unknown),
        }
    }

    /// The number in the key.
    #[must_use]
    pub const fn number(self) -> i16 {
        match self {
            Self::Abort => 0,
            Self::Commit => 1,
            Self::LeaderChange => 2,
            Self::SnapshotHeader => 3,
            Self::SnapshotFooter => 4,
            Self::KraftVersion => 5,
            Self::KraftVoters => 6,
            Self::Unknown(number) => number,
        }
    }

    /// Kafka's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Abort => "ABORT",
            Self::Commit => "COMMIT",
            Self::LeaderChange => "LEADER_CHANGE",
            Self::SnapshotHeader => "SNAPSHOT_HEADER",
            Self::SnapshotFooter => "SNAPSHOT_FOOTER",
            Self::KraftVersion => "KRAFT_VERSION",
            Self::KraftVoters => "KRAFT_VOTERS",
            Self::Unknown(_) => "UNKNOWN",
        }
    }

    /// Reads the type from a control record's key. Key versions above 0 are read as 0 and bytes behind the type ignored, as
    /// Kafka does.
    ///
    /// # Errors
    /// `Truncated` for fewer than [`CONTROL_KEY_BYTES`]; `Rule` for a missing key or a negative version.
    #[inline]
    pub fn parse_key(key: Option<&[u8]>) -> Result<Self, FormatError> {
        let Some(key) = key else {
            return Err(FormatError::new(
                PART,
                0,
                Fault::Rule("a control record has no key"),
            ));
        };
        let mut reader = Reader::new(key, PART);
        read_version(&mut reader)?;
        Ok(Self::from_number(reader.read_i16()?))
    }

    /// Makes the key, version 0.
    #[must_use]
    pub fn write_key(self) -> [u8; CONTROL_KEY_BYTES] {
        let [high, low] = self.number().to_be_bytes();
        [0, 0, high, low]
    }
}

/// A voter of the metadata log, as a leader change names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaderChangeVoter {
    /// The node's id.
    pub voter_id: i32,
    /// The id of its metadata log directory; version 1 only, zero in version 0.
    pub directory_id: Uuid,
}

/// The value of a leader change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderChange {
    /// 0 or 1. Kafka 4.3.0 writes 0.
    pub version: i16,
    /// The new leader.
    pub leader_id: i32,
    /// All voters.
    pub voters: Vec<LeaderChangeVoter>,
    /// The voters that voted for the leader.
    pub granting_voters: Vec<LeaderChangeVoter>,
}

/// How a voter of the metadata log is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoterEndpoint {
    /// Name of the listener.
    pub name: String,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// A voter of the metadata log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voter {
    /// The node's id.
    pub voter_id: i32,
    /// The id of its metadata log directory.
    pub directory_id: Uuid,
    /// How it is reached.
    pub endpoints: Vec<VoterEndpoint>,
    /// Lowest protocol version it supports.
    pub minimum_version: i16,
    /// Highest protocol version it supports.
    pub maximum_version: i16,
}

/// A control record, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlRecord {
    /// Type 0.
    Abort {
        /// Epoch of the coordinator that wrote the marker.
        coordinator_epoch: i32,
    },
    /// Type 1.
    Commit {
        /// Epoch of the coordinator that wrote the marker.
        coordinator_epoch: i32,
    },
    /// Type 2.
    LeaderChange(LeaderChange),
    /// Type 3.
    SnapshotHeader {
        /// Timestamp of the last record that the snapshot holds, milliseconds since 1970.
        last_contained_log_timestamp: i64,
    },
    /// Type 4.
    SnapshotFooter,
    /// Type 5.
    KraftVersion {
        /// The version.
        kraft_version: i16,
    },
    /// Type 6.
    KraftVoters(Vec<Voter>),
    /// A type that is not known; its value is kept.
    Unknown {
        /// The number in the key.
        number: i16,
        /// The value.
        value: Option<Vec<u8>>,
    },
}

impl ControlRecord {
    /// Decodes a control record. Versions above those known are read as the newest known one and bytes behind the fields
    /// ignored, as Kafka does; a leader change beyond version 1 is refused.
    ///
    /// # Errors
    /// Those of [`ControlType::parse_key`]; `Truncated`, `Length`, `Varint` or `Rule` for what is wrong with the value, `at`
    /// being its byte; `Version` for a leader change. The batch stays readable: Kafka decodes markers only when it rebuilds
    /// producer state.
    pub fn parse(key: Option<&[u8]>, value: Option<&[u8]>) -> Result<Self, FormatError> {
        let control_type = ControlType::parse_key(key)?;
        if let ControlType::Unknown(number) = control_type {
            return Ok(Self::Unknown {
                number,
                value: value.map(<[u8]>::to_vec),
            });
        }
        let Some(value) = value else {
            return Err(FormatError::new(
                PART,
                0,
                Fault::Rule("a control record has no value"),
            ));
        };
        let mut reader = Reader::new(value, PART);
        let version = read_version(&mut reader)?;
        Ok(match control_type {
            ControlType::Abort => Self::Abort {
                coordinator_epoch: reader.read_i32()?,
            },
            ControlType::Commit => Self::Commit {
                coordinator_epoch: reader.read_i32()?,
            },
            ControlType::LeaderChange => {
                Self::LeaderChange(LeaderChange::read(version, &mut reader)?)
            }
            ControlType::SnapshotHeader => {
                let last_contained_log_timestamp = reader.read_i64()?;
                skip_tags(&mut reader)?;
                Self::SnapshotHeader {
                    last_contained_log_timestamp,
                }
            }
            ControlType::SnapshotFooter | ControlType::Unknown(_) => {
                skip_tags(&mut reader)?;
                Self::SnapshotFooter
            }
            ControlType::KraftVersion => {
                let kraft_version = reader.read_i16()?;
                skip_tags(&mut reader)?;
                Self::KraftVersion { kraft_version }
            }
            ControlType::KraftVoters => {
                let voters = read_array(&mut reader, Voter::read)?;
                skip_tags(&mut reader)?;
                Self::KraftVoters(voters)
            }
        })
    }

    /// The type.
    #[must_use]
    pub const fn control_type(&self) -> ControlType {
        match self {
            Self::Abort { .. } => ControlType::Abort,
            Self::Commit { .. } => ControlType::Commit,
            Self::LeaderChange(_) => ControlType::LeaderChange,
            Self::SnapshotHeader { .. } => ControlType::SnapshotHeader,
            Self::SnapshotFooter => ControlType::SnapshotFooter,
            Self::KraftVersion { .. } => ControlType::KraftVersion,
            Self::KraftVoters(_) => ControlType::KraftVoters,
            Self::Unknown { number, .. } => ControlType::from_number(*number),
        }
    }

    /// Makes the value; `None` is a null value. The key is [`ControlType::write_key`].
    ///
    /// # Errors
    /// `Length` for an array or text longer than its count can say.
    pub fn write_value(&self) -> Result<Option<Vec<u8>>, FormatError> {
        let mut out = Vec::new();
        let version = match self {
            Self::LeaderChange(change) => change.version,
            Self::Unknown { value, .. } => return Ok(value.clone()),
            _ => 0_i16,
        };
        out.extend_from_slice(&version.to_be_bytes());
        match self {
            Self::Abort { coordinator_epoch } | Self::Commit { coordinator_epoch } => {
                out.extend_from_slice(&coordinator_epoch.to_be_bytes());
            }
            Self::LeaderChange(change) => change.write(&mut out)?,
            Self::SnapshotHeader {
                last_contained_log_timestamp,
            } => {
                out.extend_from_slice(&last_contained_log_timestamp.to_be_bytes());
                out.push(NO_TAGS);
            }
            Self::SnapshotFooter | Self::Unknown { .. } => out.push(NO_TAGS),
            Self::KraftVersion { kraft_version } => {
                out.extend_from_slice(&kraft_version.to_be_bytes());
                out.push(NO_TAGS);
            }
            Self::KraftVoters(voters) => {
                write_count(&mut out, voters.len())?;
                for voter in voters {
                    voter.write(&mut out)?;
                }
                out.push(NO_TAGS);
            }
        }
        Ok(Some(out))
    }
}

impl LeaderChange {
    const MAXIMUM_VERSION: i16 = 1;

    fn read(version: i16, reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        if version > Self::MAXIMUM_VERSION {
            return Err(FormatError::new(
                PART,
                0,
                Fault::Version {
                    found: i64::from(version),
                    maximum: i64::from(Self::MAXIMUM_VERSION),
                },
            ));
        }
        let voter = |reader: &mut Reader<'_>| {
            let voter = LeaderChangeVoter {
                voter_id: reader.read_i32()?,
                directory_id: if version == 0 {
                    Uuid::ZERO
                } else {
                    Uuid::from_bytes(reader.array()?)
                },
            };
            skip_tags(reader)?;
            Ok(voter)
        };
        let change = Self {
            version,
            leader_id: reader.read_i32()?,
            voters: read_array(reader, voter)?,
            granting_voters: read_array(reader, voter)?,
        };
        skip_tags(reader)?;
        Ok(change)
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        out.extend_from_slice(&self.leader_id.to_be_bytes());
        for voters in [&self.voters, &self.granting_voters] {
            write_count(out, voters.len())?;
            for voter in voters {
                out.extend_from_slice(&voter.voter_id.to_be_bytes());
                if self.version > 0 {
                    out.extend_from_slice(&voter.directory_id.to_bytes());
                }
                out.push(NO_TAGS);
            }
        }
        out.push(NO_TAGS);
        Ok(())
    }
}

impl Voter {
    fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let voter = Self {
            voter_id: reader.read_i32()?,
            directory_id: Uuid::from_bytes(reader.array()?),
            endpoints: read_array(reader, VoterEndpoint::read)?,
            minimum_version: reader.read_i16()?,
            maximum_version: reader.read_i16()?,
        };
        // The two versions are a structure of their own, with its own tagged fields.
        skip_tags(reader)?;
        skip_tags(reader)?;
        Ok(voter)
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), FormatError> {
        out.extend_from_slice(&self.voter_id.to_be_bytes());
        out.extend_from_slice(&self.directory_id.to_bytes());
        write_count(out, self.endpoints.len())?;
        for endpoint in &self.endpoints {
            write_text(out, &endpoint.name)?;
            write_text(out, &endpoint.host)?;
            out.extend_from_slice(&endpoint.port.to_be_bytes());
            out.push(NO_TAGS);
        }
        out.extend_from_slice(&self.minimum_version.to_be_bytes());
        out.extend_from_slice(&self.maximum_version.to_be_bytes());
        out.extend_from_slice(&[NO_TAGS, NO_TAGS]);
        Ok(())
    }
}

impl VoterEndpoint {
    fn read(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let endpoint = Self {
            name: read_text(reader)?,
            host: read_text(reader)?,
            port: reader.read_u16()?,
        };
        skip_tags(reader)?;
        Ok(endpoint)
    }
}

/// The count of tagged fields where there are none.
const NO_TAGS: u8 = 0;

fn read_version(reader: &mut Reader<'_>) -> Result<i16, FormatError> {
    let error = reader.error(Fault::Rule("the version is negative"));
    let version = reader.read_i16()?;
    if version < 0 {
        return Err(error);
    }
    Ok(version)
}

/// Reads the length of an array or text that cannot be null, stored plus one.
fn read_count(reader: &mut Reader<'_>) -> Result<usize, FormatError> {
    let error = reader.error(Fault::Rule("null where it is not allowed"));
    let stored = read_unsigned(reader)?;
    stored
        .checked_sub(1)
        .map(|count| count as usize)
        .ok_or(error)
}

fn read_array<'a, T>(
    reader: &mut Reader<'a>,
    read: impl Fn(&mut Reader<'a>) -> Result<T, FormatError>,
) -> Result<Vec<T>, FormatError> {
    let error = *reader;
    let count = read_count(reader)?;
    // An element has at least one byte; nothing is reserved by the claim.
    if count > reader.remaining() {
        return Err(error.error(Fault::Length {
            found: count as i64,
            minimum: 0,
            maximum: reader.remaining() as i64,
        }));
    }
    let mut elements = Vec::new();
    for _ in 0..count {
        elements.push(read(reader)?);
    }
    Ok(elements)
}

fn read_text(reader: &mut Reader<'_>) -> Result<String, FormatError> {
    let count = read_count(reader)?;
    let error = reader.error(Fault::Rule("the text is not UTF-8"));
    let bytes = reader.bytes(count)?;
    core::str::from_utf8(bytes)
        .map(ToString::to_string)
        .map_err(|_| error)
}

fn skip_tags(reader: &mut Reader<'_>) -> Result<(), FormatError> {
    for _ in 0..read_unsigned(reader)? {
        read_unsigned(reader)?;
        let size = read_unsigned(reader)?;
        reader.bytes(size as usize)?;
    }
    Ok(())
}

fn write_count(out: &mut Vec<u8>, count: usize) -> Result<(), FormatError> {
    let maximum = i32::MAX - 1;
    let mut left = i32::try_from(count)
        .ok()
        .filter(|&count| count <= maximum)
        .ok_or(FormatError::new(
            PART,
            out.len(),
            Fault::Length {
                found: count as i64,
                minimum: 0,
                maximum: i64::from(maximum),
            },
        ))? as u32
        + 1;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
    Ok(())
}

fn write_text(out: &mut Vec<u8>, text: &str) -> Result<(), FormatError> {
    write_count(out, text.len())?;
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
