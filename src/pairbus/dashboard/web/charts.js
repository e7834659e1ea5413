// Charts over time. A place in time is a percentage, so that a chart is as wide as its place and letters keep their
// size.

import { clock, duration, h, number } from "./dom.js";

const STATES = ["unknown", "healthy", "suspect", "failed_over", "faulted"];
const WORDS = { unknown: "not known", failed_over: "failed over" };
export const stateWords = state => WORDS[state] ?? state;

// Lanes that a chart has room for.
const LANES = 20;
// In seconds: what was told last is taken for what is so now as long as this, as in the headline.
const FRESH = 30;
const place = (at, from, to) => 100 * Math.min(1, Math.max(0, (at - from) / Math.max(to - from, 1)));
const percent = value => `${value.toFixed(2)}%`;

// From when a chart is drawn: since the first thing that is known, at least two minutes and at most six hours ago.
export function begin(history, now) {
  const known = [...history.changes, ...history.samples].map(one => one.at).filter(at => at > now - 21600);
  return Math.min(now - 120, known.length ? Math.min(...known) : now);
}

export function axis(from, to) {
  const steps = [30, 60, 120, 300, 600, 1800, 3600];
  const step = steps.find(one => (to - from) / one <= 6) ?? 7200;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at < to; at += step) ticks.push(at);
  const parts = { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }), hourCycle: "h23" };
  return h("svg", { height: 20, "aria-hidden": "true" }, ticks.map(at => {
    const x = place(at, from, to);
    return [h("line", { class: "grid", x1: percent(x), x2: percent(x), y2: 4 }),
      x > 4 && x < 97 && h("text", { class: "middle", x: percent(x), y: 17 },
        new Date(at * 1000).toLocaleTimeString([], parts))];
  }));
}

// One lane an entity: the spans of its states. What nobody has seen is not drawn as if it had been well.
export function timeline(pair, history, now) {
  const from = begin(history, now), looked = pair.sources.clients?.at ?? from;
  // Those that changed and those that are down come before those that were well all the time.
  const busy = [...pair.entities.filter(one => one.state !== "healthy"), ...history.changes];
  const all = [...new Set([...busy, ...pair.entities].map(one => one.path))];
  const paths = all.slice(0, LANES).sort();
  if (!all.length) return null;
  const lanes = paths.map(path => {
    const changes = history.changes.filter(one => one.path === path);
    const entity = pair.entities.find(one => one.path === path), last = changes.at(-1)?.at;
    const until = entity ? (now - looked < FRESH ? now : looked) : history.seen[path] ?? last;
    // What is known: each state, and the one before the first change, since it was seen.
    const first = changes[0] ?? { old: entity.state, at: until, known: entity.known };
    const known = [{ new: first.old, at: first.known ?? first.at },
      ...changes.flatMap(one => [one.seen && one.at - one.seen > FRESH && { new: "unknown", at: one.seen }, one])]
      .filter(Boolean);
    const spans = [{ new: "unknown", at: from }, ...known, { new: "unknown", at: Math.max(until, last ?? from) }]
      .map((one, index, every) => ({ ...one, ends: Math.min(every[index + 1]?.at ?? now, now) }))
      .filter(one => one.ends > one.at);
    const seen = spans.filter(one => one.ends >= from);
    const told = seen.map(one => {
      const begins = Math.max(one.at, from);
      return `${stateWords(one.new)} from ${clock(begins)} for ${duration(one.ends - begins)}`;
    });
    return h("div", { class: "lane" }, h("span", {}, h("bdi", {}, path)),
      h("svg", { height: 24, role: "img", "aria-label": `${path}: ${told.join(", ")}` },
        h("rect", { class: "base", y: 6, width: "100%", height: 12 }),
        seen.map(one => {
          const x = place(one.at, from, now), width = Math.max(place(one.ends, from, now) - x, 0.4);
          const size = 2 + 4 * Math.max(STATES.indexOf(one.new), 0), why = one.reason ? `: ${one.reason}` : "";
          const words = `${path} ${stateWords(one.new)} from ${clock(one.at)}, ${duration(one.ends - one.at)}${why}`;
          return h("rect", { class: one.new, x: percent(x), width: percent(width), y: 12 - size / 2, height: size },
            h("title", {}, words));
        })));
  });
  return h("div", { class: "chart" },
    h("ul", { class: "legend" }, STATES.map(state => h("li", { class: `chip ${state}` }, stateWords(state)))),
    lanes, h("div", { class: "lane" }, h("span", {}), axis(from, now)),
    all.length > paths.length
      && h("p", { class: "dim small" }, `${number(all.length - paths.length)} more are not drawn.`));
}

// How deep the backlog was, and its dead letters; `backlog` is what is known of it now.
export function depth(history, now, backlog) {
  const from = begin(history, now);
  const samples = history.samples.filter(one => one.active !== null && one.active !== undefined && one.at >= from);
  if (backlog) samples.push({ at: now, active: backlog.active, dead: backlog.dead_letters });
  if (samples.length < 2) {
    const why = backlog ? "The chart begins with the second look." : "Nothing is known of the backlog.";
    return h("p", { class: "none" }, why);
  }
  const height = 130, head = 16;
  const most = round(Math.max(...samples.map(one => Math.max(one.active, one.dead ?? 0)), 2));
  const marks = [most / 2, most];
  const x = at => (10 * place(at, from, now)).toFixed(1);
  const y = value => (height - (height - head) * value / most).toFixed(1);
  const last = samples[samples.length - 1], hasDead = samples.some(one => one.dead);
  const stair = (one, name) => `H${x(one.at)}V${y(one[name] ?? 0)}`;
  const stairs = name => samples.map(one => stair(one, name)).join("") + (backlog ? "H1000" : "");
  const peak = samples.reduce((best, one) => one.active > best.active ? one : best);
  // Where nobody has looked for long neither the last number nor none is drawn.
  const looks = [from, ...samples.map(one => one.at), now], longest = Math.max(2 * FRESH, (now - from) / 80);
  const gaps = looks.slice(1).map((to, index) => ({ from: looks[index], to }))
    .filter((one, index) => one.to - one.from > (index && longest));
  const told = [`${backlog ? "now" : `at ${clock(last.at)}`} ${number(last.active)}`,
    `at most ${number(peak.active)} at ${clock(peak.at)}`,
    ...gaps.map(one => `not known from ${clock(one.from)} to ${clock(one.to)}`)].join(", ");
  return h("div", { class: "chart" },
    h("ul", { class: "legend" },
      h("li", { class: "chip depth" }, "waiting"), hasDead && h("li", { class: "chip dead" }, "dead letters"),
      gaps.length > 0 && h("li", { class: "chip gap" }, "not known")),
    h("svg", { height, role: "img", "aria-label": `Waiting in the backlog since ${clock(from)}: ${told}` },
      marks.map(value => h("line", { class: "grid", x2: "100%", y1: y(value), y2: y(value) })),
      h("svg", { width: "100%", height, viewBox: `0 0 1000 ${height}`, preserveAspectRatio: "none" },
        h("path", { class: "area", d: `M${x(samples[0].at)},${height}${stairs("active")}V${height}Z` }),
        hasDead && h("path", { class: "dead", d: `M${x(samples[0].at)},${y(samples[0].dead ?? 0)}${stairs("dead")}` })),
      gaps.map(one => h("rect", { class: "gap", x: percent(place(one.from, from, now)), y: head, height: height - head,
        width: percent(place(from + one.to - one.from, from, now)) })),
      marks.map(value => h("text", { x: 2, y: y(value) - 3 }, number(value))),
      h("line", { class: "grid", x2: "100%", y1: height, y2: height })),
    axis(from, now));
}

function round(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].map(step => step * size).find(step => step >= value);
}

export function bar(share, classes = "") {
  // However little, it can be seen.
  const shown = Math.min(1, Math.max(share, share > 0 ? 0.004 : 0));
  return h("svg", { "aria-hidden": "true" }, h("rect", { class: "base", width: "100%", height: 12 }),
    h("rect", { class: `fill ${classes}`, width: percent(100 * shown), height: 12 }));
}
