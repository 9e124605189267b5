"""``docs/COMPATIBILITY.md`` claims nothing without a test, every test that it names is there, and its lists are those of the tests and the code."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from golden import CLEAN
from kafka_wire import Wire

from offsetlog import Server

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "COMPATIBILITY.md"
LABEL = r"[A-Z]\d+"
CLAIM = re.compile(rf"\byes\b(: {LABEL}(?:, {LABEL})*)?")
ROW = re.compile(rf"^\| ({LABEL}) \| .* \| (`[^|]+`) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w./-]+)::(\w*)`")


def claims(text: str) -> list[str]:
    """What stands behind each «yes»: labels, or nothing."""
    body, _, _ = text.partition("\n## The tests")
    _, _, body = body.partition("\n## ")
    return [match[1] or "" for match in CLAIM.finditer(body)]


def labels(text: str) -> dict[str, list[tuple[str, str]]]:
    """The list of tests: file and function by label."""
    return {label: NAMED.findall(cell) for label, cell in ROW.findall(text)}


def is_defined(text: str, path: str, function: str) -> bool:
    """Whether a test of that name begins in this text."""
    if path.endswith(".rs"):
        return re.search(rf"#\[test\]\n(?:\s*#\[.*\]\n)*\s*fn {function}\(", text) is not None
    return re.search(rf"^def {function}\(", text, re.MULTILINE) is not None


def test_every_claim_names_tests_of_the_list() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = claims(text)
    assert len(found) > 40
    assert all(found), "a «yes» without the test that shows it"
    used = {label for claim in found for label in re.findall(LABEL, claim)}
    assert used == set(labels(text))


def test_every_test_named_on_the_page_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    listed = labels(text)
    assert len(listed) == len(ROW.findall(text)) > 20
    for label, tests in listed.items():
        assert tests, label
    for path, function in NAMED.findall(text):
        assert is_defined((ROOT / path).read_text(encoding="utf-8"), path, function), f"{path} has no test {function}"


def test_brokers_on_the_page_are_those_that_are_run() -> None:
    text = PAGE.read_text(encoding="utf-8")
    conftest = (ROOT / "tests" / "broker" / "conftest.py").read_text(encoding="utf-8")
    run = re.search(r"^VERSIONS = \((.*)\)$", conftest, re.MULTILINE)
    assert run is not None
    _, _, table = text.partition("\n## offsetlog writes, Kafka opens")
    table, _, _ = table.partition("\n## ")
    claimed = re.findall(r"^\| (\d[\d.]*\d) \| yes", table, re.MULTILINE)
    assert sorted(claimed) == sorted(re.findall(r"\"([\d.]+)\"", run[1]))


def section(heading: str) -> str:
    """The part of the page below a heading, with the smaller ones in it."""
    level = heading.partition(" ")[0]
    below = PAGE.read_text(encoding="utf-8").partition(f"\n{heading}\n")[2]
    return re.split(rf"\n{level} ", below, maxsplit=1)[0]


def source(path: str) -> str:
    """A file of this tree."""
    return (ROOT / path).read_text(encoding="utf-8")


def test_apis_on_the_page_are_those_that_are_announced() -> None:
    """Asked of a running server; the names are those of the code's table."""
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d+)(?: to (\d+))? \|$", section("### Announced APIs"), re.MULTILINE)
    claimed = {int(key): (name, int(low), int(high or low)) for key, name, low, high in rows}
    names = dict(re.findall(r"key: (\d+),\n\s*name: \"(\w+)\"", source("rust/offsetlog-format/src/protocol/apis.rs")))
    with Server(CLEAN / "log-dir-1", topics=["g-plain"]) as kafka:
        answer = Wire(kafka.bootstrap_servers).ask(18, 0, b"")
    error, count = struct.unpack_from(">hi", answer)
    assert (error, len(answer)) == (0, 6 + 6 * count)
    announced = list(struct.iter_unpack(">hhh", answer[6:]))
    assert claimed == {key: (names[str(key)], low, high) for key, low, high in announced}
    assert len(rows) == count > 20


def test_clients_on_the_page_are_those_that_are_run() -> None:
    """Versions are those of the locked requirements, and of the tests' own lists."""
    page = dict(re.findall(r"^\| ([^|]+?) \| ([\d., ]+?) \|", section("## Clients that `serve` answers"), re.MULTILINE))
    (connector,) = re.findall(r"<spark.version>([\d.]+)</spark.version>", source("benches/peers/spark/pom.xml"))
    programs = source("tests/net/client_programs.py")
    java = re.search(r"^JAVA_VERSIONS = \((.*)\)$", programs, re.MULTILINE)
    assert java is not None

    def locked(file: str, package: str) -> str:
        (version,) = re.findall(rf"^{package}==([\d.]+)", source(f"requirements/{file}.txt"), re.MULTILINE)
        return str(version)

    (franz_go,) = re.findall(r"franz-go v([\d.]+)", source("tests/net/go/go.mod"))
    (tools,) = re.findall(r'^VERSION = "([\d.]+)"$', source("tests/net/test_tools.py"), re.MULTILINE)
    assert page == {
        "Kafka's Java clients": ", ".join(re.findall(r'"([\d.]+)"', java[1])),
        "confluent-kafka (librdkafka)": f"{locked('clients', 'confluent-kafka')}, {locked('clients-old', 'confluent-kafka')}",
        "kafka-python": locked("clients", "kafka-python"),
        "aiokafka": locked("clients", "aiokafka"),
        "Kafka's console consumer": tools,
        f"Spark's Kafka source {connector}, in PySpark": locked("spark40", "pyspark"),
        "franz-go": franz_go,
    }
    run = set(re.findall(r"Client\(\"([a-z-]+?)(?:-[\d.]+)?\"", programs))
    assert run == {"confluent-kafka", "kafka-python", "aiokafka"}
    assert programs.count("_java(version)") == 1


def test_tests_that_are_left_out_are_those_that_are_counted() -> None:
    """How many, and why; that these are all is told by the tests of clients."""
    table = section("## Clients that `serve` answers").partition("| tests of | those that | are |")[2].partition("\n\n")[0]
    entries = re.findall(
        r'LeftOut\(\s*"([\w-]+)",\s*(\d+),\s*r"[^"]*",\s*"([^"]+)",?\s*\)', source("tests/net/test_other_projects.py")
    )
    rows = re.findall(r"^\| ([\w-]+) \| (.+) \| (\d+) \|$", table, re.MULTILINE)
    assert [(name, number, reason) for name, reason, number in rows] == entries
    assert len(entries) > 10


def test_differences_on_the_page_are_those_that_are_allowed() -> None:
    """By API; what differs, and why, is with the test."""
    table = section("### Where answers differ from a broker's").partition("In what a running broker")[0]
    claimed = set(re.findall(r"^\| (\w+) \| (?!what differs)", table, re.MULTILINE)) - {"API"}
    apis = set()
    for name in ("known_differences", "test_same_sasl"):
        allowed = source(f"tests/net/{name}.py").partition("\nDIFFERENCES = (\n")[2].partition("\n)\n")[0]
        apis |= set(re.findall(r"Difference\(\s*(\w+),", allowed))
    assert claimed == {"all" if api == "None" else "".join(map(str.capitalize, api.split("_"))) for api in apis}
    assert len(claimed) > 10


def test_sources_of_mirrors_on_the_page_are_those_that_are_run() -> None:
    rows = re.findall(r"^\| ([\d.]+) \| (.*) \|$", section("## Brokers that `mirror` copies"), re.MULTILINE)
    claimed = {version: {label for cell in CLAIM.findall(cells) for label in re.findall(LABEL, cell)} for version, cells in rows}
    clusters = re.search(r"^KRAFT = \((.*)\)$", source("tests/broker/conftest.py"), re.MULTILINE)
    assert clusters is not None
    for name in ("test_mirror", "test_mirrored_cluster"):
        assert "params=KRAFT" in source(f"tests/broker/{name}.py")
    old = source("tests/broker/test_mirror_golden.py").partition("def test_old_formats_come_as_they_are")[2]
    run = {"Y1": clusters[1], "Y2": clusters[1], "Y3": clusters[1], "Y11": re.findall(r'with_log_dirs\(("[\d.]+")', old)[0]}
    run |= {"Y4": source("tests/broker/test_mirror_deletes.py"), "Y5": source("tests/broker/test_mirror_security.py")}
    for label, text in run.items():
        versions = set(re.findall(r'"(\d\.\d\.\d)"', text))
        assert versions == {version for version, labels in claimed.items() if label in labels}, label


def test_brokers_that_get_rescued_records_are_those_that_are_run() -> None:
    rows = re.findall(r"^\| ([\d.]+) \(\w+\) \| (.*) \|$", section("## Rescued records, served by Kafka"), re.MULTILINE)
    claimed: dict[str, set[str]] = {}
    for version, cells in rows:
        for label in re.findall(LABEL, " ".join(CLAIM.findall(cells))):
            claimed.setdefault(label, set()).add(version)
    clusters = re.search(r"^KRAFT = \((.*)\)$", source("tests/broker/conftest.py"), re.MULTILINE)
    kills = re.search(r"^KILLS = (.*)$", source("tests/broker/test_killed_transactions.py"), re.MULTILINE)
    assert clusters is not None
    assert kills is not None
    stopped = source("tests/broker/test_restored_stopped.py").partition("\n    cases(\n")[2].partition("ids=")[0]
    run = {"E1": clusters[1], "E2": stopped, "E6": kills[1]}
    for label, text in run.items():
        assert claimed[label] == set(re.findall(r'"(\d\.\d\.\d)', text)), label


@pytest.mark.parametrize(
    ("path", "text", "there"),
    [
        ("a.py", "def test_a() -> None:", True),
        ("a.py", "def test_a_b() -> None:", False),
        ("a.py", "# def test_a() -> None:", False),
        ("a.rs", "#[test]\nfn test_a() {", True),
        ("a.rs", "    #[test]\n    #[cfg(unix)]\n    fn test_a() {", True),
        ("a.rs", "fn test_a() {", False),
    ],
)
def test_a_missing_test_is_noticed(path: str, text: str, there: bool) -> None:
    """The check above can fail."""
    assert is_defined(text, path, "test_a") == there
    assert claims("\n## A\n\nyes, it does; yes: A1, B2\n\n## The tests\n\nyes") == ["", ": A1, B2"]
