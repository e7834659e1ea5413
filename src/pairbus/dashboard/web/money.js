// What it has cost so far, by stage, and the operations that it comes from.

import { bar } from "./charts.js";
import { count, h, moment, number, table } from "./dom.js";
import { known } from "./known.js";
import { amount, blind, cents, code, few, figure, isLittle, noPair, section, title } from "./parts.js";

export function money() {
  return [h("h1", {}, "Money"), noPair(), known.state.pairs.map(pair => [
    title(pair),
    pair.money && pair.money.since !== null
      ? [section("So far", figures(pair.money), budget(pair.money), prices(pair.money)),
        section("By stage", stages(pair))]
      : h("section", {}, h("p", { class: "none" }, blind(pair, "money") ?? "Nothing has been recorded yet.")),
    section("Operations and errors", operations(pair)),
  ])];
}

function figures(found) {
  const told = value => `${amount(value)} ${found.currency}`;
  const outages = found.outages.length === 1 ? "one outage" : `${number(found.outages.length)} outages`;
  return h("dl", { class: "figures" },
    figure("Total", told(found.total), `since ${moment(found.since)}`),
    figure("Base charge", told(found.base), "of the namespaces, for these hours"),
    figure("Operations and transfer", told(found.used), `${number(found.units)} billed operations`),
    figure("In outages", told(found.in_outages), `${outages} on record`));
}

function budget(found) {
  if (!known.state.budget) return null;
  const share = Number(found.total) / Number(known.state.budget);
  const given = `${amount(known.state.budget)} ${found.currency}`;
  const whose = known.state.pairs.length > 1 ? ", which all pairs share" : "";
  return h("div", { class: "budget" },
    h("h3", {}, `${(100 * share).toFixed(1)} % of the budget of ${given}${whose}`),
    bar(share, share > 1 ? "over" : ""));
}

function prices(found) {
  return h("p", { class: "dim small" },
    `A plain sum over the newest records, at the prices of ${found.prices_as_of}; `,
    "the full bill, by hour and outage: ", code("pairbus cost report"), ".",
    found.unknown > 0
      && ` ${count(found.unknown, "operation has", "operations have")} an unknown outcome and no price.`);
}

function stages(pair) {
  const { currency, stages } = pair.money;
  const most = Math.max(...stages.map(one => one.units), 1);
  const digits = stages.some(one => isLittle(one.cost)) ? 6 : 2;
  return table(`Operations of ${pair.name} by stage, and their cost`, ["Stage", "<", "Operations", currency],
    stages.map(one => [
      `${one.stage}${one.derived ? " (derived)" : ""}`,
      bar(one.units / most, one.stage.includes("backlog") ? "backlog" : ""),
      number(one.units),
      cents(one.cost, digits),
    ]),
    { classes: "bars" });
}

const OPERATION_COLUMNS = [
  "Entity", "To primary", "Primary failed", "Primary unknown", "To backlog", "Backlog failed",
  "To spool", "Spool failed", "Pings", "Late", "Too large",
];

function operations(pair) {
  return few(pair.entities, one => one.path, some =>
    table(`Messages sent by running clients of ${pair.name}, by way and outcome`, OPERATION_COLUMNS,
      some.map(operationRow), { empty: blind(pair, "status files") ?? "No client of this pair is running." }));
}

function operationRow(one) {
  const { primary, backlog, spool } = one.sent;
  const counts = [
    primary?.ok, primary?.failed, primary?.unknown, backlog?.ok, backlog?.failed,
    spool?.ok, spool?.failed, one.pings, one.late, one.without_headroom,
  ];
  return [one.path, ...counts.map(number)];
}
