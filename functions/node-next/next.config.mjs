import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

// A server in one process that needs nothing but .next/standalone.
export default {
  output: "standalone",
  outputFileTracingRoot: dirname(fileURLToPath(import.meta.url)),
};
