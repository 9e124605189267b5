//! Which partitions a command is about: paths, `-t` and `-p`, and what to say when they match nothing.

use crate::args::Selection;
use crate::console::Console;
use crate::failure::Failure;
use offsetlog::{Log, LogDir, OpenOptions, Stray};
use offsetlog_ops::why_stray;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// How many names an error lists before it says how many more there are.
const NAMES_SHOWN: usize = 5;

/// A partition that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) topic: String,
    pub(crate) partition: i32,
}

impl Chosen {
    /// `topic-partition`, as its directory is called.
    pub(crate) fn name(&self) -> String {
        format!("{}-{}", self.topic, self.partition)
    }
}

/// The chosen partitions, by topic and partition, and what opens them.
pub(crate) struct Source {
    pub(crate) log_dir: LogDir,
    pub(crate) chosen: Vec<Chosen>,
}

/// Refuses log dirs of several clusters, for what reads them as one.
pub(crate) fn of_one_cluster(paths: &[PathBuf]) -> Result<(), Failure> {
    LogDir::open(paths, &OpenOptions::default())?.check_one_cluster()?;
    Ok(())
}

impl Source {
    /// Lists the paths and keeps what `-t` and `-p` name.
    pub(crate) fn open(selection: &Selection, console: &mut Console<'_>) -> Result<Self, Failure> {
        console.quiet = selection.quiet;
        let options = OpenOptions {
            interrupt: console.terminal.interrupt.clone(),
            ..OpenOptions::default()
        };
        let log_dir = LogDir::open(&selection.paths, &options)?;
        for warning in log_dir.warnings() {
            console.warn(&warning);
        }
        let partitions = log_dir.partitions();
        if partitions.is_empty() {
            console.warn("no partitions here; a log dir holds directories such as orders-0");
        }
        let all = partitions.into_iter().map(|found| Chosen {
            topic: found.topic,
            partition: found.partition,
        });
        let chosen = choose(all.collect(), selection)?;
        Ok(Self { log_dir, chosen })
    }

    /// Opens a chosen partition and passes on what is odd about it.
    pub(crate) fn log(&self, chosen: &Chosen, console: &mut Console<'_>) -> Result<Log, Failure> {
        let told = self.log_dir.warnings().len();
        let log = self.log_dir.log(&chosen.topic, chosen.partition)?;
        // A replica that cannot be read is found when the newest one is looked for.
        for warning in self.log_dir.warnings().iter().skip(told) {
            console.warn(warning);
        }
        for warning in log.warnings() {
            console.warn(&format!("{}: {warning}", chosen.name()));
        }
        // Damage that hides the end is an error to who reads it.
        if let Ok(Some(lost)) = log.lost_end() {
            console.warn(&format!("{}: {lost}", chosen.name()));
        }
        Ok(log)
    }

    /// The path of a chosen partition; the first one if there are several.
    pub(crate) fn path_of(&self, chosen: &Chosen) -> PathBuf {
        let places = self.log_dir.directories(&chosen.topic);
        let found = places
            .into_iter()
            .find(|(partition, _)| *partition == chosen.partition);
        found.map(|(_, path)| path).unwrap_or_default()
    }

    /// Why the cluster's metadata, where that is among the paths, does not have directories of chosen partitions, by their path.
    pub(crate) fn strays(&self, console: &mut Console<'_>) -> BTreeMap<PathBuf, String> {
        let found = self.log_dir.metadata().and_then(|image| match image {
            Some(image) => Ok(Some((self.log_dir.strays(&image)?, image))),
            None => Ok(None),
        });
        let (strays, image) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return BTreeMap::new(),
            Err(error) => {
                console.warn(&format!("not compared with the metadata: {error}"));
                return BTreeMap::new();
            }
        };
        for warning in &image.warnings {
            console.warn(warning);
        }
        let Some(strays) = strays else {
            console.warn("not compared with the metadata, of which a part is missing");
            return BTreeMap::new();
        };
        let chosen = self.chosen.iter();
        let chosen: BTreeSet<(&str, i32)> = chosen
            .map(|one| (one.topic.as_str(), one.partition))
            .collect();
        let is_chosen = |stray: &Stray| chosen.contains(&(stray.topic.as_str(), stray.partition));
        let mut reasons = BTreeMap::new();
        for stray in strays.into_iter().filter(is_chosen) {
            let stray_path = stray.path.display();
            console.warn(&format!("{stray_path} is {}", why_stray(&stray, &image)));
            reasons.insert(stray.path, stray.reason);
        }
        reasons
    }

    /// Refuses several topics where their records would run into each other unasked.
    pub(crate) fn need_topic(&self, selection: &Selection) -> Result<(), Failure> {
        let topics: BTreeSet<&str> = self
            .chosen
            .iter()
            .map(|chosen| chosen.topic.as_str())
            .collect();
        if topics.len() > 1 && selection.topics.is_empty() {
            let names = some_of(topics.iter().copied());
            return Err(Failure::Usage(format!(
                "several topics are here: {names}; choose with -t TOPIC"
            )));
        }
        Ok(())
    }

    /// The only partition that was chosen.
    pub(crate) fn only(&self) -> Result<&Chosen, Failure> {
        match self.chosen.as_slice() {
            [only] => Ok(only),
            [] => Err(Failure::Usage("no partition is here to look into".into())),
            several => {
                let names: Vec<String> = several.iter().map(Chosen::name).collect();
                let names = some_of(names.iter().map(String::as_str));
                Err(Failure::Usage(format!(
                    "one partition is needed, several are chosen: {names}; choose with -t TOPIC -p N"
                )))
            }
        }
    }
}

/// Keeps what `-t` and `-p` name; an option that names nothing is an error that says what there is.
pub(crate) fn choose(all: Vec<Chosen>, selection: &Selection) -> Result<Vec<Chosen>, Failure> {
    let mut here: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for chosen in &all {
        here.entry(chosen.topic.clone())
            .or_default()
            .insert(chosen.partition);
    }
    for topic in &selection.topics {
        let Some(partitions) = here.get(topic) else {
            return Err(Failure::Usage(no_topic(
                topic,
                here.keys().map(String::as_str),
            )));
        };
        if let Some(missing) = selection
            .partitions
            .iter()
            .find(|number| !partitions.contains(number))
        {
            let numbers: Vec<String> = partitions.iter().map(i32::to_string).collect();
            let numbers = some_of(numbers.iter().map(String::as_str));
            return Err(Failure::Usage(format!(
                "topic '{topic}' has no partition {missing} here; there are {numbers}"
            )));
        }
    }
    let everywhere: BTreeSet<i32> = here.values().flatten().copied().collect();
    if let Some(missing) = selection
        .partitions
        .iter()
        .find(|number| !everywhere.contains(number))
    {
        return Err(Failure::Usage(format!(
            "no topic here has a partition {missing}; 'offsetlog ls' lists what there is"
        )));
    }
    let mut chosen = all;
    chosen.retain(|one| {
        (selection.topics.is_empty() || selection.topics.contains(&one.topic))
            && (selection.partitions.is_empty() || selection.partitions.contains(&one.partition))
    });
    Ok(chosen)
}

fn no_topic<'a>(asked: &str, topics: impl Iterator<Item = &'a str> + Clone) -> String {
    let nearest = topics
        .clone()
        .map(|topic| (distance(asked, topic), topic))
        .min()
        .filter(|(distance, topic)| {
            *distance <= asked.chars().count().max(3) / 3 || topic.contains(asked)
        });
    match nearest {
        Some((_, topic)) => format!("no topic '{asked}' here; did you mean '{topic}'?"),
        None if topics.clone().next().is_none() => {
            format!("no topic '{asked}' here, nor any other")
        }
        None => format!("no topic '{asked}' here; there are {}", some_of(topics)),
    }
}

/// The first few names, and how many more there are.
fn some_of<'a>(names: impl Iterator<Item = &'a str> + Clone) -> String {
    let more = names.clone().count().saturating_sub(NAMES_SHOWN);
    let shown: Vec<&str> = names.take(NAMES_SHOWN).collect();
    let shown = shown.join(", ");
    if more == 0 {
        shown
    } else {
        format!("{shown} and {more} more ('offsetlog ls' lists all)")
    }
}

/// Levenshtein distance: letters to insert, leave out or replace.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, a) in from.chars().enumerate() {
        let mut left = line + 1;
        let mut diagonal = std::mem::replace(row.first_mut().unwrap_or(&mut 0), left);
        for (cell, b) in row.iter_mut().skip(1).zip(&to) {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = *cell;
            left = replaced.min(left + 1).min(diagonal + 1);
            *cell = left;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_textbook() {
        let cases = [
            ("", "", 0),
            ("a", "", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("orders", "order", 1),
            ("plian", "plain", 2),
        ];
        for (from, to, expected) in cases {
            assert_eq!(distance(from, to), expected, "{from} {to}");
            assert_eq!(distance(to, from), expected, "{to} {from}");
        }
    }

    #[test]
    fn an_unknown_topic_gives_the_nearest_name_or_what_there_is() {
        let check = |asked, topics: &[&str], expected: &str| {
            assert_eq!(no_topic(asked, topics.iter().copied()), expected);
        };
        check(
            "ordres",
            &["orders", "payments"],
            "no topic 'ordres' here; did you mean 'orders'?",
        );
        check(
            "plain",
            &["g-codec", "g-plain"],
            "no topic 'plain' here; did you mean 'g-plain'?",
        );
        check(
            "zzz",
            &["a1", "a2"],
            "no topic 'zzz' here; there are a1, a2",
        );
        check(
            "zzzzzz",
            &["a1", "a2", "a3", "a4", "a5", "a6", "a7"],
            "no topic 'zzzzzz' here; there are a1, a2, a3, a4, a5 and 2 more ('offsetlog ls' lists all)",
        );
        check("x", &[], "no topic 'x' here, nor any other");
    }
}
