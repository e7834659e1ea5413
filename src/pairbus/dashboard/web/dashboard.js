// The page: what the server tells is drawn again whenever it changes, and patched into what is there.

import { backlog } from "./backlog.js";
import { clock, h, patch } from "./dom.js";
import { known, now } from "./known.js";
import { Line, Refused } from "./line.js";
import { money } from "./money.js";
import { messages, namespaces } from "./namespaces.js";
import { overview, summary } from "./overview.js";
import { code } from "./parts.js";
import { runbook } from "./runbook.js";

const VIEWS = {
  overview: ["Overview", overview],
  backlog: ["Backlog", backlog],
  money: ["Money", money],
  namespaces: ["Namespaces", namespaces],
  runbook: ["Runbook", runbook],
};
const KEY = "pairbus-token";
// In the fragment, which browsers send to nobody.
const GIVEN = /^#token=(.+)$/;
const main = document.getElementById("main");
const lineState = document.getElementById("line");
const look = document.getElementById("look");
let line = null;

// -- doing

async function perform(what) {
  try {
    const said = await line.ask("/api/do", what);
    tell(said.done);
  } catch (error) {
    tell(error.message, true);
  }
}

async function lookInto(what) {
  const query = new URLSearchParams({ namespace: what.namespace, path: what.path, dead: what.dead ? "1" : "" });
  try {
    patch(look.firstElementChild, messages(what, await line.ask(`/api/peek?${query}`)));
    if (!look.open) look.showModal();
  } catch (error) {
    tell(error.message, true);
  }
}

// In the dialog too: while that is open, what lies behind it is neither seen nor heard.
function tell(text, is_failure = false) {
  document.querySelectorAll(".toast").forEach(place => {
    const said = h("p", { class: is_failure ? "fail" : null }, text);
    place.replaceChildren(said);
    setTimeout(() => said.remove(), is_failure ? 12000 : 6000);
  });
}

document.addEventListener("click", event => {
  // The fragment of an address is a view here, so the link to the content moves the focus and nothing else.
  if (event.target.closest(".skip")) {
    event.preventDefault();
    main.focus();
    return;
  }
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
  if (form.dataset.form === "sign-in") {
    sessionStorage.setItem(KEY, given.token.trim());
    start();
  }
});

// -- drawing

function draw() {
  if (!known.state) return;
  const [asked] = place(), name = Object.hasOwn(VIEWS, asked) ? asked : "overview";
  const [words, view] = VIEWS[name];
  document.querySelectorAll("nav a").forEach(link => {
    const isShown = link.getAttribute("href") === `#/${name}`;
    if (isShown) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  });
  const { level, said } = known.state.headline;
  document.title = known.lost
    ? "✖ No answer – Pairbus"
    : `${{ bad: "✖ ", warn: "▲ " }[level] ?? ""}${summary(said)} – ${words} – Pairbus`;
  if (main.dataset.view !== name) main.replaceChildren();
  main.dataset.view = name;
  patch(main, h("main", {}, view()));
}

// The view that the address names, and the section of it. Without a pair there is nothing but namespaces to look at.
function place() {
  const first = known.state?.pairs.length === 0 ? "namespaces" : "overview";
  return (location.hash.replace("#/", "") || first).split("/");
}

function reveal() {
  const section = document.getElementById(`alert-${place()[1]}`);
  (section ?? main).focus();
  if (section) section.scrollIntoView(); else scrollTo(0, 0);
}

addEventListener("hashchange", () => {
  // The address of a dashboard that was started anew, pasted over the one that is here.
  if (GIVEN.test(location.hash)) location.reload();
  draw();
  reveal();
});
addEventListener("input", event => {
  if (event.target.dataset.find === undefined) return;
  known.wanted = event.target.value;
  draw();
});
setInterval(draw, 1000);

function onEvent(name, data) {
  if (name === "hello") Object.assign(known, { control: data.control, runbook: data.runbook });
  const is_first = !known.state && name === "state" && place()[1];
  if (name === "state") {
    known.state = data;
    known.skew = data.at - Date.now() / 1000;
  }
  if (name === "history") known.history = data;
  draw();
  if (is_first) reveal();
}

function onState(name) {
  const words = `No answer since ${clock(now())}: what is below is old. Trying again.`;
  if (name === "live") lineState.textContent = "live"; else if (!known.lost) lineState.textContent = words;
  if (look.open && name === "lost" && !known.lost) tell(words, true);
  lineState.className = `line-state ${name}`;
  known.lost = name === "lost";
  draw();
}

function signIn(is_wrong) {
  Object.assign(known, { state: null, lost: false });
  document.title = "Sign in – Pairbus";
  const field = { name: "token", type: "password", autocomplete: "current-password", required: true };
  patch(main, h("main", {}, h("form", { class: "sign-in", "data-form": "sign-in" },
    h("h1", {}, "Sign in"),
    h("p", {}, is_wrong && "The token is not the right one. ",
      "It is the value of ", code("PAIRBUS_DASHBOARD_TOKEN"), ", or was printed when the dashboard was started."),
    h("label", {}, "Token", h("input", { ...field, "aria-invalid": is_wrong ? "true" : null })),
    h("button", { class: "main", type: "submit" }, "Sign in"))));
  lineState.textContent = "signed out";
  lineState.className = "line-state";
  main.querySelector("input").focus();
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

async function start() {
  const given = location.hash.match(GIVEN);
  if (given) {
    sessionStorage.setItem(KEY, decoded(given[1]));
    window.history.replaceState(null, "", location.pathname + "#/");
  }
  const token = sessionStorage.getItem(KEY);
  // Of other characters a header cannot be made, and no token has any.
  if (token !== null && !/^[!-~]+$/.test(token)) {
    sessionStorage.removeItem(KEY);
    signIn(true);
    return;
  }
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
