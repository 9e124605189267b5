//! Random replicas of one history, with damage, old checkpoints and ends of deposed leaders: what is restored was in the best one before
//! the damage, and what is missing is reported.

use super::*;
use fastrand::Rng;
use offsetlog_faults::batch::encode;
use std::collections::BTreeMap;
use std::fmt::Write;

const CASES: u64 = 100;

/// A log before its damage: batches by their first offset, with their epochs, and where each epoch begins.
#[derive(Clone, Default)]
struct History {
    batches: Vec<(i64, i32, Vec<u8>)>,
    rows: BTreeMap<i64, String>,
    end: i64,
}

impl History {
    fn append(&mut self, epoch: i32, word: &str, random: &mut Rng) {
        let count = random.i64(1..3);
        let values =
            (self.end..self.end + count).map(|offset| (offset, format!("{word}-{offset}")));
        let values: Vec<(i64, String)> = values.collect();
        let rows: Vec<_> = values
            .iter()
            .map(|(_, value)| (None, Some(value.clone().into_bytes())))
            .collect();
        let bytes = encode(self.end, epoch, 1_700_000_000_000, &rows).bytes;
        self.batches.push((self.end, epoch, bytes.to_vec()));
        self.rows.extend(values);
        self.end += count;
    }

    fn epochs(&self) -> Vec<(i32, i64)> {
        let mut epochs: Vec<(i32, i64)> = Vec::new();
        for (base, epoch, _) in &self.batches {
            if epochs.last().is_none_or(|last| last.0 < *epoch) {
                epochs.push((*epoch, *base));
            }
        }
        epochs
    }

    /// Writes it as a replica, damaged, with a checkpoint that may be old or missing. Segments end anywhere.
    fn write(&self, place: &Place, replica: &str, random: &mut Rng) {
        let mut first = 0;
        let mut parts = Vec::new();
        for (base, _, bytes) in &self.batches {
            if random.u8(0..4) == 0 && !parts.is_empty() {
                place.write(replica, first, &std::mem::take(&mut parts));
                first = *base;
            }
            let mut bytes = bytes.clone();
            match random.u8(0..5) {
                0 => bytes[70] ^= 0xff,
                1 => bytes[..61].fill(0xff),
                _ => {}
            }
            parts.push(bytes);
        }
        place.write(replica, first, &parts);
        if random.bool() {
            place.write(replica, self.end, &[]);
        }
        let mut epochs = self.epochs();
        match random.u8(0..3) {
            0 => return,
            1 => epochs.truncate(random.usize(0..=epochs.len())),
            _ => {}
        }
        let mut text = format!("0\n{}\n", epochs.len());
        for (epoch, start) in epochs {
            writeln!(text, "{epoch} {start}").unwrap();
        }
        fs::write(place.of(replica).join("leader-epoch-checkpoint"), text).unwrap();
    }
}

#[test]
fn nothing_is_invented_and_nothing_is_lost_unsaid() {
    let (mut filled, mut lost) = (0, 0);
    for seed in 0..CASES {
        let mut random = Rng::with_seed(seed);
        let place = Place::new();
        let mut replicas: Vec<History> = Vec::new();
        let mut leader = History::default();
        for epoch in 0..random.i32(1..5) {
            for _ in 0..random.u8(1..6) {
                leader.append(epoch, "value", &mut random);
                // A follower that stops here.
                if random.u8(0..12) == 0 {
                    replicas.push(leader.clone());
                }
            }
            if random.bool() {
                // The leader appends once more what nobody has fetched, and is deposed.
                let mut deposed = leader.clone();
                for _ in 0..random.u8(1..6) {
                    deposed.append(epoch, &format!("lost{epoch}"), &mut random);
                }
                replicas.push(deposed);
            }
        }
        replicas.extend([leader.clone(), leader]);
        random.shuffle(&mut replicas);
        let names: Vec<String> = (0..replicas.len())
            .map(|number| format!("r{number}"))
            .collect();
        for (name, history) in names.iter().zip(&replicas) {
            history.write(&place, name, &mut random);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut plan = place.plan(&names);
        plan.run(None).unwrap();
        let state = &plan.partitions[0].state;
        let report = state
            .report()
            .unwrap_or_else(|| panic!("{seed}: {state:?}"));
        let best = replica_of(&report.source);
        let number = names.iter().position(|name| *name == best).unwrap();
        let wanted = &replicas[number].rows;
        let found: BTreeMap<i64, String> = place.rows("new").into_iter().collect();
        // Only another replica knows what was behind a torn tail.
        let is_torn = report.torn_tail.is_some();
        for (offset, value) in &found {
            assert_eq!(wanted.get(offset), Some(value), "{seed}: {report:?}");
        }
        let end = report.built.log_end_offset;
        for offset in wanted.keys().filter(|offset| !found.contains_key(offset)) {
            let around = report.losses.iter().filter(|loss| {
                loss.hole.start <= *offset && loss.hole.stop.is_none_or(|stop| *offset < stop)
            });
            let is_told = around.clone().count() > 0
                && around.clone().all(|loss| loss.records_max() != Some(0));
            assert!(
                is_told || is_torn && *offset >= end,
                "{seed}: {offset} {report:?}"
            );
        }
        filled += report.taken_back.len();
        lost += usize::from(report.has_losses());
    }
    assert!(
        filled > CASES as usize / 4 && lost > CASES as usize / 8,
        "{filled} {lost}"
    );
}
