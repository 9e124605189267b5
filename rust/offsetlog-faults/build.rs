//! Makes a copy of the engine's `Ends` whose locks and atomics are loom's, so that the very code can be run in all interleavings.
#![allow(clippy::expect_used, reason = "a build script may panic")]

use std::path::PathBuf;

const LOCKS: &str =
    "use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};";
const LOOMS_LOCKS: &str = "use loom::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};\nuse std::sync::PoisonError;";

fn main() {
    let source = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"))
        .join("../offsetlog/src/segment/ends.rs");
    println!("cargo::rerun-if-changed={}", source.display());
    let text = std::fs::read_to_string(&source).expect("the engine's source");
    let text = text
        .replace("use std::sync::atomic::", "use loom::sync::atomic::")
        .replace(LOCKS, LOOMS_LOCKS)
        // Inner documentation cannot be included.
        .replace("//! ", "// ");
    let left = text.replace(LOOMS_LOCKS, "");
    assert!(
        !left.contains("std::sync"),
        "{} uses what loom does not see",
        source.display()
    );
    let target = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo")).join("ends.rs");
    std::fs::write(target, text).expect("the copy is written");
}
