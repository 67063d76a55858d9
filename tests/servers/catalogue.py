"""Servers of Debian that need no child process: how each is installed, started and asked.

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
    packages: str  # of Debian, by apt; what follows "npm:" is installed into {dir} by npm
    argv: list[str]
    ask: tuple[bytes, bytes]  # what is sent, and what the answer holds
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    prepare: list[list[str]] = dataclasses.field(default_factory=list)  # commands, run bare once
    folders: list[str] = dataclasses.field(default_factory=list)
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    options: list[str] = dataclasses.field(default_factory=list)
    speaks_first: bool = False  # the client has nothing to say before: no machine is given to it in -e
    tls: bool = False
    new: str = ""  # what it exercises that no other does: in the nightly tests
    modes: tuple[str, ...] = ("bare", "run", "run-e", "snaprun-e")


PAGE = {"www/index.html": "hello from a file\n"}
HELLO = b"hello from a file"
BACKEND = b"from the backend"

SERVERS = [
    # Web servers in C.
    Server("nginx", "nginx-light", ["/usr/sbin/nginx", "-p", "{dir}", "-c", "{dir}/nginx.conf"], http("/", HELLO), {**PAGE, "nginx.conf": """
daemon off; master_process off; pid {dir}/pid; error_log stderr;
events {{ worker_connections 64; }}
http {{ access_log off; client_body_temp_path {dir}/t; proxy_temp_path {dir}/t; fastcgi_temp_path {dir}/t; uwsgi_temp_path {dir}/t; scgi_temp_path {dir}/t;
  server {{ listen {port}; listen [::]:{port}; root {dir}/www; }} }}
"""}, new="two listeners of one port, a user that is looked up, chown"),
    Server("lighttpd", "lighttpd", ["/usr/sbin/lighttpd", "-D", "-f", "{dir}/conf"], http("/", HELLO), {**PAGE, "conf":
           'server.document-root = "{dir}/www"\nserver.port = {port}\nserver.bind = "127.0.0.1"\nindex-file.names = ("index.html")\n'
           'server.upload-dirs = ("{dir}")\nserver.errorlog = "{dir}/log"\n'}),
    Server("h2o", "h2o", ["/usr/bin/h2o", "-m", "worker", "-c", "{dir}/conf"], http("/", HELLO), {**PAGE, "conf":
           'num-threads: 1\nlisten:\n  port: {port}\n  host: 127.0.0.1\nhosts:\n  default:\n    paths:\n      "/":\n        file.dir: {dir}/www\n'}),
    Server("mini_httpd", "mini-httpd", ["/usr/sbin/mini_httpd", "-D", "-p", "{port}", "-d", "{dir}/www", "-u", "root"], http("/", HELLO), PAGE),
    Server("webfsd", "webfs", ["/usr/bin/webfsd", "-F", "-p", "{port}", "-r", "{dir}/www", "-f", "index.html"], http("/", HELLO), PAGE),
    Server("weborf", "weborf", ["/usr/bin/weborf", "-b", "{dir}/www", "-p", "{port}"], http("/index.html", HELLO), PAGE),
    Server("civetweb", "civetweb", ["/usr/bin/civetweb", "-listening_ports", "{port}", "-document_root", "{dir}/www", "-num_threads", "4"], http("/", HELLO), PAGE),
    Server("busybox-httpd", "busybox", ["/usr/bin/busybox", "httpd", "-f", "-p", "127.0.0.1:{port}", "-h", "{dir}/www"], http("/", HELLO), PAGE),
    # Proxies.
    Server("haproxy", "haproxy", ["/usr/sbin/haproxy", "-db", "-f", "{dir}/conf"], http("/", BACKEND), {"conf":
           "defaults\n mode http\n timeout client 9s\n timeout server 9s\n timeout connect 9s\nfrontend f\n bind 127.0.0.1:{port}\n default_backend b\n"
           "backend b\n server s 127.0.0.1:{backend}\n"}, new="threads and an outbound connection in each request"),
    Server("tinyproxy", "tinyproxy-bin", ["/usr/bin/tinyproxy", "-d", "-c", "{dir}/conf"], http("http://127.0.0.1:{backend}/", BACKEND, "127.0.0.1:{backend}"), {"conf":
           "Port {port}\nListen 127.0.0.1\nTimeout 60\nAllow 127.0.0.1\nMaxClients 10\nDefaultErrorFile \"/usr/share/tinyproxy/default.html\"\n"}),
    Server("privoxy", "privoxy", ["/usr/sbin/privoxy", "--no-daemon", "{dir}/conf"], http("http://127.0.0.1:{backend}/", BACKEND, "127.0.0.1:{backend}"), {"conf":
           "listen-address 127.0.0.1:{port}\n"}),
    Server("squid", "squid", ["/usr/sbin/squid", "-N", "-f", "{dir}/conf"], http("http://127.0.0.1:{backend}/", BACKEND, "127.0.0.1:{backend}"), {"conf":
           "http_port 127.0.0.1:{port}\nhttp_access allow all\ncache deny all\npid_filename none\naccess_log none\ncache_log {dir}/cache.log\ncache_effective_user root\n"
           "pinger_enable off\nlogfile_daemon /bin/true\ncoredump_dir {dir}\ncache_store_log none\nnetdb_filename none\n"}),
    Server("sslh", "sslh", ["/usr/sbin/sslh-select", "--foreground", "--listen", "127.0.0.1:{port}", "--http", "127.0.0.1:{backend}"], http("/", BACKEND)),
    Server("sniproxy", "sniproxy", ["/usr/sbin/sniproxy", "-f", "-c", "{dir}/conf"], http("/", BACKEND), {"conf":
           "pidfile {dir}/pid\nerror_log {{ filename {dir}/log }}\nlistener 127.0.0.1:{port} {{\n protocol http\n table hosts\n}}\ntable hosts {{\n .* 127.0.0.1:{backend}\n}}\n"}, modes=("bare",)),
    Server("stunnel", "stunnel4", ["/usr/bin/stunnel4", "{dir}/conf"], http("/", BACKEND), {"conf":
           "foreground = yes\npid =\nsyslog = no\n[web]\naccept = 127.0.0.1:{port}\nconnect = 127.0.0.1:{backend}\ncert = {dir}/pem\n"},
           prepare=[["sh", "-c", "openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=localhost -keyout {dir}/k -out {dir}/c 2>/dev/null && cat {dir}/k {dir}/c > {dir}/pem"]],
           tls=True, new="TLS by OpenSSL, getrandom"),
    Server("redir", "redir", ["/usr/bin/redir", "-n", "127.0.0.1:{port}", "127.0.0.1:{backend}"], http("/", BACKEND), modes=("bare",)),
    # Caches, queues, databases.
    Server("redis", "redis-server", ["/usr/bin/redis-server", "--port", "{port}", "--bind", "127.0.0.1", "::1", "--dir", "{dir}", "--save", ""], (b"PING\r\n", b"+PONG"), new="jemalloc, its threads, IPv6 beside IPv4"),
    Server("memcached", "memcached", ["/usr/bin/memcached", "-p", "{port}", "-l", "127.0.0.1", "-U", "0", "-u", "root"], (b"version\r\nquit\r\n", b"VERSION")),
    Server("beanstalkd", "beanstalkd", ["/usr/bin/beanstalkd", "-l", "127.0.0.1", "-p", "{port}"], (b"stats\r\nquit\r\n", b"current-jobs-urgent")),
    Server("gearmand", "gearman-job-server", ["/usr/sbin/gearmand", "-p", "{port}", "-L", "127.0.0.1", "-u", "root", "-l", "{dir}/log"], (b"version\n", b"OK")),
    Server("tarantool", "tarantool", ["/usr/bin/tarantool", "{dir}/init.lua"], (b"", b"Tarantool"), {"init.lua":
           "box.cfg{{listen='127.0.0.1:{port}', work_dir='{dir}', memtx_memory=64*1024*1024, log_level=2}}\n"}, speaks_first=True, modes=("bare", "run")),
    Server("mosquitto", "mosquitto", ["/usr/sbin/mosquitto", "-c", "{dir}/conf"], (b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03abc\xe0\x00", b"\x20\x02\x00\x00"), {"conf":
           "listener {port} 127.0.0.1\nallow_anonymous true\nuser root\npersistence false\n"}),
    Server("nats", "nats-server", ["/usr/sbin/nats-server", "-a", "127.0.0.1", "-p", "{port}"], (b'CONNECT {"verbose":false}\r\nPING\r\n', b"PONG"), new="Go that speaks first"),
    Server("etcd", "etcd-server", ["/usr/bin/etcd", "--data-dir", "{dir}/data", "--listen-client-urls", "http://127.0.0.1:{port}", "--advertise-client-urls", "http://127.0.0.1:{port}",
           "--listen-peer-urls", "http://127.0.0.1:0"], http("/v3/kv/range", b"header", method="POST", body=b'{"key":"YQ=="}'), new="bbolt: shared mappings of a file that is written"),
    Server("slapd", "slapd", ["/usr/sbin/slapd", "-h", "ldap://127.0.0.1:{port}", "-f", "{dir}/conf", "-d", "0"], (bytes.fromhex("300c020101600702010304008000"), b"\x61\x07\x0a\x01\x00"), {"conf":
           "pidfile {dir}/pid\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\ndatabase mdb\nsuffix dc=a\ndirectory {dir}/data\n"}, folders=["data"], new="LMDB"),
    Server("influxdb", "influxdb", ["/usr/bin/influxd", "-config", "{dir}/conf"], http("/ping", b"X-Influxdb-Version"), {"conf":
           'reporting-disabled = true\nbind-address = "127.0.0.1:0"\n[meta]\n dir = "{dir}/meta"\n[data]\n dir = "{dir}/data"\n wal-dir = "{dir}/wal"\n[http]\n bind-address = "127.0.0.1:{port}"\n'}),
    Server("prometheus", "prometheus", ["/usr/bin/prometheus", "--config.file={dir}/conf", "--storage.tsdb.path={dir}/data", "--web.listen-address=127.0.0.1:{port}"],
           http("/-/ready", b"Ready"), {"conf": "global: {{}}\n"}, new="a writable shared mapping (active queries)"),
    Server("node-exporter", "prometheus-node-exporter", ["/usr/bin/prometheus-node-exporter", "--web.listen-address=127.0.0.1:{port}"], http("/metrics", b"node_")),
    # Name service and others with a text protocol.
    Server("ngircd", "ngircd", ["/usr/sbin/ngircd", "-n", "-f", "{dir}/conf"], (b"NICK a\r\nUSER a 0 * :a\r\nQUIT\r\n", b"a"), {"conf":
           "[Global]\nName = irc.local\nInfo = x\nListen = 127.0.0.1\nPorts = {port}\nServerUID = root\nServerGID = root\n[Options]\nDNS = no\nIdent = no\nPAM = no\n"}),
    Server("dnsmasq", "dnsmasq-base", ["/usr/sbin/dnsmasq", "-k", "-C", "/dev/null", "-p", "{port}", "--listen-address=127.0.0.1", "--bind-interfaces", "-h", "-R", "-u", "root", "--address=/a.test/10.1.2.3", "--pid-file="],
           (dns_question("a.test"), b"\x0a\x01\x02\x03"), new="netlink, TCP and UDP of one port"),
    Server("unbound", "unbound", ["/usr/sbin/unbound", "-d", "-c", "{dir}/conf"], (dns_question("a.test"), b"\x0a\x01\x02\x03"), {"conf":
           'server:\n interface: 127.0.0.1@{port}\n username: ""\n chroot: ""\n directory: "{dir}"\n pidfile: ""\n use-syslog: no\n do-udp: no\n local-zone: "a.test." redirect\n local-data: "a.test. A 10.1.2.3"\nremote-control:\n control-enable: no\n'},
           new="70,000 times getrandom at its start"),
    Server("icecast", "icecast2", ["/usr/bin/icecast2", "-c", "{dir}/conf"], http("/status-json.xsl", b"icestats"), {"conf":
           "<icecast><limits><clients>9</clients><sources>2</sources></limits><authentication><source-password>a</source-password><admin-password>a</admin-password></authentication>"
           "<hostname>localhost</hostname><listen-socket><port>{port}</port><bind-address>127.0.0.1</bind-address></listen-socket><paths><basedir>/usr/share/icecast2</basedir><logdir>{dir}</logdir>"
           "<webroot>/usr/share/icecast2/web</webroot><adminroot>/usr/share/icecast2/admin</adminroot></paths><logging><errorlog>-</errorlog><accesslog>-</accesslog></logging></icecast>\n"}),
    Server("monit", "monit", ["/usr/bin/monit", "-I", "-c", "{dir}/conf"], http("/", b"Monit"), {"conf":
           "set daemon 30\nset idfile {dir}/id\nset statefile {dir}/state\nset pidfile {dir}/pid\nset httpd port {port}\n use address 127.0.0.1\n allow 127.0.0.1\n"},
           prepare=[["chmod", "600", "{dir}/conf"]]),
    Server("coturn", "coturn", ["/usr/bin/turnserver", "-n", "-L", "127.0.0.1", "-p", "{port}", "--no-tls", "--no-dtls", "--no-udp", "-z", "--log-file", "stdout", "--pidfile", "{dir}/pid", "-b", "{dir}/db", "--no-cli"],
           (bytes.fromhex("000100002112a442000102030405060708090a0b"), b"\x01\x01"), ),
    Server("mariadb", "mariadb-server-core", ["/usr/sbin/mariadbd", "--no-defaults", "--datadir={dir}/data", "--port={port}", "--bind-address=127.0.0.1", "--socket={dir}/sock", "--user=root",
           "--pid-file={dir}/pid", "--innodb-buffer-pool-size=16M", "--lc-messages-dir=/usr/share/mysql"], (b"", b"MariaDB"), folders=["data"], speaks_first=True, modes=("bare", "run"),
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
    # Other languages.
    Server("php", "php-cli", ["/usr/bin/php", "-S", "127.0.0.1:{port}", "-t", "{dir}"], http("/a.php", b"php 49"), {"a.php": "<?php echo 'php ', 7 * 7;\n"}, new="opcache's lock and shared memory"),
    Server("webrick", "ruby-webrick", ["/usr/bin/ruby", "-run", "-e", "httpd", "{dir}/www", "-p", "{port}", "-b", "127.0.0.1"], http("/", HELLO), PAGE),
    Server("puma", "puma", ["/usr/bin/ruby", "/usr/bin/puma", "-b", "tcp://127.0.0.1:{port}", "{dir}/config.ru"], http("/", b"puma"), {"config.ru": "run lambda {{ |e| [200, {{}}, ['puma']] }}\n"}),
    Server("thin", "thin", ["/usr/bin/ruby", "/usr/bin/thin", "-a", "127.0.0.1", "-p", "{port}", "-R", "{dir}/config.ru", "start"], http("/", b"thin"), {"config.ru": "run lambda {{ |e| [200, {{}}, ['thin']] }}\n"}),
    Server("mojolicious", "libmojolicious-perl", ["/usr/bin/perl", "{dir}/app.pl", "daemon", "-l", "http://127.0.0.1:{port}"], http("/", b"mojo"), {"app.pl":
           "use Mojolicious::Lite;\nget '/' => sub {{ shift->render(text => 'mojo') }};\napp->start;\n"}),
    Server("http-daemon", "libhttp-daemon-perl", ["/usr/bin/perl", "{dir}/app.pl"], http("/", b"perl"), {"app.pl":
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
    Server("webhook", "webhook", ["/usr/bin/webhook", "-ip", "127.0.0.1", "-port", "{port}", "-hooks", "{dir}/hooks.json"], http("/", b"OK"), {"hooks.json": "[]\n"}),
    Server("node-http", "nodejs", ["/usr/bin/node", "{dir}/app.js"], http("/", b"node"), {"app.js": "require('http').createServer((q, s) => s.end('node')).listen({port}, '127.0.0.1')\n"}),
    Server("express", "npm:express@4", ["/usr/bin/node", "{dir}/app.js"], http("/", b"express"), {"app.js": "const a = require('express')(); a.get('/', (q, s) => s.send('express')); a.listen({port}, '127.0.0.1')\n"}),
    Server("fastify", "npm:fastify@4", ["/usr/bin/node", "{dir}/app.js"], http("/", b"fastify"), {"app.js":
           "const a = require('fastify')(); a.get('/', async () => 'fastify'); a.listen({{ port: {port}, host: '127.0.0.1' }})\n"}),
    Server("bun", "npm:bun@1", ["{dir}/node_modules/bun/bin/bun.exe", "{dir}/app.js"], http("/", b"bun"), {"app.js": "Bun.serve({{ port: {port}, hostname: '127.0.0.1', fetch: () => new Response('bun') }})\n"},
           new="JavaScriptCore's reservations"),
]
