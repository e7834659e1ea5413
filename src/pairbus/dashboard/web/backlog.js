// What waits, for whom and why; who drains it, and what came of that.

import { depth } from "./charts.js";
import { bytes, count, duration, h, number, table } from "./dom.js";
import { known, now, past } from "./known.js";
import { action, blind, choice, code, firstOf, noPair, section, seenBacklog, stale, title } from "./parts.js";

const ACTIVE = ["starting", "running", "paused", "stopping"];
const DRAINERS = { syphon: "a syphon", dashboard: "this dashboard", clients: "clients that host a syphon" };

export function backlog() {
  return [h("h1", {}, "Backlog"), noPair(), known.state.pairs.map(pair => [
    title(pair),
    h("div", { class: "columns" },
      section("Drain", drain(pair)),
      section("Depth", depth(past(pair), now(), seenBacklog(pair)))),
    section("By destination", destinations(pair)),
    section("By queue", queues(pair)),
    section("Dead letters", deadLetters(pair)),
    section("Spool and refused messages", spool(pair)),
    section("Verdict", verdict(pair)),
  ])];
}

function drain(pair) {
  const { drain } = pair, deaf = pair.sources.drain?.error;
  const state = firstOf([drain.by, drain.state], [deaf, "not known"], [true, "nobody drains now"]);
  return h("div", { class: "card" },
    h("p", {},
      h("span", { class: `chip ${drain.state}` }, state),
      DRAINERS[drain.by] && `, by ${DRAINERS[drain.by]}`,
      drain.path && `, only for ${drain.path}`),
    [drain.trouble, deaf].filter(Boolean).map(why => h("p", { class: "small" }, why)),
    drain.by && progress(drain),
    known.control
      ? h("form", { class: "controls", "data-form": "drain", "data-pair": pair.name }, drainButtons(pair))
      : h("p", { class: "dim small" }, "Read-only: start the dashboard with --control to pause, resume or drain."));
}

function progress(drain) {
  const rows = [
    ["Moved", number(drain.moved)],
    ["Per second", number(Math.round(drain.rate))],
    ["Time left", drain.seconds_left === null ? "–" : duration(drain.seconds_left)],
    ["Put aside", number(drain.waiting)],
    ["Dead-lettered", number(drain.dead_lettered)],
  ];
  return h("dl", {}, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function drainButtons({ name, drain, waiting, sources }) {
  const isOurs = drain.by === "syphon" || drain.by === "dashboard";
  if (!isOurs || !ACTIVE.includes(drain.state)) {
    const how = "Start the dashboard with --pair to drain from here.";
    if (!sources.backlog) return h("p", { class: "dim small" }, how);
    const only = waiting.paths.map(one => choice(one.path, `only ${one.path}`));
    return [
      h("label", {}, "What to drain",
        h("select", { name: "path" }, choice("", "everything"), only)),
      h("button", { class: "main", type: "submit" }, "Drain now"),
    ];
  }
  const stop = action("Stop", { action: "stop", pair: name }, { slim: false });
  if (drain.state === "running") return [action("Pause", { action: "pause", pair: name }, { slim: false }), stop];
  if (drain.state !== "paused") return null;
  return [action("Resume", { action: "resume", pair: name }, { slim: false, primary: true }), stop];
}

function destinations(pair) {
  const { paths, is_partial } = pair.waiting, isDraining = ACTIVE.includes(pair.drain.state);
  const atLeast = text => is_partial ? `${text} or more` : text;
  const columns = ["Destination", "Messages", "Bytes", "Oldest", "Put aside", "<Problems", ""];
  return [
    table(`Messages in the backlog of ${pair.name}, by destination`, columns, paths.map(one => [
      one.path,
      atLeast(number(one.messages)),
      atLeast(bytes(one.bytes)),
      duration(now() - one.oldest),
      number(one.deferred),
      Object.entries(one.problems).map(([why, count]) => `${number(count)} ${why}`).join("; "),
      action("Drain only this", { action: "drain", pair: pair.name, path: one.path },
        { disabled: isDraining, of: one.path }),
    ]), { empty: blind(pair, "waiting") ?? "Nothing waits." }),
    stale(pair, "waiting"),
    is_partial && h("p", { class: "dim small" },
      "Only the first 1,000 messages of each queue were looked at; ", h("em", {}, "By queue"), " counts all."),
  ];
}

function queues(pair) {
  const all = pair.backlog?.queues ?? [], missing = pair.backlog?.missing.length ?? 0;
  const full = all.filter(one => one.active || one.dead_letters);
  return [
    table(`Backlog queues of ${pair.name} that hold something`, ["Queue", "Waiting", "Dead letters", "Bytes"],
      full.map(one => [one.name, number(one.active), number(one.dead_letters), bytes(one.size)]),
      { empty: blind(pair, "backlog") ?? `All ${all.length} backlog queues are empty.` }),
    stale(pair, "backlog"),
    missing > 0 && h("p", {}, `${count(missing, "is", "are")} missing: run `, code("pairbus provision")),
  ];
}

function deadLetters(pair) {
  return table(`Dead letters of ${pair.name}, by reason`, ["Reason", "Messages", "Oldest", "<For", ""],
    pair.waiting.dead.map(one => [
      one.reason,
      number(one.messages),
      duration(now() - one.oldest),
      Object.entries(one.paths).map(([path, count]) => `${path} (${number(count)})`).join(", "),
      action("Redrive", { action: "redrive", pair: pair.name, reason: one.reason }, { of: one.reason }),
    ]),
    { empty: blind(pair, "waiting") ?? "None." });
}

function spool(pair) {
  const { spool } = pair, isOn = pair.clients.some(one => one.spool && !one.is_gone);
  const waits = count(spool.messages, "message waits", "messages wait");
  const damaged = `${count(spool.damaged, "part of a file", "parts of files")} cannot be read and `;
  return [
    h("p", {}, isOn
      ? `${waits} on the machines of the clients, ${bytes(spool.bytes)} of ${bytes(spool.limit)}.`
      : blind(pair, "status files") ?? "No running client has a spool."),
    spool.trouble && h("p", {}, `${spool.messages === 1 ? "It" : "They"} cannot be sent yet: ${spool.trouble}`),
    spool.bytes_left > 0 && h("p", {}, `Clients that are gone have left ${bytes(spool.bytes_left)}. `,
      "The next one with this state directory sends them, or ", code("pairbus spool replay"), "."),
    spool.damaged > 0 && h("p", {}, damaged, spool.damaged === 1 ? "is" : "are", " kept: ", code("pairbus spool ls")),
    table(`Messages of ${pair.name} that no side takes`, ["Message", "<Entity", "<Reason", "Since"],
      spool.refused_messages.map(one =>
        [one.message_id || one.name, one.path, one.reason, `${duration(now() - one.at)} ago`]),
      { empty: blind(pair, "spool") ?? "No message was refused." }),
  ];
}

function verdict(pair) {
  const { verdict: found } = pair, unread = blind(pair, "verdict");
  if (!found) {
    const none = ["None yet: ", code("pairbus verify"), " joins all records by message id."];
    return h("p", { class: "none" }, unread ?? none);
  }
  const words = firstOf([found.is_clean, "clean"], [found.lost, `${number(found.lost)} lost`], [true, "incomplete"]);
  const counts = [
    `${number(found.redirected)} redirected`,
    `${number(found.delivered)} delivered`,
    `${number(found.waiting)} waiting`,
    `${number(found.dead_lettered)} dead-lettered`,
  ];
  return h("p", {}, h("span", { class: `chip ${found.is_clean ? "healthy" : "bad"}` }, words),
    ` ${duration(now() - found.at)} ago: ${counts.join(", ")}`);
}
