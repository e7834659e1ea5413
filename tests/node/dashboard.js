// The dashboard in a real browser. Each check prints a line of JSON with what it has seen; what has to happen outside of the
// browser is asked for with a line `please …` on standard error, and answered with a line on standard input.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

import { chromium } from "playwright-core";

const [address, token, readOnly, program] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const VIEWS = ["overview", "backlog", "money", "namespaces"];
// Far longer than anything takes that is waited for here.
const PATIENCE = 60_000;

const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
const complaints = [];

async function open(url, settings = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...settings });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  page.on("pageerror", error => complaints.push(error.message));
  page.on("console", said => {
    // A server that is restarted does not answer for a moment, and the browser says so.
    if (said.type() === "error" && !/ERR_CONNECTION|ERR_FAILED|ERR_INCOMPLETE|ERR_EMPTY|401/.test(said.text())) complaints.push(said.text());
  });
  page.on("request", asked => { if (new URL(asked.url()).hostname !== "127.0.0.1") complaints.push(`asked ${asked.url()}`); });
  await page.goto(url);
  return page;
}

const live = page => page.getByText("live", { exact: true }).waitFor();
const show = async (page, view) => {
  await page.getByRole("navigation").getByRole("link", { name: view, exact: false }).click();
  await page.locator(`main[data-view=${view}] h1`).waitFor();
};
const told = (page, words) => page.locator("#toast").getByText(words).waitFor();
async function please(what) {
  process.stderr.write(`please ${what}\n`);
  await answers.next();
}

async function check(name, scenario) {
  const started = performance.now();
  let outcome;
  try {
    outcome = { seen: (await scenario()) ?? null };
  } catch (error) {
    outcome = { failure: String(error?.stack ?? error) };
  }
  const seconds = Number(((performance.now() - started) / 1000).toFixed(3));
  console.log(JSON.stringify({ check: name, seconds, ...outcome }));
}

let page = null;

await check("sign in", async () => {
  page = await open(address);
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  await page.getByLabel("Token").fill("not-the-token-either");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("The token is not the right one").waitFor();
  await page.reload();
  await page.getByLabel("Token").fill("no token, ни за что");  // of which no header can be made
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("The token is not the right one").waitFor();
  await page.getByLabel("Token").fill(token);
  await page.keyboard.press("Enter");
  await live(page);
  await page.reload();
  await live(page);
  await page.close();
  page = await open(`${address}#token=%`);
  await page.getByText("The token is not the right one").waitFor();
  await page.evaluate(hash => { location.hash = hash; }, `#token=${token}`);  // as if pasted over what is there
  await live(page);
  return page.url();
});

await check("a view that there is not", async () => {
  await page.goto(`${address}#/constructor`);
  await page.locator("nav a[aria-current]").getByText("Overview").waitFor();
  await show(page, "overview");
});

await check("what is stranded is told first", async () => {
  await page.getByRole("heading", { name: "1 message waits in the backlog, and nobody drains it" }).waitFor();
  const row = page.getByRole("row").filter({ hasText: "orders" });
  return [await page.title(), await row.getByText("healthy").count()];
});

await check("an outage is seen", async () => {
  await show(page, "namespaces");
  const form = page.locator("form[data-namespace=contoso]");
  await form.getByLabel("Entity").selectOption("orders");
  await form.getByRole("button", { name: "Break it" }).click();
  await told(page, "contoso: refuse");
  await show(page, "overview");
  await page.getByRole("heading", { name: "orders is down" }).waitFor();
  await page.getByRole("img", { name: /orders: .*failed over/ }).waitFor();
  await page.getByRole("row").filter({ hasText: "orders" }).getByText(/^next ping /).waitFor();
  await page.getByText("The last").first().click();
  await page.getByRole("region", { name: /Changes of state/ }).getByRole("row").nth(1).waitFor();
  return page.title();
});

await check("nothing sticks out", async () => {
  const found = [];
  for (const width of [390, 700, 1280, 1920]) {
    await page.setViewportSize({ width, height: 900 });
    for (const view of VIEWS) {
      await show(page, view);
      const wide = await page.evaluate(() => [document.documentElement.scrollWidth - document.documentElement.clientWidth,
        ...[...document.querySelectorAll("main *")].filter(one => !one.closest(".wide, svg, dialog") && one.getBoundingClientRect().right > innerWidth + 1)
          .map(one => `${one.tagName} ${one.textContent.slice(0, 30)}`)]);
      if (wide[0] > 0 || wide.length > 1) found.push({ width, view, wide });
    }
  }
  await page.setViewportSize({ width: 1280, height: 900 });
  return found;
});

await check("names for a screen reader", async () => {
  const found = [];
  // The colours of the dark are the same in all views, and the names do not depend on it.
  for (const [colorScheme, views] of [["light", VIEWS], ["dark", ["overview", "backlog"]]]) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    for (const view of views) {
      await show(page, view);
      await page.evaluate(axe);
      const result = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
      found.push(...result.violations.filter(one => ["serious", "critical"].includes(one.impact))
        .map(one => `${colorScheme} ${view}: ${one.id} ${one.nodes.map(node => node.html).slice(0, 3).join(" ")}`));
    }
  }
  await page.emulateMedia({ colorScheme: null, reducedMotion: null });
  return found;
});

await check("by keyboard", async () => {
  await show(page, "overview");
  await page.reload();
  await page.locator("main[data-view=overview] h1").waitFor();
  const met = [];
  for (let step = 0; step < 6; step += 1) {
    await page.keyboard.press("Tab");
    met.push(await page.evaluate(() => document.activeElement.textContent.trim()));
    if (met.at(-1) === "Backlog") break;
  }
  await page.keyboard.press("Enter");
  await page.locator("main[data-view=backlog] h1").waitFor();
  await page.getByRole("link", { name: "Skip to content" }).focus();
  await page.keyboard.press("Enter");
  met.push(await page.evaluate(() => `${document.activeElement.id} of ${document.getElementById("main").dataset.view}`));
  return met;
});

await check("heal and drain", async () => {
  await show(page, "namespaces");
  await page.locator("form[data-namespace=contoso]").getByRole("button", { name: "Heal" }).click();
  await told(page, "contoso is healed");
  await show(page, "backlog");
  await page.getByRole("row").filter({ hasText: "orders" }).first().waitFor();
  await page.getByRole("button", { name: "Drain now" }).click();
  await told(page, "draining everything");
  await page.locator(".card .chip.ended").waitFor();
  return Number((await page.locator(".card dd").first().textContent()).replace(",", "")) > 0;
});

await check("a look into a queue", async () => {
  await show(page, "namespaces");
  await page.getByRole("button", { name: "Look into orders" }).click();
  const dialog = page.getByRole("dialog", { name: "orders" });
  await dialog.waitFor();
  const body = await dialog.locator("pre").first().textContent();
  const marked = await dialog.locator("pre b").count();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
  return [body, marked];
});

await check("an error is seen over a dialog", async () => {
  await page.getByRole("button", { name: "Look into orders" }).click();
  const dialog = page.getByRole("dialog", { name: "orders" });
  await page.route("**/api/peek?*", route => route.abort());
  await dialog.getByRole("button", { name: "Dead letters" }).click();
  const isOnTop = () => {
    const said = document.querySelector("dialog [role=status] p"), { x, y } = said?.getBoundingClientRect() ?? {};
    return /does not answer: is it still running/.test(said?.textContent) && document.elementFromPoint(x + 9, y + 9) === said;
  };
  await page.waitForFunction(isOnTop);
  await page.unroute("**/api/peek?*");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
});

await check("redrive", async () => {
  await show(page, "backlog");
  await page.getByRole("button", { name: "Redrive" }).click();
  await told(page, "1 dead letter is back");
  await page.getByRole("button", { name: "Redrive" }).waitFor({ state: "hidden" });
});

await check("one path only", async () => {
  await show(page, "backlog");
  await please("fill");
  const rows = page.getByRole("row").filter({ has: page.getByRole("button", { name: "Drain only this" }) });
  const [orders, payments] = ["orders", "payments"].map(path => rows.filter({ hasText: path }));
  await orders.waitFor();
  await payments.getByRole("button").click();
  await told(page, "draining payments");
  await page.getByText("only for payments").waitFor();
  await page.locator(".card .chip.ended").waitFor();
  await payments.waitFor({ state: "hidden" });
  return orders.count();
});

await check("a choice stays", async () => {
  await page.getByLabel("What to drain").selectOption("only orders");
  await page.getByRole("button", { name: "Drain only this: orders" }).focus();
  await please("fill_invoices");
  await page.getByRole("button", { name: "Drain only this: invoices" }).waitFor();  // above orders
  const focused = await page.evaluate(() => document.activeElement.getAttribute("aria-label"));
  return [await page.getByLabel("What to drain").inputValue(), focused];
});

await check("reconnect after a restart", async () => {
  await show(page, "overview");
  await please("stop");
  await page.getByText(/^No answer since .*: what is below is old/).waitFor();
  const title = await page.title();
  await please("start_slow");
  await live(page);
  await page.getByRole("row").filter({ hasText: "orders" }).first().waitFor();
  return [title, await page.getByText("The last").count()];
});

// The dashboard has been restarted with a drain so slow that it cannot end before it is told to.
await check("pause, resume and stop", async () => {
  await show(page, "backlog");
  await please("fill");
  await page.getByRole("button", { name: "Drain now" }).click();
  await page.getByRole("button", { name: "Pause" }).click();
  await page.locator(".card .chip.paused").waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.locator(".card .chip.running").waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.locator(".card .chip.ended").waitFor();
});

await check("read-only", async () => {
  const visitor = await open(readOnly);
  await live(visitor);
  const buttons = [];
  for (const view of VIEWS) {
    await show(visitor, view);
    buttons.push(...await visitor.locator("main button, main form").evaluateAll(found => found.map(one => one.textContent)));
  }
  await show(visitor, "backlog");
  const words = await visitor.getByText("Read-only").count();
  await visitor.close();
  return [[...new Set(buttons)], words];
});

await check("what is not seen is not known", async () => {
  const visitor = await open(readOnly);
  await live(visitor);
  const state = await visitor.evaluate(() => fetch("/api/state").then(answer => answer.json()));
  const none = { at: null, error: "no answer in time" }, deaf = { drain: none, spool: none, "status files": none };
  state.pairs = state.pairs.map(pair =>
    ({ ...pair, backlog: null, entities: [], clients: [], sources: { ...pair.sources, ...deaf } }));
  const body = `event: state\ndata: ${JSON.stringify(state)}\n\n`;
  await visitor.route("**/api/events", route => route.fulfill({ body, contentType: "text/event-stream" }));
  await visitor.reload();
  await visitor.locator(".figures").waitFor();
  const names = await visitor.locator(".figures > div").filter({ hasText: "not known" }).locator("dt").allTextContents();
  await visitor.getByText("not all clients are seen now").waitFor();
  const why = [];
  for (const [view, heading] of [["money", "Operations and errors"], ["backlog", "Spool and refused messages"]]) {
    await show(visitor, view);
    why.push(await visitor.locator("section").filter({ hasText: heading }).locator("p").allTextContents());
  }
  await visitor.close();
  return [names, why.flat()];
});

await check("without a pair", async () => {
  const visitor = await open(readOnly);
  await live(visitor);
  const state = await visitor.evaluate(() => fetch("/api/state").then(answer => answer.json()));
  Object.assign(state, { pairs: [], headline: { level: "good", said: [], safety: "No pair." } });
  const body = `event: state\ndata: ${JSON.stringify(state)}\n\n`;
  await visitor.route("**/api/events", route => route.fulfill({ body, contentType: "text/event-stream" }));
  await visitor.reload();
  const told = [];
  for (const view of ["backlog", "money"]) {
    await show(visitor, view);
    told.push(await visitor.locator("main p").allTextContents());
  }
  await visitor.close();
  return told;
});

await check("what nobody saw is not drawn as well", async () => {
  const visitor = await open(readOnly);
  await live(visitor);
  const state = await visitor.evaluate(() => fetch("/api/state").then(answer => answer.json()));
  const [pair] = state.pairs, now = state.at, [one] = pair.entities;
  const healthy = { ...one, state: "healthy", since: null, reason: "" };
  pair.entities = [{ ...healthy, path: "new", known: now - 900 }, { ...healthy, path: "back" }];
  const change = { pair: pair.name, kind: "change", reason: "" };
  const changes = [
    { ...change, path: "gone", at: now - 3600, old: "unknown", known: null, seen: null, new: "failed_over" },
    { ...change, path: "back", at: now - 3000, old: "healthy", known: now - 3300, seen: now - 3001, new: "faulted" },
    { ...change, path: "back", at: now - 1200, old: "faulted", known: now - 3000, seen: now - 2400, new: "healthy" },
  ];
  const samples = [3600, 3590, 1200, 1190].map(ago => ({ pair: pair.name, at: now - ago, active: 7, dead: 0 }));
  const history = { at: now, pairs: { [pair.name]: { changes, samples, seen: { gone: now - 1800, back: now } } } };
  const seen = [];
  await visitor.clock.setFixedTime(now * 1000);  // or spans would grow while they are looked at
  for (const isOld of [false, true]) {
    if (isOld) {
      pair.sources.clients = { at: now - 600, error: "no answer in time" };
      pair.sources.backlog = { at: now - 1190, error: "no answer in time" };
    }
    const body = [["history", history], ["state", state]]
      .map(([name, data]) => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`).join("");
    await visitor.route("**/api/events", route => route.fulfill({ body, contentType: "text/event-stream" }));
    await visitor.reload();
    await visitor.getByRole("img", { name: /^new: / }).waitFor();
    const told = await visitor.locator("main svg[aria-label]").evaluateAll(all => all.map(each => each.getAttribute("aria-label")));
    seen.push(told.map(each => each.replace(/ (from|to|at|since) \d\S+ \S+/g, "")));
  }
  seen.push(await visitor.locator("main .legend").allInnerTexts());
  await visitor.unroute("**/api/events");
  await visitor.close();
  return seen;
});

await check("a long name does not stick out", async () => {
  const visitor = await open(readOnly, { viewport: { width: 360, height: 700 } });
  await live(visitor);
  const state = await visitor.evaluate(() => fetch("/api/state").then(answer => answer.json()));
  const long = "q".repeat(260), [pair] = state.pairs, [place] = state.broker.namespaces;
  pair.entities = pair.entities.map(one => ({ ...one, path: long, state: "faulted", reason: long, last_failure: long }));
  place.faults = [{ kind: "refuse", entity: long, until: null }];
  place.entities = [{ ...place.entities[0], path: long }];
  state.broker.error = "no answer; is the broker running?";
  const body = `event: state\ndata: ${JSON.stringify(state)}\n\n`;
  await visitor.route("**/api/events", route => route.fulfill({ body, contentType: "text/event-stream" }));
  await visitor.reload();
  const wide = [];
  for (const view of VIEWS) {
    await show(visitor, view);
    wide.push(await visitor.evaluate(() => document.documentElement.scrollWidth - innerWidth));
    wide.push(await visitor.evaluate(() => document.querySelector("nav").scrollWidth - document.querySelector("nav").clientWidth));
  }
  await visitor.getByText(/is the broker running\? Below is what was seen/).waitFor();
  await visitor.close();
  return wide;
});

await check("signed out", async () => {
  const visitor = await open(readOnly);
  await live(visitor);
  let isServed = true;
  await visitor.route("**/api/events", route => {
    if (isServed) route.fulfill({ body: ": it ends at once\n\n", contentType: "text/event-stream" });
    else route.fulfill({ status: 401 });
  });
  await visitor.reload();
  await visitor.getByText(/^No answer since/).waitFor();
  isServed = false;
  await visitor.getByRole("heading", { name: "Sign in" }).waitFor();
  const seen = [await visitor.title(), await visitor.locator("#line").getAttribute("class")];
  await visitor.close();
  return seen;
});

await check("of many entities", async () => {
  const visitor = await open(readOnly);
  await live(visitor);
  const state = await visitor.evaluate(() => fetch("/api/state").then(answer => answer.json()));
  const [one] = state.pairs[0].entities;
  // A moment of no calendar, as a damaged file has it, is no reason to show nothing.
  state.pairs[0].entities = Array.from({ length: 101 }, (_, number) => ({ ...one, path: `q${number}`, since: 1e15 }));
  state.pairs = Array.from({ length: 10 }, (_, number) => ({ ...state.pairs[0], name: `pair ${number}` }));
  state.pairs[9].backlog = null;
  const body = `event: state\ndata: ${JSON.stringify(state)}\n\n`;
  await visitor.route("**/api/events", route => route.fulfill({ body, contentType: "text/event-stream" }));
  await visitor.reload();
  await visitor.locator(".figures > div").filter({ hasText: "in 9 of 10 pairs; the others are not seen" }).nth(1).waitFor();
  const seen = [];
  for (const view of ["overview", "money"]) {
    await show(visitor, view);
    await visitor.getByText("the first 30 of 101 are shown").first().waitFor();
    const search = visitor.getByLabel("Find an entity").first();
    await search.fill("q100");
    await visitor.getByText("1 of 101").first().waitFor();
    await search.fill("of no such name");
    await visitor.getByText("0 of 101").first().waitFor();
    seen.push(await visitor.locator("main p.none").first().textContent());
    await search.fill("");
  }
  await visitor.close();
  return seen;
});

await check("nothing to complain about", async () => complaints);
await browser.close();
process.exit(0);
