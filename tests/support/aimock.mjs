// An independent mock of an OpenAI-compatible server: aimock.mjs PACKAGE, where PACKAGE is the folder of @copilotkit/aimock. Prints its address, and for
// each line on its standard input the statuses of the requests so far. Ends with its standard input.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const { LLMock } = await import(pathToFileURL(join(process.argv[2], "dist", "index.js")).href);
const mock = new LLMock({ port: 0 });

// The desk: two calls at once, then an answer.
mock.on(
  { userMessage: "broken", hasToolResult: false },
  {
    toolCalls: [
      { name: "look_up", arguments: { order: "A-7" } },
      { name: "refund", arguments: { order: "A-7", cents: 4200 } },
    ],
  },
);
mock.on({ userMessage: "broken", hasToolResult: true }, { content: "Your money is on its way." });

// The poem: the first stream is cut, the second is whole.
const poem = { content: "The log only grows, and nothing in it is ever written twice by anyone at all." };
mock.on({ userMessage: "poem", sequenceIndex: 0 }, poem, { chunkSize: 8, truncateAfterChunks: 3 });
mock.on({ userMessage: "poem", sequenceIndex: 1 }, poem, { chunkSize: 8 });

await mock.start();
mock.nextRequestError(429, { message: "slow down", type: "rate_limit_error" });
console.log(mock.url);

const lines = createInterface({ input: process.stdin });
lines.on("line", () => console.log(JSON.stringify(mock.getRequests().map((entry) => entry.response.status))));
lines.on("close", async () => {
  await mock.stop();
  process.exit(0);
});
