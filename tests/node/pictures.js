// Takes the pictures of docs/dashboard.md of a running dashboard: node pictures.js ADDRESS DIRECTORY; see scripts/dashboard_pictures.py.

import { chromium } from "playwright-core";

const [address, directory, program = "/usr/bin/chromium"] = process.argv.slice(2);
const DESK = { width: 1280, height: 900 }, PHONE = { width: 390, height: 844 };
const PICTURES = [["overview", "overview", DESK, "light"], ["backlog", "backlog", DESK, "light"], ["namespaces", "namespaces", DESK, "light"],
  ["money", "money", DESK, "dark"], ["phone", "overview", PHONE, "light"]];

const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox"] });
for (const [name, view, viewport, colorScheme] of PICTURES) {
  const page = await browser.newPage({ viewport, colorScheme });
  page.on("pageerror", error => console.error(error.message));
  await page.goto(address);
  await page.getByText("live", { exact: true }).waitFor();
  await page.goto(`${address.split("#")[0]}#/${view}`);
  await page.locator(`main[data-view=${view}] h1`).waitFor();
  await page.screenshot({ path: `${directory}/dashboard-${name}.png` });
  await page.close();
}
await browser.close();
