"""Every program keeps the contract of functions/README.md in every mode, as it does bare."""
import check
import harness
import pytest

CHECKS = [one for one in check.SERVING if one is not check.check_count]
EMULATED = [check.check_hello, check.check_bytes, check.check_concurrent]  # scripts/nightly.sh has the others
nightly_in_emulated = pytest.mark.emulated(nightly=True)


@pytest.mark.parametrize(
    "one",
    [pytest.param(one, id=one.__name__.removeprefix("check_"), marks=pytest.mark.emulated(nightly=one not in EMULATED)) for one in CHECKS],
)
def test_contract(pool, one) -> None:
    with pool.server() as server:
        one(server)


@pytest.mark.emulated
def test_count_goes_up_on_one_connection(pool) -> None:
    with pool.server() as server, server.client() as client:
        first = int(client.ask("/count"))
        assert [int(client.ask("/count")) for _ in range(3)] == [first + 1, first + 2, first + 3]


@nightly_in_emulated
def test_reply_after_half_close(pool) -> None:
    with pool.server() as server, server.client() as client:
        client.send(harness.request("/bytes/2000000"))
        client.socket.shutdown(harness.socket.SHUT_WR)
        assert client.reply() == harness.letters(2_000_000)
        assert client.at_end()


@nightly_in_emulated
def test_many_connections_in_a_row(pool) -> None:
    with pool.server() as server:
        for n in range(50):
            assert server.get(f"/bytes/{n}") == harness.letters(n)


@nightly_in_emulated
def test_reset_by_the_client(pool) -> None:
    linger_off = b"\1\0\0\0\0\0\0\0"
    with pool.server() as server:
        for data in (b"", b"GET / HT", harness.request("/bytes/5000000")):
            with server.client() as client:
                client.send(data)
                client.socket.setsockopt(harness.socket.SOL_SOCKET, harness.socket.SO_LINGER, linger_off)
        assert server.get("/bytes/10") == harness.letters(10)
