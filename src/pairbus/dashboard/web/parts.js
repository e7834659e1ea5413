// Pieces that several views are built with.

import { duration, h, number } from "./dom.js";
import { known, now } from "./known.js";

// What belongs to the first case that is so; a function is asked only then.
export function firstOf(...cases) {
  const [, what] = cases.find(([isSo]) => isSo);
  return typeof what === "function" ? what() : what;
}

export const sum = (list, of) => list.reduce((all, one) => all + (of(one) ?? 0), 0);
export const code = words => h("code", {}, words);
export const section = (words, ...children) => h("section", {}, h("h2", {}, words), children);
export const figure = (name, value, note) =>
  h("div", {}, h("dt", {}, name), h("dd", {}, h("b", {}, value), h("span", {}, note)));

// Instead of what belongs to pairs, if there is none.
export const noPair = () => known.state.pairs.length === 0
  && h("p", { class: "none" }, known.state.headline.safety);

// Over what belongs to a pair, if there are several.
export const title = pair => known.state.pairs.length > 1 && h("div", { class: "pair-name" },
  h("h2", {}, pair.name),
  pair.primary && h("span", { class: "dim small" }, `${pair.primary} → ${pair.secondary}`));

// A button that has the server do something; `of` is what it is for, to those who hear the page.
export function action(words, what, { slim = true, primary = false, disabled = false, of = null } = {}) {
  const look = [slim && "slim", primary && "main"].filter(Boolean).join(" ") || null;
  return known.control && h("button",
    { "aria-label": of && `${words}: ${of}`, class: look, type: "button", disabled, "data-do": JSON.stringify(what) },
    words);
}

// Something to choose; it stays chosen when others come before it.
export const choice = (value, words = value) => h("option", { value, "data-key": value }, words);

// Rows that a table shows, and those of all pairs together: of more, a browser would do nothing but draw.
const MOST = 100, MOST_OF_ALL = 300, LEAST = 10;

// Of thousands of entities the first are shown, which are the worst, and those that are looked for.
export function few(all, pathOf, draw) {
  const most = Math.min(MOST, Math.max(LEAST, Math.floor(MOST_OF_ALL / known.state.pairs.length)));
  if (all.length <= most) return draw(all);
  const found = all.filter(one => pathOf(one).toLowerCase().includes(known.wanted.toLowerCase()));
  const words = found.length > most
    ? `the first ${most} of ${number(found.length)} are shown`
    : `${number(found.length)} of ${number(all.length)}`;
  return [
    h("p", { class: "controls" },
      h("label", {}, "Find an entity", h("input", { type: "search", "data-find": true, value: known.wanted })),
      h("span", { class: "dim small", role: "status" }, words)),
    found.length ? draw(found.slice(0, most)) : h("p", { class: "none" }, "None is called so."),
  ];
}

// -- sources: what is shown of one that does not answer now is what it said last

export const seenBacklog = pair => known.lost || pair.sources.backlog?.error ? null : pair.backlog;

export function aged(pair, name) {
  const source = pair.sources[name];
  return source?.error && source.at ? `seen ${duration(now() - source.at)} ago` : null;
}

export const stale = (pair, name) =>
  aged(pair, name) && h("p", { class: "dim small" }, `Last ${aged(pair, name)}: ${pair.sources[name].error}`);

// Why nothing is shown of it; null if it has answered.
export function blind(pair, name) {
  const source = pair.sources[name];
  if (!source) return "Not known: the pair is named by its state directory alone.";
  return source.error ? `Not known: ${source.error}` : null;
}

// -- money: cents, and what is less than a cent with as many digits as it has

export const isLittle = value => Number(value) && Math.abs(Number(value)) < 0.01;
export const cents = (value, digits = 2) =>
  Number(value).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
export const amount = value => isLittle(value) ? String(Number(Number(value).toFixed(6))) : cents(value);
