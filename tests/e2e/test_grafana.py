"""packaging/grafana: the dashboard and the alerts ask for metrics that a daemon has, and each alert fires."""
import http.client
import json
import pathlib
import re
import shutil
import ssl
import subprocess

import admin
import harness
import openapi  # noqa: F401  the path of PyYAML
import pytest
import yaml

FOLDER = harness.ROOT / "packaging/grafana"
# Of Prometheus itself, and of a histogram's buckets.
ADDED = {"instance", "job", "le"}
METRIC = re.compile(r"\b(kvmserver_\w+)(?:\{([^}]*)\})?")


def expressions() -> dict[str, str]:
    """Of the alerts by name and of the dashboard by its panels' titles."""
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    found = {rule["alert"]: rule["expr"] for group in rules["groups"] for rule in group["rules"]}
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found[f"${variable['name']}"] = variable["query"]
    assert len(found) > 40
    return found


def exported(text: str) -> dict[str, dict[str, set[str]]]:
    """The labels of each metric, with the values that they have."""
    metrics: dict[str, dict[str, set[str]]] = {}
    for name, labels in re.findall(r"^(kvmserver_\w+)(?:\{(.*)\})? ", text, re.M):
        metrics.setdefault(name, {})
        for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
            metrics[name].setdefault(label, set()).add(value)
    return metrics


@pytest.fixture
def text(store, serve, snapshots, program) -> str:
    """What a daemon has to tell that served, failed, refused and ran out of time."""
    certificates = admin.Certificates(store.folder / "certificates")
    store.deploy(snapshots.of(program("c-epoll")), "hello")
    daemon = serve("--tls-certificate", str(certificates.certificate), "--tls-key", str(certificates.key))

    def ask(method: str, target: str) -> admin.Reply:
        connection = admin.UnixConnection(store.path / "admin.sock")
        connection.request(method, target)
        return admin.Reply(connection.getresponse())

    for path in ("/count", "/crash"):
        ask("POST", f"/v1/functions/hello/invoke?path={path}")
    context = ssl.create_default_context(cafile=str(certificates.authority))
    client = http.client.HTTPSConnection("localhost", daemon.port, context=context, timeout=harness.PATIENCE)
    client.request("GET", "/", headers={"Host": "nobody.localhost"})
    assert client.getresponse().status == 404
    client.close()

    def metrics() -> str:
        return ask("GET", "/metrics").body.decode()

    # A request is counted after its client has the reply.
    harness.wait_until(lambda: "no-route" in metrics() and "program-failed" in metrics(), "all is counted")
    return metrics()


@pytest.fixture
def scrape(text) -> dict:
    return exported(text)


def test_the_values_that_alerts_compare_are_right(text, store) -> None:
    def value(name: str) -> float:
        return float(re.search(rf"^kvmserver_{name} (\S+)$", text, re.M)[1])

    end = subprocess.run(["openssl", "x509", "-enddate", "-noout", "-in", store.folder / "certificates/cert.pem"],
                         check=True, capture_output=True, text=True).stdout  # fmt: skip
    assert value("certificate_expiry_time_seconds") == ssl.cert_time_to_seconds(end.strip().removeprefix("notAfter="))
    disk = shutil.disk_usage(store.path)
    assert value("store_disk_bytes") == disk.total
    assert abs(value("store_disk_free_bytes") - disk.free) < disk.total * 0.05


def test_every_metric_and_label_is_exported(scrape) -> None:
    for where, expression in expressions().items():
        used = METRIC.findall(expression)
        assert used or expression.startswith("up{"), where
        known = set(ADDED)
        for name, matchers in used:
            assert name in scrape, f"{where}: there is no {name}"
            known |= set(scrape[name])
            for label, operator, value in re.findall(r'(\w+)(=~|=)"([^"]*)"', matchers):
                assert label in scrape[name] or label in ADDED, f"{where}: {name} has no label {label}"
                if label in ("state", "kind"):
                    assert value in scrape[name][label], f"{where}: {name} has no {label} {value}"
        for group in re.findall(r"(?:by|on|group_left) \(([^)]*)\)", expression):
            assert {label.strip() for label in group.split(",")} <= known, f"{where}: ({group})"


def test_every_reason_is_one() -> None:
    """Reasons that alerts name are codes of the daemon."""
    codes = set(re.findall(r'return "([a-z-]+)"', (harness.ROOT / "src/request/outcome.cpp").read_text()))
    for where, expression in expressions().items():
        for value in re.findall(r'reason=~?"([^"]*)"', expression):
            assert set(value.split("|")) <= codes, where


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}", panel["title"]
    variables = {variable["name"] for variable in dashboard["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$(\w+)", " ".join(expressions().values()))) <= variables


def test_every_metric_is_on_the_dashboard(scrape) -> None:
    shown = {name for where, expression in expressions().items() for name, _ in METRIC.findall(expression)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in scrape}
    assert families <= {re.sub(r"_bucket$", "", name) for name in shown}


@pytest.fixture
def promtool():
    tool = shutil.which("promtool") or harness.BUILD / "promtool"
    if not pathlib.Path(tool).exists():
        pytest.skip(f"there is no promtool: scripts/setup.sh --tests puts it into {harness.BUILD}")

    def run(*words, cwd: pathlib.Path = FOLDER) -> str:
        done = subprocess.run([str(tool), *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=harness.PATIENCE * 3)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_each_alert_fires(promtool, folder) -> None:
    promtool("check", "rules", "alerts.yaml")
    promtool("check", "config", "--syntax-only", "prometheus.yaml")
    text = (pathlib.Path(__file__).parent / "alerts.test.yaml").read_text()
    (folder / "alerts.test.yaml").write_text(text)
    shutil.copy(FOLDER / "alerts.yaml", folder)
    promtool("test", "rules", "alerts.test.yaml", cwd=folder)
    tested = [(check["alertname"], bool(check["exp_alerts"])) for test in yaml.safe_load(text)["tests"] for check in test["alert_rule_test"]]
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        assert {(rule["alert"], True), (rule["alert"], False)} <= set(tested), f"{rule['alert']} is not tested"
