"""`maintain` in a stopped broker's log dir removes what the broker itself removes, or refuses that partition by name; `why` foretells it.

Each expected value is the broker's: what consumers get from it, what is left in its directory, and what it says that its settings are.
"""

from __future__ import annotations

import re

from upkeep import AT_ONCE, BROKER_KEEPS, BY_DEFAULT, DEFAULT_KEEPS, INTERNAL, OWN, SETTINGS, Outcome, Run, Upkeep

LAYERS = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_BROKER_CONFIG": "dynamic broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "dynamic default broker",
    "STATIC_BROKER_CONFIG": "broker",
    "DEFAULT_CONFIG": "default",
}
"""Ours, by the broker's names for them."""
BELOW_THE_CLUSTER = {"broker", "default"}
"""Layers that only `server.properties` tells of: what it says, and that it says nothing."""
MADE_BY_SOMEBODY = set(LAYERS.values()) - {"default"}
FOR_EVER = "-1"
NEED_NO_OTHER_LAYER = {topic for topic in SETTINGS if topic.startswith("all-")}
UNKNOWN = re.compile(r"^(?:.*: )?([a-z., ]+) (?:is|are) not known in this broker's log dir")


def refused(run: Run, topics: set[str]) -> bool:
    """Whether these and no others were refused, and nothing of them is another than before: no byte, no name, no time."""
    assert run.failed.keys() == topics
    return not run.changed & {f"{topic}-0" for topic in topics}


def unknown(why: str) -> set[str]:
    """The settings that a refusal names."""
    found = UNKNOWN.match(why)
    assert found, why
    return set(found[1].split(", "))


def same(outcome: Outcome, run: Run, topic: str) -> bool:
    """Whether a topic is as the broker left its own.

    Of the logs that it compacts and removes from, a broker compacts the dirtiest, and then removes from all, before it comes to compact
    the next one. Which one is the dirtiest, where all are new to it, is chance; that one is as if there were no other.
    """
    theirs = outcome.theirs[topic]
    return run.kept[topic] == theirs or (outcome.has_both(topic) and outcome.alone[topic] == theirs)


def test_every_step_is_done(upkeep_told: Upkeep) -> None:
    """A broker that does not start, upkeep of the broker's that comes to no end, or of ours that raises."""
    if upkeep_told.failure is not None:
        raise upkeep_told.failure
    assert upkeep_told.outcomes.keys() == {case.name for case in upkeep_told.cases}


def test_with_all_layers_every_partition_is_as_the_broker_leaves_it(upkeep: Upkeep) -> None:
    """Beginning, end, segments, and every record. Also where the layers are given as settings, as the broker tells them."""
    for name, outcome in upkeep.outcomes.items():
        for given in outcome.runs.keys() & {"all", "options"}:
            run = outcome.runs[given]
            assert run.failed == {}, (name, given)
            for topic, theirs in outcome.theirs.items():
                assert same(outcome, run, topic), (name, given, topic, run.kept[topic], theirs)
    assert any("options" in outcome.runs for outcome in upkeep.outcomes.values())


def test_most_logs_with_both_policies_lose_old_segments_first(upkeep: Upkeep) -> None:
    """Chance decides of some, not of all."""
    for name, outcome in upkeep.outcomes.items():
        run = outcome.runs["all"]
        both = {topic for topic in SETTINGS if outcome.has_both(topic)}
        assert both >= {"own-both", "own-both-open"}
        assert len([topic for topic in both if run.kept[topic] == outcome.theirs[topic]]) >= len(both) / 2, name


def test_the_command_and_single_logs_do_the_same(upkeep: Upkeep) -> None:
    for name, outcome in upkeep.outcomes.items():
        if outcome.by_command:
            assert outcome.by_command == outcome.runs["all"].kept, name
        one_policy = {topic for topic in SETTINGS if not outcome.has_both(topic)}
        assert len(one_policy) >= 4
        for topic in one_policy:
            assert outcome.alone[topic] == outcome.theirs[topic], (name, topic)
    assert any(outcome.by_command for outcome in upkeep.outcomes.values())


def test_why_names_beforehand_what_the_broker_deletes(upkeep: Upkeep) -> None:
    """Due is what the broker then deletes, by segments and bytes, and nothing else is due. When it is done, nothing is."""
    reasons = set()
    for name, outcome in upkeep.outcomes.items():
        for topic in SETTINGS:
            answer, theirs, before = outcome.why[topic]["deletion"], outcome.theirs[topic], upkeep.filled[topic]
            then, place = outcome.why_then[topic]["deletion"], (name, topic, answer)
            reasons |= {answer.reason, then.reason}
            # Where the broker compacts first, it deletes later than at once: chance decides which it does.
            if not outcome.has_both(topic):
                gone = [base for base in before.segments if base < theirs.segments[0]]
                assert (answer.reason == "due") == bool(gone), place
                if gone:
                    assert answer.size_bytes == sum(upkeep.sizes[topic][base] for base in gone), place
            assert then.reason != "due", (name, topic, then)
    assert reasons >= {"due", "not-due", "policy", "unlimited"}, reasons


def test_why_names_beforehand_what_the_broker_compacts(upkeep: Upkeep) -> None:
    reasons = set()
    for name, outcome in upkeep.outcomes.items():
        for topic in SETTINGS:
            answer, then = outcome.why[topic].get("compaction"), outcome.why_then[topic].get("compaction")
            is_compacted = "compact" in outcome.settings[topic]["cleanup.policy"][0]
            assert (answer is not None) == (then is not None) == is_compacted, (name, topic)
            if answer is not None and then is not None:
                reasons |= {answer.reason, then.reason}
                # Where the broker deletes first, less may be left than it compacts for.
                assert outcome.has_both(topic) or (answer.reason == "due") == (topic in outcome.compacted), (name, topic, answer)
                assert then.reason != "due", (name, topic, then)
    assert reasons >= {"due", "active-segment"}, reasons


def test_settings_are_told_as_the_broker_tells_them(upkeep: Upkeep) -> None:
    """Every setting that both know, with its value and the layer that it comes from."""
    for case in upkeep.cases:
        outcome = upkeep.outcomes[case.name]
        for topic, told in outcome.told.items():
            theirs = {key: (value, LAYERS[layer]) for key, (value, layer) in outcome.settings[topic].items()}
            if theirs["retention.ms"][1] == "default" and "log.retention.hours" in case.static:
                # Of this name, or that for minutes, a broker takes the value and does not say from where it is.
                theirs["retention.ms"] = (theirs["retention.ms"][0], "broker")
            common = told.settings.keys() & theirs.keys()
            assert len(common) > 20
            ours = {key: (told.settings[key].value, told.settings[key].source) for key in common}
            assert ours == {key: theirs[key] for key in common}, (case.name, topic)
            assert told.broker == "meta.properties of node 1"
        assert outcome.told.keys() == SETTINGS.keys()


def test_the_layer_that_a_case_is_about_decides(upkeep: Upkeep) -> None:
    """By the broker's own word, of a topic that says nothing itself."""
    for case in upkeep.cases:
        theirs = upkeep.outcomes[case.name].settings["plain"]
        found = {name: (theirs[name][0], LAYERS[theirs[name][1]]) for name in case.decides}
        assert found == case.decides, case.name


def test_what_is_kept_for_ever_is_kept_whichever_layer_says_so(upkeep: Upkeep) -> None:
    """By -1, by compaction, by both; said by the topic, the broker's own, the default of all brokers, or `server.properties` alone."""
    by_retention: set[str] = set()
    by_policy: set[tuple[str, str]] = set()
    by_both: set[tuple[str, str]] = set()
    for name, outcome in upkeep.outcomes.items():
        for topic, settings in outcome.settings.items():
            (ms, ms_layer), (size, size_layer), (policy, policy_layer) = (
                settings[key] for key in ("retention.ms", "retention.bytes", "cleanup.policy")
            )
            has_limit, layer = (ms, size) != (FOR_EVER, FOR_EVER), LAYERS[policy_layer]
            if policy != "delete":
                by_policy.add((policy, layer))
            if policy != "compact" and has_limit:
                continue
            filled, place = upkeep.filled[topic], (name, topic)
            for kept in (outcome.theirs[topic], outcome.runs["all"].kept[topic], outcome.alone[topic]):
                assert (kept.start, kept.end, kept.segments[-1]) == (filled.start, filled.end, filled.segments[-1]), place
                if policy == "delete":
                    # Segments before the beginning hold nothing that is kept.
                    ends = [*filled.segments[1:], filled.end]
                    segments = [base for base, end in zip(filled.segments, ends, strict=True) if end > filled.start]
                    assert (kept.segments, kept.rows) == (segments, filled.rows), place
                elif topic != "plain-keyless":
                    # The last of each key stays, but for one that deletes it, which goes in its time.
                    newest = {row.key: row for row in filled.rows}.values()
                    assert [row for row in newest if row.value is not None and row not in kept.rows] == [], place
            if policy == "delete" and ms_layer == size_layer:
                by_retention.add(LAYERS[ms_layer])
            elif policy not in {"delete", "compact"}:
                by_both.add((layer, LAYERS[ms_layer]))
    # Else this would show less than it says.
    assert by_retention >= MADE_BY_SOMEBODY
    assert by_policy == {(policy, layer) for policy in ("compact", "compact,delete") for layer in MADE_BY_SOMEBODY}
    assert by_both >= {("topic", layer) for layer in MADE_BY_SOMEBODY} | {("dynamic broker", "dynamic broker")}


def test_without_server_properties_what_only_it_tells_is_refused(upkeep: Upkeep) -> None:
    """By the names of settings which the broker has from there, or from nowhere. All others are done as the broker does them."""
    for case in upkeep.cases:
        outcome = upkeep.outcomes[case.name]
        run = outcome.runs["no properties"]
        assert refused(run, set(run.failed))
        for topic, why in run.failed.items():
            assert "pass the broker's server.properties (broker=, --broker FILE)" in why
            assert {LAYERS[outcome.settings[topic][name][1]] for name in unknown(why)} <= BELOW_THE_CLUSTER, (case.name, topic, why)
        done = SETTINGS.keys() - run.failed.keys()
        for topic in done:
            assert same(outcome, run, topic), (case.name, topic)
        if case.state == BY_DEFAULT:
            # The default of all brokers says all that decides of removal, and nothing of compaction.
            assert {"plain", "plain-old", "own-kept", "own-short", "own-delete", *NEED_NO_OTHER_LAYER} <= done
            assert {"own-compact", "own-both"} <= run.failed.keys()
        elif case.state == OWN:
            assert done == NEED_NO_OTHER_LAYER
        elif case.state in {DEFAULT_KEEPS, BROKER_KEEPS}:
            # That nothing is ever removed is said above it as well.
            assert {"own-delete", *NEED_NO_OTHER_LAYER} <= done


def test_without_the_clusters_word_everything_is_refused(upkeep: Upkeep) -> None:
    """Also with `server.properties`: what stands above it is in the metadata, or in ZooKeeper, which nobody has named."""
    for name, outcome in upkeep.outcomes.items():
        for given in ("no metadata", "nothing"):
            run = outcome.runs[given]
            assert refused(run, set(SETTINGS)), (name, given)
            assert run.kept == {topic: run.kept[topic] for topic in upkeep.filled}
            for topic, kept in upkeep.filled.items():
                assert run.kept[topic] == kept, (name, given, topic)
            for why in run.failed.values():
                assert "retention.ms" in unknown(why)
                assert "__cluster_metadata-0, or ZooKeeper's data" in why
                assert "--metadata DIR" in why
                assert "--config NAME=VALUE" in why
                assert ("--broker FILE" in why) == (given == "nothing")


def test_brokers_own_topics_are_left_alone(upkeep: Upkeep) -> None:
    for name, outcome in upkeep.outcomes.items():
        for given, run in outcome.runs.items():
            if given == "options":
                # Only the topics that were named were looked at.
                assert run.internal == set(), name
            else:
                assert run.internal == {INTERNAL} | (
                    set() if upkeep.has_zookeeper or given in {"no metadata", "nothing"} else {"__cluster_metadata"}
                )
            assert not {path for path in run.changed if path.startswith("__")}, (name, given)


def test_files_go_at_once_where_the_delay_says_so(upkeep: Upkeep) -> None:
    outcome = upkeep.outcomes[AT_ONCE]
    for topic in SETTINGS.keys() - NEED_NO_OTHER_LAYER:
        assert outcome.theirs_waiting[topic] == set()
        assert outcome.runs["all"].waiting[topic] == set()
    assert outcome.runs["all"].waiting["all-compact"]


def test_every_layer_decides_somewhere(upkeep: Upkeep) -> None:
    """Else the tests above would show less than they say."""
    assert all(kept.segments[0] == 0 and len(kept.segments) > 5 for kept in upkeep.filled.values())
    layers: set[str] = set()
    beginnings: set[int] = set()
    for outcome in upkeep.outcomes.values():
        layers |= {LAYERS[settings["retention.ms"][1]] for settings in outcome.settings.values()}
        layers |= {told.settings["retention.ms"].source for told in outcome.told.values()}
        beginnings.add(outcome.theirs["plain"].start)
        kept = outcome.theirs
        policy, (retention, _) = outcome.settings["plain"]["cleanup.policy"][0], outcome.settings["plain"]["retention.ms"]
        if policy != "compact":
            assert kept["own-short"].start or outcome.has_both("own-short")
            if retention != FOR_EVER:
                assert kept["plain-old"].start == kept["plain-old"].end == kept["plain-old"].segments[0]
        assert kept["all-delete"].start > 0
        assert kept["all-compact"].start == 0
        assert len(kept["all-compact"].rows) < len(upkeep.filled["all-compact"].rows)
    assert layers == {"topic", "dynamic broker", "dynamic default broker", "broker", "default"}
    assert len(beginnings) >= 3
