"""What kind of file is the body? Answered by Google's Magika model with ONNX Runtime."""
import os
import pathlib

from aiohttp import web
from magika import Magika

OWN_SOURCE = pathlib.Path(__file__).read_bytes()
model = Magika()


def answer(content: bytes) -> web.Response:
    result = model.identify_bytes(content)
    found = result.output
    return web.json_response({"label": found.label, "mime": found.mime_type, "score": round(result.score, 3)})


async def own_source(request: web.Request) -> web.Response:
    return answer(OWN_SOURCE)


async def identify(request: web.Request) -> web.Response:
    return answer(await request.read())


app = web.Application(client_max_size=20 << 20)
app.add_routes([web.get("/", own_source), web.post("/", identify)])

if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=int(os.environ.get("PORT", 8080)))
