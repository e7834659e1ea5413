// What the scenarios share. A script is a list of checks; each runs on entities of its own and prints one line
// of JSON with what it has seen. Whether that is right is decided by the test of the same name in Python.

import { webcrypto } from "node:crypto";

import { ServiceBusAdministrationClient, ServiceBusClient } from "@azure/service-bus";
import Long from "long";

// The administration client needs this global, which the Node 18 of Debian 12 does not have yet.
globalThis.crypto ??= webcrypto;

export const connectionString = process.env.PAIRBUS_CONNECTION_STRING;

// A refusal shall be seen at once, not after the client's retries.
const options = { retryOptions: { maxRetries: 0, retryDelayInMs: 50, timeoutInMs: 40_000 } };

export const connect = (string = connectionString, more = {}) => new ServiceBusClient(string, { ...options, ...more });
export const client = connect();
export const admin = new ServiceBusAdministrationClient(connectionString);

const chosen = process.argv.slice(2);

export async function check(name, scenario) {
  if (chosen.length > 0 && !chosen.includes(name)) return;
  const started = performance.now();
  let outcome;
  try {
    outcome = { seen: (await scenario()) ?? null };
  } catch (error) {
    outcome = { failure: String(error?.stack ?? error) };
  }
  const seconds = Number(((performance.now() - started) / 1000).toFixed(3));
  console.log(JSON.stringify({ check: name, seconds, ...outcome }));
}

export async function finish() {
  await client.close();
}

// ---- entities ----------------------------------------------------------------------------------------------

let made = 0;

export async function freshQueue(settings = {}) {
  const name = `queue-${++made}`;
  await admin.createQueue(name, settings);
  return name;
}

export async function freshTopic() {
  const name = `topic-${++made}`;
  await admin.createTopic(name);
  return name;
}

// ---- messages ----------------------------------------------------------------------------------------------

// Links are closed with the scenario that opened them, so that no check meets the receiver of another one.
export async function using(link, act) {
  try {
    return await act(link);
  } finally {
    await link.close();
  }
}

export const send = (entity, messages) =>
  using(client.createSender(entity), (sender) => sender.sendMessages(messages));

// Exactly `count` messages, or those that came in twenty seconds.
export async function take(receiver, count) {
  const taken = [];
  const deadline = performance.now() + 20_000;
  while (taken.length < count && performance.now() < deadline) {
    taken.push(...(await receiver.receiveMessages(count - taken.length, { maxWaitTimeInMs: 2000 })));
  }
  return taken;
}

export async function takeOne(receiver) {
  const [message] = await take(receiver, 1);
  if (message === undefined) throw new Error("no message came");
  return message;
}

export const drain = (address, count) =>
  using(client.createReceiver(...address, { receiveMode: "receiveAndDelete" }), (receiver) => take(receiver, count));

// From the beginning: the client itself goes on where its last peek of the entity ended.
export const peekAll = (...address) =>
  using(client.createReceiver(...address), (receiver) => receiver.peekMessages(100, { fromSequenceNumber: Long.ONE }));

export const bodies = (messages) => messages.map((message) => message.body);

export async function collect(iterable) {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
}

// Until the entity is empty: what a handler has processed is completed a moment later.
export async function untilEmpty(queue) {
  const deadline = performance.now() + 5000;
  while ((await admin.getQueueRuntimeProperties(queue)).totalMessageCount > 0) {
    if (performance.now() > deadline) throw new Error(`${queue} was not emptied`);
  }
}

// ---- refusals ----------------------------------------------------------------------------------------------

// What a refused call was refused with. A call that is not refused is the failure here.
export async function refusal(act) {
  try {
    await act();
  } catch (error) {
    const { name, code, statusCode, retryable } = error;
    return { name, code, statusCode, retryable };
  }
  throw new Error("it was not refused");
}
