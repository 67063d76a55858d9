// An image resizer: the picture of the body (POST) or photo.jpg (GET), scaled to ?width= pixels.
import { readFile } from "node:fs/promises";
import Fastify from "fastify";
import sharp from "sharp";

const LARGEST = 4000; // pixels
const photo = await readFile(new URL("photo.jpg", import.meta.url));
const app = Fastify({ bodyLimit: 20 << 20 });

// Any Content-Type: sharp tells by the bytes what it is.
app.removeAllContentTypeParsers();
app.addContentTypeParser("*", { parseAs: "buffer" }, (request, body, done) => done(null, body));

const query = {
  type: "object",
  properties: {
    width: { type: "integer", minimum: 1, maximum: LARGEST, default: 320 },
    format: { enum: ["jpeg", "png", "webp", "avif"], default: "jpeg" },
  },
};

async function resize(image, { width, format }, reply) {
  try {
    const scaled = sharp(image, { limitInputPixels: 50e6 }).rotate().resize({ width, withoutEnlargement: true });
    const bytes = await scaled.toFormat(format).toBuffer();
    return reply.type(`image/${format}`).send(bytes);
  } catch (error) {
    return reply.code(415).send({ error: error.message });
  }
}

app.get("/", { schema: { querystring: query } }, (request, reply) => resize(photo, request.query, reply));
app.post("/", { schema: { querystring: query } }, (request, reply) => resize(request.body, request.query, reply));

const port = Number(process.env.PORT ?? 8080);
await app.listen({ port, host: "127.0.0.1" });
console.log(`listening on ${port}`);
