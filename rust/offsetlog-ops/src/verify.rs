//! Checks partitions and log dirs, and compares their directories with the cluster's metadata if that is among the paths.

use offsetlog::{
    DamageReport, Error, ErrorKind, Finding, FolderKind, LogDir, MetadataImage, OpenOptions,
    Result, Severity, Stray, VerifyOptions, folder_kind,
};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// How often directories are compared with the metadata before one is called stray.
const LOOKS: usize = 4;
const BETWEEN_LOOKS: Duration = Duration::from_millis(150);

/// What [`verify`] found.
#[derive(Debug)]
pub struct Verified {
    /// What is wrong; a directory that the metadata does not have is a warning of the kind `Stray`.
    pub report: DamageReport,
    /// Why the directories could not be compared with the metadata, if they could not.
    pub not_compared: Option<Error>,
}

/// Checks all that can be checked, as [`offsetlog::verify`] does. Where the cluster's metadata, or ZooKeeper's data, is among the paths,
/// also looks for partition directories that it does not have.
///
/// # Errors
/// As for [`offsetlog::verify`].
pub fn verify(paths: &[PathBuf], options: &OpenOptions, how: &VerifyOptions) -> Result<Verified> {
    // ZooKeeper's data has nothing to check, and beside log dirs is what they are compared with.
    let is_checked = |path: &&PathBuf| !matches!(folder_kind(path), Ok(FolderKind::ZooKeeper));
    let mut checked: Vec<PathBuf> = paths.iter().filter(is_checked).cloned().collect();
    if checked.is_empty() {
        checked = paths.to_vec();
    }
    let mut report = offsetlog::verify(&checked, options, how)?;
    let not_compared = match strays(paths, options) {
        Ok(Some((strays, image))) => {
            add(&mut report, strays, &image);
            None
        }
        Ok(None) => None,
        Err(error) if error.is_of_process() => return Err(error),
        Err(error) => Some(error),
    };
    Ok(Verified {
        report,
        not_compared,
    })
}

/// Finds the directories that the metadata does not have, look after look. A broker that deletes a topic writes that first, and sets the
/// directories aside afterwards; a topic that was created and deleted between a listing and the metadata is as short-lived.
fn strays(paths: &[PathBuf], options: &OpenOptions) -> Result<Option<(Vec<Stray>, MetadataImage)>> {
    let Some((mut strays, mut image)) = strays_now(paths, options)? else {
        return Ok(None);
    };
    let is_interrupted = || options.interrupt.as_ref().is_some_and(|asks| asks());
    for _ in 1..LOOKS {
        if strays.is_empty() {
            break;
        }
        thread::sleep(BETWEEN_LOOKS);
        if is_interrupted() {
            return Err(Error::new(ErrorKind::Interrupted));
        }
        let Some((now, newer)) = strays_now(paths, options)? else {
            break;
        };
        strays.retain(|stray| now.iter().any(|other| other.path == stray.path));
        image = newer;
    }
    Ok(Some((strays, image)))
}

fn strays_now(
    paths: &[PathBuf],
    options: &OpenOptions,
) -> Result<Option<(Vec<Stray>, MetadataImage)>> {
    let log_dir = LogDir::open(paths, options)?;
    let Some(image) = log_dir.metadata()? else {
        return Ok(None);
    };
    Ok(log_dir.strays(&image)?.map(|strays| (strays, image)))
}

fn add(report: &mut DamageReport, strays: Vec<Stray>, image: &MetadataImage) {
    let broker = if image.is_of_zookeeper {
        "left, or renamed -stray, as its version has it"
    } else {
        "renamed -stray and set aside"
    };
    for stray in strays {
        let reason = why_stray(&stray, image);
        report.findings.push(Finding {
            severity: Severity::Warning,
            kind: "Stray",
            path: stray.path,
            position: None,
            offset: None,
            reason,
            found: None,
            expected: None,
            clean: broker,
            unclean: broker,
            recover: "left as it is",
        });
        let [_, warnings, _] = &mut report.counts;
        *warnings += 1;
    }
}

/// Says that a directory is stray, and why.
#[must_use]
pub fn why_stray(stray: &Stray, image: &MetadataImage) -> String {
    let metadata = if image.is_of_zookeeper {
        "ZooKeeper's data does not have it".to_owned()
    } else {
        format!(
            "the metadata up to offset {} does not have it",
            image.end_offset
        )
    };
    format!("stray, {metadata}: {}", stray.reason)
}
