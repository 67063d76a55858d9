from flask import Flask, request

app = Flask(__name__)


@app.get("/")
def hello():
    return f"Hello {request.args.get('name', 'world')} from Flask\n", {"Content-Type": "text/plain; charset=utf-8"}
