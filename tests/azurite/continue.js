// Loaded into Azurite before its own code: `100 Continue` never leaves together with the answer that follows it.
//
// Azurite says both at once, also to a request without a body. Whoever reads them in one piece with the transport of
// Azure's SDK for C++, which pyarrow is built with, takes the place where the answer's body begins for some bytes too
// early: it reads the end of the header as the length of a chunk, and waits for bytes that never come. Azure itself is
// spoken to by TLS, which hands over what was sent apart in pieces of its own.
"use strict";

const http = require("node:http");

const createServer = http.createServer;

http.createServer = (...settings) => {
  const server = createServer(...settings);
  server.on("checkContinue", (request, response) => {
    const answer = () => server.emit("request", request, response);
    if (Number(request.headers["content-length"]) === 0) {
      answer();
    } else {
      request.once("readable", answer);
      response.writeContinue();
    }
  });
  return server;
};
