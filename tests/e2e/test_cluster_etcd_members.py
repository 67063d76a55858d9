"""serve --cluster with an etcd of three members, of which one, or too many, are away."""
import pytest
from clusters import cluster, s3, snapshot  # noqa: F401  fixtures
from etcd import Members

UNREACHABLE = 6


@pytest.fixture
def etcd():
    """In the place of the one that `cluster` has elsewhere."""
    with Members() as made:
        yield made


def colour_of(node) -> str | None:
    return node.store.json("env", "list", "hello")["env"].get("COLOUR")


def change(by, other, colour: str) -> None:
    by.store.ok("env", "set", "hello", f"COLOUR={colour}")
    other.becomes(lambda: colour_of(other) == colour, f"it has the colour {colour}")


def test_a_member_that_is_away(cluster, etcd, snapshot) -> None:
    one, other = cluster.node().start(), cluster.node().start()
    one.store.deploy(snapshot, "hello")
    other.serves("hello")
    for turn, member in enumerate([*etcd.members, etcd.leader()]):
        member.stop()
        change(one, other, f"without{turn}")
        change(other, one, f"still{turn}")
        member.start()
        change(one, other, f"again{turn}")
    assert {one.status("hello"), other.status("hello")} == {200}


@pytest.mark.nightly
def test_a_member_that_hangs(cluster, etcd, snapshot) -> None:
    one, other = cluster.node().start(), cluster.node().start()
    one.store.deploy(snapshot, "hello")
    other.serves("hello")
    for turn, member in enumerate([etcd.members[0], etcd.leader()]):
        member.pause()
        change(one, other, f"hangs{turn}")
        change(other, one, f"still{turn}")
        member.resume()
        change(one, other, f"again{turn}")


@pytest.mark.nightly
def test_most_members_are_away(cluster, etcd, snapshot) -> None:
    one, other = cluster.node().start(), cluster.node().start()
    one.store.deploy(snapshot, "hello")
    other.serves("hello")
    change(one, other, "before")
    for member in etcd.members[:2]:
        member.stop()
    refused = one.store("env", "set", "hello", "COLOUR=lost")
    assert refused.status == UNREACHABLE and "etcd" in refused.err, refused
    assert {one.status("hello"), other.status("hello")} == {200}
    one.stop()
    one.start()  # from what its store has
    assert one.status("hello") == 200
    for member in etcd.members[:2]:
        member.launch()
    for member in etcd.members[:2]:
        member.wait()
    one.becomes(lambda: one.store("env", "set", "hello", "COLOUR=after").status == 0, "it takes changes again")
    other.becomes(lambda: colour_of(other) == "after", "it follows")
