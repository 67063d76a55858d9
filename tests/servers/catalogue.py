"""Servers, nearly all of Debian, that serve from one process: how each is installed, started and asked.

`{dir}` is a folder of the server's own with `files` in it, `{port}` where it listens, `{backend}` a web server that answers
"from the backend", for those that pass requests on.
"""
import dataclasses


def http(path: str = "/", expect: bytes = b"", host: str = "localhost", method: str = "GET", body: bytes = b"") -> tuple[bytes, bytes]:
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
    if body:
        head += f"Content-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body, expect


def dns_question(name: str) -> bytes:
    """For an address, as it goes over TCP."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    message = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + labels + b"\x00\x00\x01\x00\x01"
    return len(message).to_bytes(2, "big") + message


@dataclasses.dataclass
class Server:
    name: str
    packages: str  # of Debian, by apt; what follows "npm:" is installed into {dir} by npm, "cargo:" into /usr/local by cargo
    argv: list[str]
    ask: tuple[bytes, bytes]  # what is sent, and what the answer holds
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    prepare: list[list[str]] = dataclasses.field(default_factory=list)  # commands, run bare once
    folders: list[str] = dataclasses.field(default_factory=list)
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    options: list[str] = dataclasses.field(default_factory=list)
    allow: tuple[str, ...] = ("--allow-all",)
    speaks_first: bool = False  # the client has nothing to say before: --server-first
    tls: bool = False
    new: str = ""  # what it exercises that no other does: in the nightly tests
    modes: tuple[str, ...] = ("bare", "run", "run-e", "snaprun-e")


PAGE = {"www/index.html": "hello from a file\n"}
HELLO = b"hello from a file"
ZONE = "$TTL 60\n@ IN SOA a.test. a.test. 1 60 60 60 60\n@ IN NS a.test.\n@ IN A 10.1.2.3\n"
BACKEND = b"from the backend"

SERVERS = [
    # Web servers in C.
    Server("nginx", "nginx-light", ["/usr/sbin/nginx", "-p", "{dir}", "-c", "{dir}/nginx.conf"], http("/", HELLO), {**PAGE, "nginx.conf": """
daemon off; master_process off; pid {dir}/pid; error_log stderr;
events {{ worker_connections 64; }}
http {{ access_log off; client_body_temp_path {dir}/t; proxy_temp_path {dir}/t; fastcgi_temp_path {dir}/t; uwsgi_temp_path {dir}/t; scgi_temp_path {dir}/t;
  server {{ listen {port}; listen [::]:{port}; root {dir}/www; }} }}
"""}, new="two listeners of one port, a user that is looked up, chown"),
    Server("nginx-workers", "nginx-light", ["/usr/sbin/nginx", "-p", "{dir}", "-c", "{dir}/nginx.conf"], http("/", HELLO), {**PAGE, "nginx.conf": """
daemon off; worker_processes 4; pid {dir}/pid; error_log stderr;
events {{ worker_connections 64; }}
http {{ access_log off; client_body_temp_path {dir}/t; proxy_temp_path {dir}/t; fastcgi_temp_path {dir}/t; uwsgi_temp_path {dir}/t; scgi_temp_path {dir}/t;
  server {{ listen {port}; root {dir}/www; }} }}
"""}, prepare=[["chmod", "755", "{dir}"]], new="a master and workers"),
    Server("mini-httpd", "mini-httpd", ["/usr/sbin/mini_httpd", "-D", "-p", "{port}", "-h", "127.0.0.1", "-d", "{dir}/www"], http("/", HELLO), PAGE,
           new="it forks for each connection", modes=("bare", "run-e", "snaprun-e")),
    Server("busybox-httpd", "busybox", ["/usr/bin/busybox", "httpd", "-f", "-p", "{port}", "-h", "{dir}/www"], http("/", HELLO), PAGE,
           options=["--fork=always"], modes=("bare", "run-e", "snaprun-e")),
    Server("socat", "socat", ["/usr/bin/socat", "TCP-LISTEN:{port},reuseaddr,fork", "PIPE"], (b"hello\n", b"hello"),
           modes=("bare", "run-e", "snaprun-e")),
    Server("lighttpd", "lighttpd", ["/usr/sbin/lighttpd", "-D", "-f", "{dir}/conf"], http("/", HELLO), {**PAGE, "conf":
           'server.document-root = "{dir}/www"\nserver.port = {port}\nserver.bind = "127.0.0.1"\nindex-file.names = ("index.html")\n'
           'server.upload-dirs = ("{dir}")\nserver.errorlog = "{dir}/log"\n'}),
    Server("h2o", "h2o", ["/usr/bin/h2o", "-m", "worker", "-c", "{dir}/conf"], http("/", HELLO), {**PAGE, "conf":
           'num-threads: 1\nuser: root\nlisten:\n  port: {port}\n  host: 127.0.0.1\nhosts:\n  default:\n    paths:\n      "/":\n        file.dir: {dir}/www\n'}),
    Server("webfsd", "webfs", ["/usr/bin/webfsd", "-F", "-p", "{port}", "-r", "{dir}/www", "-f", "index.html"], http("/", HELLO), PAGE),
    Server("weborf", "weborf", ["/usr/bin/weborf", "-b", "{dir}/www", "-p", "{port}"], http("/index.html", HELLO), PAGE),
    Server("civetweb", "civetweb", ["/usr/bin/civetweb", "-listening_ports", "{port}", "-document_root", "{dir}/www", "-num_threads", "4"], http("/", HELLO), PAGE),
    Server("apache2", "apache2-bin", ["/usr/sbin/apache2", "-X", "-f", "{dir}/conf"], http("/", HELLO), {**PAGE, "conf":
           "ServerRoot {dir}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {dir}/pid\nErrorLog {dir}/log\nDefaultRuntimeDir {dir}\nUser nobody\nGroup nogroup\nThreadsPerChild 8\n"
           "LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\nLoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n"
           "LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so\nDocumentRoot {dir}/www\nDirectoryIndex index.html\n"}, prepare=[["chmod", "755", "{dir}"]]),
    Server("apache2-workers", "apache2-bin", ["/usr/sbin/apache2", "-D", "FOREGROUND", "-f", "{dir}/conf"], http("/", HELLO), {**PAGE, "conf":
           "ServerRoot {dir}\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile {dir}/pid\nErrorLog {dir}/log\nDefaultRuntimeDir {dir}\nUser nobody\nGroup nogroup\n"
           "LoadModule mpm_prefork_module /usr/lib/apache2/modules/mod_mpm_prefork.so\nLoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\n"
           "LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so\nDocumentRoot {dir}/www\nDirectoryIndex index.html\n"}, prepare=[["chmod", "755", "{dir}"]]),
    # Proxies.
    Server("haproxy", "haproxy", ["/usr/sbin/haproxy", "-db", "-f", "{dir}/conf"], http("/", BACKEND), {"conf":
           "defaults\n mode http\n timeout client 9s\n timeout server 9s\n timeout connect 9s\nfrontend f\n bind 127.0.0.1:{port}\n default_backend b\n"
           "backend b\n server s 127.0.0.1:{backend}\n"}, new="threads and an outbound connection in each request"),
    Server("tinyproxy", "tinyproxy-bin", ["/usr/bin/tinyproxy", "-d", "-c", "{dir}/conf"], http("http://127.0.0.1:{backend}/", BACKEND, "127.0.0.1:{backend}"), {"conf":
           "Port {port}\nListen 127.0.0.1\nTimeout 60\nAllow 127.0.0.1\nMaxClients 10\nDefaultErrorFile \"/usr/share/tinyproxy/default.html\"\n"}),
    Server("privoxy", "privoxy", ["/usr/sbin/privoxy", "--no-daemon", "{dir}/conf"], http("http://127.0.0.1:{backend}/", BACKEND, "127.0.0.1:{backend}"), {"conf":
           "listen-address 127.0.0.1:{port}\n"}),
    Server("squid", "squid", ["/usr/sbin/squid", "-N", "-f", "{dir}/conf"], http("http://127.0.0.1:{backend}/", BACKEND, "127.0.0.1:{backend}"), {"conf":
           "http_port 127.0.0.1:{port}\nhttp_access allow all\ncache deny all\npid_filename none\naccess_log none\ncache_log {dir}/log/cache.log\ncache_effective_user proxy\nshutdown_lifetime 0 seconds\n"
           "pinger_enable off\nlogfile_daemon /bin/true\ncoredump_dir {dir}/log\ncache_store_log none\nnetdb_filename none\n"},
           prepare=[["sh", "-c", "chmod 755 {dir} && mkdir -p {dir}/log && chown proxy {dir}/log"]], allow=("--allow-read", "--allow-write={dir}", "--allow-net", "--allow-env"), new="UDP sockets opened at the start, narrow permissions, another user"),
    Server("sslh", "sslh", ["/usr/sbin/sslh-select", "--foreground", "--listen", "127.0.0.1:{port}", "--http", "127.0.0.1:{backend}"], http("/", BACKEND)),
    Server("stunnel", "stunnel4", ["/usr/bin/stunnel4", "{dir}/conf"], http("/", BACKEND), {"conf":
           "foreground = yes\npid =\nsyslog = no\n[web]\naccept = 127.0.0.1:{port}\nconnect = 127.0.0.1:{backend}\ncert = {dir}/pem\n"},
           prepare=[["sh", "-c", "openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost -keyout {dir}/k -out {dir}/c 2>/dev/null && cat {dir}/k {dir}/c > {dir}/pem"]],
           tls=True, new="TLS by OpenSSL, getrandom"),
    Server("s_server", "openssl", ["/usr/bin/openssl", "s_server", "-accept", "127.0.0.1:{port}", "-www", "-key", "{dir}/k", "-cert", "{dir}/c"], http("/", b"Ciphers supported"),
           prepare=[["sh", "-c", "openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost -keyout {dir}/k -out {dir}/c 2>/dev/null"]], tls=True),
    # Caches, queues, databases.
    Server("redis", "redis-server", ["/usr/bin/redis-server", "--port", "{port}", "--bind", "127.0.0.1", "::1", "--dir", "{dir}", "--save", ""], (b"PING\r\n", b"+PONG"), new="jemalloc, its threads, IPv6 beside IPv4"),
    Server("memcached", "memcached", ["/usr/bin/memcached", "-p", "{port}", "-l", "127.0.0.1", "-U", "0", "-u", "root"], (b"version\r\nquit\r\n", b"VERSION")),
    Server("beanstalkd", "beanstalkd", ["/usr/bin/beanstalkd", "-l", "127.0.0.1", "-p", "{port}"], (b"stats\r\nquit\r\n", b"current-jobs-urgent")),
    Server("gearmand", "gearman-job-server", ["/usr/sbin/gearmand", "-p", "{port}", "-L", "127.0.0.1", "-u", "root", "-l", "{dir}/log"], (b"version\n", b"OK")),
    Server("tarantool", "tarantool", ["/usr/bin/tarantool", "{dir}/init.lua"], (b"", b"Tarantool"), {"init.lua":
           "box.cfg{{listen='127.0.0.1:{port}', work_dir='{dir}', memtx_memory=64*1024*1024, log_level=2}}\n"}, speaks_first=True, new="LuaJIT in the lowest 2 GiB, a server that speaks first"),
    Server("mosquitto", "mosquitto", ["/usr/sbin/mosquitto", "-c", "{dir}/conf"], (b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03abc\xe0\x00", b"\x20\x02\x00\x00"), {"conf":
           "listener {port} 127.0.0.1\nallow_anonymous true\nuser root\npersistence false\n"}),
    Server("nats", "nats-server", ["/usr/sbin/nats-server", "-a", "127.0.0.1", "-p", "{port}"], (b'CONNECT {"verbose":false}\r\nPING\r\n', b"PONG"), new="Go that speaks first"),
    Server("etcd", "etcd-server", ["/usr/bin/etcd", "--data-dir", "{dir}/data", "--listen-client-urls", "http://127.0.0.1:{port}", "--advertise-client-urls", "http://127.0.0.1:{port}",
           "--listen-peer-urls", "http://127.0.0.1:0"], http("/v3/kv/range", b"header", method="POST", body=b'{"key":"YQ=="}'), new="bbolt: shared mappings of a file that is written"),
    Server("slapd", "slapd", ["/usr/sbin/slapd", "-h", "ldap://127.0.0.1:{port}", "-f", "{dir}/conf", "-d", "0"], (bytes.fromhex("300c020101600702010304008000"), b"\x61\x07\x0a\x01\x00"), {"conf":
           "include /etc/ldap/schema/core.schema\npidfile {dir}/pid\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\ndatabase mdb\nsuffix dc=a\ndirectory {dir}/data\n"}, folders=["data"], new="LMDB"),
    Server("influxdb", "influxdb", ["/usr/bin/influxd", "-config", "{dir}/conf"], http("/ping", b"X-Influxdb-Version"), {"conf":
           'reporting-disabled = true\nbind-address = "127.0.0.1:0"\n[meta]\n dir = "{dir}/meta"\n[data]\n dir = "{dir}/data"\n wal-dir = "{dir}/wal"\n[http]\n bind-address = "127.0.0.1:{port}"\n'}),
    Server("prometheus", "prometheus", ["/usr/bin/prometheus", "--config.file={dir}/conf", "--storage.tsdb.path={dir}/data", "--web.listen-address=127.0.0.1:{port}"],
           http("/-/ready", b"Ready"), {"conf": "global: {{}}\n"}, new="a writable shared mapping (active queries)"),
    Server("node-exporter", "prometheus-node-exporter", ["/usr/bin/prometheus-node-exporter", "--web.listen-address=127.0.0.1:{port}"], http("/metrics", b"node_")),
    # Name service and others with a text protocol.
    Server("ngircd", "ngircd", ["/usr/sbin/ngircd", "-n", "-f", "{dir}/conf"], (b"NICK a\r\nUSER a 0 * :a\r\nQUIT\r\n", b"a"), {"conf":
           "[Global]\nName = irc.local\nInfo = x\nListen = 127.0.0.1\nPorts = {port}\nServerUID = root\nServerGID = root\n[Options]\nDNS = no\nIdent = no\nPAM = no\n"}),
    Server("dnsmasq", "dnsmasq-base", ["/usr/sbin/dnsmasq", "-d", "-C", "/dev/null", "-p", "{port}", "--listen-address=127.0.0.1", "--bind-interfaces", "-h", "-R", "-u", "root", "--address=/a.test/10.1.2.3", "--pid-file="],
           (dns_question("a.test"), b"\x0a\x01\x02\x03"), new="netlink, TCP and UDP of one port"),
    Server("unbound", "unbound", ["/usr/sbin/unbound", "-d", "-c", "{dir}/conf"], (dns_question("a.test"), b"\x0a\x01\x02\x03"), {"conf":
           'server:\n interface: 127.0.0.1@{port}\n username: ""\n chroot: ""\n directory: "{dir}"\n pidfile: ""\n use-syslog: no\n do-udp: no\n local-zone: "a.test." redirect\n local-data: "a.test. A 10.1.2.3"\nremote-control:\n control-enable: no\n'},
           new="70,000 times getrandom at its start"),
    Server("named", "bind9", ["/usr/sbin/named", "-g", "-n", "1", "-c", "{dir}/conf"], (dns_question("a.test"), b"\x0a\x01\x02\x03"), {"zone": ZONE, "conf":
           'options {{ directory "{dir}"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; pid-file none; recursion no; dnssec-validation no; session-keyfile "{dir}/key"; }};\ncontrols {{ }};\n'
           'zone "a.test" {{ type primary; file "{dir}/zone"; }};\nzone "." {{ type primary; file "{dir}/zone"; }};\n'}),
    Server("knot", "knot", ["/usr/sbin/knotd", "-c", "{dir}/conf"], (dns_question("a.test"), b"\x0a\x01\x02\x03"), {"zone": ZONE, "conf":
           'server:\n    rundir: "{dir}"\n    listen: 127.0.0.1@{port}\n    udp-workers: 1\n    tcp-workers: 1\n    background-workers: 1\ndatabase:\n    storage: "{dir}"\nzone:\n  - domain: a.test\n    file: "{dir}/zone"\n'}),
    Server("pdns", "pdns-server pdns-backend-bind", ["/usr/sbin/pdns_server", "--config-dir={dir}", "--launch=bind", "--bind-config={dir}/named.conf", "--local-address=127.0.0.1", "--local-port={port}",
           "--socket-dir={dir}", "--guardian=no", "--daemon=no"], (dns_question("a.test"), b"\x0a\x01\x02\x03"), {"zone": ZONE, "named.conf": 'zone "a.test" {{ type master; file "{dir}/zone"; }};\n'}),
    Server("pdns-recursor", "pdns-recursor", ["/usr/sbin/pdns_recursor", "--config-dir={dir}", "--socket-dir={dir}", "--local-address=127.0.0.1", "--local-port={port}", "--daemon=no", "--auth-zones=a.test={dir}/zone", "--hint-file=no", "--security-poll-suffix="],
           (dns_question("a.test"), b"\x0a\x01\x02\x03"), {"zone": ZONE}),
    Server("dnsdist", "dnsdist", ["/usr/bin/dnsdist", "--supervised", "-C", "{dir}/conf", "-l", "127.0.0.1:{port}"], (dns_question("a.test"), b"\x0a\x01\x02\x03"), {"conf":
           'addAction(AllRule(), SpoofAction("10.1.2.3"))\nsetSecurityPollSuffix("")\n'}),
    Server("prosody", "prosody", ["/usr/bin/prosody", "-F", "--config", "{dir}/conf.lua"],
           (b"<?xml version='1.0'?><stream:stream to='localhost' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>", b"<stream:features"), {"conf.lua":
           'pidfile = "{dir}/pid"; data_path = "{dir}"; run_as_root = true; interfaces = {{ "127.0.0.1" }}; c2s_ports = {{ {port} }}; s2s_ports = {{}}; modules_disabled = {{ "s2s" }}; modules_enabled = {{ "saslauth" }}; c2s_require_encryption = false; allow_unencrypted_plain_auth = true; log = {{ error = "*console" }}\nVirtualHost "localhost"\n'}),
    Server("tor", "tor", ["/usr/bin/tor", "-f", "{dir}/conf"], (b"PROTOCOLINFO\r\nQUIT\r\n", b"250-PROTOCOLINFO"), {"conf":
           "DisableNetwork 1\nDataDirectory {dir}/data\nControlPort 127.0.0.1:{port}\nCookieAuthentication 1\nSocksPort 0\n"}),
    Server("aria2", "aria2", ["/usr/bin/aria2c", "--no-conf", "--enable-rpc", "--rpc-listen-port={port}", "--dir={dir}", "--disable-ipv6"],
           http("/jsonrpc", b'"version"', method="POST", body=b'{"jsonrpc":"2.0","id":"a","method":"aria2.getVersion"}')),
    Server("transmission", "transmission-daemon", ["/usr/bin/transmission-daemon", "-f", "-g", "{dir}", "-p", "{port}", "-r", "127.0.0.1", "-M", "-O", "--no-lpd"], http("/transmission/rpc", b"X-Transmission-Session-Id")),
    Server("znc", "znc", ["/usr/bin/znc", "--foreground", "--allow-root", "--datadir", "{dir}"], http("/", b"ZNC"), {"configs/znc.conf":
           "Version = 1.8.2\nLoadModule = webadmin\n<Listener l>\n Port = {port}\n IPv4 = true\n IPv6 = false\n SSL = false\n AllowWeb = true\n AllowIRC = true\n</Listener>\n<User a>\n Pass = plain#x\n Admin = true\n</User>\n"}),
    Server("icecast", "icecast2", ["/usr/bin/icecast2", "-c", "{dir}/conf"], http("/status-json.xsl", b"icestats"), {"conf":
           "<icecast><limits><clients>9</clients><sources>2</sources></limits><authentication><source-password>a</source-password><admin-password>a</admin-password></authentication>"
           "<hostname>localhost</hostname><listen-socket><port>{port}</port><bind-address>127.0.0.1</bind-address></listen-socket><paths><basedir>/usr/share/icecast2</basedir><logdir>{dir}</logdir>"
           "<webroot>/usr/share/icecast2/web</webroot><adminroot>/usr/share/icecast2/admin</adminroot></paths><logging><errorlog>-</errorlog><accesslog>-</accesslog></logging>"
           "<security><changeowner><user>nobody</user><group>nogroup</group></changeowner></security></icecast>\n"}),
    Server("monit", "monit", ["/usr/bin/monit", "-I", "-c", "{dir}/conf"], http("/", b"Monit"), {"conf":
           "set daemon 30\nset idfile {dir}/id\nset statefile {dir}/state\nset pidfile {dir}/pid\nset httpd port {port}\n use address 127.0.0.1\n allow 127.0.0.1\n"},
           prepare=[["chmod", "600", "{dir}/conf"]]),
    Server("coturn", "coturn", ["/usr/bin/turnserver", "-n", "-L", "127.0.0.1", "-p", "{port}", "--no-tls", "--no-dtls", "--no-udp", "-z", "--log-file", "stdout", "--pidfile", "{dir}/pid", "-b", "{dir}/db", "--no-cli"],
           (bytes.fromhex("000100002112a442000102030405060708090a0b"), b"\x01\x01"), ),
    Server("mariadb", "mariadb-server-core mariadb-client-core", ["/usr/sbin/mariadbd", "--no-defaults", "--datadir={dir}/data", "--port={port}", "--bind-address=127.0.0.1", "--socket={dir}/sock", "--user=root",
           "--pid-file={dir}/pid", "--innodb-buffer-pool-size=16M", "--lc-messages-dir=/usr/share/mysql"], (b"", b"MariaDB"), folders=["data"], speaks_first=True,
           prepare=[["sh", "-c", "mariadb-install-db --no-defaults --user=root --datadir={dir}/data --auth-root-authentication-method=normal >/dev/null 2>&1"]], new="8 TiB of reserved addresses, a Unix listener"),
    # Python.
    Server("http.server", "python3", ["/usr/bin/python3", "-m", "http.server", "{port}", "--bind", "127.0.0.1", "-d", "{dir}/www"], http("/", HELLO), PAGE),
    Server("waitress", "python3-waitress", ["/usr/bin/python3", "{dir}/app.py"], http("/", b"wsgi"), {"app.py":
           "import waitress\nwaitress.serve(lambda e, s: (s('200 OK', []), [b'wsgi'])[1], listen='127.0.0.1:{port}')\n"}),
    Server("uvicorn", "python3-uvicorn", ["/usr/bin/python3", "-m", "uvicorn", "--port", "{port}", "--app-dir", "{dir}", "app:app"], http("/", b"asgi"), {"app.py":
           "async def app(scope, receive, send):\n    if scope['type'] == 'http':\n        await send({{'type': 'http.response.start', 'status': 200, 'headers': []}})\n"
           "        await send({{'type': 'http.response.body', 'body': b'asgi'}})\n"}),
    Server("hypercorn", "python3-hypercorn", ["/usr/bin/python3", "-c", "import sys, asyncio; sys.path.insert(0, '{dir}'); from app import app; from hypercorn.config import Config; from hypercorn.asyncio import serve; c = Config(); c.bind = ['127.0.0.1:{port}']; asyncio.run(serve(app, c))"],
           http("/", b"asgi"), {"app.py":
           "async def app(scope, receive, send):\n    if scope['type'] == 'http':\n        await send({{'type': 'http.response.start', 'status': 200, 'headers': []}})\n"
           "        await send({{'type': 'http.response.body', 'body': b'asgi'}})\n"}),
    Server("tornado", "python3-tornado", ["/usr/bin/python3", "{dir}/app.py"], http("/", b"tornado"), {"app.py":
           "import asyncio, tornado.web\nclass H(tornado.web.RequestHandler):\n    def get(self): self.write('tornado')\n"
           "async def main():\n    tornado.web.Application([('/', H)]).listen({port}, '127.0.0.1')\n    await asyncio.Event().wait()\nasyncio.run(main())\n"}),
    Server("aiohttp", "python3-aiohttp", ["/usr/bin/python3", "{dir}/app.py"], http("/", b"aiohttp"), {"app.py":
           "from aiohttp import web\nasync def h(r): return web.Response(text='aiohttp')\na = web.Application()\na.router.add_get('/', h)\nweb.run_app(a, host='127.0.0.1', port={port}, print=None)\n"}),
    Server("flask", "python3-flask", ["/usr/bin/python3", "{dir}/app.py"], http("/", b"flask"), {"app.py":
           "import flask\na = flask.Flask('a')\n@a.route('/')\ndef h(): return 'flask'\na.run('127.0.0.1', {port})\n"}),
    Server("bottle", "python3-bottle", ["/usr/bin/python3", "{dir}/app.py"], http("/", b"bottle"), {"app.py":
           "import bottle\n@bottle.route('/')\ndef h(): return 'bottle'\nbottle.run(host='127.0.0.1', port={port}, quiet=True)\n"}),
    Server("cherrypy", "python3-cherrypy3", ["/usr/bin/python3", "{dir}/app.py"], http("/", b"cherry"), {"app.py":
           "import cherrypy\nclass A:\n    @cherrypy.expose\n    def index(self): return 'cherry'\ncherrypy.config.update({{'server.socket_port': {port}, 'engine.autoreload.on': False}})\ncherrypy.quickstart(A())\n"},
           new="a bus that waits in its main thread, timers"),
    Server("twisted", "python3-twisted", ["/usr/bin/python3", "-m", "twisted", "web", "--listen", "tcp:{port}:interface=127.0.0.1", "--path", "{dir}/www"], http("/index.html", HELLO), PAGE),
    Server("gevent", "python3-gevent", ["/usr/bin/python3", "{dir}/app.py"], http("/", b"gevent"), {"app.py":
           "from gevent.pywsgi import WSGIServer\nWSGIServer(('127.0.0.1', {port}), lambda e, s: (s('200 OK', []), [b'gevent'])[1], log=None).serve_forever()\n"}),
    Server("radicale", "radicale", ["/usr/bin/python3", "-m", "radicale", "--config", "", "--server-hosts=127.0.0.1:{port}", "--auth-type=none", "--storage-filesystem-folder={dir}/data"], http("/.web/", b"Radicale")),
    Server("uwsgi", "uwsgi-core uwsgi-plugin-python3", ["/usr/bin/uwsgi-core", "--plugins", "python3", "--http-socket", "127.0.0.1:{port}", "--wsgi-file", "{dir}/app.py", "--need-app"], http("/", b"wsgi"), {"app.py":
           "def application(e, s):\n    s('200 OK', [])\n    return [b'wsgi']\n"}),
    Server("uwsgi-workers", "uwsgi-core uwsgi-plugin-python3", ["/usr/bin/uwsgi-core", "--master", "--processes", "3", "--plugins", "python3", "--http-socket", "127.0.0.1:{port}", "--wsgi-file", "{dir}/app.py",
           "--need-app"], http("/", b"wsgi"), {"app.py": "def application(e, s):\n    s('200 OK', [])\n    return [b'wsgi']\n"}),
    Server("gunicorn", "gunicorn", ["/usr/bin/python3", "/usr/bin/gunicorn", "--workers", "3", "--bind", "127.0.0.1:{port}", "--chdir", "{dir}", "app"], http("/", b"wsgi"), {"app.py":
           "def application(e, s):\n    s('200 OK', [])\n    return [b'wsgi']\n"}),
    Server("aiosmtpd", "python3-aiosmtpd", ["/usr/bin/python3", "-m", "aiosmtpd", "-n", "-l", "127.0.0.1:{port}"], (b"", b"220 "), speaks_first=True),
    Server("pypy", "pypy3", ["/usr/bin/pypy3", "-m", "http.server", "{port}", "--bind", "127.0.0.1", "-d", "{dir}/www"], http("/", HELLO), PAGE),
    # Other languages.
    Server("guile", "guile-3.0", ["/usr/bin/guile", "--no-auto-compile", "{dir}/app.scm"], http("/", b"guile"), {"app.scm":
           "(use-modules (web server))\n(run-server (lambda (request body) (values '((content-type . (text/plain))) \"guile\")) 'http '(#:port {port}))\n"}),
    Server("net-server", "libnet-server-perl", ["/usr/bin/perl", "{dir}/app.pl"], (b"", b"hello from perl"), {"app.pl":
           "package A; use base 'Net::Server'; sub process_request {{ print \"hello from perl\\n\" }} A->run(port => {port}, host => '127.0.0.1', log_level => 0);\n"}, speaks_first=True),
    Server("php", "php-cli", ["/usr/bin/php", "-S", "127.0.0.1:{port}", "-t", "{dir}"], http("/a.php", b"php 49"), {"a.php": "<?php echo 'php ', 7 * 7;\n"}, new="opcache's lock and shared memory"),
    Server("webrick", "ruby-webrick", ["/usr/bin/ruby", "-run", "-e", "httpd", "{dir}/www", "-p", "{port}", "-b", "127.0.0.1"], http("/", HELLO), PAGE),
    Server("puma", "puma", ["/usr/bin/ruby", "/usr/bin/puma", "-b", "tcp://127.0.0.1:{port}", "{dir}/config.ru"], http("/", b"puma"), {"config.ru": "run lambda {{ |e| [200, {{}}, ['puma']] }}\n"}),
    Server("puma-workers", "puma", ["/usr/bin/ruby", "/usr/bin/puma", "-w", "2", "-b", "tcp://127.0.0.1:{port}", "{dir}/config.ru"], http("/", b"puma"), {"config.ru": "run lambda {{ |e| [200, {{}}, ['puma']] }}\n"}),
    Server("unicorn", "unicorn", ["/usr/bin/ruby", "/usr/bin/unicorn", "-l", "127.0.0.1:{port}", "{dir}/config.ru"], http("/", b"unicorn"), {"config.ru": "run lambda {{ |e| [200, {{}}, ['unicorn']] }}\n"}),
    Server("thin", "thin", ["/usr/bin/ruby", "/usr/bin/thin", "-a", "127.0.0.1", "-p", "{port}", "-R", "{dir}/config.ru", "start"], http("/", b"thin"), {"config.ru": "run lambda {{ |e| [200, {{}}, ['thin']] }}\n"}),
    Server("mojolicious", "libmojolicious-perl", ["/usr/bin/perl", "{dir}/app.pl", "daemon", "-l", "http://127.0.0.1:{port}"], http("/", b"mojo"), {"app.pl":
           "use Mojolicious::Lite;\nget '/' => sub {{ shift->render(text => 'mojo') }};\napp->start;\n"}),
    Server("http-daemon", "libhttp-daemon-perl", ["/usr/bin/perl", "{dir}/app.pl"], http("/", b"\r\n\r\nperl"), {"app.pl":
           "use HTTP::Daemon; use HTTP::Response;\nmy $d = HTTP::Daemon->new(LocalAddr => '127.0.0.1', LocalPort => {port}, ReuseAddr => 1) or die;\n"
           "while (my $c = $d->accept) {{ while (my $r = $c->get_request) {{ $c->send_response(HTTP::Response->new(200, 'OK', [], 'perl')); }} $c->close; }}\n"}),
    Server("lua-socket", "lua-socket", ["/usr/bin/luajit", "{dir}/app.lua"], http("/", b"lua"), {"app.lua":
           "local s = require('socket').bind('127.0.0.1', {port})\nwhile true do local c = s:accept() c:receive() c:send('HTTP/1.0 200 OK\\r\\n\\r\\nlua') c:close() end\n"}),
    Server("java-httpserver", "default-jre-headless", ["/usr/bin/java", "-Xmx64m", "-Xshare:auto", "-cp", "{dir}", "A", "{port}"], http("/", b"java"), {"A.java":
           "import com.sun.net.httpserver.*; public class A {{ public static void main(String[] a) throws Exception {{ var s = HttpServer.create(new java.net.InetSocketAddress(\"127.0.0.1\", Integer.parseInt(a[0])), 0);"
           " s.createContext(\"/\", x -> {{ x.sendResponseHeaders(200, 4); x.getResponseBody().write(\"java\".getBytes()); x.close(); }}); s.start(); }} }}\n"},
           prepare=[["javac", "-d", "{dir}", "{dir}/A.java"]], new="a JVM"),
    Server("tomcat", "tomcat10", ["/usr/bin/java", "-Xmx96m", "-cp", "/usr/share/tomcat10/bin/bootstrap.jar:/usr/share/tomcat10/bin/tomcat-juli.jar", "-Dcatalina.home=/usr/share/tomcat10", "-Dcatalina.base={dir}",
           "-Djava.io.tmpdir={dir}/temp", "org.apache.catalina.startup.Bootstrap", "start"], http("/", HELLO), {"webapps/ROOT/index.html": "hello from a file\n", "conf/server.xml":
           '<Server port="-1"><Service name="C"><Connector port="{port}" address="127.0.0.1"/><Engine name="C" defaultHost="localhost"><Host name="localhost" appBase="webapps"/></Engine></Service></Server>',
           "conf/web.xml": '<web-app xmlns="https://jakarta.ee/xml/ns/jakartaee" version="5.0"><servlet><servlet-name>default</servlet-name><servlet-class>org.apache.catalina.servlets.DefaultServlet</servlet-class>'
           "</servlet><servlet-mapping><servlet-name>default</servlet-name><url-pattern>/</url-pattern></servlet-mapping><welcome-file-list><welcome-file>index.html</welcome-file></welcome-file-list></web-app>"}, folders=["temp", "logs", "work"]),
    Server("caddy", "caddy", ["/usr/bin/caddy", "file-server", "--listen", "127.0.0.1:{port}", "--root", "{dir}/www"], http("/", HELLO), PAGE),
    Server("webhook", "webhook", ["/usr/bin/webhook", "-ip", "127.0.0.1", "-port", "{port}", "-hooks", "{dir}/hooks.json"], http("/hooks/a", b"not satisfied"), {"hooks.json":
           '[{{"id": "a", "execute-command": "/bin/true", "trigger-rule": {{"match": {{"type": "value", "value": "no", "parameter": {{"source": "url", "name": "go"}}}}}}}}]\n'}),
    Server("rclone", "rclone", ["/usr/bin/rclone", "serve", "http", "{dir}/www", "--addr", "127.0.0.1:{port}", "--config", "{dir}/conf"], http("/index.html", HELLO), {**PAGE, "conf": ""}),
    Server("victoria-metrics", "victoria-metrics", ["/usr/bin/victoria-metrics", "-storageDataPath={dir}/data", "-httpListenAddr=127.0.0.1:{port}"], http("/health", b"OK")),
    Server("node-http", "nodejs", ["/usr/bin/node", "{dir}/app.js"], http("/", b"node"), {"app.js": "require('http').createServer((q, s) => s.end('node')).listen({port}, '127.0.0.1')\n"}),
    Server("express", "npm:express@4", ["/usr/bin/node", "{dir}/app.js"], http("/", b"express"), {"app.js": "const a = require('express')(); a.get('/', (q, s) => s.send('express')); a.listen({port}, '127.0.0.1')\n"}),
    Server("fastify", "npm:fastify@4", ["/usr/bin/node", "{dir}/app.js"], http("/", b"fastify"), {"app.js":
           "const a = require('fastify')(); a.get('/', async () => 'fastify'); a.listen({{ port: {port}, host: '127.0.0.1' }})\n"}),
    Server("bun", "npm:bun@1", ["{dir}/node_modules/bun/bin/bun.exe", "{dir}/app.js"], http("/", b"bun"), {"app.js": "Bun.serve({{ port: {port}, hostname: '127.0.0.1', fetch: () => new Response('bun') }})\n"},
           new="JavaScriptCore's reservations"),
    Server("lune", "cargo:lune@0.11.1 --no-default-features --features cli,std-net,std-task", ["/usr/local/bin/lune", "run", "{dir}/app.luau"], http("/", b"lune"), {"app.luau":
           'require("@lune/net").serve({port}, {{ address = "http://127.0.0.1", handleRequest = function() return "lune" end }})\n'}),
]
