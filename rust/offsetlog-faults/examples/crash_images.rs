//! Writes logs that lost power, before and after they were recovered, into a folder, with what must be in them:
//! `crash_images FOLDER COUNT SEED`. For a reader that is not ours.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test tool may panic"
)]

use offsetlog_faults::batch::{Batch, crc32c};
use offsetlog_faults::check::{check_recovered, open};
use offsetlog_faults::model::End;
use offsetlog_faults::run::{Run, fresh};
use offsetlog_faults::script::Script;
use offsetlog_faults::sim::{Cut, World};
use std::fmt::Write as _;
use std::path::Path;

fn write_files(world: &World, folder: &Path) {
    for (path, bytes) in world.files() {
        let path = folder.join(
            path.strip_prefix("/sim")
                .expect("a path of the simulated disk"),
        );
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder is made");
        std::fs::write(path, bytes).expect("a file is written");
    }
}

fn told(script: &Script, seed: u64, start: i64, end: i64, batches: &[Batch]) -> String {
    let mut text = format!(
        "{{\"script\": \"{script}\", \"seed\": {seed}, \"start\": {start}, \"end\": {end}, \"segment_bytes\": {}, \"index_bytes\": {}, \
         \"index_interval\": {}, \"batches\": [",
        script.segment_bytes, script.index_bytes, script.index_interval
    );
    for (slot, batch) in batches.iter().enumerate() {
        let comma = if slot == 0 { "" } else { ", " };
        let (sum, size) = (crc32c(&batch.bytes), batch.bytes.len());
        let _ = write!(
            text,
            "{comma}[{}, {}, {size}, {sum}]",
            batch.base, batch.last
        );
    }
    text.push_str("]}\n");
    text
}

/// One image; none where the crash left no directory.
fn image(folder: &Path, seed: u64) -> Option<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let script = Script::random(&mut rng);
    let run = Run::whole(&script).expect("the script runs");
    run.log.as_ref().expect("a log").abandon();
    let changes = run.sim.recorded();
    let count = rng.usize(changes.len() / 3..=changes.len());
    let mut world = fresh(&script);
    for change in &changes[..count] {
        world.apply(change);
    }
    let before = world.crash(Cut::Random, script.fill, &mut rng);
    before.node(Run::partition())?;
    let recovered = open(&before, &script).expect("the log opens");
    let found =
        check_recovered(&recovered, run.model_at(count), End::Power).expect("what must be there");
    if found.is_empty() && rng.u8(0..8) > 0 {
        // Few of those say enough.
        recovered.log.abandon();
        return None;
    }
    let start = recovered
        .log
        .log_start_offset()
        .expect("a log start offset");
    let end = recovered.log.log_end_offset().expect("a log end offset");
    recovered.log.close().expect("a clean end");
    write_files(&before, &folder.join("before"));
    write_files(&recovered.disk.world(), &folder.join("after"));
    std::fs::write(
        folder.join("expected.json"),
        told(&script, seed, start, end, &found),
    )
    .expect("the expectation is written");
    Some(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, count, seed] = arguments.as_slice() else {
        panic!("crash_images FOLDER COUNT SEED");
    };
    let mut seeds = fastrand::Rng::with_seed(seed.parse().expect("a seed"));
    let count: usize = count.parse().expect("a count");
    let mut made = 0;
    while made < count {
        let folder = Path::new(folder).join(format!("{made:04}"));
        made += usize::from(image(&folder, seeds.u64(..)).is_some());
    }
}
