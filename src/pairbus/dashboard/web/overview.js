// The view for the first look: what to know first, the figures, and each pair with its entities and clients.

import { depth, stateWords, timeline } from "./charts.js";
import { bytes, clock, count, duration, h, moment, number, table } from "./dom.js";
import { isRunning, known, now, past, worstFirst } from "./known.js";
import { aged, amount, blind, few, figure, firstOf, section, seenBacklog, sum, title } from "./parts.js";
import { prose } from "./runbook.js";

export function overview() {
  const { pairs } = known.state;
  return [
    verdict(),
    h("dl", { class: "figures" },
      [entitiesDown, backlogDepth, drainRate, deadLetters, spooled, spent].map(of => of(pairs))),
    worstFirst(known.state).map(pair => [
      title(pair),
      section("Entities", entityTable(pair)),
      h("div", { class: "columns" },
        section("Failovers", timeline(pair, past(pair), now()), changes(pair)),
        section("Backlog over time", depth(past(pair), now(), seenBacklog(pair)))),
      section("Clients", clientTable(pair)),
    ]),
  ];
}

// -- what to know first

export const summary = ([first]) => firstOf(
  [first, () => `${pairOf(first)}${first.text}`],
  [isRunning(), "All is well: no entity is down"],
  [known.state.pairs.length, "No client is running"],
  [true, "No pair is watched"]);

function verdict() {
  const { level, said, safety } = known.state.headline;
  const [first] = said;
  const look = !known.lost && (first || isRunning()) ? level : "idle";
  return h("div", { class: `headline ${look}`, role: "region", "aria-label": "What to know first" },
    h("h1", {}, summary(said), first && since(first)),
    h("p", { class: "safety" }, safety),
    said.length > 0 && h("ul", {}, said.map(one => remark(one, one === first))));
}

function remark(one, isFirst) {
  const steps = known.runbook[one.alert];
  return h("li", { class: one.level },
    h("span", {}, one.level === "bad" ? "act now" : "can wait"),
    h("div", { class: "text" },
      !isFirst && h("p", {}, pairOf(one), one.text, since(one)),
      one.why && h("p", { class: "dim" }, one.why),
      steps && h("p", {}, h("b", {}, "Do: "), prose(steps.do), ".")),
    h("a", { class: "small", href: `#/runbook/${one.alert}` }, "Runbook: ", one.alert));
}

const since = one => one.since ? `, since ${clock(one.since, now())} (${duration(now() - one.since)})` : "";
const pairOf = one => one.pair && known.state.pairs.length > 1 ? `${one.pair}: ` : "";

// -- figures

function entitiesDown(pairs) {
  const all = pairs.flatMap(pair => pair.entities.map(one => one.state));
  const down = all.filter(state => state === "failed_over" || state === "faulted").length;
  const suspect = all.filter(state => state === "suspect").length;
  return figure("Entities down", `${number(down)} of ${number(all.length)}`, firstOf(
    [suspect, `${count(suspect, "more is", "more are")} suspect`],
    [down, "listed below"],
    [all.some(one => one.refuses_since), "but not all take messages"],
    [pairs.some(pair => blind(pair, "clients") ?? blind(pair, "status files")), "not all clients are seen now"],
    [all.length, "all take messages"],
    [isRunning(), "none is sent to"],
    [true, "no client is seen"]));
}

const isBacklogSeen = pairs => pairs.some(pair => pair.backlog);
// What a figure of the backlog does not tell: how old it is, or that it is not that of all pairs.
function backlogGap(pairs) {
  const seen = pairs.filter(pair => pair.backlog).length;
  return pairs.map(pair => aged(pair, "backlog")).find(Boolean)
    ?? (seen < pairs.length ? `in ${number(seen)} of ${number(pairs.length)} pairs; the others are not seen` : null);
}

function backlogDepth(pairs) {
  const isSeen = isBacklogSeen(pairs), waiting = sum(pairs, pair => pair.backlog?.active);
  const gap = backlogGap(pairs);
  const oldest = Math.max(0, ...pairs.flatMap(pair => pair.waiting.paths.map(one => now() - one.oldest)));
  return figure("Waiting in the backlog", isSeen ? number(waiting) : "not known", firstOf(
    [isSeen && gap, gap],
    [oldest, `the oldest for ${duration(oldest)}`],
    [!isSeen, "the secondary is not seen"],
    [waiting, "since when is not known yet"],
    [true, "nothing waits"]));
}

function drainRate(pairs) {
  if (pairs.some(pair => pair.sources.drain?.error)) return figure("Drain", "not known", "it cannot be seen now");
  const rate = sum(pairs, pair => pair.drain.rate);
  const isAny = state => pairs.some(pair => pair.drain.state === state);
  const left = pairs.map(pair => pair.drain.seconds_left).filter(one => one !== null);
  const value = firstOf(
    [rate, `${number(Math.round(rate))} /s`],
    [isAny("running"), "running"],
    [isAny("paused"), "paused"],
    [true, "none"]);
  return figure("Drain", value, firstOf(
    [left.length, `${duration(Math.max(...left))} left`],
    [isAny("running") || isAny("paused"), "nothing moves now"],
    [true, "no syphon is running"]));
}

function deadLetters(pairs) {
  if (!isBacklogSeen(pairs)) return figure("Dead letters", "not known", "the secondary is not seen");
  const dead = sum(pairs, pair => pair.backlog?.dead_letters);
  return figure("Dead letters", number(dead),
    backlogGap(pairs) ?? (dead ? "redrive them once the cause is mended" : "none"));
}

function spooled(pairs) {
  if (pairs.some(pair => blind(pair, "spool"))) return figure("Spool", "not known", "it cannot be seen now");
  const all = name => sum(pairs, pair => pair.spool[name]);
  return figure("Spool", number(all("messages")), firstOf(
    [all("refused"), `${count(all("refused"), "refused one is", "refused ones are")} kept`],
    [all("damaged"), `${count(all("damaged"), "damaged part is", "damaged parts are")} kept`],
    [all("bytes_left"), `${bytes(all("bytes_left"))} of clients that are gone`],
    [true, "nothing is refused"]));
}

function spent(pairs) {
  const billed = pairs.map(pair => pair.money).filter(Boolean), { budget } = known.state;
  const total = billed.length
    ? `${amount(sum(billed, one => Number(one.total)))} ${billed[0].currency}` : "not known";
  return figure("Money this month", total, budget ? `of ${amount(budget)}, the budget` : "with the base charge");
}

// -- of each pair

const ENTITY_COLUMNS = [
  "Entity", "<State", "Since", "<Why", "To primary", "To backlog", "To spool", "Failed attempts", "Clients",
];

function entityTable(pair) {
  const empty = blind(pair, "status files") ?? "No client of this pair is running, or none has sent yet.";
  return few(pair.entities, one => one.path, some =>
    table(`Entities of ${pair.name} and what was sent`, ENTITY_COLUMNS, some.map(entityRow), { empty }));
}

function entityRow(one) {
  const why = one.last_failure ?? one.reason;
  return [
    one.path,
    [h("span", { class: `chip ${one.state}` }, stateWords(one.state)), next(one)],
    one.since ? ago(one.since) : "",
    one.state === "healthy" && !one.refuses_since ? "" : h("span", { class: "brief", title: why }, why),
    number(one.sent.primary?.ok),
    number(one.sent.backlog?.ok),
    number(one.sent.spool?.ok),
    number(sum(Object.values(one.sent), each => (each.failed ?? 0) + (each.unknown ?? 0))),
    number(one.clients),
  ];
}

const ago = at => h("span", { title: moment(at) }, `${duration(now() - at)} ago`);

// What an entity that is not well comes to by itself, and when.
function next(one) {
  const [what, at] = one.state === "suspect" ? ["fails over", one.fails_over_at] : ["next ping", one.next_ping_at];
  if (one.state === "healthy" || !at) return null;
  return h("span", { class: "dim small next" }, at > now() ? `${what} in ${duration(at - now())}` : `${what} now`);
}

function changes(pair) {
  const latest = past(pair).changes.slice(-30).reverse();
  if (!latest.length) return h("p", { class: "none" }, "No failover is on record.");
  return h("details", { "data-key": `changes ${pair.name}` },
    h("summary", {}, latest.length === 1 ? "The last change" : `The last ${latest.length} changes`),
    table(`Changes of state of ${pair.name}`, ["When", "<Entity", "<Change", "<Why"], latest.map(one =>
      [moment(one.at), one.path, `${stateWords(one.old)} → ${stateWords(one.new)}`, one.reason])));
}

function clientTable(pair) {
  return table(`Clients of ${pair.name}`, ["Client", "Seen", "Backlog queues", "Spool", "<Notes"],
    pair.clients.map(one => [
      one.id,
      one.is_gone ? h("span", { class: "chip bad" }, "gone") : `${duration(now() - one.written_at)} ago`,
      `${one.usable} of ${one.queues}`,
      one.spool ? `${number(one.spool.messages)} (${bytes(one.spool.bytes)})` : "off",
      notes(one).filter(Boolean).join("; "),
    ]),
    { empty: blind(pair, "status files")
      ?? "No client has written its status here. Clients do so while they run and have a state_dir." });
}

const notes = one => [
  one.fault,
  one.syphon && `hosts a syphon (${one.syphon.state})`,
  one.records_lost > 0 && `${count(one.records_lost, "record", "records")} lost`,
  one.shipping && `records are shipped, ${duration(one.shipping.lag)} behind`,
  one.provisioning !== "ready" && `provisioning: ${one.provisioning}`,
  ...one.warnings,
];
