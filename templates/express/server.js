import express from "express";

const app = express();

app.get("/", (request, response) => {
  response.type("text").send(`Hello ${request.query.name ?? "world"} from Express\n`);
});

app.listen(8080, "127.0.0.1", () => console.log("listening on 8080"));
