// The page: what the server tells is drawn again whenever it changes, and patched into what is there.

import { depth, bar, stateWords, timeline } from "./charts.js";
import { bytes, clock, count, duration, h, moment, number, patch, table } from "./dom.js";
import { Line, Refused } from "./line.js";

const VIEWS = { overview: ["Overview", overview], backlog: ["Backlog", backlog], money: ["Money", money], namespaces: ["Namespaces", namespaces], runbook: ["Runbook", runbookPage] };
const ACTIVE = ["starting", "running", "paused", "stopping"];
const KEY = "pairbus-token";
const main = document.getElementById("main");
const lineState = document.getElementById("line");
const look = document.getElementById("look");
// Rows that a table shows; of more, those that are looked for.
const MOST = 100;
let state = null, history = { pairs: {} }, skew = 0, control = false, line = null, runbook = {}, wanted = "", lost = false;

// The server's clock, by which all moments are told.
const now = () => Date.now() / 1000 + skew;
const past = pair => history.pairs[pair.name] ?? { changes: [], samples: [] };
const sum = (list, of) => list.reduce((all, one) => all + (of(one) ?? 0), 0);
const action = (words, what, { slim = true, primary = false, disabled = false, of = null } = {}) => control && h("button",
  { "aria-label": of && `${words}: ${of}`, class: [slim && "slim", primary && "main"].filter(Boolean).join(" ") || null, type: "button", disabled, "data-do": JSON.stringify(what) }, words);

// -- views

function overview() {
  const pairs = state.pairs;
  const inState = (...states) => sum(pairs, pair => pair.entities.filter(one => states.includes(one.state)).length);
  const down = inState("failed_over", "faulted"), suspect = inState("suspect");
  const entities = sum(pairs, pair => pair.entities.length);
  const waiting = sum(pairs, pair => pair.backlog?.active), dead = sum(pairs, pair => pair.backlog?.dead_letters);
  const oldest = Math.max(0, ...pairs.flatMap(pair => pair.waiting.paths.map(one => now() - one.oldest)));
  const is_seen = pairs.some(pair => pair.backlog), is_deaf = pairs.some(pair => pair.sources.drain?.error);
  const rate = sum(pairs, pair => pair.drain.rate), refused = sum(pairs, pair => pair.spool.refused);
  const left = pairs.map(pair => pair.drain.seconds_left).filter(one => one !== null);
  const inDrain = state => pairs.filter(pair => pair.drain.state === state).length, draining = inDrain("running"), paused = inDrain("paused");
  const damaged = sum(pairs, pair => pair.spool.damaged), gone = sum(pairs, pair => pair.spool.bytes_left), old = pairs.map(pair => aged(pair, "backlog")).find(Boolean);
  return [
    verdict(),
    h("dl", { class: "figures" },
      figure("Entities down", `${number(down)} of ${number(entities)}`, suspect ? `${count(suspect, "more is", "more are")} suspect` : down ? "listed below" : entities ? "all take messages" : "none is sent to"),
      figure("Waiting in the backlog", is_seen ? number(waiting) : "not known", is_seen && old ? old : oldest ? `the oldest for ${duration(oldest)}` : !is_seen ? "the secondary is not seen" : waiting ? "since when is not known yet" : "nothing waits"),
      figure("Drain", is_deaf ? "not known" : rate ? `${number(Math.round(rate))} /s` : draining ? "running" : paused ? "paused" : "none", is_deaf ? "it cannot be seen now" : left.length ? `${duration(Math.max(...left))} left` : draining || paused ? "nothing moves now" : "no syphon is running"),
      figure("Dead letters", is_seen ? number(dead) : "not known", !is_seen ? "the secondary is not seen" : dead ? "redrive them once the cause is mended" : "none"),
      figure("Spool", number(sum(pairs, pair => pair.spool.messages)), refused ? `${count(refused, "refused one is", "refused ones are")} kept` : damaged ? `${count(damaged, "damaged part is", "damaged parts are")} kept` : gone ? `${bytes(gone)} of clients that are gone` : "nothing is refused"),
      figure("Money this month", spent(pairs), state.budget ? `of ${amount(state.budget)}, the budget` : "with the base charge")),
    pairs.map(pair => [
      title(pair),
      h("section", {}, h("h2", {}, "Entities"), entityTable(pair)),
      h("div", { class: "columns" },
        h("section", {}, h("h2", {}, "Failovers"), timeline(pair, past(pair), now()), changes(pair)),
        h("section", {}, h("h2", {}, "Backlog over time"), depth(past(pair), now(), seenBacklog(pair)))),
      h("section", {}, h("h2", {}, "Clients"), clientTable(pair)),
    ]),
  ];
}

const isRunning = () => state.pairs.some(pair => pair.clients.some(one => !one.is_gone));
const summary = ([first]) => first ? `${name(first)}${first.text}` : isRunning() ? "All is well: no entity is down" : state.pairs.length ? "No client is running" : "No pair is watched";

function verdict() {
  const { level, said, safety } = state.headline;
  const [first] = said;
  return h("div", { class: `headline ${!lost && (first || isRunning()) ? level : "idle"}`, role: "region", "aria-label": "What to know first" },
    h("h1", {}, summary(said), first && since(first)),
    h("p", { class: "safety" }, safety),
    said.length > 0 && h("ul", {}, said.map(one => h("li", { class: one.level }, h("span", {}, one.level === "bad" ? "act now" : "can wait"),
      h("div", { class: "text" }, one !== first && h("p", {}, name(one), one.text, since(one)), one.why && h("p", { class: "dim" }, one.why),
        runbook[one.alert] && h("p", {}, h("b", {}, "Do: "), prose(runbook[one.alert].do), ".")),
      h("a", { class: "small", href: `#/runbook/${one.alert}` }, "Runbook: ", one.alert)))));
}

const since = one => one.since ? `, since ${clock(one.since, now())} (${duration(now() - one.since)})` : "";

// The runbook's own marks: code, and words that are stressed; of a button, the way to it.
const BUTTONS = ["*Drain now*", "*Resume*", "*Redrive*"];
const prose = text => text.split(/(`[^`]+`|\*{1,2}[^*]+\*{1,2})/).map(part => part.startsWith("`") ? h("code", {}, part.slice(1, -1))
  : BUTTONS.includes(part) ? h("a", { href: "#/backlog" }, part.slice(1, -1)) : part.startsWith("*") ? h("em", {}, part.replaceAll("*", "")) : part);

function runbookPage() {
  return [h("h1", {}, "Runbook"), h("p", {}, "No message is lost whose send returned: it is in the primary, in a backlog queue, or in the spool of the machine that sent it. Take your time, and delete nothing."),
    Object.entries(runbook).map(([alert, rows]) => h("section", { id: `alert-${alert}`, tabindex: -1 }, h("h2", {}, alert),
      h("dl", { class: "steps" }, Object.entries(rows).map(([row, text]) => [h("dt", {}, row), h("dd", {}, prose(text))]))))];
}

const name = one => one.pair && state.pairs.length > 1 ? `${one.pair}: ` : "";
const figure = (name, value, note) => h("div", {}, h("dt", {}, name), h("dd", {}, h("b", {}, value), h("span", {}, note)));
const title = pair => state.pairs.length > 1 && h("div", { class: "pair-name" }, h("h2", {}, pair.name),
  pair.primary && h("span", { class: "dim small" }, `${pair.primary} → ${pair.secondary}`));

function spent(pairs) {
  const known = pairs.map(pair => pair.money).filter(Boolean);
  return known.length ? `${amount(sum(known, one => Number(one.total)))} ${known[0].currency}` : "not known";
}

function entityTable(pair) {
  return few(pair.entities, one => one.path, some => table(`Entities of ${pair.name} and what was sent`, ["Entity", "<State", "Since", "<Why", "To primary", "To backlog", "To spool", "Failed attempts", "Clients"],
    some.map(one => [one.path, [h("span", { class: `chip ${one.state}` }, stateWords(one.state)), next(one)],
      one.since ? h("time", { datetime: new Date(one.since * 1000).toISOString(), title: moment(one.since) }, `${duration(now() - one.since)} ago`) : "",
      one.state === "healthy" ? "" : h("span", { class: "brief", title: one.last_failure ?? one.reason }, one.last_failure ?? one.reason),
      number(one.sent.primary?.ok), number(one.sent.backlog?.ok), number(one.sent.spool?.ok),
      number(sum(Object.values(one.sent), each => (each.failed ?? 0) + (each.unknown ?? 0))), number(one.clients)]),
    { empty: wanted ? "None is called so." : "No client of this pair is running, or none has sent yet." }));
}

// What an entity that is not well comes to by itself, and when.
function next(one) {
  const [what, at] = one.state === "suspect" ? ["fails over", one.fails_over_at] : ["next ping", one.next_ping_at];
  return one.state !== "healthy" && at && h("span", { class: "dim small next" }, at > now() ? `${what} in ${duration(at - now())}` : `${what} now`);
}

// Of thousands of entities the first are shown, which are the worst, and those that are looked for.
function few(all, pathOf, draw) {
  if (all.length <= MOST) return draw(all);
  const found = all.filter(one => pathOf(one).toLowerCase().includes(wanted.toLowerCase()));
  const words = found.length > MOST ? `the first ${MOST} of ${number(found.length)} are shown` : `${number(found.length)} of ${number(all.length)}`;
  return [h("p", { class: "controls" }, h("label", {}, "Find an entity", h("input", { type: "search", "data-find": true, value: wanted })), h("span", { class: "dim small", role: "status" }, words)),
    draw(found.slice(0, MOST))];
}

function changes(pair) {
  const latest = past(pair).changes.slice(-30).reverse();
  if (!latest.length) return h("p", { class: "none" }, "No failover is on record.");
  return h("details", { "data-key": `changes ${pair.name}` }, h("summary", {}, latest.length === 1 ? "The last change" : `The last ${latest.length} changes`),
    table(`Changes of state of ${pair.name}`, ["When", "<Entity", "<Change", "<Why"], latest.map(one =>
      [moment(one.at), one.path, `${stateWords(one.old)} → ${stateWords(one.new)}`, one.reason])));
}

function clientTable(pair) {
  return table(`Clients of ${pair.name}`, ["Client", "Seen", "Backlog queues", "Spool", "<Notes"], pair.clients.map(one => [
    one.id, one.is_gone ? h("span", { class: "chip bad" }, "gone") : `${duration(now() - one.written_at)} ago`,
    `${one.usable} of ${one.queues}`, one.spool ? `${number(one.spool.messages)} (${bytes(one.spool.bytes)})` : "off",
    [one.fault, one.syphon && `hosts a syphon (${one.syphon.state})`, one.records_lost ? `${number(one.records_lost)} records lost` : null,
      one.shipping && `records are shipped, ${duration(one.shipping.lag)} behind`,
      one.provisioning !== "ready" ? `provisioning: ${one.provisioning}` : null, ...one.warnings].filter(Boolean).join("; ")]),
    { empty: "No client has written its status here. Clients do so while they run and have a state_dir." });
}

function backlog() {
  return [h("h1", {}, "Backlog"), state.pairs.map(pair => [
    title(pair),
    h("div", { class: "columns" },
      h("section", {}, h("h2", {}, "Drain"), drain(pair)),
      h("section", {}, h("h2", {}, "Depth"), depth(past(pair), now(), seenBacklog(pair)))),
    h("section", {}, h("h2", {}, "By destination"), destinations(pair)),
    h("section", {}, h("h2", {}, "By queue"), queues(pair)),
    h("section", {}, h("h2", {}, "Dead letters"), deadLetters(pair)),
    h("section", {}, h("h2", {}, "Spool and refused messages"), spool(pair)),
    verify(pair)])];
}

function drain(pair) {
  const { drain } = pair, by = { syphon: "a syphon", dashboard: "this dashboard", clients: "clients that host a syphon" }[drain.by];
  const is_ours = drain.by === "syphon" || drain.by === "dashboard", is_active = ACTIVE.includes(drain.state), is_held = ["running", "paused"].includes(drain.state);
  const paths = pair.waiting.paths.map(one => one.path);
  return h("div", { class: "card" },
    h("p", {}, h("span", { class: `chip ${drain.state}` }, drain.by ? drain.state : pair.sources.drain?.error ? "not known" : "nobody drains now"), by ? `, by ${by}` : "",
      drain.path ? `, only for ${drain.path}` : ""),
    [drain.trouble, pair.sources.drain?.error].filter(Boolean).map(why => h("p", { class: "small" }, why)),
    drain.by && h("dl", {}, [["Moved", number(drain.moved)], ["Per second", number(Math.round(drain.rate))],
      ["Time left", drain.seconds_left === null ? "–" : duration(drain.seconds_left)], ["Put aside", number(drain.waiting)],
      ["Dead-lettered", number(drain.dead_lettered)]].map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
    control ? h("form", { class: "controls", "data-form": "drain", "data-pair": pair.name },
      is_ours && is_active ? is_held && [
        drain.state === "running" ? action("Pause", { action: "pause", pair: pair.name }, { slim: false }) : action("Resume", { action: "resume", pair: pair.name }, { slim: false, primary: true }),
        action("Stop", { action: "stop", pair: pair.name }, { slim: false }),
      ] : [
        h("label", {}, "What to drain", h("select", { name: "path" }, h("option", { value: "" }, "everything"), paths.map(path => h("option", { value: path }, `only ${path}`)))),
        h("button", { class: "main", type: "submit" }, "Drain now"),
      ]) : h("p", { class: "dim small" }, "Read-only: start the dashboard with --control to pause, resume or drain."));
}

function destinations(pair) {
  const atLeast = text => pair.waiting.is_partial ? `${text} or more` : text;
  return [table(`Messages in the backlog of ${pair.name}, by destination`, ["Destination", "Messages", "Bytes", "Oldest", "Put aside", "<Problems", ""],
    pair.waiting.paths.map(one => [one.path, atLeast(number(one.messages)), atLeast(bytes(one.bytes)), duration(now() - one.oldest), number(one.deferred),
      Object.entries(one.problems).map(([why, count]) => `${number(count)} ${why}`).join("; "),
      action("Drain only this", { action: "drain", pair: pair.name, path: one.path }, { disabled: ACTIVE.includes(pair.drain.state), of: one.path })]),
    { empty: blind(pair, "waiting") ?? "Nothing waits." }), stale(pair, "waiting"),
    pair.waiting.is_partial && h("p", { class: "dim small" }, "Only the first 1,000 messages of each queue were looked at; ", h("em", {}, "By queue"), " counts all.")];
}

// What is shown of a source that does not answer now is what it said last.
const aged = (pair, name) => pair.sources[name]?.error && pair.sources[name].at ? `seen ${duration(now() - pair.sources[name].at)} ago` : null;
const stale = (pair, name) => aged(pair, name) && h("p", { class: "dim small" }, `Last ${aged(pair, name)}: ${pair.sources[name].error}`);
const seenBacklog = pair => pair.sources.backlog?.error ? null : pair.backlog;
const blind = (pair, name) => pair.sources[name]?.error ? `Not known: ${pair.sources[name].error}` : pair.sources[name] ? null : "Not known: the pair is named by its state directory alone.";

function queues(pair) {
  const full = (pair.backlog?.queues ?? []).filter(one => one.active || one.dead_letters);
  return [table(`Backlog queues of ${pair.name} that hold something`, ["Queue", "Waiting", "Dead letters", "Bytes"],
    full.map(one => [one.name, number(one.active), number(one.dead_letters), bytes(one.size)]),
    { empty: blind(pair, "backlog") ?? `All ${pair.backlog?.queues.length ?? 0} backlog queues are empty.` }), stale(pair, "backlog"),
    pair.backlog?.missing.length > 0 && h("p", {}, `${count(pair.backlog.missing.length, "is", "are")} missing: run `, h("code", {}, "pairbus provision"))];
}

function deadLetters(pair) {
  return table(`Dead letters of ${pair.name}, by reason`, ["Reason", "Messages", "Oldest", "<For", ""], pair.waiting.dead.map(one => [
    one.reason, number(one.messages), duration(now() - one.oldest),
    Object.entries(one.paths).map(([path, count]) => `${path} (${number(count)})`).join(", "),
    action("Redrive", { action: "redrive", pair: pair.name, reason: one.reason }, { of: one.reason })]), { empty: blind(pair, "waiting") ?? "None." });
}

function spool(pair) {
  const { spool } = pair;
  return [h("p", {}, pair.clients.some(one => one.spool && !one.is_gone) ? `${count(spool.messages, "message waits", "messages wait")} on the machines of the clients, ${bytes(spool.bytes)} of ${bytes(spool.limit)}.` : "No running client has a spool."),
    spool.trouble && h("p", {}, `They cannot be sent yet: ${spool.trouble}`),
    spool.bytes_left > 0 && h("p", {}, `Clients that are gone have left ${bytes(spool.bytes_left)}. The next one with this state directory sends them, or `, h("code", {}, "pairbus spool replay"), "."),
    spool.damaged > 0 && h("p", {}, `${count(spool.damaged, "part of a file", "parts of files")} cannot be read and ${spool.damaged === 1 ? "is" : "are"} kept: `, h("code", {}, "pairbus spool ls")),
    table(`Messages of ${pair.name} that no side takes`, ["Message", "<Entity", "<Reason", "Since"], spool.refused_messages.map(one =>
      [one.message_id || one.name, one.path, one.reason, `${duration(now() - one.at)} ago`]), { empty: "No message was refused." })];
}

function verify(pair) {
  const found = pair.verdict;
  return h("section", {}, h("h2", {}, "Verdict"), found
    ? h("p", {}, h("span", { class: `chip ${found.is_clean ? "healthy" : "bad"}` }, found.is_clean ? "clean" : found.lost ? `${number(found.lost)} lost` : "incomplete"),
      ` ${duration(now() - found.at)} ago: ${number(found.redirected)} redirected, ${number(found.delivered)} delivered, ${number(found.waiting)} waiting, ${number(found.dead_lettered)} dead-lettered`)
    : h("p", { class: "none" }, "None yet: ", h("code", {}, "pairbus verify"), " joins all records by message id."));
}

function money() {
  return [h("h1", {}, "Money"), state.pairs.map(pair => [title(pair), moneyOf(pair), operations(pair)])];
}

function moneyOf(pair) {
  const found = pair.money;
  if (!found || found.since === null) return h("section", {}, h("p", { class: "none" }, blind(pair, "money") ?? "Nothing has been recorded yet."));
  const total = Number(found.total), budget = state.budget ? Number(state.budget) : null;
  const most = Math.max(...found.stages.map(one => one.units), 1);
  const digits = found.stages.some(one => isLittle(one.cost)) ? 6 : 2;
  return [h("section", {}, h("h2", {}, "So far"),
    h("dl", { class: "figures" }, figure("Total", `${amount(total)} ${found.currency}`, `since ${moment(found.since)}`),
      figure("Base charge", `${amount(found.base)} ${found.currency}`, "of the namespaces, for these hours"),
      figure("Operations and transfer", `${amount(found.used)} ${found.currency}`, `${number(found.units)} billed operations`),
      figure("In outages", `${amount(found.in_outages)} ${found.currency}`, found.outages.length === 1 ? "one outage on record" : `${number(found.outages.length)} outages on record`)),
    budget !== null && h("div", { class: "budget" }, h("h3", {}, `${(100 * total / budget).toFixed(1)} % of the budget of ${amount(budget)} ${found.currency}${state.pairs.length > 1 ? ", which all pairs share" : ""}`),
      bar(total / budget, total > budget ? "over" : "")),
    h("p", { class: "dim small" }, `A plain sum over the newest records, at the prices of ${found.prices_as_of}; the full bill, by hour and outage: `, h("code", {}, "pairbus cost report"), ".",
      found.unknown ? ` ${count(found.unknown, "operation has", "operations have")} an unknown outcome and no price.` : "")),
    h("section", {}, h("h2", {}, "By stage"), table(`Operations of ${pair.name} by stage, and their cost`, ["Stage", "<", "Operations", found.currency], found.stages.map(one => [
      `${one.stage}${one.derived ? " (derived)" : ""}`, bar(one.units / most, one.stage.includes("backlog") ? "backlog" : ""), number(one.units), cents(one.cost, digits)]), { classes: "bars" }))];
}

// Money: cents, and what is less than a cent with as many digits as it has.
const isLittle = value => Number(value) && Math.abs(Number(value)) < 0.01;
const cents = (value, digits = 2) => Number(value).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const amount = value => isLittle(value) ? String(Number(Number(value).toFixed(6))) : cents(value);

function operations(pair) {
  return h("section", {}, h("h2", {}, "Operations and errors"),
    few(pair.entities, one => one.path, some => table(`Messages sent by running clients of ${pair.name}, by way and outcome`, ["Entity", "To primary", "Primary failed", "Primary unknown", "To backlog", "Backlog failed", "To spool", "Spool failed", "Pings", "Late", "Too large"],
      some.map(one => [one.path, ...["primary", "backlog", "spool"].flatMap(route => {
        const of = one.sent[route] ?? {};
        return [number(of.ok), number(of.failed), ...(route === "primary" ? [number(of.unknown)] : [])];
      }), number(one.pings), number(one.late), number(one.without_headroom)]), { empty: "No client of this pair is running." })));
}

function namespaces() {
  const { broker } = state;
  if (!broker) return [h("h1", {}, "Embedded namespaces"), h("p", { class: "none" }, "None are watched: give the dashboard the --ready-file of a broker.")];
  return [h("h1", {}, "Embedded namespaces"), broker.error && h("p", { class: "headline warn" }, `${broker.error}.${broker.at ? ` Below is what was seen ${duration(now() - broker.at)} ago.` : ""}`),
    broker.namespaces.map(one => h("section", {}, h("h2", {}, one.name), h("div", { class: "card" },
      h("p", {}, one.faults.length ? h("span", { class: "chip bad" }, one.faults.map(fault).join("; ")) : h("span", { class: "chip healthy" }, "no fault"),
        h("span", { class: "dim" }, ` port ${one.port}, ${count(one.connections, "connection", "connections")}, ${count(sum(Object.values(one.operations), each => each), "operation", "operations")}`)),
      one.trouble && h("p", { class: "small" }, one.trouble),
      control && h("form", { class: "controls", "data-form": "fault", "data-namespace": one.name },
        h("label", {}, "Fault", h("select", { name: "kind" }, broker.kinds.map(kind => h("option", { value: kind.kind, title: kind.help }, kind.kind)))),
        h("label", {}, "Entity", h("select", { name: "entity" }, h("option", { value: "" }, "the whole namespace"),
          one.entities.filter(each => each.kind !== "subscription").map(each => h("option", { value: each.path }, each.path)))),
        h("label", {}, "Seconds", h("input", { name: "for", type: "number", min: 1, step: 1, placeholder: "until healed", size: 10 })),
        h("button", { class: one.faults.length ? null : "main", type: "submit" }, "Break it"),
        action("Heal", { action: "heal", namespace: one.name }, { slim: false, primary: one.faults.length > 0, disabled: !one.faults.length }))),
      !one.trouble && few(one.entities, each => each.path, some => table(`Entities of ${one.name}`, ["Entity", "<Kind", "Messages", "Scheduled", "Dead letters", "Bytes", ""], some.map(each => [
        each.path, each.kind, each.kind === "topic" ? "" : number(each.active), each.scheduled === undefined ? "" : number(each.scheduled), each.kind === "topic" ? "" : number(each.dead_letters),
        each.bytes === undefined ? "" : bytes(each.bytes),
        each.kind === "topic" ? "" : h("button", { class: "slim", type: "button", "aria-label": `Look into ${each.path}`, "data-look": JSON.stringify({ namespace: one.name, path: each.path }) }, "Look")]), { empty: "It has no entities yet." })),
      h("details", { "data-key": `operations ${one.name}` }, h("summary", {}, "Operations by kind"),
        table(`Operations counted by ${one.name}`, ["Kind", "Count"], Object.entries(one.operations).map(([kind, count]) => [kind, number(count)]))))),
  ];
}

const fault = one => `${one.kind}${one.entity ? ` on ${one.entity}` : ""}${one.until ? `, until ${clock(one.until)}` : ""}`;

async function lookInto({ namespace, path, dead = false }) {
  try {
    const found = await line.ask(`/api/peek?${new URLSearchParams({ namespace, path, dead: dead ? "1" : "" })}`);
    const other = JSON.stringify({ namespace, path, dead: !dead });
    patch(look, h("div", {}, h("div", { class: "bar" }, h("h2", { id: "look-title" }, `${dead ? "Dead letters of " : ""}${path}`),
      h("div", { class: "controls" }, h("button", { class: "slim", type: "button", "data-look": other }, dead ? "Messages" : "Dead letters"),
        h("button", { class: "slim", type: "button", "data-close": true }, "Close"))),
      found.messages.length ? h("ol", {}, found.messages.map(one => h("li", {},
        h("b", {}, one.id || `number ${one.number}`), h("span", { class: "dim small" }, ` number ${one.number}, ${bytes(one.bytes)}${one.enqueued ? `, ${moment(one.enqueued)}` : ""}${one.session ? `, session ${one.session}` : ""}${one.state ? `, ${one.state}` : ""}`),
        Object.keys(one.properties ?? {}).length > 0 && h("p", { class: "small" }, Object.entries(one.properties).map(([name, value]) => `${name} = ${value}`).join(", ")),
        h("pre", { tabindex: 0 }, one.body)))) : h("p", { class: "none" }, "There is nothing."),
      found.is_partial && h("p", { class: "dim small" }, `Only the first ${found.messages.length} are shown.`)));
    if (!look.open) look.showModal();
  } catch (error) {
    tell(error.message, true);
  }
}

// -- doing

async function perform(what) {
  try {
    const said = await line.ask("/api/do", what);
    tell(said.done);
  } catch (error) {
    tell(error.message, true);
  }
}

function tell(text, is_failure = false) {
  const said = h("p", { class: is_failure ? "fail" : null }, text);
  document.getElementById("toast").replaceChildren(said);
  setTimeout(() => said.remove(), is_failure ? 12000 : 6000);
}

document.addEventListener("click", event => {
  // The fragment of an address is a view here, so the link to the content moves the focus and nothing else.
  if (event.target.closest(".skip")) { event.preventDefault(); main.focus(); return; }
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.do) perform(JSON.parse(button.dataset.do));
  if (button.dataset.look) lookInto(JSON.parse(button.dataset.look));
  if (button.dataset.close !== undefined) look.close();
});

document.addEventListener("submit", event => {
  const form = event.target;
  event.preventDefault();
  const given = Object.fromEntries(new FormData(form));
  if (form.dataset.form === "drain") perform({ action: "drain", pair: form.dataset.pair, path: given.path || null });
  if (form.dataset.form === "fault") perform({ action: "fault", namespace: form.dataset.namespace, ...given });
  if (form.dataset.form === "sign-in") { sessionStorage.setItem(KEY, given.token.trim()); start(); }
});

// -- drawing

function draw() {
  if (!state) return;
  const [name] = place();
  const [words, view] = VIEWS[name] ?? VIEWS.overview;
  document.querySelectorAll("nav a").forEach(link => {
    if (link.getAttribute("href") === `#/${VIEWS[name] ? name : "overview"}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  const { level, said } = state.headline;
  document.title = lost ? "✖ No answer – Pairbus" : `${{ bad: "✖ ", warn: "▲ " }[level] ?? ""}${summary(said)} – ${words} – Pairbus`;
  if (main.dataset.view !== name) main.replaceChildren();
  main.dataset.view = name;
  patch(main, h("main", {}, view()));
}

// The view that the address names, and the section of it. Without a pair there is nothing but namespaces to look at.
const place = () => (location.hash.replace("#/", "") || (state?.pairs.length === 0 ? "namespaces" : "overview")).split("/");

function reveal() {
  const section = document.getElementById(`alert-${place()[1]}`);
  (section ?? main).focus();
  if (section) section.scrollIntoView(); else scrollTo(0, 0);
}

addEventListener("hashchange", () => { draw(); reveal(); });
addEventListener("input", event => {
  if (event.target.dataset.find === undefined) return;
  wanted = event.target.value;
  draw();
});
setInterval(draw, 1000);

function onEvent(name, data) {
  if (name === "hello") ({ control, runbook } = data);
  const is_first = !state && name === "state" && place()[1];
  if (name === "state") { state = data; skew = data.at - Date.now() / 1000; }
  if (name === "history") history = data;
  draw();
  if (is_first) reveal();
}

// What is below is old then, and must not pass for what is so now.
function onState(name) {
  if (name === "live") lineState.textContent = "live";
  else if (!lost) lineState.textContent = `No answer since ${clock(now())}: what is below is old. Trying again.`;
  lineState.className = `line-state ${name}`;
  lost = name === "lost";
  draw();
}

function signIn(is_wrong) {
  state = null;
  patch(main, h("main", {}, h("form", { class: "sign-in", "data-form": "sign-in" }, h("h1", {}, "Sign in"),
    h("p", {}, is_wrong ? "The token is not the right one. " : "", "It is the value of ", h("code", {}, "PAIRBUS_DASHBOARD_TOKEN"), ", or was printed when the dashboard was started."),
    h("label", {}, "Token", h("input", { name: "token", type: "password", autocomplete: "current-password", required: true, "aria-invalid": is_wrong ? "true" : null })),
    h("button", { class: "main", type: "submit" }, "Sign in"))));
  lineState.textContent = "signed out";
  main.querySelector("input").focus();
}

async function start() {
  // In the fragment, which browsers send to nobody.
  const given = location.hash.match(/^#token=(.+)$/);
  if (given) {
    sessionStorage.setItem(KEY, decodeURIComponent(given[1]));
    window.history.replaceState(null, "", location.pathname + "#/");
  }
  const token = sessionStorage.getItem(KEY);
  // Of other characters a header cannot be made, and no token has any.
  if (token !== null && !/^[!-~]+$/.test(token)) { sessionStorage.removeItem(KEY); signIn(true); return; }
  line = new Line({ token, onEvent, onState });
  try {
    await line.listen();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    sessionStorage.removeItem(KEY);
    signIn(token !== null);
  }
}

start();
