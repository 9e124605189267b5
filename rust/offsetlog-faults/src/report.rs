//! What every row says: its seed, its cases and floor, its seconds; and a case that failed, as a file.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{Display, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A row of the table of tests.
pub struct Row {
    number: u32,
    slug: &'static str,
    name: &'static str,
    unit: &'static str,
    floor: usize,
    /// Where random choices come from.
    pub seed: u64,
    cases: usize,
    begun: Instant,
    /// Rows run one after the other, so that their seconds are their own.
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A number or word given in the environment.
#[must_use]
pub fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}

impl Row {
    /// Begins a row. `floor` cases are the least; the seed is `OFFSETLOG_SEED`, with an `OFFSETLOG_SCALE` of 1 or more a new one, else
    /// the row's number.
    #[must_use]
    pub fn begin(
        number: u32,
        slug: &'static str,
        name: &'static str,
        unit: &'static str,
        floor: usize,
    ) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // The same cases each time, so that a change is judged by what it changes, and the first of them in a quick look; a soak draws
        // others.
        let drawn = || match variable::<f64>("OFFSETLOG_SCALE") {
            Some(scale) if scale >= 1.0 => fastrand::u64(..1 << 48),
            _ => u64::from(number),
        };
        let seed = replayed().unwrap_or_else(drawn);
        eprintln!("row {number}, {name}: OFFSETLOG_SEED={seed}");
        Self {
            number,
            slug,
            name,
            unit,
            floor,
            seed,
            cases: 0,
            begun: Instant::now(),
            _turn: turn,
        }
    }

    /// Counts.
    pub const fn count(&mut self, cases: usize) {
        self.cases += cases;
    }

    /// Whether the floor is not reached.
    #[must_use]
    pub const fn goes_on(&self) -> bool {
        self.cases < self.floor
    }

    /// Writes the row down.
    ///
    /// # Panics
    /// Below the floor, unless one seed was replayed.
    pub fn end(self, seen: &impl Display) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let Self {
            number,
            slug,
            name,
            unit,
            floor,
            seed,
            cases,
            ..
        } = self;
        eprintln!("row {number}, {name}: {cases} {unit} in {seconds:.1} s; {seen}");
        if replayed().is_none() {
            assert!(
                cases >= floor,
                "row {number}: {cases} {unit}, at least {floor} expected"
            );
            let folder = std::env::var_os("OFFSETLOG_ROWS")
                .map_or_else(|| root().join("build/rows"), PathBuf::from);
            let text = format!(
                "{{\"row\": {number}, \"name\": \"{name}\", \"cases\": {cases}, \"unit\": \"{unit}\", \"floor\": {floor}, \
                 \"seconds\": {seconds:.2}, \"skipped\": null, \"seed\": {seed}}}\n"
            );
            std::fs::create_dir_all(&folder).expect("the folder of rows");
            std::fs::write(folder.join(format!("{number}-{slug}.json")), text)
                .expect("the row's file");
        }
    }
}

/// The seed that is to be run again.
#[must_use]
pub fn replayed() -> Option<u64> {
    variable("OFFSETLOG_SEED")
}

/// A number of cases times `OFFSETLOG_SCALE`.
#[must_use]
pub fn scaled(count: usize) -> usize {
    (count as f64 * variable("OFFSETLOG_SCALE").unwrap_or(1.0)).ceil() as usize
}

/// Cases that failed, one of each kind.
#[derive(Debug, Default)]
pub struct Failures {
    kinds: BTreeMap<String, (usize, u64, String, String)>,
}

impl Failures {
    /// What kind of failure an error is: its words up to the first list, without numbers.
    #[must_use]
    pub fn kind(error: &str) -> String {
        let words = error.split(['[', '\n']).next().unwrap_or_default();
        let words: String = words
            .chars()
            .filter(|letter| !letter.is_ascii_digit())
            .collect();
        // Where it happened is no kind.
        let what = words
            .split_once(": ")
            .filter(|(place, _)| place.starts_with("after") || place.starts_with("step"));
        what.map_or(words.as_str(), |(_, what)| what)
            .chars()
            .take(70)
            .collect()
    }

    /// Notes a failure; says whether it is the first of its kind, which is worth being made shorter.
    pub fn note(&mut self, seed: u64, case: &dyn Display, error: &str) -> bool {
        let kind = self.kinds.entry(Self::kind(error));
        let is_new = matches!(kind, Entry::Vacant(_));
        let case = case.to_string();
        let (count, ..) = kind
            .and_modify(|known| {
                if case.len() < known.2.len() {
                    (known.1, known.2, known.3) = (seed, case.clone(), error.to_owned());
                }
            })
            .or_insert((0, seed, case.clone(), error.to_owned()));
        *count += 1;
        is_new
    }

    /// Keeps the failures as files that can be run again.
    ///
    /// # Panics
    /// If there are any.
    pub fn end(&self, row: &str) {
        let folder = root().join("build/failures");
        let mut told = String::new();
        for (number, (count, seed, case, error)) in self.kinds.values().enumerate() {
            std::fs::create_dir_all(&folder).expect("the folder of failures");
            let path = folder.join(format!("{row}-{seed}-{number}.txt"));
            std::fs::write(
                &path,
                format!("# {}\n{case}\n", error.replace('\n', "\n# ")),
            )
            .expect("the failure's file");
            let _ = writeln!(
                told,
                "{count} times: {error}\n  case {case}\n  OFFSETLOG_SEED={seed}, kept in {}",
                path.display()
            );
        }
        assert!(told.is_empty(), "{row}:\n{told}");
    }
}
