"""A guest book: Flask, and SQLite in the file that DATABASE names."""
import os
import sqlite3

from flask import Flask, abort, g, jsonify, redirect, render_template, request

DATABASE = os.environ.get("DATABASE", "guests.db")
app = Flask(__name__)


def connect() -> sqlite3.Connection:
    database = sqlite3.connect(DATABASE, timeout=5)
    database.row_factory = sqlite3.Row
    return database


def db() -> sqlite3.Connection:
    if "database" not in g:
        g.database = connect()
    return g.database


@app.teardown_appcontext
def close(_error) -> None:
    if database := g.pop("database", None):
        database.close()


def entries() -> list[sqlite3.Row]:
    return db().execute("SELECT id, name, text FROM entries ORDER BY id DESC LIMIT 100").fetchall()


@app.get("/")
def book():
    return render_template("book.html", entries=entries())


@app.post("/")
def sign():
    name, text = request.form.get("name", "").strip(), request.form.get("text", "").strip()
    if not name or not text or len(name) > 100 or len(text) > 10_000:
        abort(400, "name and text are needed")
    with db():
        db().execute("INSERT INTO entries (name, text) VALUES (?, ?)", (name, text))
    return redirect("/", 303)


@app.get("/entries")
def as_json():
    return jsonify([dict(entry) for entry in entries()])


with connect() as database:
    database.execute("CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL)")
    if not database.execute("SELECT 1 FROM entries").fetchone():
        database.execute("INSERT INTO entries (name, text) VALUES ('Ada', 'The first to sign')")
database.close()
