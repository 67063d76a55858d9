"""kvmserver init in the folder of a program: what it recognizes, and the manifest that it writes."""
import pathlib
import tomllib
from typing import NamedTuple

import pytest
from harness import kvmserver


class Case(NamedTuple):
    files: dict[str, str]
    recognized: str  # as init says it
    wanted: list[str]  # in the manifest


VENV = "python3 -m venv .venv && .venv/bin/pip install -q"
FLASK_APP = "from flask import Flask\napp = Flask(__name__)\n"

CASES = {
    "rust": Case({"Cargo.toml": '[package]\nname = "shop"\n'}, "rust: Cargo.toml", ['program = "target/release/shop"']),
    "go": Case({"go.mod": "module x\n", "main.go": ""}, "go: go.mod", ['command = "CGO_ENABLED=0 go build -o server ."']),
    "node-main": Case({"package.json": '{"main": "lib/a.js"}', "lib/a.js": ""}, "node: package.json", ['args = ["lib/a.js"]']),
    "node-index": Case({"package.json": "{}", "index.js": ""}, "node: package.json", ['args = ["index.js"]']),
    "deno": Case({"deno.json": "{}", "main.ts": "", "package.json": "{}"}, "deno: deno.json",
                 ['args = ["run", "--allow-net", "main.ts"]']),
    "python": Case({"app.py": ""}, "python: app.py", ['args = ["app.py"]']),
    "c": Case({"main.c": ""}, "c: main.c", ['command = "cc -O2 -Wall -Wextra -o server main.c"']),
    "flask": Case({"requirements.txt": "# web\nFlask[async]>=3\nwaitress\n", "app.py": FLASK_APP}, "flask: requirements.txt names flask",
                  ['8080", "app:app"]', f'"{VENV} -r requirements.txt"', 'program = ".venv/bin/python"']),
    "flask-pyproject": Case({"pyproject.toml": '[build-system]\n[project]\ndependencies = ["flask >= 3"]\n', "shop/__init__.py": "web: Flask = flask.Flask(__name__)\n"},
                            "flask: pyproject.toml names flask", ['8080", "shop:web"]', f'"{VENV} . waitress"']),
    "flask-factory": Case({"requirements.txt": "flask\n", "shop/app.py": "def create_app():\n    app = Flask(__name__)\n"},
                          "flask: requirements.txt names flask", ['8080", "--call", "shop.app:create_app"]', "-r requirements.txt waitress"]),
    "flask-no-package": Case({"pyproject.toml": '[project]\ndependencies = ["flask >= 3"]\n', "app.py": FLASK_APP}, "flask: pyproject.toml names flask",
                             ['["project"]["dependencies"], sep="\\n")'.replace('\\', '\\\\').replace('"', '\\"'), "-r .venv/requirements.txt waitress"]),
    "flask-uv": Case({"pyproject.toml": '[project]\ndependencies = ["flask >= 3"]\n', "app.py": FLASK_APP, "uv.lock": ""}, "flask: pyproject.toml names flask",
                     ['"uv sync -q --no-dev && uv pip install -q waitress"']),
    "fastapi": Case({"pyproject.toml": '[tool.poetry.dependencies]\nfastapi = "*"\n', "shop/main.py": "app = FastAPI(title='x')\n"},
                    "fastapi: pyproject.toml names fastapi", ['"shop.main:app"', f'"{VENV} . uvicorn"', "--no-date-header"]),
    "fastapi-factory": Case({"requirements.txt": "FastAPI\nuvicorn[standard]==0.30\n", "main.py": "def create_app():\n"},
                            "fastapi: requirements.txt names fastapi", ['"--factory", "main:create_app"', '-r requirements.txt"']),
    "django": Case({"manage.py": 'os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")\n', "admin/wsgi.py": "", "shop/wsgi.py": "",
                    "requirements.txt": "Django~=5.2\n", "package.json": "{}"},
                   "django: manage.py", ['8080", "shop.wsgi:application"', "-r requirements.txt waitress"]),
    "django-deeper": Case({"manage.py": "os.environ['DJANGO_SETTINGS_MODULE', 'a.b.settings']\n", "a/b/wsgi.py": ""},
                          "django: manage.py", ['"a.b.wsgi:application"', f'"{VENV} django waitress"']),
    "python-project": Case({"requirements.txt": "aiohttp\n", "main.py": ""}, "python: main.py beside requirements.txt",
                           ['program = ".venv/bin/python"', 'args = ["main.py"]', f'"{VENV} -r requirements.txt"']),
    "node-start": Case({"package.json": '{"scripts": {"start": "node --enable-source-maps ./src/a.js"}, "main": "b.js"}', "b.js": ""},
                       "node: package.json", ['args = ["b.js"]']),
    "node-built": Case({"package.json": '{"scripts": {"start": "node dist/main.js", "build": "tsc"}}', "pnpm-lock.yaml": ""},
                       "node: package.json", ['args = ["dist/main.js"]', '"pnpm install --frozen-lockfile && pnpm run build"']),
    "express": Case({"package.json": '{"scripts": {"start": "node ./bin/www"}, "dependencies": {"express": "5"}}', "bin/www": "", "package-lock.json": "{}"},
                    "express: package.json names express", ['args = ["bin/www"]', '"npm ci --omit=dev"', '"NODE_ENV=production"']),
    "next": Case({"package.json": '{"scripts": {"build": "next build"}, "dependencies": {"next": "16"}}', "next.config.ts": 'export default { output: "standalone" }\n',
                  "yarn.lock": "", "public/a.txt": ""}, "next: package.json names next",
                 ['"yarn install --frozen-lockfile && yarn run build && cp -r .next/static .next/standalone/.next/ && cp -r public .next/standalone/"',
                  'args = [".next/standalone/server.js"]', "PORT=8080"]),
    "bun": Case({"bun.lock": "", "index.ts": "", "package.json": '{"dependencies": {"hono": "4"}}'}, "bun: bun.lock",
                ['program = "bun"', 'args = ["index.ts"]', '"bun install --frozen-lockfile"']),
    "bun-start": Case({"bunfig.toml": "", "src/a.ts": "", "package.json": '{"scripts": {"start": "bun run src/a.ts"}}'}, "bun: bunfig.toml", ['args = ["src/a.ts"]']),
    "php": Case({"index.php": ""}, "php: index.php (every file of this folder is served, kvmserver.toml too: public/index.php is safer)", ['"-t", "."']),
    "php-composer": Case({"composer.json": "{}", "public/index.php": "", "package.json": "{}"}, "php: public/index.php",
                         ['"-t", "public"', '"composer install -q --no-dev --no-interaction"']),
    "ruby": Case({"app.rb": ""}, "ruby: app.rb", ['args = ["app.rb"]']),
    "ruby-gems": Case({"app.rb": "", "Gemfile": "gem 'sinatra'\n"}, "ruby: app.rb beside Gemfile",
                      ['args = ["-rbundler/setup", "app.rb"]', '"bundle check || bundle install"']),
    "rack": Case({"config.ru": "", "Gemfile": "gem 'rails'\ngem 'puma', '~> 6'\n", "package.json": "{}"}, "rack: config.ru, and Gemfile names puma",
                 ['"config.ru"', '"-w", "0"', '"bundle check || bundle install"']),
    "maven": Case({"pom.xml": "<?xml version='1.0'?><project><parent><version>3.2</version></parent><artifactId>shop</artifactId>"
                              "<build><plugins><plugin><artifactId>spring-boot-maven-plugin</artifactId></plugin></plugins></build></project>"},
                  "java: pom.xml", ['"-jar", "target/shop-3.2.jar"', '"mvn -q -B -DskipTests package"']),
    "maven-final-name": Case({"pom.xml": "<project><artifactId>a</artifactId><version>1</version><build><finalName>${project.artifactId}</finalName>"
                                         "<mainClass>A</mainClass></build></project>", "mvnw": ""},
                             "java: pom.xml", ['"-jar", "target/a.jar"', '"./mvnw -q -B -DskipTests package"']),
    "maven-quarkus": Case({"pom.xml": "<project><artifactId>a</artifactId><x>quarkus-maven-plugin</x></project>"}, "java: pom.xml",
                          ['"-jar", "target/quarkus-app/quarkus-run.jar"']),
    "gradle-spring": Case({"build.gradle": "plugins { id 'org.springframework.boot' version '3.2' }\nversion = '0.1'\n", "settings.gradle": "rootProject.name = 'shop'\n", "gradlew": ""},
                          "java-gradle: build.gradle", ['"-jar", "build/libs/shop-0.1.jar"', '"./gradlew -q bootJar"']),
    "gradle-application": Case({"settings.gradle.kts": 'rootProject.name = "x"\n', "app/build.gradle.kts": 'application {\n    mainClass.set("shop.Main")\n}\n'},
                               "java-gradle: app/build.gradle.kts", ['"-cp", "app/build/install/app/lib/*", "shop.Main"', '"gradle -q installDist"']),
}  # fmt: skip


def test_odd_names_stay_words(folder: pathlib.Path) -> None:
    project = folder / 'a"b\\c'
    fill(project, {"build.gradle": "mainClassName = 'A'\n"})
    assert kvmserver("init", cwd=project).status == 0
    config = tomllib.loads((project / "kvmserver.toml").read_text())
    assert config["run"]["args"][-3:] == ["-cp", 'build/install/a"b\\c/lib/*', "A"]


def fill(folder: pathlib.Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


PROGRAMS = ("bun", "deno", "java", "node", "npm", "php", "puma", "python3", "ruby")


def stubs(folder: pathlib.Path) -> dict[str, str]:
    """An environment in which all languages are installed: a dry run looks for the program."""
    folder.mkdir(exist_ok=True)
    for name in PROGRAMS:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.parametrize("name", CASES)
def test_a_program_that_is_there(folder: pathlib.Path, name: str) -> None:
    case = CASES[name]
    fill(folder, case.files)
    done = kvmserver("init", cwd=folder)
    assert done.status == 0 and done.out == "Created kvmserver.toml\n", done
    assert f"kvmserver: recognized {case.recognized}\n" in done.err
    manifest = (folder / "kvmserver.toml").read_text()
    assert [text for text in case.wanted if text not in manifest] == [], manifest
    assert "{{" not in manifest and "allow-listen = true" in manifest
    dry = kvmserver("deploy", "--dry-run", "--name", "x", "--store", folder / "store", cwd=folder, env=stubs(folder / "of-the-system"))
    assert dry.status == 0 and "ignored" not in dry.err, dry


def test_a_program_of_any_name(folder: pathlib.Path) -> None:
    """The only one is taken, with what it requires; of several one is named; a sample never comes beside one."""
    fill(folder, {"service.py": "", "requirements.txt": "aiohttp\n", "test_service.py": "", "conftest.py": ""})
    for words in ([], ["--template", "python"], ["--program", "service.py"]):
        done = kvmserver("init", *words, cwd=folder)
        assert done.status == 0 and done.out == "Created kvmserver.toml\n", done
        assert "recognized python: service.py beside requirements.txt\n" in done.err, done
        config = tomllib.loads((folder / "kvmserver.toml").read_text())
        assert config["run"] == {"program": ".venv/bin/python", "args": ["service.py"]}
        assert config["function"]["build"]["command"] == f"{VENV} -r requirements.txt"
        (folder / "kvmserver.toml").unlink()
    sample = kvmserver("init", "--template", "flask", cwd=folder)
    assert sample.status == 5 and "service.py" in sample.error and "in its place" in sample.error, sample
    fill(folder, {"bot.py": ""})
    several = kvmserver("init", cwd=folder)
    assert several.status == 2 and "bot.py, service.py" in several.error and "--program" in several.error, several
    fill(folder, {"service.py": "if __name__ == '__main__':\n    pass\n"})  # the likely one is proposed
    assert "service.py, bot.py" in kvmserver("init", cwd=folder).error
    assert "--program service.py" in kvmserver("init", cwd=folder).error
    assert kvmserver("init", "--template", "python", cwd=folder).status == 5
    assert [path.name for path in folder.iterdir() if path.suffix not in (".py", ".txt")] == []
    assert kvmserver("init", "--program", "none.py", cwd=folder).status == 3
    assert kvmserver("init", "--program", "requirements.txt", cwd=folder).status == 2
    assert kvmserver("init", "--program", "bot.py", "--template", "flask", cwd=folder).status == 2
    chosen = kvmserver("init", "-q", "--program", "bot.py", cwd=folder)
    assert chosen.status == 0 and chosen.err == "" and 'args = ["bot.py"]' in (folder / "kvmserver.toml").read_text(), chosen


@pytest.mark.parametrize(("file", "others", "wanted"), [
    ("api.mjs", {"package.json": '{"dependencies": {"ws": "8"}}'}, ['program = "node"', 'args = ["api.mjs"]', '"npm install --omit=dev"']),
    ("api.ts", {}, ['program = "deno"', '"api.ts"]']),
    ("api.ts", {"bun.lock": ""}, ['program = "bun"', 'args = ["api.ts"]']),
    ("api.rb", {"Gemfile": ""}, ['args = ["-rbundler/setup", "api.rb"]']),
    ("api.c", {}, ['command = "cc -O2 -Wall -Wextra -o server api.c"']),
])  # fmt: skip
def test_a_named_program_of_each_language(folder: pathlib.Path, file: str, others: dict[str, str], wanted: list[str]) -> None:
    fill(folder, {file: "", **others})
    done = kvmserver("init", "--program", file, cwd=folder)
    assert done.status == 0, done
    manifest = (folder / "kvmserver.toml").read_text()
    assert [text for text in wanted if text not in manifest] == [], manifest


# What is there, and what the line names that says why it cannot be started.
REFUSED = {
    "flask-without-app": ({"requirements.txt": "flask\n", "app.py": ""}, "app = Flask(...)"),
    "django-without-wsgi": ({"manage.py": "DJANGO_SETTINGS_MODULE", "app.py": ""}, "wsgi.py"),
    "next-not-standalone": ({"package.json": '{"dependencies": {"next": "16"}}', "next.config.js": "export default {}", "server.js": ""},
                            'next.config.js has no output: "standalone"'),
    "next-without-config": ({"package.json": '{"dependencies": {"next": "16"}}'}, "no next.config.mjs"),
    "maven-modules": ({"pom.xml": "<project><packaging>pom</packaging></project>"}, "its packaging is pom"),
    "maven-no-xml": ({"pom.xml": "<project>"}, "it is no XML"),
    "maven-library": ({"pom.xml": "<project><artifactId>a</artifactId></project>"}, "mainClass of maven-jar-plugin"),
    "maven-revision": ({"pom.xml": "<project><artifactId>a</artifactId><version>${revision}</version><mainClass>A</mainClass></project>"}, "a-${revision}"),
    "gradle-library": ({"build.gradle": "plugins { id 'java' }"}, "it names no mainClass"),
    "rack-without-puma": ({"config.ru": "", "Gemfile": "# gem 'puma'\ngem 'thin'\n"}, "no Gemfile that names puma"),
    "dotnet": ({"Shop.csproj": "", "Program.cs": ""}, "there is a Shop.csproj: .NET is not supported"),
    "pyproject-no-toml": ({"pyproject.toml": "[", "app.py": ""}, "it is no TOML"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_that_it_cannot_start(folder: pathlib.Path, name: str) -> None:
    files, why = REFUSED[name]
    fill(folder, files)
    done = kvmserver("init", cwd=folder)
    assert done.status == 3 and why in done.error and done.out == "", done
    assert not (folder / "kvmserver.toml").exists()
