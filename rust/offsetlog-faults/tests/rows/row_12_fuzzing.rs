//! Row 12: the fuzz targets on what is kept of them (`fuzz/kept`: small real files, and all that fuzzers ever found), then on random changes
//! of those files. libFuzzer itself runs in `make fuzz` and `make soak`.

use offsetlog_faults::damage::{BLOCK_BYTES, Edit};
use offsetlog_faults::report::{Failures, Row, scaled};
use offsetlog_faults::targets::TARGETS;
use std::fmt::{self, Display};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

const FLOOR: usize = 900_000;
/// Longer than an input may take, each time it is tried: once, a busy machine may be silent for as long.
const HANG: Duration = Duration::from_secs(1);
const TRIES: usize = 5;
/// Numbers at which arithmetic ends.
const EDGES: [i32; 5] = [i32::MAX, i32::MIN, -1, 0, 0x7fff_fff3];

struct Input<'i> {
    target: &'static str,
    file: &'i str,
    bytes: &'i [u8],
}

impl Display for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}:", self.target, self.file)?;
        self.bytes
            .iter()
            .try_for_each(|byte| write!(f, " {byte:02x}"))
    }
}

fn kept(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/kept");
    let mut files: Vec<_> = fs::read_dir(folder.join(target))
        .expect("a folder for each target")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap_or_default();
            let bytes = fs::read(path).expect("a kept file");
            (name.to_string_lossy().into_owned(), bytes)
        })
        .collect()
}

fn changed(rng: &mut fastrand::Rng, bytes: &mut Vec<u8>, buffer: &mut Vec<u8>) {
    if bytes.len() < 4 {
        bytes.extend_from_slice(&[0; 4]);
    }
    let at = rng.usize(..bytes.len());
    let count = rng.usize(1..=BLOCK_BYTES.min(bytes.len() - at));
    let edit = match rng.u8(..12) {
        0 => Edit::Cut { size: at },
        1 => Edit::Remove { at, count },
        2 => Edit::Double { at, count },
        3..6 => {
            let at = at.min(bytes.len() - 4);
            bytes[at..at + 4].copy_from_slice(&EDGES[rng.usize(..EDGES.len())].to_be_bytes());
            return;
        }
        _ => Edit::Set {
            at,
            byte: rng.u8(..),
        },
    };
    edit.apply(bytes, buffer);
    std::mem::swap(bytes, buffer);
}

#[test]
fn kept_inputs_and_their_changes_come_back() {
    let mut row = Row::begin(12, "fuzzing", "fuzz targets", "inputs", scaled(FLOOR));
    let mut rng = fastrand::Rng::with_seed(row.seed);
    let mut failures = Failures::default();
    let mut files = 0;
    for (target, run) in TARGETS {
        let mut check = |file: &str, bytes: &[u8]| {
            let is_slow = || {
                let begun = Instant::now();
                let ended = catch_unwind(AssertUnwindSafe(|| run(bytes)));
                ended.map(|()| begun.elapsed() > HANG)
            };
            let mut outcome = is_slow();
            for _ in 1..TRIES {
                if matches!(outcome, Ok(true)) {
                    outcome = is_slow();
                }
            }
            let error = match outcome {
                Err(_) => "a panic",
                Ok(true) => "it hangs",
                Ok(false) => return,
            };
            let input = Input {
                target,
                file,
                bytes,
            };
            failures.note(row.seed, &input, &format!("{target}: {error}"));
        };
        let kept = kept(target);
        assert!(!kept.is_empty(), "{target}");
        files += kept.len();
        for (file, bytes) in &kept {
            check(file, bytes);
        }
        let share = scaled(FLOOR).div_ceil(TARGETS.len());
        let mut buffer = Vec::new();
        for _ in kept.len()..share {
            let (file, bytes) = &kept[rng.usize(..kept.len())];
            let mut bytes = bytes.clone();
            for _ in 0..rng.usize(1..4) {
                changed(&mut rng, &mut bytes, &mut buffer);
            }
            check(file, &bytes);
        }
        row.count(share.max(kept.len()));
    }
    failures.end("row-12");
    row.end(&format!("{} targets, {files} kept files", TARGETS.len()));
}
