//! Fingerprints of keys: 128-bit `SipHash` with random secret keys per map.
//!
//! The standard library's hasher gives 64 bits, so two would be needed, and it is built for data in pieces and not for a whole
//! key.

use std::hash::{BuildHasher, RandomState};

/// Identifies a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Fingerprint(pub(super) u64, pub(super) u64);

/// Computes fingerprints with random secret keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fingerprints([u64; 2]);

/// The four state words of `SipHash`.
struct Words([u64; 4]);

impl Fingerprints {
    pub(super) fn new() -> Self {
        let random = RandomState::new();
        Self([random.hash_one(0_u8), random.hash_one(1_u8)])
    }

    /// One round per eight bytes and three at the end, like the standard library's hasher.
    #[inline]
    pub(super) fn of(self, key: &[u8]) -> Fingerprint {
        self.hash::<1, 3>(key)
    }

    #[inline]
    fn hash<const EACH: usize, const END: usize>(self, key: &[u8]) -> Fingerprint {
        let [first, second] = self.0;
        let mut words = Words([
            first ^ 0x736f_6d65_7073_6575,
            second ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            first ^ 0x6c79_6765_6e65_7261,
            second ^ 0x7465_6462_7974_6573,
        ]);
        let (whole, rest) = key.as_chunks::<8>();
        for eight in whole {
            words.take::<EACH>(u64::from_le_bytes(*eight));
        }
        let mut last = [0; 8];
        for (place, byte) in last.iter_mut().zip(rest) {
            *place = *byte;
        }
        words.take::<EACH>(u64::from_le_bytes(last) | (key.len() as u64) << 56);
        words.0[2] ^= 0xee;
        let first = words.end::<END>();
        words.0[1] ^= 0xdd;
        Fingerprint(first, words.end::<END>())
    }
}

impl Words {
    #[inline]
    fn take<const ROUNDS: usize>(&mut self, word: u64) {
        self.0[3] ^= word;
        for _ in 0..ROUNDS {
            self.round();
        }
        self.0[0] ^= word;
    }

    #[inline]
    fn end<const ROUNDS: usize>(&mut self) -> u64 {
        for _ in 0..ROUNDS {
            self.round();
        }
        let [a, b, c, d] = self.0;
        a ^ b ^ c ^ d
    }

    #[inline]
    const fn round(&mut self) {
        let [mut a, mut b, mut c, mut d] = self.0;
        a = a.wrapping_add(b);
        c = c.wrapping_add(d);
        b = b.rotate_left(13) ^ a;
        d = d.rotate_left(16) ^ c;
        a = a.rotate_left(32).wrapping_add(d);
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        d = d.rotate_left(21) ^ a;
        c = c.rotate_left(32);
        self.0 = [a, b, c, d];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_what_the_reference_implementation_gives() {
        // `vectors_sip128` of github.com/veorq/SipHash: rounds 2 and 4, key 00 to 0f, input 00, 01, … of the given length.
        const VECTORS: [(u8, u128); 7] = [
            (0, 0xa381_7f04_ba25_a8e6_6df6_7214_c755_0293),
            (1, 0xda87_c1d8_6b99_af44_3476_5911_9b22_fc45),
            (7, 0xa1f1_ebbe_d8db_c153_c0b8_4aa6_1ff0_8239),
            (8, 0x3b62_a9ba_6258_f561_0f83_e264_f314_97b4),
            (13, 0x9869_e247_e9c0_8b10_d029_934f_c4b9_52f7),
            (15, 0x5493_e999_33b0_a811_7e08_ec0f_97cf_c3d9),
            (16, 0x6ee2_a4ca_67b0_54bb_fd33_15bf_8523_0577),
        ];
        let fingerprints = Fingerprints([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        for (bytes, expected) in VECTORS {
            let input: Vec<u8> = (0..bytes).collect();
            let Fingerprint(first, second) = fingerprints.hash::<2, 4>(&input);
            let found = [first.to_le_bytes(), second.to_le_bytes()].concat();
            assert_eq!(found, expected.to_be_bytes(), "{bytes} bytes");
        }
    }

    #[test]
    fn differs_from_process_to_process() {
        assert_ne!(
            Fingerprints::new().of(b"key"),
            Fingerprints::new().of(b"key")
        );
    }
}
