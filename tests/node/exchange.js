// Messages between this client and the Python one: "to-node" holds what Python has sent, "to-python" is filled here.

import { check, client, finish, send, take, using } from "./checks.js";

// Dates and bytes, however deep, in a form that JSON can hold.
function shown(value) {
  if (value instanceof Date) return { date: value.toISOString() };
  if (Buffer.isBuffer(value)) return { bytes: value.toString("hex") };
  if (Array.isArray(value)) return value.map(shown);
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, shown(item)]));
  }
  return value;
}

// The client turns dates into numbers, and takes uuids apart on the way, unless it is told not to.
const untouched = { receiveMode: "receiveAndDelete", skipConvertingDate: true };
const received = await using(client.createReceiver("to-node", untouched), (receiver) => take(receiver, 4));
const sentByPython = new Map(received.map((message) => [message.messageId, message]));

await check("message from python", () => {
  const message = sentByPython.get("properties");
  const { body, subject, correlationId, to, replyTo, replyToSessionId, contentType, timeToLive, partitionKey } = message;
  return {
    ...shown({ body, subject, correlationId, to, replyTo, replyToSessionId, contentType, timeToLive, partitionKey }),
    secondsToExpiry: (message.expiresAtUtc.getTime() - message.enqueuedTimeUtc.getTime()) / 1000,
  };
});

await check("property types from python", () => shown(sentByPython.get("types").applicationProperties));

await check("value body from python", () => shown(sentByPython.get("value").body));

await check("sequence body from python", () => shown(sentByPython.get("sequence").body));

await check("messages for python", async () => {
  await send("to-python", [
    {
      messageId: "properties",
      body: Buffer.from([0, 1, 0xfe, 0xff]),
      subject: "order",
      correlationId: "c-1",
      to: "somebody",
      replyTo: "me",
      replyToSessionId: "r-1",
      contentType: "application/octet-stream",
      timeToLive: 600_000,
      partitionKey: "p-1",
    },
    {
      messageId: "types",
      body: { text: "grün", list: [1, null, true] },
      applicationProperties: {
        text: "grün",
        none: null,
        yes: true,
        no: false,
        small: 7,
        negative: -7,
        large: 2 ** 40,
        fraction: 2.5,
        date: new Date("2024-02-29T12:30:15.250Z"),
      },
    },
  ]);
  await send("to-python", [
    { properties: { messageId: "value" }, bodyType: "value", body: { name: "Ada", age: 36, tags: ["x", "y"] } },
    { properties: { messageId: "sequence" }, bodyType: "sequence", body: [1, "two", false] },
  ]);
});

await finish();
