"""The settings of a topic: what Kafka calls them, as a frozen value.

Which settings there are, what they take and what holds by default is the engine's table; nothing of it is repeated here but names
and types, for editors and type checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from operator import index
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, TypedDict, Unpack, final

from offsetlog._offsetlog import config_check, settings
from offsetlog.errors import ConfigError

CompressionType: TypeAlias = Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
TimestampType: TypeAlias = Literal["CreateTime", "LogAppendTime"]
SettingValue: TypeAlias = str | int | float | bool | timedelta | Sequence[str]
Value: TypeAlias = str | int | float | bool | tuple[str, ...] | None

_MILLISECOND = timedelta(milliseconds=1)
_TEXT_MAX = 200
_REPR_MAX = 60


class Setting(NamedTuple):
    """A row of the engine's table."""

    name: str
    """Kafka's name, as ``segment.ms``."""
    type: str
    """Kafka's type: boolean, double, int, list, long or string."""
    default: str
    """Text of the default; empty for none."""
    bounds: str
    """The accepted values, in words; empty if the type says all."""
    broker_synonyms: list[str]
    """Settings of a broker from which a topic there has its default; the first that is set wins."""
    effective: bool
    """Whether offsetlog does anything about it. If not, it is checked and kept for brokers."""
    documentation: str
    """What it means."""

    @property
    def attribute(self) -> str:
        """The name as :class:`LogConfig` spells it."""
        return self.name.replace(".", "_")


SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in settings()}
_NAMES = {setting.attribute: name for name, setting in SETTINGS.items()}
_READ: Mapping[str, Callable[[str], Value]] = {
    "boolean": lambda text: text == "true",
    "double": float,
    "int": lambda text: int(text) if text else None,
    "list": lambda text: tuple(text.split(",")) if text else (),
    "long": int,
    "string": str,
}


class Settings(TypedDict, total=False):
    """Keyword arguments of :class:`LogConfig`."""

    cleanup_policy: str | Sequence[str]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: CompressionType
    compression_zstd_level: int
    delete_retention_ms: int | timedelta
    file_delete_delay_ms: int | timedelta
    flush_messages: int
    flush_ms: int | timedelta
    follower_replication_throttled_replicas: str | Sequence[str]
    index_interval_bytes: int
    internal_segment_bytes: int
    leader_replication_throttled_replicas: str | Sequence[str]
    local_retention_bytes: int
    local_retention_ms: int | timedelta
    max_compaction_lag_ms: int | timedelta
    max_message_bytes: int
    message_timestamp_after_max_ms: int | timedelta
    message_timestamp_before_max_ms: int | timedelta
    message_timestamp_type: TimestampType
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int | timedelta
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int | timedelta
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int | timedelta
    segment_ms: int | timedelta
    unclean_leader_election_enable: bool


@final
class LogConfig:
    """The settings of one topic. Frozen, hashable, picklable; equal when the same settings were given with the same values.

    Parameters
    ----------
    **settings
        Kafka's names with underscores, as ``segment_ms=3_600_000``. Names that end in ``_ms`` take a
        :class:`~datetime.timedelta` as well, lists of words a sequence. Text is read as Kafka reads it.

    Attributes
    ----------
    cleanup_policy, segment_ms, ...
        Every topic setting under such a name, with the value that holds: what was given, else Kafka's default.
        The page «Settings» of the documentation lists them.

    Raises
    ------
    ConfigError
        An unknown name (the text suggests the nearest one), a value of the wrong type or out of bounds, settings that contradict
        each other. ``key`` and ``value`` are attributes of the error.

    Examples
    --------
    >>> from datetime import timedelta
    >>> config = LogConfig(cleanup_policy="compact, delete", segment_ms=timedelta(hours=1))
    >>> config
    LogConfig(cleanup_policy='compact,delete', segment_ms=3600000)
    >>> config.cleanup_policy, config.retention_ms
    (('compact', 'delete'), 604800000)
    >>> LogConfig.from_dict({"segment.bytes": 100})
    Traceback (most recent call last):
    offsetlog.errors.ConfigError: segment.bytes: "100" found, a whole number (int), at least 1048576 expected
    """

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: CompressionType
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    internal_segment_bytes: int | None
    leader_replication_throttled_replicas: tuple[str, ...]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: TimestampType
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    _given: tuple[tuple[str, str], ...]

    def __init__(self, **settings: Unpack[Settings]) -> None:
        self.__dict__.update(_checked({_NAMES.get(name, name): value for name, value in settings.items()}))

    @classmethod
    def from_dict(cls, settings: Mapping[str, SettingValue]) -> LogConfig:
        """Make one from Kafka's own names, as ``{"segment.ms": "3600000"}``: what brokers and their tools print.

        Values are Kafka's texts or what the constructor takes. Raises :class:`ConfigError` as the constructor does.
        """
        config = cls.__new__(cls)
        config.__dict__.update(_checked(settings))
        return config

    def to_dict(self) -> dict[str, str | int | float | bool]:
        """Return what was given, by Kafka's names in their order; lists as text with commas. Defaults are not among them."""
        return {name: text if SETTINGS[name].type == "list" else _plain(name, text) for name, text in self._given}

    def replace(self, **settings: Unpack[Settings]) -> LogConfig:
        """Return the same settings with these in the place of theirs, or beside them."""
        changed: dict[str, Any] = {_NAMES.get(name, name): value for name, value in settings.items()}
        return LogConfig.from_dict({**dict(self._given), **changed})

    def __setattr__(self, name: str, value: object) -> NoReturn:
        message = f"LogConfig is frozen: use replace({name}=...)"
        raise AttributeError(message)

    def __delattr__(self, name: str) -> NoReturn:
        message = f"LogConfig is frozen: {name} cannot be deleted"
        raise AttributeError(message)

    def __eq__(self, other: object) -> bool:
        return self._given == other._given if isinstance(other, LogConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._given)

    def __repr__(self) -> str:
        shown = (f"{SETTINGS[name].attribute}={_short(value)}" for name, value in self.to_dict().items())
        return f"LogConfig({', '.join(shown)})"

    def __reduce__(self) -> tuple[Callable[[Mapping[str, SettingValue]], LogConfig], tuple[dict[str, str]]]:
        return LogConfig.from_dict, (dict(self._given),)


def to_log_config(config: LogConfig | Mapping[str, SettingValue]) -> LogConfig:
    """Return `config`, made from a mapping of Kafka's names if it is one."""
    return config if isinstance(config, LogConfig) else LogConfig.from_dict(config)


def _checked(settings: Mapping[str, object]) -> dict[str, object]:
    """What a config of these settings holds."""
    texts = {_name(name): _text(name, value) for name, value in settings.items()}
    try:
        given = tuple(config_check(list(texts.items())))
    except ConfigError as error:
        # For an unknown name the engine has no key.
        key = error.key if error.key in texts else next((name for name in texts if name not in SETTINGS), error.key)
        value = texts.get(key, "") if key is not None else ""
        raise ConfigError(str(error), key=key, value=value[:_TEXT_MAX]) from None
    held = dict(given)
    values = {row.attribute: _READ[row.type](held.get(name, row.default)) for name, row in SETTINGS.items()}
    return {**values, "_given": given}


def _name(name: object) -> str:
    """A setting's name, if it is a text at all."""
    if not isinstance(name, str):
        message = f"names of settings must be str, found {type(name).__name__}"
        raise TypeError(message)
    return _encodable(name)


def _plain(name: str, text: str) -> str | int | float | bool:
    """The value of a setting that is no list."""
    value = _READ[SETTINGS[name].type](text)
    return text if value is None or isinstance(value, tuple) else value


def _text(name: str, value: object) -> str:
    """A value as Kafka writes it; the engine says whether the setting takes it."""
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # Subclasses, as NumPy's, have other reprs.
        return float.__repr__(value)
    if isinstance(value, timedelta):
        return _millis(name, value)
    if hasattr(value, "__index__"):
        return str(index(value))
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | Mapping):
        items = list(value)
        if all(isinstance(item, str) for item in items):
            return _encodable(",".join(items))
    message = f"{name} must be text, a number, a bool, a timedelta or a sequence of texts, found {type(value).__name__}"
    raise TypeError(message)


def _millis(name: str, value: timedelta) -> str:
    """A length of time in whole ms, where the setting is one."""
    if not name.endswith(".ms"):
        message = f"{name}: a timedelta found, only settings that end in ms take one"
        raise ConfigError(message, key=name, value=str(value))
    millis, rest = divmod(value, _MILLISECOND)
    if rest:
        message = f"{name}: {value} found, whole milliseconds expected"
        raise ConfigError(message, key=name, value=str(value))
    return str(millis)


def _encodable(text: str) -> str:
    """`text` with its lone surrogates written out: no setting takes them, and the engine has no such text."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _short(value: object) -> str:
    """The repr of a value, cut."""
    text = repr(value)
    return text if len(text) <= _REPR_MAX else f"{text[:_REPR_MAX]}..."
