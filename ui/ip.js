// Routes and neighbours: the kernel's, as the functions of the node mirror them.

import { get } from "./node.js";
import { h, table } from "./draw.js";
import { PAGE, asked, beside, byNumber, counted, search, to } from "./lists.js";

const TITLES = { routes: "Routes", neighbours: "Neighbours" };
/** States in which packets are sent to a neighbour. */
const USABLE = ["reachable", "stale", "delay", "probe", "noarp", "permanent"];

/** A text is an address, or the name of a port. */
function query(wanted) {
  if (!wanted) return "";
  return `&${/:|^[\d.]*\.[\d.]*$/.test(wanted) ? "address" : "port"}=${encodeURIComponent(wanted)}`;
}

/** One of the two lists. */
async function list([one, name], label, headings, row, context) {
  const request = asked(context);
  const { wanted, skip } = request;
  let found = { total: 0, [name]: [] };
  let fault = null;
  try {
    found = await get(`/v1/${name}?skip=${skip}&limit=${PAGE}${query(wanted)}`);
  } catch (error) {
    fault = error.message;
  }
  const parameters = { q: wanted };
  return [
    h("h2", {}, TITLES[name]),
    beside("Of the kernel", Object.entries(TITLES).map(([other, title]) => ({ name: other, title, parameters })), name),
    search(name, label, context),
    fault ? h("p", { class: "bad", role: "alert" }, fault) : null,
    table(counted(found.total, [one, name], skip), headings, found[name].map(row), wanted ? "none is found" : "there are none"),
    byNumber(name, request, found.total),
  ];
}

const mono = (text) => h("span", { class: "mono" }, text);

/** Those of the kernel's tables; of an address those that contain it, in each VRF the one that its packets take last. */
export function routes(_, context) {
  const row = (route) => [
    mono(route.prefix),
    route.port ?? h("span", { class: "quiet" }, "none"),
    route.gateway ? h("a", { href: to("neighbours", { q: route.gateway }), class: "mono" }, route.gateway) : "on-link",
    route.metric,
    route.used ? h("span", { class: "good" }, "yes") : h("span", { class: "quiet" }, "no"),
    route.vrf,
    route.function,
  ];
  const headings = ["prefix", "port", "gateway", "metric", "used", "VRF", "function"];
  return list(["route", "routes"], "Address that it leads to, or port", headings, row, context);
}

export function neighbours(_, context) {
  const row = ({ address, port, mac, state, function: name }) => [
    h("a", { href: to("routes", { q: address }), class: "mono" }, address),
    port,
    mac ? mono(mac) : h("span", { class: "quiet" }, "none"),
    h("span", { class: USABLE.includes(state) ? "good" : "bad" }, state),
    name,
  ];
  const headings = ["address", "port", "Ethernet address", "state", "function"];
  return list(["neighbour", "neighbours"], "Address, or port", headings, row, context);
}
