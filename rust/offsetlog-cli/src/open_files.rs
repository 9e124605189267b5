//! How many files a command may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process have as many open files as the hard limit allows: commands that read or write many partitions hold some of each, as a
/// broker does. The soft limit is usually low for programs that wait with `select`, which nothing here does.
pub(crate) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Where the system refuses, partitions are closed and opened again.
    let _ = setrlimit(Resource::Nofile, most);
}
