// Queues: send, receive, settle, peek, schedule, dead letters.

import {
  admin,
  bodies,
  check,
  client,
  drain,
  finish,
  freshQueue,
  peekAll,
  send,
  take,
  takeOne,
  untilEmpty,
  using,
} from "./checks.js";

const deadLetters = { subQueueType: "deadLetter" };

// A queue that holds `messages`, and a peek-lock receiver on it for the time of `act`.
async function onQueue(messages, act, settings = {}) {
  const queue = await freshQueue(settings);
  await send(queue, messages);
  return using(client.createReceiver(queue), (receiver) => act(receiver, queue));
}

// ---- sending -----------------------------------------------------------------------------------------------

await check("one message", () =>
  onQueue({ body: "hello", messageId: "m-1", subject: "greeting", contentType: "text/plain" }, async (receiver) => {
    const message = await takeOne(receiver);
    await receiver.completeMessage(message);
    const { body, messageId, subject, contentType, deliveryCount, state } = message;
    return {
      body,
      messageId,
      subject,
      contentType,
      deliveryCount,
      state,
      sequenceNumber: message.sequenceNumber.toNumber(),
      lockTokenIsUuid: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(message.lockToken),
      secondsSinceEnqueued: (Date.now() - message.enqueuedTimeUtc.getTime()) / 1000,
      secondsLocked: (message.lockedUntilUtc.getTime() - Date.now()) / 1000,
    };
  }),
);

await check("message without an id", () =>
  onQueue({ body: "anonymous" }, async (receiver, queue) => {
    const message = await takeOne(receiver);
    await receiver.completeMessage(message);
    return { idKind: typeof message.messageId, left: (await peekAll(queue)).length };
  }),
);

await check("list of messages", async () => {
  const queue = await freshQueue();
  await send(queue, Array.from({ length: 20 }, (_, n) => ({ body: n })));
  return bodies(await drain([queue], 20));
});

await check("batch", async () => {
  const queue = await freshQueue();
  return using(client.createSender(queue), async (sender) => {
    const batch = await sender.createMessageBatch();
    for (let n = 0; n < 50; n++) batch.tryAddMessage({ body: { n }, applicationProperties: { n } });
    await sender.sendMessages(batch);
    const received = await drain([queue], 50);
    return {
      maxSizeInBytes: batch.maxSizeInBytes,
      count: batch.count,
      bodies: received.map((message) => message.body.n),
      properties: received.map((message) => message.applicationProperties.n),
    };
  });
});

await check("batch that is full", async () => {
  const queue = await freshQueue();
  return using(client.createSender(queue), async (sender) => {
    const batch = await sender.createMessageBatch();
    const body = Buffer.alloc(60_000, 7);
    let added = 0;
    while (batch.tryAddMessage({ body })) added += 1;
    await sender.sendMessages(batch);
    const received = await drain([queue], added);
    return { added, sizes: received.map((message) => message.body.length) };
  });
});

await check("message over many frames", () =>
  onQueue({ body: Buffer.alloc(250_000, 0x5a) }, async (receiver, queue) => {
    const message = await takeOne(receiver);
    await receiver.completeMessage(message);
    return {
      size: message.body.length,
      intact: message.body.every((byte) => byte === 0x5a),
      left: (await peekAll(queue)).length,
    };
  }),
);

await check("many sends at once", async () => {
  const queue = await freshQueue();
  await using(client.createSender(queue), (sender) =>
    Promise.all(Array.from({ length: 100 }, (_, n) => sender.sendMessages({ body: n }))),
  );
  return bodies(await drain([queue], 100)).sort((a, b) => a - b);
});

// ---- receiving ---------------------------------------------------------------------------------------------

await check("receive and delete", async () => {
  const queue = await freshQueue();
  await send(queue, [{ body: "a" }, { body: "b" }]);
  const received = await drain([queue], 2);
  return {
    bodies: bodies(received),
    lockTokens: received.map((message) => message.lockToken ?? null),
    left: (await peekAll(queue)).length,
  };
});

await check("receive from an empty queue", async () => {
  const queue = await freshQueue();
  return using(client.createReceiver(queue), (receiver) => receiver.receiveMessages(1, { maxWaitTimeInMs: 100 }));
});

await check("receive again after an empty receive", async () => {
  const queue = await freshQueue();
  return using(client.createReceiver(queue), async (receiver) => {
    const first = await receiver.receiveMessages(3, { maxWaitTimeInMs: 50 });
    await send(queue, { body: "late" });
    const second = await take(receiver, 1);
    return [first.length, ...bodies(second)];
  });
});

await check("fewer messages than asked for", async () => {
  const queue = await freshQueue();
  await send(queue, [{ body: 1 }, { body: 2 }]);
  return using(client.createReceiver(queue), async (receiver) => {
    const received = await receiver.receiveMessages(10, { maxWaitTimeInMs: 20_000 });
    for (const message of received) await receiver.completeMessage(message);
    return { bodies: bodies(received), left: (await peekAll(queue)).length };
  });
});

// Handlers for subscribe() that resolve `done` when `count` messages have been processed. The errors are to be
// copied before the receiver is closed: the client reports the credit that it can no longer give as one.
function handlersFor(count, processMessage = async () => {}) {
  const seen = [];
  const errors = [];
  let resolve;
  const done = new Promise((fulfil) => (resolve = fulfil));
  const handlers = {
    processMessage: async (message) => {
      seen.push(message);
      if (seen.length >= count) resolve();
      await processMessage(message);
    },
    processError: async ({ error, errorSource }) => {
      errors.push({ message: error.message, errorSource });
    },
  };
  return { handlers, seen, errors, done };
}

await check("subscribe", () =>
  onQueue(Array.from({ length: 10 }, (_, n) => ({ body: n })), async (receiver, queue) => {
    const { handlers, seen, errors, done } = handlersFor(10);
    const subscription = receiver.subscribe(handlers);
    await done;
    await untilEmpty(queue);
    const outcome = { bodies: bodies(seen), errors: [...errors] };
    await subscription.close();
    return outcome;
  }),
);

await check("subscribe before there is a message", async () => {
  const queue = await freshQueue();
  return using(client.createReceiver(queue), async (receiver) => {
    const { handlers, seen, errors, done } = handlersFor(2);
    receiver.subscribe(handlers, { maxConcurrentCalls: 2 });
    await send(queue, [{ body: "a" }, { body: "b" }]);
    await done;
    await untilEmpty(queue);
    return { bodies: bodies(seen), errors: [...errors] };
  });
});

await check("subscribe with a handler that fails", () =>
  onQueue({ body: "bad" }, async (receiver, queue) => {
    const { handlers, seen, errors, done } = handlersFor(2, async (message) => {
      if (message.deliveryCount === 0) throw new Error("handler failed");
    });
    const subscription = receiver.subscribe(handlers);
    await done;
    await untilEmpty(queue);
    const outcome = { deliveryCounts: seen.map((message) => message.deliveryCount), errors: [...errors] };
    await subscription.close();
    return outcome;
  }),
);

await check("iterate", () =>
  onQueue([{ body: 1 }, { body: 2 }, { body: 3 }], async (receiver) => {
    const seen = [];
    for await (const message of receiver.getMessageIterator()) {
      seen.push(message.body);
      await receiver.completeMessage(message);
      if (seen.length === 3) break;
    }
    return seen;
  }),
);

// ---- settling ----------------------------------------------------------------------------------------------

await check("complete", () =>
  onQueue({ body: "done" }, async (receiver, queue) => {
    await receiver.completeMessage(await takeOne(receiver));
    return (await peekAll(queue)).length;
  }),
);

await check("abandon", () =>
  onQueue({ body: "again", applicationProperties: { tries: 0 } }, async (receiver) => {
    await receiver.abandonMessage(await takeOne(receiver), { tries: 1, why: "busy" });
    const again = await takeOne(receiver);
    await receiver.completeMessage(again);
    return { body: again.body, deliveryCount: again.deliveryCount, properties: again.applicationProperties };
  }),
);

await check("abandon too often", () =>
  onQueue(
    { body: "poison" },
    async (receiver, queue) => {
      for (let n = 0; n < 2; n++) await receiver.abandonMessage(await takeOne(receiver));
      const [dead] = await peekAll(queue, deadLetters);
      return { body: dead.body, reason: dead.deadLetterReason };
    },
    { maxDeliveryCount: 2 },
  ),
);

await check("defer", () =>
  onQueue([{ body: "later" }, { body: "now" }], async (receiver, queue) => {
    const message = await takeOne(receiver);
    await receiver.deferMessage(message, { put: "aside" });
    const now = await takeOne(receiver);
    await receiver.completeMessage(now);
    const peeked = await peekAll(queue);
    const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
    await receiver.completeMessage(deferred);
    return {
      now: now.body,
      peekedStates: peeked.map(({ state }) => state),
      deferred: deferred.body,
      properties: deferred.applicationProperties,
      sameNumber: deferred.sequenceNumber.equals(message.sequenceNumber),
      left: (await peekAll(queue)).length,
    };
  }),
);

await check("deferred messages by a list", () =>
  onQueue([{ body: 1 }, { body: 2 }, { body: 3 }], async (receiver, queue) => {
    const messages = await take(receiver, 3);
    for (const message of messages) await receiver.deferMessage(message);
    const numbers = messages.map((message) => message.sequenceNumber);
    const deferred = await receiver.receiveDeferredMessages(numbers);
    await receiver.abandonMessage(deferred[0]);
    await receiver.deadLetterMessage(deferred[1], { deadLetterReason: "second" });
    await receiver.completeMessage(deferred[2]);
    const [dead] = await peekAll(queue, deadLetters);
    return {
      bodies: bodies(deferred),
      left: (await peekAll(queue)).map(({ body, state }) => ({ body, state })),
      dead: { body: dead.body, reason: dead.deadLetterReason },
    };
  }),
);

await check("deferred message received and deleted", () =>
  onQueue({ body: "later" }, async (receiver, queue) => {
    const message = await takeOne(receiver);
    await receiver.deferMessage(message);
    return using(client.createReceiver(queue, { receiveMode: "receiveAndDelete" }), async (deleting) => {
      const deferred = await deleting.receiveDeferredMessages(message.sequenceNumber);
      return { bodies: bodies(deferred), left: (await peekAll(queue)).length };
    });
  }),
);

await check("dead letter with a reason", () =>
  onQueue({ body: "bad", applicationProperties: { own: true } }, async (receiver, queue) => {
    await receiver.deadLetterMessage(await takeOne(receiver), {
      deadLetterReason: "malformed",
      deadLetterErrorDescription: "no customer",
      checkedBy: "node",
    });
    return using(client.createReceiver(queue, deadLetters), async (dead) => {
      const message = await takeOne(dead);
      await dead.completeMessage(message);
      return {
        body: message.body,
        reason: message.deadLetterReason,
        description: message.deadLetterErrorDescription,
        properties: message.applicationProperties,
        left: [(await peekAll(queue)).length, (await peekAll(queue, deadLetters)).length],
      };
    });
  }),
);

await check("renew a lock", () =>
  onQueue(
    { body: "slow" },
    async (receiver) => {
      const message = await takeOne(receiver);
      const before = message.lockedUntilUtc.getTime();
      await new Promise((resolve) => setTimeout(resolve, 20));
      const after = (await receiver.renewMessageLock(message)).getTime();
      await receiver.completeMessage(message);
      return { later: after > before, seconds: (after - Date.now()) / 1000 };
    },
    { lockDuration: "PT30S" },
  ),
);

// ---- peeking -----------------------------------------------------------------------------------------------

await check("peek", async () => {
  const queue = await freshQueue();
  await send(queue, Array.from({ length: 5 }, (_, n) => ({ body: n })));
  return using(client.createReceiver(queue), async (receiver) => {
    const first = await receiver.peekMessages(2);
    const next = await receiver.peekMessages(10);
    const end = await receiver.peekMessages(1);
    const from = await receiver.peekMessages(1, { fromSequenceNumber: first[1].sequenceNumber });
    return {
      pages: [first, next, from].map(bodies),
      afterTheEnd: bodies(end),
      locked: first[0].lockToken ?? null,
      left: (await admin.getQueueRuntimeProperties(queue)).activeMessageCount,
    };
  });
});

await check("peek at an empty queue", async () => peekAll(await freshQueue()));

// ---- scheduling --------------------------------------------------------------------------------------------

await check("schedule and cancel", async () => {
  const queue = await freshQueue();
  return using(client.createSender(queue), async (sender) => {
    const when = new Date(Date.now() + 3_600_000);
    const numbers = await sender.scheduleMessages([{ body: "a" }, { body: "b" }], when);
    const peeked = await peekAll(queue);
    await sender.cancelScheduledMessages(numbers[0]);
    return {
      count: numbers.length,
      peeked: peeked.map(({ body, state, scheduledEnqueueTimeUtc }) => ({
        body,
        state,
        onTime: scheduledEnqueueTimeUtc.getTime() === when.getTime(),
      })),
      left: bodies(await peekAll(queue)),
    };
  });
});

await check("scheduled message arrives", async () => {
  const queue = await freshQueue();
  return using(client.createSender(queue), async (sender) => {
    const when = new Date(Date.now() + 200);
    await sender.sendMessages({ body: "soon", scheduledEnqueueTimeUtc: when });
    const [message] = await drain([queue], 1);
    return { body: message.body, notBefore: Date.now() >= when.getTime(), state: message.state };
  });
});

await finish();
