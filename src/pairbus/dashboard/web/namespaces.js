// The embedded namespaces: their entities and faults, and a look into a queue.

import { bytes, clock, count, duration, h, moment, number, table } from "./dom.js";
import { known, now } from "./known.js";
import { action, choice, few, sum } from "./parts.js";

export function namespaces() {
  const { broker } = known.state;
  const heading = h("h1", {}, "Embedded namespaces");
  if (!broker) {
    return [heading, h("p", { class: "none" }, "None are watched: give the dashboard the --ready-file of a broker.")];
  }
  const seen = broker.at ? ` Below is what was seen ${duration(now() - broker.at)} ago.` : "";
  return [
    heading,
    broker.error && h("p", { class: "headline warn" }, `${broker.error.replace(/[^.?!]$/, "$&.")}${seen}`),
    broker.namespaces.map(one => namespace(one, broker.kinds)),
  ];
}

function namespace(one, kinds) {
  const operations = sum(Object.values(one.operations), each => each);
  return h("section", {}, h("h2", {}, one.name),
    h("div", { class: "card" },
      h("p", {},
        one.faults.length
          ? h("span", { class: "chip bad" }, one.faults.map(fault).join("; "))
          : h("span", { class: "chip healthy" }, "no fault"),
        h("span", { class: "dim" }, ` port ${one.port}, ${count(one.connections, "connection", "connections")}, `,
          count(operations, "operation", "operations"))),
      one.trouble && h("p", { class: "small" }, one.trouble),
      known.control && faultForm(one, kinds)),
    !one.trouble && few(one.entities, each => each.path, some => entities(one, some)),
    h("details", { "data-key": `operations ${one.name}` }, h("summary", {}, "Operations by kind"),
      table(`Operations counted by ${one.name}`, ["Kind", "Count"],
        Object.entries(one.operations).map(([kind, count]) => [kind, number(count)]))));
}

const fault = one =>
  `${one.kind}${one.entity ? ` on ${one.entity}` : ""}${one.until ? `, until ${clock(one.until)}` : ""}`;

function faultForm(one, kinds) {
  const targets = one.entities.filter(each => each.kind !== "subscription").map(each => each.path);
  const isBroken = one.faults.length > 0;
  return h("form", { class: "controls", "data-form": "fault", "data-namespace": one.name },
    h("label", {}, "Fault",
      h("select", { name: "kind" }, kinds.map(kind => h("option", { value: kind.kind, title: kind.help }, kind.kind)))),
    h("label", {}, "Entity",
      h("select", { name: "entity" }, choice("", "the whole namespace"), targets.map(path => choice(path)))),
    h("label", {}, "Seconds",
      h("input", { name: "for", type: "number", min: 1, step: 1, placeholder: "until healed", size: 10 })),
    h("button", { class: isBroken ? null : "main", type: "submit" }, "Break it"),
    action("Heal", { action: "heal", namespace: one.name }, { slim: false, primary: isBroken, disabled: !isBroken }));
}

function entities(one, some) {
  // A topic keeps nothing: its subscriptions do.
  const kept = (each, value) => (each.kind === "topic" ? "" : value);
  const told = (value, draw) => (value === undefined ? "" : draw(value));
  return table(`Entities of ${one.name}`, ["Entity", "<Kind", "Messages", "Scheduled", "Dead letters", "Bytes", ""],
    some.map(each => [
      each.path,
      each.kind,
      kept(each, number(each.active)),
      told(each.scheduled, number),
      kept(each, number(each.dead_letters)),
      told(each.bytes, bytes),
      kept(each, lookButton("Look", { namespace: one.name, path: each.path }, `Look into ${each.path}`)),
    ]),
    { empty: "It has no entities yet." });
}

const lookButton = (words, what, label = null) =>
  h("button", { class: "slim", type: "button", "aria-label": label, "data-look": JSON.stringify(what) }, words);

// What a look into a queue has found, or one into its dead letters.
export function messages({ namespace, path, dead = false }, found) {
  return h("div", {},
    h("div", { class: "bar" },
      h("h2", { id: "look-title" }, `${dead ? "Dead letters of " : ""}${path}`),
      h("div", { class: "controls" },
        lookButton(dead ? "Messages" : "Dead letters", { namespace, path, dead: !dead }),
        h("button", { class: "slim", type: "button", "data-close": true }, "Close"))),
    found.messages.length
      ? h("ol", {}, found.messages.map(message))
      : h("p", { class: "none" }, "There is nothing."),
    found.is_partial && h("p", { class: "dim small" }, `Only the first ${found.messages.length} are shown.`));
}

function message(one) {
  const facts = [
    `number ${one.number}`,
    bytes(one.bytes),
    one.enqueued && moment(one.enqueued),
    one.session && `session ${one.session}`,
    one.state,
  ];
  const properties = Object.entries(one.properties ?? {}).map(([name, value]) => `${name} = ${value}`);
  return h("li", {},
    h("b", {}, one.id || `number ${one.number}`),
    h("span", { class: "dim small" }, ` ${facts.filter(Boolean).join(", ")}`),
    properties.length > 0 && h("p", { class: "small" }, properties.join(", ")),
    h("pre", { tabindex: 0 }, one.body));
}
