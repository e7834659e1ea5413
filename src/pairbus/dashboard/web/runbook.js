// What to do about each alert, in the words of docs/runbook.md.

import { h } from "./dom.js";
import { known } from "./known.js";
import { code, firstOf } from "./parts.js";

export function runbook() {
  return [
    h("h1", {}, "Runbook"),
    h("p", {},
      "No message is lost whose send returned: it is in the primary, in a backlog queue, or in the spool of the ",
      "machine that sent it. Take your time, and delete nothing."),
    Object.entries(known.runbook).map(([alert, rows]) =>
      h("section", { id: `alert-${alert}`, tabindex: -1 }, h("h2", {}, alert), h("dl", { class: "steps" },
        Object.entries(rows).map(([row, text]) => [h("dt", {}, row), h("dd", {}, prose(text))])))),
  ];
}

// The runbook's own marks: code, and words that are stressed; of a button, the way to it.
const BUTTONS = ["*Drain now*", "*Resume*", "*Redrive*"];

export const prose = text => text.split(/(`[^`]+`|\*{1,2}[^*]+\*{1,2})/).map(part => firstOf(
  [part.startsWith("`"), () => code(part.slice(1, -1))],
  [BUTTONS.includes(part), () => h("a", { href: "#/backlog" }, part.slice(1, -1))],
  [part.startsWith("*"), () => h("em", {}, part.replaceAll("*", ""))],
  [true, part]));
