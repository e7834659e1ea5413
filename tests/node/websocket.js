// The client over AMQP on a WebSocket, which it always opens by TLS.

import WebSocket from "ws";

import { check, connect, connectionString, finish, freshQueue, take, using } from "./checks.js";

const client = connect(connectionString, { webSocketOptions: { webSocket: WebSocket } });

await check("message over a websocket", async () => {
  const queue = await freshQueue({ requiresSession: true });
  await using(client.createSender(queue), (sender) => sender.sendMessages({ body: "hello", sessionId: "s" }));
  return using(await client.acceptSession(queue, "s"), async (receiver) => {
    const [message] = await take(receiver, 1);
    await receiver.setSessionState("seen");
    await receiver.completeMessage(message);
    const left = await receiver.peekMessages(1);
    return { body: message.body, state: (await receiver.getSessionState()).toString(), left: left.length };
  });
});

await client.close();
await finish();
