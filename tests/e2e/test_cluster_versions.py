"""Nodes of this version beside newer ones on one index."""
import json

import harness
import pytest
from clusters import Node, cluster, etcd, s3, snapshot  # noqa: F401  fixtures
from test_cluster import functions_of, what_is_known
from test_cluster_nodes import metric, ready

pytest.importorskip("cryptography", reason="no python3-cryptography: scripts/setup.sh --tests")
import sealed  # noqa: E402

CONFLICT = 5


def raise_schema(cluster) -> None:
    """As a newer version will that changes the form of the entries."""
    entries = sealed.Sealed(cluster)
    entry = json.loads(entries.get("cluster"))
    assert entry["schema"] == 1, entry
    entries.put("cluster", json.dumps({**entry, "schema": 2}))


@pytest.fixture
def entries(cluster) -> sealed.Sealed:
    return sealed.Sealed(cluster)


def test_a_newer_form_of_the_index_is_refused(cluster, entries, snapshot) -> None:
    following, other, new = cluster.node().start("--cluster-away-limit", "3600"), cluster.node().start(), cluster.node()
    following.store.deploy(snapshot, "hello")
    other.serves("hello")
    other.stop()
    raise_schema(cluster)
    says = "a newer kvmserver has changed the form of this cluster (it is 2, this one knows 1)"
    # Neither one that has been there nor a new one joins.
    for node in (other, new):
        refused = node.fails()
        assert refused.status == CONFLICT and says in refused.err, refused
    # One that runs serves what it knows, and neither follows nor changes anything.
    following.becomes(lambda: says in following.daemon.err, "the log says so")
    following.becomes(lambda: metric(following, "cluster_followed") == 0, "it does not follow")
    before = what_is_known(following)
    entries.put("functions/hello", "of a form that is not known here")
    assert following.status("hello") == 200 and ready(following) == (200, None)
    for words in (["deploy", snapshot, "--name", "hello"], ["env", "set", "hello", "A=b"], ["token", "create", "ci", "--scope", "read"],
                  ["gc"], ["delete", "hello", "--yes"]):  # fmt: skip
        refused = following.store(*words)
        assert refused.status == CONFLICT and says in refused.err, (words, refused)
    assert what_is_known(following) == before and following.status("hello") == 200
    following.stop()
    refused = following.fails()
    assert refused.status == CONFLICT and says in refused.err, refused


def add_to_function(entries, name: str) -> None:
    """Fields everywhere where a newer version may have some."""
    whole = json.loads(entries.get(f"functions/{name}"))
    whole["new_at_the_top"] = 1
    whole["function"] = sealed.to_record("function", {**sealed.record(whole["function"]), "new_in_function": ["x"]})
    for version in whole["versions"]:
        version["new_beside_version"] = {"a": "b"}
        version["record"] = sealed.to_record("version", {**sealed.record(version["record"]), "new_in_version": True})
    for event in whole["events"]:
        event["new_in_event"] = "x"
    entries.put(f"functions/{name}", json.dumps(whole))


def test_fields_of_a_newer_version_are_not_lost(cluster, entries, snapshot) -> None:
    one, other = cluster.node().start(), cluster.node().start()
    one.store.deploy(snapshot, "hello", "--message", "the first")
    one.store.deploy(snapshot, "plain")
    other.serves("hello")
    other.serves("plain")
    known = what_is_known(one)
    add_to_function(entries, "hello")
    written = entries.get("functions/hello")
    revision = cluster.etcd.revision()
    for node in (one, other):
        node.becomes(lambda: metric(node, "cluster_revision") >= revision, "it has copied it")
        assert metric(node, "cluster_followed") == 1 and what_is_known(node) == known and node.status("hello") == 200
    for words in (["deploy", snapshot, "--name", "hello"], ["env", "set", "hello", "A=b"], ["delete", "hello", "--yes"]):
        refused = one.store(*words)
        assert refused.status == CONFLICT and 'has the field "' in refused.err and "newer version" in refused.err, refused
    assert entries.get("functions/hello") == written
    # Others are changed as before, and a node that comes anew has all.
    one.store.ok("env", "set", "plain", "A=b")
    one.store.ok("gc")
    third = cluster.node().start()
    assert third.status("hello") == 200 and functions_of(third) == ["hello", "plain"]
    assert third.store("verify", "--cluster", "--dry-run").status == 0


@pytest.mark.parametrize("place", ["top", "function", "version", "beside version", "event"])
def test_each_field_counts(cluster, entries, snapshot, place: str) -> None:
    one = cluster.node().start()
    one.store.deploy(snapshot, "hello")
    whole = json.loads(entries.get("functions/hello"))
    if place == "function":
        whole["function"] = sealed.to_record("function", {**sealed.record(whole["function"]), "colour": 1})
    elif place == "version":
        whole["versions"][0]["record"] = sealed.to_record("version", {**sealed.record(whole["versions"][0]["record"]), "colour": 1})
    else:
        {"top": whole, "beside version": whole["versions"][0], "event": whole["events"][0]}[place]["colour"] = 1
    entries.put("functions/hello", json.dumps(whole))
    refused = one.store("env", "set", "hello", "A=b")
    assert refused.status == CONFLICT and 'colour" of a newer kvmserver' in refused.err, refused


def test_fields_of_settings_are_not_lost(cluster, entries) -> None:
    one = cluster.node().start()
    one.store.ok("token", "create", "ci", "--scope", "read")
    settings = sealed.record(entries.get("settings"))
    settings["tokens"][0]["colour"] = "red"
    entries.put("settings", sealed.to_record("store", settings))
    refused = one.store("token", "create", "cd", "--scope", "read")
    assert refused.status == CONFLICT and '"tokens[0].colour" of a newer kvmserver' in refused.err, refused
    assert [token["name"] for token in one.store.json("token", "list")["tokens"]] == ["ci"]
    settings["tokens"][0]["colour"] = ""  # nothing would be lost
    entries.put("settings", sealed.to_record("store", settings))
    one.store.ok("token", "create", "cd", "--scope", "read")


def test_keys_of_a_newer_version_are_left_alone(cluster, entries, snapshot) -> None:
    one = cluster.node().start()
    one.store.deploy(snapshot, "hello")
    cluster.etcd.put("kvmserver/quotas/acme", b"what this version does not know")
    cluster.etcd.put("kvmserver/routes/hello.example#weight", b"nor this")
    one.stop()
    one.start()
    assert one.status("hello") == 200
    one.store.ok("env", "set", "hello", "A=b")
    assert cluster.etcd.get("kvmserver/quotas/acme") == b"what this version does not know"
    one.becomes(lambda: metric(one, "cluster_followed") == 1, "it follows")
