//! The verbs in the groups of the help.

/// Each heading with its verbs.
pub(super) const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Read records and state",
        &[
            "ls",
            "cat",
            "grep",
            "time",
            "groups",
            "transactions",
            "producers",
            "why",
            "metadata",
        ],
    ),
    ("Inspect files", &["dump", "explain", "verify"]),
    ("Serve and mirror", &["serve", "mirror"]),
    (
        "Write",
        &["append", "create", "delete", "settings", "convert"],
    ),
    (
        "Maintain",
        &[
            "recover",
            "salvage",
            "restore",
            "adopt",
            "maintain",
            "end-transaction",
            "commits",
        ],
    ),
    ("Other", &["completions", "help"]),
];
