// The administration client, by TLS on the port of the connection string.

import { ServiceBusAdministrationClient } from "@azure/service-bus";

import { admin, check, client, collect, finish, refusal, send, takeOne, using } from "./checks.js";

// Without the raw response that the client attaches to whatever it returns.
const plain = ({ _response, ...properties }) => properties;

await check("namespace properties", async () => {
  const { name, messagingSku, createdAt } = await admin.getNamespaceProperties();
  return { name, messagingSku, age: Date.now() - createdAt.getTime() };
});

// ---- queues ------------------------------------------------------------------------------------------------

await check("queue with defaults", async () => plain(await admin.createQueue("defaults")));

await check("queue with settings", async () => {
  await admin.createQueue("settings", {
    lockDuration: "PT45S",
    maxSizeInMegabytes: 2048,
    requiresDuplicateDetection: true,
    requiresSession: true,
    defaultMessageTimeToLive: "P2D",
    deadLetteringOnMessageExpiration: true,
    duplicateDetectionHistoryTimeWindow: "PT2M30S",
    maxDeliveryCount: 5,
    enableBatchedOperations: false,
    status: "SendDisabled",
    autoDeleteOnIdle: "PT1H",
    userMetadata: "<näme> & more",
    forwardDeadLetteredMessagesTo: "defaults",
  });
  const { endpoint, ...queue } = plain(await admin.getQueue("settings"));
  return queue;
});

await check("queue updated", async () => {
  const queue = await admin.createQueue("updated");
  queue.lockDuration = "PT10S";
  queue.maxDeliveryCount = 3;
  queue.userMetadata = "changed";
  queue.status = "ReceiveDisabled";
  await admin.updateQueue(queue);
  const { lockDuration, maxDeliveryCount, userMetadata, status } = await admin.getQueue("updated");
  return { lockDuration, maxDeliveryCount, userMetadata, status };
});

await check("queue deleted", async () => {
  await admin.createQueue("deleted");
  const before = await admin.queueExists("deleted");
  await admin.deleteQueue("deleted");
  return [before, await admin.queueExists("deleted")];
});

await check("queues listed", async () => {
  for (let n = 0; n < 7; n++) await admin.createQueue(`listed-${n}`);
  const pages = [];
  for await (const page of admin.listQueues().byPage({ maxPageSize: 3 })) pages.push(page.length);
  const names = (await collect(admin.listQueues())).map(({ name }) => name);
  const runtime = (await collect(admin.listQueuesRuntimeProperties())).map(({ name }) => name);
  return {
    names: names.filter((name) => name.startsWith("listed-")),
    pagesHoldAll: pages.reduce((sum, size) => sum + size, 0) === names.length,
    largestPage: Math.max(...pages),
    sameInRuntime: JSON.stringify(names) === JSON.stringify(runtime),
  };
});

await check("queue runtime properties", async () => {
  await admin.createQueue("counted");
  await using(client.createSender("counted"), async (sender) => {
    await sender.sendMessages(["a", "b", "c", "d"].map((body) => ({ body })));
    await sender.scheduleMessages({ body: "later" }, new Date(Date.now() + 3_600_000));
  });
  await using(client.createReceiver("counted"), async (receiver) => {
    await receiver.deadLetterMessage(await takeOne(receiver));
    await receiver.deferMessage(await takeOne(receiver));
    await receiver.completeMessage(await takeOne(receiver));
  });
  const { createdAt, modifiedAt, accessedAt, sizeInBytes, ...counts } = plain(
    await admin.getQueueRuntimeProperties("counted"),
  );
  return { counts, sizeIsPositive: sizeInBytes > 0, dates: [createdAt, modifiedAt, accessedAt] };
});

// ---- topics and subscriptions ------------------------------------------------------------------------------

await check("topic with defaults", async () => plain(await admin.createTopic("topic")));

await check("topic updated", async () => {
  const topic = await admin.createTopic("topic-updated", { defaultMessageTimeToLive: "P1D", userMetadata: "first" });
  topic.defaultMessageTimeToLive = "PT12H";
  topic.userMetadata = "second";
  await admin.updateTopic(topic);
  const { defaultMessageTimeToLive, userMetadata } = await admin.getTopic("topic-updated");
  return { defaultMessageTimeToLive, userMetadata };
});

await check("topics listed and deleted", async () => {
  await admin.createTopic("topic-deleted");
  const names = (await collect(admin.listTopics())).map(({ name }) => name);
  const before = await admin.topicExists("topic-deleted");
  await admin.deleteTopic("topic-deleted");
  return { listed: names.includes("topic-deleted"), exists: [before, await admin.topicExists("topic-deleted")] };
});

await check("subscription with defaults", async () => plain(await admin.createSubscription("topic", "defaults")));

await check("subscription updated", async () => {
  const subscription = await admin.createSubscription("topic", "updated", {
    lockDuration: "PT20S",
    requiresSession: true,
    deadLetteringOnFilterEvaluationExceptions: false,
  });
  subscription.maxDeliveryCount = 7;
  subscription.deadLetteringOnMessageExpiration = true;
  await admin.updateSubscription(subscription);
  const found = await admin.getSubscription("topic", "updated");
  return {
    lockDuration: found.lockDuration,
    requiresSession: found.requiresSession,
    maxDeliveryCount: found.maxDeliveryCount,
    onExpiration: found.deadLetteringOnMessageExpiration,
    onFilter: found.deadLetteringOnFilterEvaluationExceptions,
  };
});

await check("subscriptions listed and deleted", async () => {
  await admin.createTopic("subscribed");
  for (const name of ["c", "a", "b"]) await admin.createSubscription("subscribed", name);
  const listed = (await collect(admin.listSubscriptions("subscribed"))).map((found) => found.subscriptionName);
  await admin.deleteSubscription("subscribed", "b");
  return {
    listed,
    exists: [await admin.subscriptionExists("subscribed", "a"), await admin.subscriptionExists("subscribed", "b")],
    count: (await admin.getTopicRuntimeProperties("subscribed")).subscriptionCount,
  };
});

await check("subscription runtime properties", async () => {
  await admin.createTopic("counted-topic");
  await admin.createSubscription("counted-topic", "one");
  await send("counted-topic", [{ body: 1 }, { body: 2 }, { body: 3 }]);
  await using(client.createReceiver("counted-topic", "one"), async (receiver) =>
    receiver.deadLetterMessage(await takeOne(receiver)),
  );
  const { createdAt, modifiedAt, accessedAt, ...counts } = plain(
    await admin.getSubscriptionRuntimeProperties("counted-topic", "one"),
  );
  const [listed] = await collect(admin.listSubscriptionsRuntimeProperties("counted-topic"));
  return { counts, listed: listed.totalMessageCount };
});

// ---- rules -------------------------------------------------------------------------------------------------

const rule = async (name) => {
  const { filter, action } = await admin.getRule("ruled", "some", name);
  return { filter, action };
};

await check("rules", async () => {
  await admin.createTopic("ruled");
  await admin.createSubscription("ruled", "some");
  const byDefault = await rule("$Default");
  await admin.createRule(
    "ruled",
    "some",
    "sql",
    { sqlExpression: "amount > @least", sqlParameters: { "@least": 100 } },
    { sqlExpression: "SET size = 'big'" },
  );
  await admin.createRule("ruled", "some", "correlation", {
    correlationId: "c-1",
    subject: "order & <more>",
    applicationProperties: { region: "de", count: 3, urgent: true, since: new Date(0) },
  });
  return { byDefault, sql: await rule("sql"), correlation: await rule("correlation") };
});

await check("rules updated listed and deleted", async () => {
  const found = await admin.getRule("ruled", "some", "sql");
  found.filter = { sqlExpression: "amount > 500" };
  await admin.updateRule("ruled", "some", found);
  const updated = (await admin.getRule("ruled", "some", "sql")).filter.sqlExpression;
  const listed = (await collect(admin.listRules("ruled", "some"))).map(({ name }) => name);
  await admin.deleteRule("ruled", "some", "correlation");
  return { updated, listed, exists: await admin.ruleExists("ruled", "some", "correlation") };
});

// ---- refusals ----------------------------------------------------------------------------------------------

await check("entity that is not there", async () => [
  await refusal(() => admin.getQueue("missing")),
  await refusal(() => admin.getTopic("missing")),
  await refusal(() => admin.getSubscription("topic", "missing")),
  await refusal(() => admin.deleteQueue("missing")),
]);

await check("entity that is there already", async () => [
  await refusal(() => admin.createQueue("defaults")),
  await refusal(() => admin.createSubscription("topic", "defaults")),
]);

await check("settings that cannot be", async () => [
  await refusal(() => admin.createQueue("impossible", { lockDuration: "PT10M" })),
  await refusal(() => admin.createQueue("impossible", { maxDeliveryCount: 0 })),
]);

await check("administration without the right", async () => {
  const { listen } = JSON.parse(process.env.PAIRBUS_POLICIES);
  return refusal(() => new ServiceBusAdministrationClient(listen).getQueue("defaults"));
});

await finish();
