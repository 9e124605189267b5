//! Makes copies of parts of the engine whose locks and atomics are loom's, so that the very code can be run in all interleavings.
#![allow(clippy::expect_used, reason = "a build script may panic")]

use std::path::PathBuf;

/// The source, its line of locks, and that line of loom's.
const PARTS: [(&str, &str, &str); 2] = [
    (
        "segment/live_offsets.rs",
        "use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};",
        "use loom::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};\nuse std::sync::PoisonError;",
    ),
    (
        "log/writer/group_commit.rs",
        "use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};",
        "use loom::sync::{Condvar, Mutex, MutexGuard};\nuse std::sync::PoisonError;",
    ),
];

fn main() {
    let engine = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"))
        .join("../offsetlog/src");
    let copies = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo"));
    for (part, locks, looms_locks) in PARTS {
        let source = engine.join(part);
        println!("cargo::rerun-if-changed={}", source.display());
        let text = std::fs::read_to_string(&source).expect("the engine's source");
        let text = text
            .replace("use std::sync::atomic::", "use loom::sync::atomic::")
            .replace(locks, looms_locks)
            // Inner documentation cannot be included.
            .replace("//! ", "// ")
            .replace("//!\n", "//\n");
        let left = text.replace(looms_locks, "");
        assert!(
            !left.contains("std::sync"),
            "{} uses what loom does not see",
            source.display()
        );
        let name = source.file_name().expect("a file");
        std::fs::write(copies.join(name), text).expect("the copy is written");
    }
}
