"""The daemon as packaging/helm/kvmserver starts it: with its arguments, files, user and rights. scripts/check_helm.sh runs it.

There is no Kubernetes here: DaemonSets are rendered, and what the kubelet would do is done by hand.
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.request

import admin
import bucket
import harness
import pytest
import serving
from clusters import etcd, s3, snapshot  # noqa: F401  fixtures
from harness import BASE_ENVIRONMENT, KVMSERVER, Process

HELM = harness.BUILD / "helm" / "helm"
CHART = harness.ROOT / "packaging" / "helm" / "kvmserver"
VALUES = harness.ROOT / "tests" / "helm"
CREDENTIALS = f"[default]\naws_access_key_id = {bucket.KEY}\naws_secret_access_key = {bucket.SECRET}\n"


def helm(*words) -> subprocess.CompletedProcess:
    if not HELM.exists():
        pytest.skip(f"there is no helm: scripts/check_helm.sh builds it into {HELM.parent}")
    return subprocess.run([HELM, "template", "test", CHART, "--kube-version", "1.34.0", *words], capture_output=True, text=True)


def rendered(*words) -> list[dict]:
    yaml = pytest.importorskip("yaml")
    done = helm(*words)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def own_folder() -> pathlib.Path:
    """Unlike those of pytest, other users reach it."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="chart-")).resolve()
    folder.chmod(0o755)
    return folder


class Pod:
    """That of a rendered DaemonSet, whose paths are below a folder here. `secrets`: key and content by name."""

    def __init__(self, daemonset: dict, secrets: dict[str, dict[str, str]]) -> None:
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            pytest.skip("needs root, and setpriv to become another user")
        self.spec = daemonset["spec"]["template"]["spec"]
        (self.container,) = self.spec["containers"]
        self.user, self.group = self.container["securityContext"]["runAsUser"], self.spec["securityContext"]["fsGroup"]
        self.folder = own_folder()
        self.paths = {}
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        for mount in self.container["volumeMounts"]:
            if mount["mountPath"] != "/dev/kvm":
                self.paths[mount["mountPath"]] = self.folder / mount["name"]
                self.fill(self.folder / mount["name"], volumes[mount["name"]], secrets)
        self.environment = {variable["name"]: self.local(variable["value"]) if "value" in variable else self.field(variable["valueFrom"])
                            for variable in self.container["env"]}  # fmt: skip

    def field(self, source: dict) -> str:
        assert source == {"fieldRef": {"fieldPath": "spec.nodeName"}}, source
        return "a-node"

    def fill(self, path: pathlib.Path, volume: dict, secrets: dict[str, dict[str, str]]) -> None:
        path.mkdir()
        if "secret" in volume:
            for item in volume["secret"]["items"]:
                file = path / item["path"]
                file.write_text(secrets[volume["secret"]["secretName"]][item["key"]])
                file.chmod(volume["secret"]["defaultMode"])
                os.chown(file, 0, self.group)
        elif "emptyDir" in volume:  # as the kubelet makes it
            os.chown(path, 0, self.group)
            path.chmod(0o2777)
        elif "hostPath" in volume:
            (init,) = self.spec["initContainers"]
            capabilities = ",".join("+" + name.lower() for name in init["securityContext"]["capabilities"]["add"])
            command = [word.replace("/var/lib/kvmserver", str(path)) for word in init["command"]]
            for _ in range(2):  # also when it is the user's already
                subprocess.run(["setpriv", f"--bounding-set=-all,{capabilities}", f"--inh-caps=-all,{capabilities}", *command], check=True)

    def local(self, word: str) -> str:
        if word == "$(NODE_NAME)":  # the kubelet puts in variables
            return self.environment["NODE_NAME"]
        for path, here in self.paths.items():
            if word.startswith(path + "/") or word == path:
                return str(here) + word[len(path):]
        return word

    def words(self, *command: str) -> list[str]:
        """Before a command in the container: its user, its groups, no capability, and /dev/kvm as a node has it."""
        device = os.stat("/dev/kvm").st_rdev
        groups = self.spec["securityContext"].get("supplementalGroups", [])
        mode = f"chgrp {groups[0]} /mnt/kvm && chmod 660 /mnt/kvm" if groups else "chmod 666 /mnt/kvm"
        node = f"mknod /mnt/kvm c {os.major(device)} {os.minor(device)} && {mode} && mount --bind /mnt/kvm /dev/kvm"
        rights = [f"--reuid={self.user}", f"--regid={self.user}", f"--groups={','.join(map(str, [self.group, *groups]))}",
                  "--bounding-set=-all", "--inh-caps=-all"]  # fmt: skip
        if self.container["securityContext"].get("allowPrivilegeEscalation") is False:
            rights.append("--no-new-privs")
        return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none /mnt && {node} && exec "$@"', "sh", "setpriv", *rights, *command]

    def start(self) -> Process:
        arguments = [self.local(word) for word in self.container["args"]]
        process = Process(self.words(str(KVMSERVER), *arguments), str(self.folder), {**BASE_ENVIRONMENT, **self.environment, "HOME": "/"})

        def serves() -> bool:
            assert process.running(), f"the daemon ended: {process.popen.wait()} {process.err[-2000:]}"
            return "Serving " in process.out

        harness.wait_until(serves, lambda: f"the daemon serves; {process.err[-2000:]}")
        return process

    def exec(self, *command: str, stdin: bytes = b"") -> str:
        """kubectl exec."""
        done = subprocess.run(self.words(*command), input=stdin, capture_output=True, env={**BASE_ENVIRONMENT, **self.environment})
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout.decode()

    def probe(self, name: str) -> None:
        probe = self.container[name]
        if "exec" in probe:
            self.exec(*probe["exec"]["command"])
            return
        ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}
        context = ssl.create_default_context()  # the kubelet checks no certificate either
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = f"{probe['httpGet']['scheme'].lower()}://127.0.0.1:{ports[probe['httpGet']['port']]}{probe['httpGet']['path']}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        assert opener.open(url, timeout=harness.PATIENCE).status == 200

    def close(self) -> None:
        shutil.rmtree(self.folder)


def status_over_tls(port: int, host: str, path: str) -> int:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    return opener.open(urllib.request.Request(f"https://127.0.0.1:{port}{path}", headers={"Host": host}), timeout=harness.PATIENCE).status


def log_in(etcd) -> None:
    """etcd asks for a password from now on."""
    etcd.ask("auth/user/add", {"name": "root", "password": "abc"})
    etcd.ask("auth/role/add", {"name": "root"})
    etcd.ask("auth/user/grant", {"user": "root", "role": "root"})
    etcd.ask("auth/enable", {})


@pytest.mark.parametrize("which", ["default", "device-plugin", "cluster"])
def test_the_daemon_starts_as_the_chart_says(which, request, folder, snapshot) -> None:
    ports = {"requests": {"port": harness.free_port()}, "api": {"port": harness.free_port()}}
    own, secrets = {**ports}, {}
    if which == "cluster":
        etcd, s3 = request.getfixturevalue("etcd"), request.getfixturevalue("s3")
        log_in(etcd)
        own.update(cluster={"url": etcd.address}, chunks={"url": s3.url()})
        certificates = admin.Certificates(folder / "tls")
        pair = {"tls.crt": certificates.certificate.read_text(), "tls.key": certificates.key.read_text()}
        secrets = {"kvmserver-key": {"key": "0123456789abcdef" * 4}, "kvmserver-etcd": {"credentials": "root:abc"},
                   "etcd-ca": {"ca.crt": certificates.authority.read_text()}, "kvmserver-chunks": {"credentials": CREDENTIALS},
                   "kvmserver-tls": pair, "kvmserver-api-tls": pair}  # fmt: skip
    (folder / "own.yaml").write_text(json.dumps(own))
    values = [] if which == "default" else ["-f", VALUES / f"{which}.yaml"]
    documents = rendered(*values, "-f", folder / "own.yaml")
    (daemonset,) = [document for document in documents if document["kind"] == "DaemonSet"]
    pod = Pod(daemonset, secrets)
    with contextlib.closing(pod):
        daemon = pod.start()
        with contextlib.closing(daemon):
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                pod.probe(probe)
            file = pod.paths["/tmp"] / "app.snap"
            pod.exec("sh", "-c", f"cat >{file} && {KVMSERVER} deploy {file} --name hello", stdin=snapshot.read_bytes())
            port = ports["requests"]["port"]
            if which == "cluster":
                assert status_over_tls(port, "hello.localhost", "/count") == 200
                assert s3.objects()
                assert pod.exec(str(KVMSERVER), "nodes", "--no-header").split()[0] == "a-node"
            else:
                assert serving.ask(port, "hello").status == 200
            if which == "device-plugin":
                assert "lacks walls" not in daemon.err, daemon.err  # jail: strict, seccompProfile: Unconfined
            ended = daemon.stop(signal.SIGTERM)
            assert ended.status == 0, ended


@pytest.mark.parametrize("wrong,why", [
    (["--set", "clustr.enabled=true"], "clustr"),
    (["--set", "cluster.enabled=true"], "cluster.url"),
    (["-f", VALUES / "cluster.yaml", "--set", "chunks.url="], "chunks.url"),
    (["-f", VALUES / "cluster.yaml", "--set", "cluster.keySecret.name="], "keySecret"),
    (["-f", VALUES / "cluster.yaml", "--set", "cluster.awayLimit=-1"], "awayLimit"),
    (["--set", "requests.port=80"], "requests"),
    (["--set", "store.type=emptyDir", "--set", "chunks.url=s3://a?endpoint=http://b"], "chunks.url"),
    (["--set", "kvm.access=magic"], "kvm.access"),
])  # fmt: skip
def test_values_that_are_refused(wrong, why) -> None:
    done = helm(*wrong)
    assert done.returncode != 0 and "don't meet the specifications" in done.stderr, done
    assert why in done.stderr.replace("/", "."), done.stderr


def test_what_a_cluster_has_and_one_node_has_not() -> None:
    alone = {(document["kind"], document["metadata"]["name"]) for document in rendered()}
    assert alone == {("DaemonSet", "test-kvmserver"), ("Service", "test-kvmserver")}
    several = {(document["kind"], document["metadata"]["name"]) for document in rendered("-f", VALUES / "cluster.yaml")}
    assert several - alone == {("Service", "test-kvmserver-api"), ("PodDisruptionBudget", "test-kvmserver")}


def test_a_pod_has_longer_to_stop_than_the_daemon_needs() -> None:
    (daemonset,) = [document for document in rendered("--set", "preStopSeconds=20") if document["kind"] == "DaemonSet"]
    assert daemonset["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 20 + 45  # 45: kvmserver.service
