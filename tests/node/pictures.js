// Takes pictures of a running dashboard: node pictures.js ADDRESS DIRECTORY [SCHEME]. For the documents, and to be looked at.

import { chromium } from "playwright-core";

const [address, directory, scheme = "light"] = process.argv.slice(2);
const SIZES = { desk: [1280, 900], wide: [1920, 1080], phone: [390, 844] };
const VIEWS = ["overview", "backlog", "money", "namespaces"];

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
for (const [size, [width, height]] of Object.entries(SIZES)) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: scheme });
  page.on("pageerror", error => console.error(error.message));
  page.on("console", said => said.type() === "error" && console.error(said.text()));
  await page.goto(address);
  await page.getByText("live", { exact: true }).waitFor();
  for (const view of VIEWS) {
    await page.goto(`${address.split("#")[0]}#/${view}`);
    await page.locator(`main[data-view=${view}] h1`).waitFor();
    await page.screenshot({ path: `${directory}/dashboard-${view}-${size}-${scheme}.png`, fullPage: size !== "desk" });
  }
  await page.close();
}
await browser.close();
