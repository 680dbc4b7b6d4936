// Serves one route for each limiter that the argument lists in JSON, limited by express-rate-limit, prints the ports as
// a list in JSON, and ends with its standard input.
import express from "express";
import { rateLimit } from "express-rate-limit";

function serve({ limit, windowMs, legacyHeaders, standardHeaders }) {
  const app = express();
  const keyGenerator = (request) => request.get("authorization") ?? "";
  app.use(rateLimit({ limit, windowMs, legacyHeaders, standardHeaders, keyGenerator }));
  app.get("/", (_, response) => response.send("hello"));
  return new Promise((resolve, reject) => {
    const server = app.listen(0, "127.0.0.1", (error) => (error ? reject(error) : resolve(server.address().port)));
  });
}

console.log(JSON.stringify(await Promise.all(JSON.parse(process.argv[2]).map(serve))));
process.stdin.resume().on("end", () => process.exit());
