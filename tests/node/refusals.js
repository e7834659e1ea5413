// What is refused arrives as the code that a program looks at.

import { createHmac } from "node:crypto";

import { ServiceBusClient, parseServiceBusConnectionString } from "@azure/service-bus";
import Long from "long";

import {
  admin,
  check,
  client,
  connect,
  connectionString,
  finish,
  freshQueue,
  freshTopic,
  refusal,
  send,
  takeOne,
  using,
} from "./checks.js";

const policies = JSON.parse(process.env.PAIRBUS_POLICIES);
const soon = { maxWaitTimeInMs: 20_000 };

const receiveWith = (connection, ...address) =>
  using(connection.createReceiver(...address), (receiver) => refusal(() => receiver.receiveMessages(1, soon)));

const sendWith = (connection, entity, message = { body: "x" }) =>
  using(connection.createSender(entity), (sender) => refusal(() => sender.sendMessages(message)));

// ---- entities ----------------------------------------------------------------------------------------------

await check("send to a missing entity", () => sendWith(client, "missing"));
await check("receive from a missing queue", () => receiveWith(client, "missing"));
await check("receive from a missing subscription", async () => receiveWith(client, await freshTopic(), "missing"));
await check("peek at a missing queue", () =>
  using(client.createReceiver("missing"), (receiver) => refusal(() => receiver.peekMessages(1))),
);
await check("subscribe to a missing queue", () =>
  using(client.createReceiver("missing"), async (receiver) => {
    const { error, errorSource } = await new Promise((resolve) =>
      receiver.subscribe({ processMessage: async () => {}, processError: async (args) => resolve(args) }),
    );
    return { code: error.code, errorSource };
  }),
);
await check("receive from a topic", async () => receiveWith(client, await freshTopic()));

await check("send to a disabled queue", async () => sendWith(client, await freshQueue({ status: "SendDisabled" })));
await check("receive from a disabled queue", async () =>
  receiveWith(client, await freshQueue({ status: "ReceiveDisabled" })),
);

await check("queue deleted under a sender", async () => {
  const queue = await freshQueue();
  return using(client.createSender(queue), async (sender) => {
    await sender.sendMessages({ body: "x" });
    await admin.deleteQueue(queue);
    return refusal(() => sender.sendMessages({ body: "y" }));
  });
});

// ---- rights ------------------------------------------------------------------------------------------------

await check("wrong key", async () => {
  const queue = await freshQueue();
  const wrong = connectionString.replace(/SharedAccessKey=[^;]*/, "SharedAccessKey=d3Jvbmc=");
  return using(connect(wrong), async (stranger) => [
    await sendWith(stranger, queue),
    await receiveWith(stranger, queue),
  ]);
});

await check("unknown policy", async () => {
  const queue = await freshQueue();
  return using(connect(connectionString.replace(/SharedAccessKeyName=[^;]*/, "SharedAccessKeyName=nobody")), (stranger) =>
    sendWith(stranger, queue),
  );
});

// A connection string with a signature instead of a key: what a program is given that shall not know the key.
function signedString(key, { expiry, path = "" }) {
  const { endpoint, sharedAccessKeyName } = parseServiceBusConnectionString(connectionString);
  const resource = encodeURIComponent(`${endpoint.replace(/[/]*$/, "")}/${path}`);
  const signature = createHmac("sha256", key).update(`${resource}\n${expiry}`).digest("base64");
  const token = `sr=${resource}&sig=${encodeURIComponent(signature)}&se=${expiry}&skn=${sharedAccessKeyName}`;
  return `Endpoint=${endpoint};SharedAccessSignature=SharedAccessSignature ${token};UseDevelopmentEmulator=true`;
}

await check("signature instead of a key", async () => {
  const queue = await freshQueue();
  const { sharedAccessKey } = parseServiceBusConnectionString(connectionString);
  const now = Math.floor(Date.now() / 1000);
  const good = await using(connect(signedString(sharedAccessKey, { expiry: now + 600 })), async (bearer) => {
    await using(bearer.createSender(queue), (sender) => sender.sendMessages({ body: "signed" }));
    return (await using(bearer.createReceiver(queue), takeOne)).body;
  });
  const refused = {};
  for (const [why, string] of Object.entries({
    expired: signedString(sharedAccessKey, { expiry: now - 10 }),
    forged: signedString("d3Jvbmc=", { expiry: now + 600 }),
    elsewhere: signedString(sharedAccessKey, { expiry: now + 600, path: "other" }),
  })) {
    refused[why] = (await using(connect(string), (stranger) => sendWith(stranger, queue))).code;
  }
  return { good, refused };
});

await check("listen only", async () => {
  const queue = await freshQueue();
  return using(connect(policies.listen), async (listener) => {
    const refused = await sendWith(listener, queue);
    await send(queue, { body: "x" });
    return [refused, (await using(listener.createReceiver(queue), takeOne)).body];
  });
});

await check("send only", async () => {
  const queue = await freshQueue();
  return using(connect(policies.send), async (sender) => {
    await using(sender.createSender(queue), (link) => link.sendMessages({ body: "x" }));
    const peeking = await using(sender.createReceiver(queue), (receiver) => refusal(() => receiver.peekMessages(1)));
    return [await receiveWith(sender, queue), peeking];
  });
});

// ---- sizes and locks ---------------------------------------------------------------------------------------

await check("message that is too large", async () =>
  sendWith(client, await freshQueue(), { body: Buffer.alloc(300_000) }),
);

await check("lock that is lost", async () => {
  const queue = await freshQueue();
  await send(queue, { body: "x" });
  return using(client.createReceiver(queue), async (receiver) => {
    const message = await takeOne(receiver);
    await receiver.completeMessage(message);
    return refusal(() => receiver.renewMessageLock(message));
  });
});

await check("deferred message settled twice", async () => {
  const queue = await freshQueue();
  await send(queue, { body: "x" });
  return using(client.createReceiver(queue), async (receiver) => {
    const message = await takeOne(receiver);
    await receiver.deferMessage(message);
    const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
    await receiver.completeMessage(deferred);
    return refusal(() => receiver.completeMessage(deferred));
  });
});

await check("deferred message that is not there", async () =>
  using(client.createReceiver(await freshQueue()), (receiver) =>
    refusal(() => receiver.receiveDeferredMessages(Long.fromNumber(4711))),
  ),
);

await check("cancel what is not scheduled", async () =>
  using(client.createSender(await freshQueue()), (sender) =>
    refusal(() => sender.cancelScheduledMessages(Long.fromNumber(4711))),
  ),
);

await check("no session in time", async () => {
  const queue = await freshQueue({ requiresSession: true });
  const hasty = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0, timeoutInMs: 4000 } });
  return using(hasty, () => refusal(() => hasty.acceptNextSession(queue)));
});

await finish();
