import { createServer } from "node:http";

const server = createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url, "http://localhost");
  if (pathname !== "/") {
    response.writeHead(404, { "Content-Type": "text/plain" }).end("not found\n");
    return;
  }
  const name = searchParams.get("name") ?? "world";
  response.writeHead(200, { "Content-Type": "text/plain" }).end(`Hello ${name} from Node\n`);
});

server.listen(8080, "127.0.0.1", () => console.log("listening on 8080"));
