"""The shape of the tree, as rules over text: each takes (path, text) and yields what is wrong with it.

They know nothing of the file system, so that ``test_rules.py`` can show each of them failing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

LINES = 600
REASON = re.compile(r"over 600 lines: \S+")

# Lowest first. A layer may use those before it; `arrow` stands beside `log`, above `records`.
ENGINE_LAYERS: dict[str, tuple[str, ...]] = {
    "disk": ("codec", "records", "segment", "log", "log_dir", "arrow"),
    "codec": ("disk", "records", "segment", "log", "log_dir", "arrow"),
    "records": ("disk", "segment", "log", "log_dir", "arrow"),
    "segment": ("log", "log_dir", "arrow"),
    "log": ("log_dir", "arrow"),
    "log_dir": ("arrow",),
    "arrow": ("log_dir",),
}

# The same inside `log`: recovery makes a loaded state of a directory, and does not know who writes it on.
LOG_ROOMS: dict[str, tuple[str, ...]] = {
    "producers": ("state", "recovery", "writer"),
    "state": ("recovery", "writer"),
    "recovery": ("writer",),
}

# What serving and mirroring decide, which a seeded scheduler runs: bytes, disk, threads and time are given to it.
PROTOCOL_LOGIC = (
    *("step", "server", "coordinator", "sasl", "transport/connection", "transport/turns", "transport/budget"),
    *("mirror/core", "mirror/partition", "mirror/batches", "mirror/truncation", "mirror/work"),
)
# An address does nothing by itself.
ADDRESSES = frozenset({"IpAddr", "Ipv4Addr", "Ipv6Addr"})
OWN_IO = re.compile(
    r"\bstd::(?:thread|fs)\b|\bstd::\{[^}]*\b(?:net|thread|fs)\b|\bthread::\w|\bTcp(?:Stream|Listener)\b|\bUdpSocket\b|\bUnixStream\b"
    r"|\bInstant::now\b|\bSystemTime\b|\bwall_clock\b|\.elapsed\(\)|\brustix::"
)

# Each brings an executor or a reactor: a connection has a thread, which blocks in sendfile.
ASYNC_RUNTIMES = re.compile(
    r'^name = "((?:tokio|async-std|async-executor|async-io|mio|smol|glommio|monoio)(?:-[\w-]+)?)"$', re.MULTILINE
)

# Where a machine's own folders begin.
HOME_PATHS = re.compile(r"""(?<![\w.~-])/(?:work|root|home|Users|tmp)/[\w.-]+""")
MARKS = re.compile(r"\b(?:FIX" + r"ME|TO" + r"DO|XX" + r"X)\b|\bdbg!|\bbreakpoint\(\)|\btodo!\(|\bunimplemented!\(")
SECTION = re.compile(r"«([^»]+)»")
HOSTS = re.compile(r"://|--(?:extra-)?index-url|--find-links|--trusted-host|\b[\w-]+\.(?:com|org|net|io|dev|internal|local)\b")
# `local_path` itself, and what is only told absolute paths, or asks no more than what is there.
RESOLVING = frozenset(
    {
        "rust/offsetlog/src/local_path.rs",
        "rust/offsetlog/src/folder.rs",
        "rust/offsetlog/src/log/verify.rs",
        "rust/offsetlog-ops/src/salvage.rs",
    }
)
# Where files are mapped, where the interpreter runs what users gave, and where the Arrow C interface hands over pointers.
UNSAFE = frozenset({"rust/offsetlog/src/disk/map.rs", "rust/offsetlog-python/src/callback.rs", "rust/offsetlog-python/src/capsule.rs"})


def without_comments(text: str) -> str:
    """Rust text without line comments, so that words in prose do not count. Line numbers stay."""
    return "\n".join(re.sub(r"(?<!:)//.*", "", line) for line in text.splitlines())


def without_tests(text: str) -> str:
    """Rust text before its unit tests, which may use what the code may not."""
    return re.split(r"^#\[cfg\(test\)\]\s*\n\s*mod ", text, maxsplit=1, flags=re.MULTILINE)[0]


def too_long(path: str, text: str) -> Iterator[str]:
    """Files of more than 600 lines, unless one of the first ten lines says why (`over 600 lines: ...`)."""
    lines = text.splitlines()
    if len(lines) > LINES and not any(REASON.search(line) for line in lines[:10]):
        yield f"{path}: {len(lines)} lines; split it, or say why in the first ten lines («over 600 lines: ...»)"


def upward_use(path: str, text: str) -> Iterator[str]:
    """Modules of the engine that name a layer above their own."""
    match = re.fullmatch(r"rust/offsetlog/src/(\w+?)(?:\.rs|/.+)", path)
    if match is None:
        return
    above = ENGINE_LAYERS.get(match[1], ())
    code = without_tests(without_comments(text))
    for layer in above:
        for found in re.finditer(rf"\b(?:crate|super::super)::{layer}\b|\bcrate::\{{[^}}]*\b{layer}::", code):
            yield f"{path}:{code[: found.start()].count(chr(10)) + 1}: `{layer}` is not below `{match[1]}`"
    # What one layer above needs is there for all, or `log` would be another one without it.
    if match[1] not in {"arrow", "lib"}:
        for found in re.finditer(r'feature = "arrow"', code):
            yield f"{path}:{code[: found.start()].count(chr(10)) + 1}: only `arrow` knows its feature"
    room = re.fullmatch(r"rust/offsetlog/src/log/(\w+?)(?:\.rs|/.+)", path)
    for layer in LOG_ROOMS.get(room[1], ()) if room else ():
        for found in re.finditer(rf"\blog::{layer}\b|\bsuper::{layer}\b|\blog::\{{[^}}]*\b{layer}::", code):
            yield f"{path}:{code[: found.start()].count(chr(10)) + 1}: `{layer}` is not below `{room and room[1]}`"


def files_outside_disk(path: str, text: str) -> Iterator[str]:
    """`std::fs` anywhere in the engine or the format but in `disk`."""
    if not path.startswith(("rust/offsetlog/src/", "rust/offsetlog-format/src/")):
        return
    if path == "rust/offsetlog/src/disk.rs" or path.startswith("rust/offsetlog/src/disk/"):
        return
    code = without_tests(without_comments(text))
    if path.endswith("_tests.rs"):
        return
    for found in re.finditer(r"\bstd::fs\b|\bstd::\{[^}]*\bfs\b|\bmemmap2\b|\brustix::fs\b", code):
        yield f"{path}:{code[: found.start()].count(chr(10)) + 1}: only `disk` opens files"


def io_in_protocol_logic(path: str, text: str) -> Iterator[str]:
    """Sockets, threads, files or a clock in modules of the net that a test's scheduler runs."""
    match = re.fullmatch(r"rust/offsetlog-net/src/(.+)\.rs", path)
    if match is None or re.search(r"(?:^|/)tests(?:/|$)|_(?:tests|kills)$", match[1]):
        return
    if not any(match[1] == room or match[1].startswith(f"{room}/") for room in PROTOCOL_LOGIC):
        return
    code = without_tests(without_comments(text))
    hits = [(hit.start(), hit[0]) for hit in OWN_IO.finditer(code)]
    for hit in re.finditer(r"\bstd::net\b(?:::(?P<names>\{[^}]*\}|\w+))?", code):
        names = set(re.findall(r"\w+", hit["names"] or "all"))
        hits += [(hit.start(), name) for name in sorted(names - ADDRESSES)]
    for start, name in sorted(hits):
        yield f"{path}:{code[:start].count(chr(10)) + 1}: {name.strip()} in protocol logic"


def async_runtimes(path: str, text: str) -> Iterator[str]:
    """Packages of a Rust lock file that run asynchronous code."""
    for hit in ASYNC_RUNTIMES.finditer(text):
        yield f"{path}:{text[: hit.start()].count(chr(10)) + 1}: {hit[1]} is an async runtime"


def paths_not_asked(path: str, text: str) -> Iterator[str]:
    """Paths from outside that nobody asks whether they are local: made absolute by hand, or arguments that are read as they are."""
    code = without_tests(without_comments(text))
    if path not in RESOLVING and not path.endswith("_tests.rs") and not path.startswith("rust/offsetlog-faults/"):
        for hit in re.finditer(r"\bpath::absolute\b", code):
            yield f"{path}:{code[: hit.start()].count(chr(10)) + 1}: local_path says what is not local"
    if path.startswith("rust/offsetlog-cli/src/args"):
        for hit in re.finditer(r"(?P<attribute>[^\n]*)\n *(?:pub\(crate\) )?\w+: (?:Vec<|Option<)?PathBuf>?,", code):
            if "value_parser = given()" not in hit["attribute"]:
                yield f"{path}:{code[: hit.end()].count(chr(10)) + 1}: a path without value_parser = given()"


def unsafe_elsewhere(path: str, text: str) -> Iterator[str]:
    """`unsafe` blocks, functions or impls outside the modules that need it."""
    if path in UNSAFE or not path.endswith(".rs"):
        return
    for number, line in enumerate(without_comments(text).splitlines(), 1):
        if re.search(r"\bunsafe\s*(?:\{|fn\b|impl\b|extern\b)", line) or re.search(r"(?:allow|expect)\(unsafe_code", line):
            yield f"{path}:{number}: unsafe"


def unfrozen_class(path: str, text: str) -> Iterator[str]:
    """`#[pyclass]` that is not frozen."""
    for found in re.finditer(r"#\[pyclass(?P<options>\([^\]]*\))?\]", text):
        if not re.search(r"\bfrozen\b", found["options"] or ""):
            yield f"{path}:{text[: found.start()].count(chr(10)) + 1}: #[pyclass] without frozen"


def machine_paths(path: str, text: str) -> Iterator[str]:
    """Absolute paths that only one machine has."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := HOME_PATHS.search(line):
            yield f"{path}:{number}: {found[0]} is a path of one machine"


def left_marks(path: str, text: str) -> Iterator[str]:
    """Marks of unfinished work."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := MARKS.search(line):
            yield f"{path}:{number}: {found[0]}"


def native_use(path: str, text: str) -> Iterator[str]:
    """Python outside the private modules of the facade that imports the compiled module."""
    if re.fullmatch(r"python/offsetlog/_[a-z]\w*\.py", path):
        return
    # `Record`, `Writer` and the version are public names that live there.
    public = {"Record", "Writer", "__version__"} if path == "python/offsetlog/__init__.py" else set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names if alias.name == "offsetlog._offsetlog"}
        elif not isinstance(node, ast.ImportFrom):
            continue
        elif node.module == "offsetlog._offsetlog":
            names = {alias.name for alias in node.names} - public
        elif node.module == "offsetlog":
            names = {alias.name for alias in node.names if alias.name == "_offsetlog"}
        else:
            continue
        if names:
            yield f"{path}:{node.lineno}: {', '.join(sorted(names))} of the compiled module"


def unknown_sections(path: str, text: str, sections: set[str]) -> Iterator[str]:
    """References to sections that FORMAT.md has not got."""
    for number, line in enumerate(text.splitlines(), 1):
        if "FORMAT.md «" not in line:
            continue
        for name in SECTION.findall(line[line.index("FORMAT.md «") :]):
            if name not in sections:
                yield f"{path}:{number}: FORMAT.md has no section «{name}»"


def host_names(path: str, text: str) -> Iterator[str]:
    """Lock files that say where packages were fetched from."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := HOSTS.search(line):
            yield f"{path}:{number}: {found[0]}"


def unpinned(path: str, text: str) -> Iterator[str]:
    """Requirements without an exact version or without hashes."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not re.match(r"[\w.-]+(?:\[[\w,]+\])?==[\w.+!-]+(?:\s|;)", line) or "--hash=sha256:" not in line:
            yield f"{path}: not pinned with hashes: {line.split('--hash')[0].strip()}"


def unsorted_names(path: str, text: str) -> Iterator[str]:
    """`__all__` that a public module lacks, or that is not sorted as ruff sorts it (constants, classes, the rest)."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            names = [str(name) for name in ast.literal_eval(node.value)]
            if names != sorted(names, key=_sort_key):
                yield f"{path}: __all__ is not sorted"
            if len(names) != len(set(names)):
                yield f"{path}: __all__ names something twice"
            return
    # A module whose name, or whose package's, begins with one underscore offers nothing to the world, and `__main__` nobody imports.
    if not re.search(r"(?:^|/)(?:_[a-z][^/]*/[^/]+|_[a-z][^/]*|__main__\.py)$", path):
        yield f"{path}: no __all__"


def _sort_key(name: str) -> tuple[int, str]:
    bare = name.lstrip("_")
    if name.startswith("__"):
        return (2, name)
    if bare.isupper():
        return (0, name)
    return (1, name) if bare[:1].isupper() else (2, name)
