// What the page is built with: elements without HTML text, so that nothing that a message or a name holds is ever
// taken for markup, and a patch that keeps what has not changed, so that focus, scroll and input stay where they are.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "rect", "line", "path", "polyline", "text", "g", "title"]);

export function h(tag, attributes, ...children) {
  const made = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    made.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    made.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return made;
}

const keyOf = node => node.dataset?.key;

// What has a key is found again by it, wherever it comes to lie: what was chosen, or has the focus, must not become
// something else because a row above it is new.
export function patch(old, fresh) {
  const after = [...fresh.childNodes], wanted = new Set(after.map(keyOf));
  const keyed = new Map([...old.childNodes].filter(keyOf).reverse().map(node => [keyOf(node), node]));
  keyed.forEach((node, key) => wanted.has(key) || node.remove());
  after.forEach((node, index) => {
    const place = old.childNodes[index], there = keyed.get(keyOf(node)) ?? place;
    keyed.delete(keyOf(node));
    if (there !== place) old.insertBefore(there, place ?? null);
    if (!there) old.append(node);
    else if (keyOf(there) !== keyOf(node)) there.before(node);
    else if (there.nodeType !== node.nodeType || there.nodeName !== node.nodeName || there.id !== node.id) {
      there.replaceWith(node);
    }
    else if (there.nodeType === Node.TEXT_NODE) {
      if (there.data !== node.data) there.data = node.data;
    } else {
      patchAttributes(there, node);
      patch(there, node);
    }
  });
  [...old.childNodes].slice(after.length).forEach(node => node.remove());
}

function patchAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    // What people have opened stays open.
    if (!fresh.hasAttribute(name) && !(old.tagName === "DETAILS" && name === "open")) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

export function table(caption, head, rows, { empty = "none", classes = "cards" } = {}) {
  if (!rows.length) return h("p", { class: "none" }, empty);
  const names = head.map(one => one.replace(/^</, ""));
  return h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": caption },
    h("table", { class: classes }, h("caption", {}, caption),
      h("thead", {}, h("tr", {}, head.map(one =>
        h("th", { scope: "col", class: one.startsWith("<") ? "left" : null }, one.replace(/^</, ""))))),
      h("tbody", {}, rows.map(([first, ...rest]) => h("tr", { "data-key": first }, h("th", { scope: "row" }, first),
        rest.map((cell, index) => {
          const is_words = head[index + 1].startsWith("<");
          const is_empty = cell === "" || cell === null || cell === undefined;
          return h("td", { class: [is_words && "words", is_empty && "none"].filter(Boolean).join(" ") || null,
            "data-name": names[index + 1] || null }, cell);
        }))))));
}

export const count = (value, one, many) => `${number(value)} ${value === 1 ? one : many}`;
// Made once: a format takes ten times as long to make as to use, and a page uses thousands.
const NUMBER = new Intl.NumberFormat("en");
export const number = value => NUMBER.format(value ?? 0);

// Numbers stay with their units, wherever a line breaks.
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const all = Math.max(0, Math.round(seconds));
  const [days, hours, minutes] = [86400, 3600, 60].map(unit => Math.floor(all / unit));
  const parts = days ? [[days, "d"], [hours % 24, "h"]]
    : hours ? [[hours, "h"], [minutes % 60, "min"]]
    : [[minutes, "min"], [all % 60, "s"]].slice(minutes ? 0 : 1);
  return parts.filter(([value], index) => value || !index).map(([value, unit]) => `${value}\u00a0${unit}`).join(" ");
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB"];
  let size = value ?? 0, unit = 0;
  // What would be written as 1000.0 is 1.0 of the next.
  while (size >= 999.95 && unit < units.length - 1) { size /= 1000; unit += 1; }
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

// A time of day with its zone, which is the reader's and not that of the logs; with the day, if that is not the day
// of `now`.
const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" };
const CLOCK = new Intl.DateTimeFormat([], TIME);
const MOMENT = new Intl.DateTimeFormat([], { year: "numeric", month: "short", day: "numeric", ...TIME });
export const clock = (at, now = at) => isToday(at, now) ? written(at, CLOCK) : moment(at);
const isToday = (at, now) => new Date(at * 1000).toDateString() === new Date(now * 1000).toDateString();
export const moment = at => written(at, MOMENT);
// A damaged file may tell a moment that no calendar has.
const written = (at, format) => Math.abs(at) <= 8.64e12 ? format.format(at * 1000) : "no date";
