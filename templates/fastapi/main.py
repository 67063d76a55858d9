from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

app = FastAPI()


@app.get("/", response_class=PlainTextResponse)
async def hello(name: str = "world") -> str:
    return f"Hello {name} from FastAPI\n"
