// Sessions: named and next free, order, state, renewal, exclusion.

import {
  admin,
  bodies,
  check,
  client,
  finish,
  freshQueue,
  freshTopic,
  refusal,
  send,
  take,
  takeOne,
  untilEmpty,
  using,
} from "./checks.js";

const withSessions = { requiresSession: true };

// A queue with sessions that holds `messages`.
async function freshSessions(messages = []) {
  const queue = await freshQueue(withSessions);
  if (messages.length > 0) await send(queue, messages);
  return queue;
}

const accept = async (queue, id, act) => using(await client.acceptSession(queue, id), act);
const acceptNext = async (queue, act) => using(await client.acceptNextSession(queue), act);

await check("named session", async () => {
  const queue = await freshSessions([
    { body: "a1", sessionId: "a" },
    { body: "b1", sessionId: "b" },
    { body: "a2", sessionId: "a" },
    { body: "b2", sessionId: "b" },
  ]);
  return accept(queue, "b", async (receiver) => {
    const received = await take(receiver, 2);
    for (const message of received) await receiver.completeMessage(message);
    return {
      sessionId: receiver.sessionId,
      bodies: bodies(received),
      sessionIds: received.map((message) => message.sessionId),
      secondsLocked: (receiver.sessionLockedUntilUtc.getTime() - Date.now()) / 1000,
      left: (await admin.getQueueRuntimeProperties(queue)).activeMessageCount,
    };
  });
});

await check("next free session", async () => {
  const queue = await freshSessions([
    { body: 1, sessionId: "x" },
    { body: 2, sessionId: "y" },
  ]);
  return acceptNext(queue, (first) =>
    acceptNext(queue, async (second) => [
      [first.sessionId, (await takeOne(first)).body],
      [second.sessionId, (await takeOne(second)).body],
    ]),
  );
});

await check("wait for the next session", async () => {
  const queue = await freshSessions();
  const accepting = client.acceptNextSession(queue);
  await send(queue, { body: "late", sessionId: "fresh" });
  return using(await accepting, async (receiver) => [receiver.sessionId, (await takeOne(receiver)).body]);
});

await check("order within a session", async () => {
  const queue = await freshSessions(Array.from({ length: 30 }, (_, n) => ({ body: n, sessionId: `s${n % 3}` })));
  return accept(queue, "s1", async (receiver) => {
    const seen = [];
    for (let n = 0; n < 10; n++) {
      const message = await takeOne(receiver);
      seen.push(message.body);
      await receiver.completeMessage(message);
    }
    return seen;
  });
});

await check("state", async () => {
  const queue = await freshSessions([{ body: "x", sessionId: "s" }]);
  const states = await accept(queue, "s", async (receiver) => {
    const before = await receiver.getSessionState();
    await receiver.setSessionState({ step: 3, names: ["a", "b"] });
    return [before, await receiver.getSessionState()];
  });
  return accept(queue, "s", async (receiver) => {
    states.push(await receiver.getSessionState());
    await receiver.setSessionState(null);
    return [...states, await receiver.getSessionState()];
  });
});

await check("renew a session", async () => {
  const queue = await freshSessions([{ body: "x", sessionId: "s" }]);
  return accept(queue, "s", async (receiver) => {
    const before = receiver.sessionLockedUntilUtc.getTime();
    await new Promise((resolve) => setTimeout(resolve, 20));
    const after = (await receiver.renewSessionLock()).getTime();
    return { later: after > before, seconds: (after - Date.now()) / 1000 };
  });
});

await check("settle in a session", async () => {
  const queue = await freshSessions(["abandon", "defer", "dead", "done"].map((body) => ({ body, sessionId: "s" })));
  return accept(queue, "s", async (receiver) => {
    const [abandon, defer, dead, done] = await take(receiver, 4);
    await receiver.deferMessage(defer);
    await receiver.deadLetterMessage(dead, { deadLetterReason: "unwanted" });
    await receiver.completeMessage(done);
    await receiver.abandonMessage(abandon);
    const again = await takeOne(receiver);
    const [deferred] = await receiver.receiveDeferredMessages(defer.sequenceNumber);
    await receiver.completeMessage(deferred);
    await receiver.completeMessage(again);
    const { activeMessageCount, deadLetterMessageCount, totalMessageCount } =
      await admin.getQueueRuntimeProperties(queue);
    return {
      again: [again.body, again.deliveryCount],
      deferred: deferred.body,
      counts: { activeMessageCount, deadLetterMessageCount, totalMessageCount },
    };
  });
});

await check("dead letters of a session queue", async () => {
  const queue = await freshSessions([{ body: "bad", sessionId: "s" }]);
  await accept(queue, "s", async (receiver) =>
    receiver.deadLetterMessage(await takeOne(receiver), { deadLetterReason: "malformed" }),
  );
  return using(client.createReceiver(queue, { subQueueType: "deadLetter" }), async (receiver) => {
    const message = await takeOne(receiver);
    await receiver.completeMessage(message);
    return [message.body, message.sessionId, message.deadLetterReason];
  });
});

await check("peek in a session", async () => {
  const queue = await freshSessions([
    { body: "a", sessionId: "s" },
    { body: "other", sessionId: "t" },
    { body: "b", sessionId: "s" },
  ]);
  return accept(queue, "s", async (receiver) => bodies(await receiver.peekMessages(10)));
});

await check("subscribe to a session", async () => {
  const queue = await freshSessions([1, 2, 3].map((body) => ({ body, sessionId: "s" })));
  const seen = [];
  const errors = [];
  return accept(queue, "s", async (receiver) => {
    receiver.subscribe({
      processMessage: async (message) => seen.push(message.body),
      processError: async ({ error }) => errors.push(error.message),
    });
    await untilEmpty(queue);
    // As of now: the client reports the credit that it can no longer give to a closed link as an error.
    return { seen, errors: [...errors] };
  });
});

await check("receive and delete in a session", async () => {
  const queue = await freshSessions([{ body: "gone", sessionId: "s" }]);
  const receiver = await client.acceptSession(queue, "s", { receiveMode: "receiveAndDelete" });
  const received = await using(receiver, (link) => take(link, 1));
  return [bodies(received), (await admin.getQueueRuntimeProperties(queue)).totalMessageCount];
});

await check("schedule in a session", async () => {
  const queue = await freshSessions();
  await using(client.createSender(queue), (sender) =>
    sender.scheduleMessages({ body: "soon", sessionId: "s" }, new Date(Date.now() + 100)),
  );
  return acceptNext(queue, async (receiver) => [receiver.sessionId, (await takeOne(receiver)).body]);
});

await check("session of a subscription", async () => {
  const topic = await freshTopic();
  await admin.createSubscription(topic, "ordered", withSessions);
  await send(topic, [
    { body: 1, sessionId: "s" },
    { body: 2, sessionId: "s" },
  ]);
  return using(await client.acceptSession(topic, "ordered", "s"), async (receiver) => bodies(await take(receiver, 2)));
});

await check("session that another one holds", async () => {
  const queue = await freshSessions([{ body: "x", sessionId: "s" }]);
  return accept(queue, "s", () => refusal(() => client.acceptSession(queue, "s")));
});

await check("session that is free again", async () => {
  const queue = await freshSessions([{ body: "x", sessionId: "s" }]);
  await accept(queue, "s", takeOne);
  return accept(queue, "s", async (receiver) => {
    const message = await takeOne(receiver);
    return [message.body, message.deliveryCount];
  });
});

await check("session of a queue without sessions", async () => {
  const queue = await freshQueue();
  return refusal(() => client.acceptSession(queue, "s"));
});

await check("receiver without a session", async () => {
  const queue = await freshSessions();
  return using(client.createReceiver(queue), (receiver) =>
    refusal(() => receiver.receiveMessages(1, { maxWaitTimeInMs: 20_000 })),
  );
});

await check("message without a session", async () => {
  const queue = await freshSessions();
  return refusal(() => send(queue, { body: "lost" }));
});

await finish();
