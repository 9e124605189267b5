//! Appends keys and values, most of which are short, without a call for each copy.

use alloc::vec::Vec;

/// Appends `part`. Where it is short a call would cost more than the copy: two pieces of one size that overlap are two moves in registers
/// each.
#[inline(always)]
#[allow(
    clippy::inline_always,
    reason = "once a record; as a call it would cost what it saves"
)]
pub fn extend(bytes: &mut Vec<u8>, part: &[u8]) {
    match part.len() {
        0 => {}
        4..=8 => extend_twice::<4>(bytes, part),
        9..=16 => extend_twice::<8>(bytes, part),
        17..=32 => extend_twice::<16>(bytes, part),
        33..=64 => extend_twice::<32>(bytes, part),
        65..=128 => extend_twice::<64>(bytes, part),
        _ => bytes.extend_from_slice(part),
    }
}

/// Appends `part`, of `SIZE` to two times as many bytes, if there is room for the longest one.
#[inline(always)]
#[allow(clippy::inline_always, reason = "as `extend`")]
fn extend_twice<const SIZE: usize>(bytes: &mut Vec<u8>, part: &[u8]) {
    match (part.first_chunk::<SIZE>(), part.last_chunk::<SIZE>()) {
        // Making room for more than the part could end a process that is short of memory.
        (Some(first), Some(last)) if bytes.capacity() - bytes.len() >= 2 * SIZE => {
            bytes.extend_from_slice(first);
            bytes.truncate(bytes.len() + part.len() - 2 * SIZE);
            bytes.extend_from_slice(last);
        }
        _ => bytes.extend_from_slice(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn parts_of_every_length_are_appended_whole() {
        let source: Vec<u8> = (0..300_u32).map(|number| (number % 251) as u8).collect();
        for length in 0..source.len() {
            let part = source.get(source.len() - length..).unwrap();
            for room in [0, 2 * length, 1024] {
                let mut bytes = vec![7, 8];
                bytes.reserve_exact(room);
                extend(&mut bytes, part);
                assert_eq!(bytes, [&[7, 8], part].concat(), "{length}, {room}");
            }
        }
    }
}
