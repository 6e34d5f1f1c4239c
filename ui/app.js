// The page: which part is shown, and what the node tells meanwhile.

import { Refused, events, get, may, setToken, useLogin } from "./node.js";
import { duration, h, update } from "./draw.js";
import * as benchViews from "./bench.js";
import * as functionViews from "./functions.js";
import * as ipViews from "./ip.js";
import * as ndnViews from "./ndn.js";
import * as operating from "./operate.js";
import * as looking from "./views.js";

const views = { ...looking, ...benchViews, ...functionViews, ...ipViews, ...ndnViews, ...operating };

/** Seconds that charts go back. */
const HISTORY = 120;

const PAGES = [
  { name: "overview", title: "Overview", live: true },
  { name: "ports", title: "Ports", live: true },
  { name: "drops", title: "Drops", live: true },
  { name: "sessions", title: "Sessions", path: "/v1/sessions" },
  { name: "peers", title: "Control planes", path: "/v1/associations" },
  { name: "gre", title: "GRE", path: "/v1/gre" },
  { name: "ndn", title: "NDN", path: "/v1/ndn" },
  { name: "vxlan", title: "VXLAN", path: "/v1/vxlan" },
  { name: "routes", title: "Routes", path: "/v1/routes" },
  { name: "trace", title: "Trace", path: "/v1/traces", method: "post" },
  { name: "operate", title: "Operate", path: "/v1/log" },
  { name: "bench", title: "Bench" },
];
/** Shown below another one. */
const WITHIN = {
  session: "sessions", neighbours: "routes", faces: "ndn", face: "ndn", fib: "ndn", strategies: "ndn", pit: "ndn", cs: "ndn",
};

const state = { node: null, drops: [], dropRates: new Map(), rates: [], history: HISTORY, at: 0, dropsAt: 0 };
/** The paths of the node's functions, and which role each method needs. */
let functions = new Map();
const offers = (path, method = "get") => may(functions.get(path)?.[method]?.["x-role"]);
let leave = new AbortController();

const main = document.getElementById("main");
const told = document.getElementById("node");

function place() {
  const [name, query] = location.hash.slice(1).split("?");
  return { name: name || "overview", url: new URL(`?${query ?? ""}`, location.origin) };
}

const pages = () => PAGES.filter(({ path, method }) => !path || offers(path, method));

function showPages() {
  const { name } = place();
  const current = WITHIN[name] ?? name;
  const link = ({ name: own, title }) => h("li", {}, h("a", { href: `#${own}`, "aria-current": own === current ? "page" : undefined }, title));
  document.getElementById("pages").replaceChildren(...pages().map(link));
}

/** Draws the page anew; what a person has typed or chosen on a live one stays, as those have no fields. */
async function show() {
  leave.abort();
  leave = new AbortController();
  showPages();
  const { name, url } = place();
  const view = views[name];
  if (typeof view !== "function" || !(name in WITHIN || PAGES.some((page) => page.name === name))) {
    main.replaceChildren(h("p", {}, "There is no such page."));
    return;
  }
  const { signal } = leave;
  const context = { place: url, signal, functions, offers, again: show, go: (hash) => { location.hash = hash; } };
  try {
    const parts = await view(state, context);
    if (!signal.aborted) main.replaceChildren(...parts.filter(Boolean));
  } catch (error) {
    if (!signal.aborted) main.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message));
  }
}

function redraw() {
  const { name } = place();
  const page = PAGES.find((known) => known.name === name);
  if (page?.live && state.node) update(main, views[name](state).filter(Boolean));
}

function take({ name, data }) {
  const now = performance.now();
  if (name === "node") {
    if (state.node && state.node.pid === data.pid) {
      state.rates.push(views.rates(state.node, data, (now - state.at) / 1000));
      state.rates = state.rates.slice(-HISTORY);
    } else {
      state.rates = [];
    }
    state.node = data;
    state.at = now;
    told.className = "";
    told.textContent = `${data.node_id}: ${data.function}, kaido ${data.version}, up ${duration(data.uptime_s)}`;
  } else if (name === "drops") {
    const before = new Map(state.drops.map(({ port, reason, packets }) => [`${port} ${reason}`, packets]));
    const seconds = (now - state.dropsAt) / 1000;
    state.dropRates = new Map(data.drops.map(({ port, reason, packets }) => {
      const key = `${port} ${reason}`;
      return [key, Math.max(0, packets - (before.get(key) ?? packets)) / seconds];
    }));
    state.drops = data.drops;
    state.dropsAt = now;
    redraw();
  }
}

async function listen() {
  for (;;) {
    try {
      for await (const event of events("/v1/events?interval_ms=1000")) take(event);
    } catch (error) {
      if (error instanceof Refused) {
        told.textContent = error.message;
      }
    }
    // Another process may take over, or the node restarts.
    told.className = "lost";
    if (state.node) told.textContent = `${state.node.node_id}: no answer since ${new Date().toLocaleTimeString()}`;
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

let asked = null;

useLogin((fault) => {
  asked ??= new Promise((resolve) => {
    const dialog = document.getElementById("login");
    const field = document.getElementById("token");
    document.getElementById("login-fault").textContent = fault;
    dialog.addEventListener("close", () => {
      setToken(field.value);
      field.value = "";
      asked = null;
      resolve();
    }, { once: true });
    if (!dialog.open) dialog.showModal();
  });
  return asked;
});

function setScheme(scheme) {
  document.documentElement.dataset.scheme = scheme;
  localStorage.setItem("kaido-scheme", scheme);
}

function otherScheme() {
  setScheme(document.documentElement.dataset.scheme === "dark" ? "light" : "dark");
}

const preferred = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
document.documentElement.dataset.scheme = localStorage.getItem("kaido-scheme") ?? preferred;
document.getElementById("scheme").addEventListener("click", otherScheme);

addEventListener("keydown", (event) => {
  const isTyped = event.target.closest("input, textarea, dialog") || event.ctrlKey || event.altKey || event.metaKey;
  if (isTyped) return;
  const page = pages()[Number(event.key) - 1];
  if (page) location.hash = `#${page.name}`;
  else if (event.key === "d") otherScheme();
  else if (event.key === "/") {
    event.preventDefault();
    const field = () => document.getElementById("wanted");
    if (field()) field().focus();
    else if (offers("/v1/sessions")) {
      location.hash = "#sessions";
      setTimeout(() => field()?.focus(), 200);
    }
  }
});

addEventListener("hashchange", async () => {
  await show();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});

const document_ = await get("/v1/openapi.json");
functions = new Map(Object.entries(document_.paths));
listen();
while (!state.node) {
  showPages();
  await new Promise((resolve) => setTimeout(resolve, 50));
}
await show();
