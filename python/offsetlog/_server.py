"""``Server``: log dirs that real Kafka clients read."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypedDict

from offsetlog import _offsetlog
from offsetlog._options import flag, integer, open_options, path_text, path_texts, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from offsetlog._options import Limits, PathLike

__all__ = ["Server", "ServerEvent"]

Until: TypeAlias = Literal["log-end", "high-watermark"]
OpenTransactions: TypeAlias = Literal["wait", "decide"]


class ServerOptions(TypedDict):
    """What a server takes beside paths and limits."""

    listen: Sequence[str]
    advertise: str | None
    topics: Sequence[str]
    high_watermark: bool
    decide: bool
    without_state: bool
    without_offsets: bool
    groups: str | None
    broker: str | None
    metadata: str | None
    tls_certificate: str | None
    tls_key: str | None
    tls_client_ca: str | None
    users: str | None
    insecure: bool
    metrics: str | None
    max_connections: int
    idle_timeout_ms: int


class ServerEvent(NamedTuple):
    """Something that a server has to tell; :meth:`Server.events` returns them."""

    level: str
    """``info``, ``warning`` (a client did something wrong) or ``error`` (the server did, or its disk)."""
    kind: str
    """A word for programs, such as ``damage``, ``authentication`` or ``slow-client``."""
    peer: str | None
    """The client's address and port, if it is about one."""
    text: str
    """A sentence. It may hold what a client sent."""


class Server:
    """Serve log dirs to Kafka clients, read-only, from threads of this process.

    Answers when the constructor returns, until :meth:`stop`, the end of the ``with`` block or of the interpreter. No byte of the log
    dirs changes, and a broker may run on them. Producing is refused; groups begin at what the dead cluster's groups had committed, and
    what clients commit is kept in memory, or in a log of our own. A child after a fork does not serve; the parent does.

    Parameters
    ----------
    paths
        Log dirs, partition directories, and the cluster's metadata or ZooKeeper's data; one or several.
    listen
        Where to listen, as ``host:port``; one or several. Port 0 chooses one.
    advertise
        What clients are told to connect to, as ``host:port``, if that is not the first of `listen`; port 0 means its port.
    topics
        Only these topics.
    until
        ``"log-end"``: all whole batches. ``"high-watermark"``: up to the dead leader's high watermark, which may be 5 seconds old.
    open_transactions
        What becomes of transactions without an end. ``"wait"``: ``read_committed`` ends before the first one, as with a broker.
        ``"decide"``: they end as their coordinator's record says, and what was not decided is shown as aborted.
    without_state
        With ``"decide"``: show as aborted what no coordinator's record tells of.
    groups
        Keep committed offsets in a log of our own in this directory, which is none of `paths`, instead of in memory.
    without_offsets
        Groups whose committed offsets are not in `paths`, or cannot be read, begin with none. Without it their consumers get an error.
    broker
        The broker's ``server.properties``, for the settings that clients are told.
    metadata
        The folder with the cluster's metadata log, or ZooKeeper's data, if it is not among `paths`.
    tls_certificate, tls_key
        PEM files with the server's certificate chain and its key.
    tls_client_ca
        A PEM file with the authorities whose clients get in; others do not.
    users
        A file with a line ``name=password`` for each user who gets in, by PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
    insecure
        Allow an address that other machines can reach without TLS or without users.
    metrics
        Where Prometheus asks, as ``host:port``.
    max_connections
        Connections at once; more wait.
    idle_timeout_ms
        How long a connection may ask nothing.
    **limits
        As for :meth:`Log.open`, but for ``mapped``.

    Raises
    ------
    ConfigError
        An address is wrong, or others can reach it without TLS or users; a certificate, a key or the users cannot be used; a topic is
        not here.
    LogDirError
        A path is no log dir.
    OSError
        A path cannot be read, or an address is in use.

    Examples
    --------
    >>> from offsetlog import Server
    >>> with Server("tests/data/kafka-4.3.0/clean/log-dir-1") as kafka:
    ...     address, _, port = kafka.bootstrap_servers.rpartition(":")  # KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers)
    >>> address, int(port) > 0
    ('127.0.0.1', True)
    """

    __slots__ = ("__weakref__", "_server", "_stop")

    def __init__(  # noqa: PLR0913  # each is an option of its own
        self,
        paths: PathLike | Sequence[PathLike],
        *,
        listen: str | Sequence[str] = "127.0.0.1:0",
        advertise: str | None = None,
        topics: Sequence[str] = (),
        until: Until = "log-end",
        open_transactions: OpenTransactions = "wait",
        without_state: bool = False,
        groups: PathLike | None = None,
        without_offsets: bool = False,
        broker: PathLike | None = None,
        metadata: PathLike | None = None,
        tls_certificate: PathLike | None = None,
        tls_key: PathLike | None = None,
        tls_client_ca: PathLike | None = None,
        users: PathLike | None = None,
        insecure: bool = False,
        metrics: str | None = None,
        max_connections: int = 1024,
        idle_timeout_ms: int = 600_000,
        **limits: Unpack[Limits],
    ) -> None:
        """Start to serve."""
        if until not in ("log-end", "high-watermark"):
            refuse("until", until, f"there are 'log-end' and 'high-watermark', found {until!r}")
        if open_transactions not in ("wait", "decide"):
            refuse("open_transactions", open_transactions, f"there are 'wait' and 'decide', found {open_transactions!r}")
        if flag("without_state", without_state) and open_transactions == "wait":
            refuse("without_state", without_state, "goes with open_transactions='decide'")
        if limits.get("mapped"):
            refuse("mapped", True, "what is served may be cut by others meanwhile, which kills a process that maps it")
        if isinstance(topics, str):
            message = "topics must be a sequence of str, found str"
            raise TypeError(message)

        def file(path: PathLike | None) -> str | None:
            return None if path is None else path_text(path)

        options = ServerOptions(
            listen=[listen] if isinstance(listen, str) else list(listen),
            advertise=advertise,
            topics=list(topics),
            high_watermark=until == "high-watermark",
            decide=open_transactions == "decide",
            without_state=without_state,
            groups=file(groups),
            without_offsets=flag("without_offsets", without_offsets),
            broker=file(broker),
            metadata=file(metadata),
            tls_certificate=file(tls_certificate),
            tls_key=file(tls_key),
            tls_client_ca=file(tls_client_ca),
            users=file(users),
            insecure=flag("insecure", insecure),
            metrics=metrics,
            max_connections=integer("max_connections", max_connections, minimum=1),
            idle_timeout_ms=integer("idle_timeout_ms", idle_timeout_ms, minimum=1),
        )
        self._server = _offsetlog.Server(path_texts(paths), open_options(**limits), options)
        # Also when the interpreter ends: clients then see an end, and no connection is cut in the middle of a response.
        self._stop = weakref.finalize(self, self._server.stop)

    @property
    def bootstrap_servers(self) -> str:
        """What clients take as ``bootstrap.servers``: ``host:port``."""
        return self._server.bootstrap_servers

    @property
    def metrics_address(self) -> str | None:
        """Where Prometheus asks, as ``host:port``; ``None`` without `metrics`."""
        return self._server.metrics_address

    @property
    def running(self) -> bool:
        """Whether it serves: not stopped, and not the parent's."""
        return self._server.running

    @property
    def connections(self) -> int:
        """Number of connections that are open."""
        return self._server.connections()

    def metrics(self) -> str:
        """Return what was counted, as Prometheus's text. Looks at the ends of each partition.

        Raises
        ------
        LogClosedError
            The server has been stopped.
        """
        return self._server.metrics()

    def events(self) -> list[ServerEvent]:
        """Return what it had to tell since the last call, of 1,000 events the newest."""
        return [ServerEvent(*event) for event in self._server.events()]

    def stop(self) -> None:
        """Stop within a few seconds: responses that are being sent go out, all else ends. Does nothing the second time."""
        self._stop.detach()
        self._server.stop()

    def __enter__(self) -> Self:
        """Return the server itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop."""
        self.stop()

    def __repr__(self) -> str:
        """Return where it serves, or that it has been stopped."""
        state = self.bootstrap_servers if self.running else "stopped"
        return f"<offsetlog.Server {state}>"
