// rhea, AMQP for JavaScript without any knowledge of Service Bus: its main paths. SASL PLAIN is a policy and its key.

import { readFileSync } from "node:fs";

import rhea from "rhea";

import { check, connectionString } from "./checks.js";

const part = (name) => connectionString.split(";").find((one) => one.startsWith(`${name}=`)).slice(name.length + 1);
const { hostname: host, port } = new URL(part("Endpoint").replace("sb:", "http:"));
const plain = { host, port: Number(port), username: part("SharedAccessKeyName"), password: part("SharedAccessKey") };
const secure = { ...plain, transport: "tls", ca: [readFileSync(process.env.NODE_EXTRA_CA_CERTS)] };

const once = (emitter, good, ...bad) =>
  new Promise((resolve, reject) => {
    emitter.once(good, resolve);
    for (const name of bad) emitter.once(name, (context) => reject(context.error ?? context[name.split("_")[0]]?.error));
  });

// A container for each check, so that no event goes astray.
async function connected(options, act) {
  const connection = rhea.create_container().connect({ ...options, reconnect: false });
  await once(connection, "connection_open", "connection_error", "disconnected");
  try {
    return await act(connection);
  } finally {
    connection.close();
    await once(connection, "connection_close", "disconnected").catch(() => {});
  }
}

async function send(connection, path, messages) {
  const sender = connection.open_sender(path);
  await once(sender, "sendable", "sender_error");
  let left = messages.length;
  const done = new Promise((resolve, reject) => {
    sender.on("accepted", () => --left || resolve());
    sender.on("rejected", (context) => reject(context.delivery.remote_state.error));
  });
  for (const message of messages) sender.send(message);
  await done;
  sender.close();
}

async function receive(connection, source, count, settle = (delivery) => delivery.accept()) {
  const receiver = connection.open_receiver({ source, autoaccept: false, credit_window: 0 });
  await once(receiver, "receiver_open", "receiver_error");
  const seen = [];
  const done = new Promise((resolve) =>
    receiver.on("message", ({ message, delivery }) => {
      seen.push(message);
      settle(delivery, seen.length);
      if (seen.length === count) resolve();
    }),
  );
  receiver.add_credit(count);
  await done;
  receiver.close();
  return seen;
}

async function goAndCome(options) {
  return connected(options, async (connection) => {
    const sent = { message_id: "m-1", subject: "hi", body: { a: [1, "two"] }, application_properties: { n: 3, t: "x" } };
    await send(connection, "orders", [sent]);
    const [{ message_id, subject, body, application_properties, message_annotations }] = await receive(connection, "orders", 1);
    return { message_id, subject, body, application_properties, annotations: Object.keys(message_annotations).sort() };
  });
}

await check("plain", () => goAndCome(plain));
await check("tls", () => goAndCome(secure));

await check("settlements", () =>
  connected(plain, async (connection) => {
    await send(connection, "settled", [{ body: "abandoned" }, { body: "rejected" }]);
    const counts = (await receive(connection, "settled", 3, (delivery, number) => {
      if (number === 1) delivery.modified({ delivery_failed: true, undeliverable_here: false });
      else if (number === 2) delivery.accept();
      else delivery.reject();
    })).map(({ body, delivery_count }) => [body, delivery_count ?? 0]);
    const [dead] = await receive(connection, "settled/$DeadLetterQueue", 1);
    return { counts, dead: dead.body };
  }),
);

await check("session", () =>
  connected(plain, async (connection) => {
    await send(connection, "sessions", ["one", "two", "one"].map((name) => ({ body: name, group_id: name })));
    const filter = { "com.microsoft:session-filter": "one" };
    return (await receive(connection, { address: "sessions", filter }, 2)).map(({ body }) => body);
  }),
);

await check("many messages", () =>
  connected(plain, async (connection) => {
    const numbers = [...Array(300).keys()];
    await send(connection, "many", numbers.map((body) => ({ body })));
    const seen = (await receive(connection, "many", 300)).map(({ body }) => body);
    return JSON.stringify(seen) === JSON.stringify(numbers);
  }),
);

await check("refusals", () =>
  connected(plain, async (connection) => {
    const missing = await send(connection, "missing", [{ body: 1 }]).catch((error) => error?.condition);
    const large = await send(connection, "orders", [{ body: "x".repeat(300_000) }]).catch((error) => error?.condition);
    return [missing, large];
  }),
);
