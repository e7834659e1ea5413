// Topics: copies for every subscription, filters, actions, and rules managed over AMQP.

import {
  admin,
  bodies,
  check,
  client,
  collect,
  drain,
  finish,
  freshTopic,
  peekAll,
  refusal,
  send,
  takeOne,
  using,
} from "./checks.js";

// A topic with one subscription for each filter, by name; null takes everything.
async function topicWith(filters) {
  const topic = await freshTopic();
  for (const [name, filter] of Object.entries(filters)) {
    const defaultRuleOptions = filter && { name: "only", filter };
    await admin.createSubscription(topic, name, filter ? { defaultRuleOptions } : {});
  }
  return topic;
}

// What each subscription holds.
async function held(topic, ...names) {
  const found = {};
  for (const name of names) found[name] = bodies(await peekAll(topic, name));
  return found;
}

// The client has no way to close one; it ends with the connection.
const onRules = (topic, name, act) => act(client.createRuleManager(topic, name));

await check("copies for every subscription", async () => {
  const topic = await topicWith({ one: null, two: null });
  await send(topic, [{ body: "a" }, { body: "b" }]);
  await using(client.createReceiver(topic, "one"), async (receiver) =>
    receiver.completeMessage(await takeOne(receiver)),
  );
  return held(topic, "one", "two");
});

await check("topic without subscriptions", async () => {
  const topic = await freshTopic();
  await send(topic, { body: "nobody" });
  return (await admin.getTopicRuntimeProperties(topic)).subscriptionCount;
});

await check("sql filters", async () => {
  const topic = await topicWith({
    big: { sqlExpression: "amount > 100" },
    eu: { sqlExpression: "region IN ('de', 'fr') AND sys.Label = 'order'" },
    named: { sqlExpression: "region = @wanted", sqlParameters: { "@wanted": "us" } },
  });
  await send(topic, [
    { body: 1, subject: "order", applicationProperties: { amount: 50, region: "de" } },
    { body: 2, subject: "order", applicationProperties: { amount: 150.5, region: "us" } },
    { body: 3, subject: "offer", applicationProperties: { amount: 200, region: "fr" } },
  ]);
  return held(topic, "big", "eu", "named");
});

await check("correlation filters", async () => {
  const topic = await topicWith({
    subject: { subject: "order" },
    several: { subject: "order", correlationId: "c-1" },
    properties: { applicationProperties: { region: "de", urgent: true } },
  });
  await send(topic, [
    { body: 1, subject: "order", correlationId: "c-1" },
    { body: 2, subject: "order", applicationProperties: { region: "de", urgent: true } },
    { body: 3, subject: "offer", correlationId: "c-1", applicationProperties: { region: "de", urgent: false } },
  ]);
  return held(topic, "subject", "several", "properties");
});

await check("batch to a topic", async () => {
  const topic = await topicWith({ odd: { sqlExpression: "odd = TRUE" }, all: null });
  await using(client.createSender(topic), async (sender) => {
    const batch = await sender.createMessageBatch();
    for (let n = 0; n < 6; n++) batch.tryAddMessage({ body: n, applicationProperties: { odd: n % 2 === 1 } });
    await sender.sendMessages(batch);
  });
  return held(topic, "odd", "all");
});

await check("schedule to a topic and cancel", async () => {
  const topic = await topicWith({ all: null });
  return using(client.createSender(topic), async (sender) => {
    const [number] = await sender.scheduleMessages({ body: "never" }, new Date(Date.now() + 3_600_000));
    const before = (await admin.getTopicRuntimeProperties(topic)).scheduledMessageCount;
    await sender.cancelScheduledMessages(number);
    const after = (await admin.getTopicRuntimeProperties(topic)).scheduledMessageCount;
    await sender.scheduleMessages({ body: "soon" }, new Date(Date.now() + 100));
    return { before, after, received: bodies(await drain([topic, "all"], 1)) };
  });
});

await check("dead letters of a subscription", async () => {
  const topic = await topicWith({ all: null });
  await send(topic, { body: "bad" });
  await using(client.createReceiver(topic, "all"), async (receiver) =>
    receiver.deadLetterMessage(await takeOne(receiver), { deadLetterReason: "malformed" }),
  );
  const [dead] = await drain([topic, "all", { subQueueType: "deadLetter" }], 1);
  return [dead.body, dead.deadLetterReason, (await peekAll(topic, "all")).length];
});

// ---- rules over AMQP ---------------------------------------------------------------------------------------

const described = ({ name, filter, action }) => ({ name, filter, action: action?.sqlExpression ?? null });
const listed = async (rules) => (await collect(rules.listRules())).map(described);

await check("default rule", async () => onRules(await topicWith({ all: null }), "all", listed));

await check("rules made and listed", async () =>
  onRules(await topicWith({ some: null }), "some", async (rules) => {
    await rules.createRule("a-sql", { sqlExpression: "amount > 100" });
    await rules.createRule("b-action", { sqlExpression: "1=1" }, { sqlExpression: "SET marked = TRUE" });
    await rules.createRule("c-correlation", {
      correlationId: "c-1",
      messageId: "m-1",
      to: "somebody",
      replyTo: "me",
      subject: "order",
      sessionId: "s",
      replyToSessionId: "r",
      contentType: "text/plain",
      applicationProperties: { region: "de", count: 3, urgent: true },
    });
    return listed(rules);
  }),
);

await check("rules decide", async () => {
  const topic = await topicWith({ some: null });
  await onRules(topic, "some", async (rules) => {
    await rules.deleteRule("$Default");
    await send(topic, { body: "no rule" });
    await rules.createRule("big", { sqlExpression: "amount > 100" }, { sqlExpression: "SET size = 'big'" });
    await rules.createRule("named", { subject: "order" });
  });
  await send(topic, [
    { body: "big", applicationProperties: { amount: 101 } },
    { body: "small", applicationProperties: { amount: 1 } },
    { body: "order", subject: "order" },
  ]);
  const received = await drain([topic, "some"], 2);
  return received.map(({ body, applicationProperties }) => [body, applicationProperties?.size ?? null]);
});

await check("rules seen from both sides", async () => {
  const topic = await topicWith({ some: null });
  await onRules(topic, "some", (rules) => rules.createRule("by-amqp", { sqlExpression: "a = 1" }));
  await admin.createRule(topic, "some", "by-http", { subject: "order" });
  const overAmqp = (await onRules(topic, "some", listed)).map(({ name }) => name);
  const overHttp = (await collect(admin.listRules(topic, "some"))).map(({ name }) => name);
  await admin.deleteRule(topic, "some", "by-amqp");
  const left = (await onRules(topic, "some", listed)).map(({ name }) => name);
  return { overAmqp, overHttp, left };
});

await check("rule that is there already", async () =>
  onRules(await topicWith({ all: null }), "all", (rules) =>
    refusal(() => rules.createRule("$Default", { subject: "x" })),
  ),
);

await check("rule that is not there", async () =>
  onRules(await topicWith({ all: null }), "all", (rules) => refusal(() => rules.deleteRule("missing"))),
);

await check("rule that cannot be read", async () =>
  onRules(await topicWith({ all: null }), "all", (rules) =>
    refusal(() => rules.createRule("broken", { sqlExpression: "amount >" })),
  ),
);

await finish();
