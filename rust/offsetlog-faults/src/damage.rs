//! Small changes of a file: every byte, every bit, every length, blocks left out and blocks doubled.

use std::fmt;

/// Longest block that is left out or doubled.
pub const BLOCK_BYTES: usize = 64;

/// One change of a file's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit {
    /// A byte is another one.
    Set {
        /// Where.
        at: usize,
        /// What it is now.
        byte: u8,
    },
    /// The file ends here.
    Cut {
        /// Its size now.
        size: usize,
    },
    /// A block is missing.
    Remove {
        /// Where it began.
        at: usize,
        /// How long it was.
        count: usize,
    },
    /// A block is there twice, one behind the other.
    Double {
        /// Where it begins.
        at: usize,
        /// How long it is.
        count: usize,
    },
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set { at, byte } => write!(f, "byte {at} is {byte:#04x}"),
            Self::Cut { size } => write!(f, "cut to {size} bytes"),
            Self::Remove { at, count } => write!(f, "without {count} bytes from {at} on"),
            Self::Double { at, count } => write!(f, "{count} bytes from {at} on twice"),
        }
    }
}

impl Edit {
    /// Puts the changed file into `out`.
    ///
    /// # Panics
    /// For a place that the file has not.
    pub fn apply(self, bytes: &[u8], out: &mut Vec<u8>) {
        out.clear();
        match self {
            Self::Set { at, byte } => {
                out.extend_from_slice(bytes);
                out[at] = byte;
            }
            Self::Cut { size } => out.extend_from_slice(&bytes[..size]),
            Self::Remove { at, count } => {
                out.extend_from_slice(&bytes[..at]);
                out.extend_from_slice(&bytes[at + count..]);
            }
            Self::Double { at, count } => {
                out.extend_from_slice(&bytes[..at + count]);
                out.extend_from_slice(&bytes[at..]);
            }
        }
    }
}

/// The changes of every `stride`th byte: to 0x00, to 0xff, each of its bits; the file cut there; `blocks` lengths of a block from there on
/// left out and doubled, [`BLOCK_BYTES`] of them all lengths.
#[must_use]
pub fn edits(bytes: &[u8], stride: usize, blocks: usize, rng: &mut fastrand::Rng) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (at, &was) in bytes.iter().enumerate().step_by(stride) {
        let set = (0..8)
            .map(|bit| was ^ 1 << bit)
            .chain([0x00, 0xff].into_iter().filter(|other| {
                // Those that one bit leads to are there already.
                (other ^ was).count_ones() > 1
            }))
            .map(|byte| Edit::Set { at, byte });
        edits.extend(set);
        edits.push(Edit::Cut { size: at });
        let longest = BLOCK_BYTES.min(bytes.len() - at);
        let mut counts: Vec<usize> = (1..=longest).collect();
        if blocks < longest {
            rng.shuffle(&mut counts);
            counts.truncate(blocks);
        }
        for count in counts {
            edits.push(Edit::Remove { at, count });
            edits.push(Edit::Double { at, count });
        }
    }
    edits
}
