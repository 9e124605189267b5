"""Each rule of ``rules.py`` fails where it should, and only there."""

from __future__ import annotations

import pytest
import rules


def test_long_files_need_a_reason() -> None:
    long = "line\n" * 601
    assert list(rules.too_long("a.py", long))
    assert not list(rules.too_long("a.py", "line\n" * 600))
    assert not list(rules.too_long("a.py", "# over 600 lines: one table\n" + long))
    assert list(rules.too_long("a.py", long + "# over 600 lines: said too late\n"))


@pytest.mark.parametrize(
    ("path", "text", "count"),
    [
        ("rust/offsetlog/src/segment/walk.rs", "use crate::log::Log;", 1),
        ("rust/offsetlog/src/segment.rs", "use crate::{Error, log::Log};", 1),
        ("rust/offsetlog/src/disk/real.rs", "crate::segment::x()", 1),
        ("rust/offsetlog/src/disk.rs", "use crate::error::Error;", 0),
        ("rust/offsetlog/src/log/scan.rs", "use crate::segment::Segment;", 0),
        ("rust/offsetlog/src/log/scan.rs", "use crate::log_dir::LogDir;", 1),
        ("rust/offsetlog/src/segment/walk.rs", "// not crate::log::Log", 0),
        ("rust/offsetlog/src/segment/walk.rs", "fn a() {}\n#[cfg(test)]\nmod tests { use crate::log::Log; }", 0),
        ("rust/offsetlog/src/log_dir.rs", "use crate::log::Log;", 0),
        ("rust/offsetlog/src/log/recovery/loader.rs", "use crate::log::writer::PartitionWriter;", 1),
        ("rust/offsetlog/src/log/recovery.rs", "use super::writer::PartitionWriter;", 1),
        ("rust/offsetlog/src/log/writer/open.rs", "use crate::log::recovery::load;", 0),
        ("rust/offsetlog-python/src/log.rs", "use crate::log_dir::LogDir;", 0),
        ("rust/offsetlog/src/log/scan.rs", '#[cfg(feature = "arrow")]\nfn stops() {}', 1),
        ("rust/offsetlog/src/arrow/append.rs", '#[cfg(feature = "arrow")]\nfn stops() {}', 0),
    ],
)
def test_layers(path: str, text: str, count: int) -> None:
    assert len(list(rules.upward_use(path, text))) == count


def test_files_are_opened_in_disk() -> None:
    assert list(rules.files_outside_disk("rust/offsetlog/src/log/open.rs", "use std::fs::File;"))
    assert list(rules.files_outside_disk("rust/offsetlog/src/log/open.rs", "use std::{fs, io};"))
    assert not list(rules.files_outside_disk("rust/offsetlog/src/disk/real.rs", "use std::fs::File;"))
    assert not list(rules.files_outside_disk("rust/offsetlog-cli/src/main.rs", "use std::fs::File;"))


@pytest.mark.parametrize(
    ("path", "text", "count"),
    [
        ("server/fetch.rs", "use std::net::TcpStream;", 2),
        ("server/fetch.rs", "use std::net::{IpAddr, ToSocketAddrs};", 1),
        ("server/fetch.rs", "use std::net::{IpAddr, Ipv4Addr};", 0),
        ("server/fetch.rs", "use std::net;", 1),
        ("server/fetch.rs", "use std::{io, net};", 1),
        ("server.rs", "std::thread::spawn(run);", 1),
        ("coordinator/group/join.rs", "thread::sleep(time);", 1),
        ("coordinator/timers.rs", "let now = Instant::now();", 1),
        ("mirror/core/fetching.rs", "if asked.elapsed() > EVERY {}", 1),
        ("mirror/core.rs", "let now_ms = wall_clock();", 1),
        ("sasl/gate.rs", "use std::fs;", 1),
        ("transport/connection.rs", "use rustix::event::poll;", 1),
        ("step.rs", "SystemTime::now()", 1),
        ("server/fetch.rs", "// not Instant::now()", 0),
        ("server/fetch.rs", "fn a(now: Instant) {}\n#[cfg(test)]\nmod tests { fn b() { Instant::now(); } }", 0),
        ("coordinator/tests/random.rs", "Instant::now()", 0),
        ("coordinator/committed_offsets_tests.rs", "use std::fs;", 0),
        ("transport/server.rs", "use std::net::TcpListener;", 0),
        ("mirror/run.rs", "std::thread::spawn(run);", 0),
        ("serving.rs", "Instant::now()", 0),
    ],
)
def test_protocol_logic_has_no_sockets_threads_or_clock(path: str, text: str, count: int) -> None:
    assert len(list(rules.io_in_protocol_logic(f"rust/offsetlog-net/src/{path}", text))) == count


def test_async_runtimes() -> None:
    for name in ("tokio", "tokio-util", "async-std", "mio", "smol"):
        assert list(rules.async_runtimes("Cargo.lock", f'[[package]]\nname = "{name}"\nversion = "1.0.0"\n'))
    assert not list(rules.async_runtimes("Cargo.lock", 'name = "smallvec"\nname = "miow"\n# tokio\n'))


def test_paths_from_outside() -> None:
    assert list(rules.paths_not_asked("rust/offsetlog/src/log.rs", "let a = std::path::absolute(b)?;"))
    assert not list(rules.paths_not_asked("rust/offsetlog/src/local_path.rs", "let a = std::path::absolute(b)?;"))
    field = "    pub(crate) paths: Vec<PathBuf>,\n"
    for attribute, count in (("#[arg(long)]", 1), ("#[arg(long, value_parser = given())]", 0)):
        text = f"    {attribute}\n{field}"
        assert len(list(rules.paths_not_asked("rust/offsetlog-cli/src/args/topics.rs", text))) == count
    assert not list(rules.paths_not_asked("rust/offsetlog-ops/src/restore.rs", field))


@pytest.mark.parametrize("text", ["unsafe { a() }", "pub unsafe fn a() {}", "unsafe impl Send for A {}", "#[allow(unsafe_code)]"])
def test_unsafe(text: str) -> None:
    assert list(rules.unsafe_elsewhere("rust/offsetlog/src/log.rs", text))
    assert not list(rules.unsafe_elsewhere("rust/offsetlog/src/disk/map.rs", text))
    assert not list(rules.unsafe_elsewhere("rust/offsetlog/src/log.rs", "fn is_unsafe() {} // unsafe { }"))
    assert not list(rules.unsafe_elsewhere("rust/offsetlog-format/src/lib.rs", "#![forbid(unsafe_code)]"))


def test_frozen() -> None:
    assert list(rules.unfrozen_class("a.rs", "#[pyclass]\nstruct A;"))
    assert list(rules.unfrozen_class("a.rs", '#[pyclass(module = "offsetlog")]'))
    assert not list(rules.unfrozen_class("a.rs", '#[pyclass(frozen, module = "offsetlog")]'))


def test_paths_of_machines() -> None:
    for path in ("work/main", "root/x", "home/someone/x", "Users/someone", "tmp/spec"):
        assert list(rules.machine_paths("a.md", f"see /{path}"))
    assert not list(rules.machine_paths("a.md", "see /var/lib/kafka and tests/tmp/x, https://host/tmp/x"))


@pytest.mark.parametrize("mark", ["FIX" + "ME", "TO" + "DO", "dbg" + "!(a)", "todo" + "!()"])
def test_marks(mark: str) -> None:
    assert list(rules.left_marks("a.rs", f"// {mark}: later"))
    assert not list(rules.left_marks("a.rs", "// to do it later"))


def test_compiled_module() -> None:
    assert list(rules.native_use("python/offsetlog/spark/source.py", "from offsetlog._offsetlog import Log"))
    assert list(rules.native_use("python/offsetlog/spark/source.py", "from offsetlog import _offsetlog"))
    assert list(rules.native_use("python/offsetlog/errors.py", "import offsetlog._offsetlog"))
    assert list(rules.native_use("python/offsetlog/__init__.py", "from offsetlog._offsetlog import Scan"))
    assert not list(rules.native_use("python/offsetlog/__init__.py", "from offsetlog._offsetlog import Record, Writer, __version__"))
    assert not list(rules.native_use("python/offsetlog/_log.py", "from offsetlog import _offsetlog"))


def test_sections() -> None:
    sections = {"Record", "Names"}
    assert list(rules.unknown_sections("a.rs", "// (FORMAT.md «Recrod»)", sections))
    assert list(rules.unknown_sections("a.rs", "// FORMAT.md «Record», «Other»", sections))
    assert not list(
        rules.unknown_sections("a.rs", "// FORMAT.md «Record», «Names»; «quoted» alone is not on this line\n", {*sections, "quoted"})
    )
    assert not list(rules.unknown_sections("a.rs", "// «anything» without the file", sections))


def test_hosts_in_locks() -> None:
    for line in ("--index-url https://host/simple", "a @ https://host/a.whl", "--find-links x", "# from pypi.example.org"):
        assert list(rules.host_names("a.txt", line))
    assert not list(rules.host_names("a.txt", "a==1.0 \\\n    --hash=sha256:00ff"))


def test_pins() -> None:
    assert list(rules.unpinned("a.txt", "a>=1 --hash=sha256:00"))
    assert list(rules.unpinned("a.txt", "a==1.0"))
    assert not list(rules.unpinned("a.txt", "a==1.0 ; python_version < '3.12' \\\n    --hash=sha256:00"))


def test_all() -> None:
    assert not list(rules.unsorted_names("a.py", '__all__ = ["MAX_BYTES", "Log", "Scan", "__version__", "scan"]'))
    assert list(rules.unsorted_names("a.py", '__all__ = ["b", "a"]'))
    assert list(rules.unsorted_names("a.py", '__all__ = ["a", "a"]'))
    assert list(rules.unsorted_names("python/offsetlog/a.py", "a = 1"))
    assert list(rules.unsorted_names("python/offsetlog/__init__.py", "a = 1"))
    assert not list(rules.unsorted_names("python/offsetlog/_a.py", "a = 1"))
