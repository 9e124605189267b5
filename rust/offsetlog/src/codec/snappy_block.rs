//! Compresses one raw Snappy block with the same output as Google's C++ library 1.1.10 without CRC instructions, which Java's
//! snappy library (1.1.10.7) uses. The crate `snap` uses other table slots below 8 KiB and so finds other matches there.
//!
//! The search is greedy. It looks four bytes up in a table of positions, and its stride grows while it finds nothing. After a
//! match it tries the next one at the match's end before it collects literals again.

/// Largest block: positions fit the table's entries, and the length fits three bytes of varint.
pub(super) const BLOCK_BYTES: usize = 32 * 1024;

const TABLE_BITS: u32 = 14;
const TABLE_SLOTS: usize = 1 << TABLE_BITS;
const FEWEST_SLOTS: usize = 256;
/// No match starts in the last bytes of a block.
const MARGIN: usize = 15;
const LEAST_MATCH: usize = 4;
/// Longer literals have their length after the tag.
const LONGEST_IN_TAG: usize = 60;

/// A block grows by at most a sixth, and elements are stored in strides that may write past their end.
const BLOCK_BOUND: usize = 32 + BLOCK_BYTES + BLOCK_BYTES / 6;
/// Short literals are stored in one stride of this size.
const STRIDE: usize = 16;

/// Keeps the table of positions and the output block.
pub(super) struct Encoder {
    table: Vec<u16>,
    block: Vec<u8>,
}

impl Default for Encoder {
    #[allow(
        clippy::large_stack_arrays,
        reason = "made on the heap where the build optimises; once per log otherwise"
    )]
    fn default() -> Self {
        Self {
            table: vec![0; TABLE_SLOTS],
            block: vec![0; BLOCK_BOUND],
        }
    }
}

impl Encoder {
    /// Compresses `input` into one block. Uses at most the first [`BLOCK_BYTES`] of it.
    pub(super) fn compress(&mut self, input: &[u8]) -> &[u8] {
        let input = input.get(..BLOCK_BYTES).unwrap_or(input);
        let mut out = Writer {
            block: &mut self.block,
            at: 0,
        };
        out.length(input.len());
        let mut table = Table::new(&mut self.table, input.len());
        let written = match input.len().checked_sub(MARGIN) {
            Some(limit) => write_matches(input, limit, &mut table, &mut out),
            None => 0,
        };
        out.literal(input.get(written..).unwrap_or(&[]), None);
        let end = out.at;
        self.block.get(..end).unwrap_or(&[])
    }
}

/// Writes everything up to the last match and returns that match's end. Matches start below `limit`.
fn write_matches(input: &[u8], limit: usize, table: &mut Table<'_>, out: &mut Writer<'_>) -> usize {
    let mut written = 0;
    loop {
        let mut at = written + 1;
        // In 32nds of a byte: after 32 failed look-ups every second byte is tried, after 32 more every third.
        let mut stride = 32;
        let mut candidate;
        loop {
            let step = stride >> 5;
            if at + step > limit {
                return written;
            }
            stride += step;
            let word = word(input, at);
            candidate = table.exchange(word, at);
            if self::word(input, candidate) == word {
                break;
            }
            at += step;
        }
        let from = input.get(written..).unwrap_or(&[]);
        out.literal(from.get(..at - written).unwrap_or(&[]), from.first_chunk());
        loop {
            let length = LEAST_MATCH + common(input, candidate + LEAST_MATCH, at + LEAST_MATCH);
            out.copy(at - candidate, length);
            at += length;
            if at >= limit {
                return at;
            }
            table.exchange(word(input, at - 1), at - 1);
            let word = word(input, at);
            candidate = table.exchange(word, at);
            if self::word(input, candidate) != word {
                break;
            }
        }
        written = at;
    }
}

/// The last position of each hash of four bytes, with as many slots as the block has bytes, rounded up to a power of two.
struct Table<'a> {
    slots: &'a mut [u16],
    mask: usize,
}

impl<'a> Table<'a> {
    fn new(kept: &'a mut [u16], input_bytes: usize) -> Self {
        let count = input_bytes
            .next_power_of_two()
            .clamp(FEWEST_SLOTS, TABLE_SLOTS);
        let slots = kept.get_mut(..count).unwrap_or_default();
        slots.fill(0);
        Self {
            slots,
            mask: count - 1,
        }
    }

    /// Puts `at` into the slot of `word` and returns the previous value.
    #[inline]
    fn exchange(&mut self, word: u32, at: usize) -> usize {
        let hash = word.wrapping_mul(0x1e35_a7bd) >> (32 - TABLE_BITS);
        match self.slots.get_mut(hash as usize & self.mask) {
            Some(slot) => usize::from(std::mem::replace(slot, at as u16)),
            None => 0,
        }
    }
}

#[inline]
fn word(input: &[u8], at: usize) -> u32 {
    input
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Number of equal bytes from `one` and from `two` on; `two` is the later position.
#[inline]
fn common(input: &[u8], one: usize, two: usize) -> usize {
    let (one, two) = (
        input.get(one..).unwrap_or(&[]),
        input.get(two..).unwrap_or(&[]),
    );
    let mut count = 0;
    for (one, two) in one.as_chunks::<8>().0.iter().zip(two.as_chunks::<8>().0) {
        let difference = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*two);
        if difference != 0 {
            return count + (difference.trailing_zeros() / 8) as usize;
        }
        count += 8;
    }
    let (one, two) = (one.iter().skip(count), two.iter().skip(count));
    count + one.zip(two).take_while(|(one, two)| one == two).count()
}

/// Writes elements. `block` is large enough for any input.
struct Writer<'a> {
    block: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    /// Stores all of `bytes` but advances by only `count`.
    #[inline]
    fn store<const N: usize>(&mut self, bytes: &[u8; N], count: usize) {
        if let Some(place) = self
            .block
            .get_mut(self.at..)
            .and_then(<[u8]>::first_chunk_mut)
        {
            *place = *bytes;
        }
        self.at += count;
    }

    fn length(&mut self, length: usize) {
        let mut rest = length;
        while rest >= 0x80 {
            self.store(&[rest as u8 | 0x80], 1);
            rest >>= 7;
        }
        self.store(&[rest as u8], 1);
    }

    /// Stores a literal unless it is empty. `stride` starts with the same bytes and may extend past the literal's end.
    #[inline]
    fn literal(&mut self, literal: &[u8], stride: Option<&[u8; STRIDE]>) {
        let Some(last) = literal.len().checked_sub(1) else {
            return;
        };
        if last < LONGEST_IN_TAG {
            self.store(&[(last << 2) as u8], 1);
        } else if last < 1 << 8 {
            self.store(&[60 << 2, last as u8], 2);
        } else {
            self.store(&[61 << 2, last as u8, (last >> 8) as u8], 3);
        }
        match stride {
            Some(stride) if literal.len() <= STRIDE => self.store(stride, literal.len()),
            _ => {
                if let Some(place) = self.block.get_mut(self.at..self.at + literal.len()) {
                    place.copy_from_slice(literal);
                }
                self.at += literal.len();
            }
        }
    }

    #[inline]
    fn copy(&mut self, distance: usize, length: usize) {
        let mut rest = length;
        // Leaves at least four bytes for the last element, the minimum of the short form.
        while rest >= 68 {
            self.long_copy(distance, 64);
            rest -= 64;
        }
        if rest > 64 {
            self.long_copy(distance, 60);
            rest -= 60;
        }
        if rest < 12 && distance < 2048 {
            let tag = 1 | (rest - LEAST_MATCH) << 2 | distance >> 8 << 5;
            self.store(&[tag as u8, distance as u8], 2);
        } else {
            self.long_copy(distance, rest);
        }
    }

    #[inline]
    fn long_copy(&mut self, distance: usize, length: usize) {
        let tag = 2 | (length - 1) << 2;
        self.store(&[tag as u8, distance as u8, (distance >> 8) as u8], 3);
    }
}
