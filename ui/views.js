// The pages. Each is made anew from what the node told last; those that ask for more do so themselves.

import { act, file, get } from "./node.js";
import { release } from "./operate.js";
import { bar, boxes, card, chart, duration, h, rate, short, table, whole } from "./draw.js";
import { PAGE, asked, byNumber, counted, search } from "./lists.js";

const NS = 1e9;

/** What is the matter: a line each. */
export function alarms(node) {
  const found = node.ports.filter(({ trouble }) => trouble).map(({ name, trouble }) => `port ${name}: ${trouble}`);
  if (node.store?.failing) found.push("store: the journal cannot be written, so requests are not answered");
  for (const peer of node.peers ?? []) if (!peer.up) found.push(`control plane ${peer.node_id}: does not answer`);
  for (const path of node.paths ?? []) if (path.up === false) found.push(`GTP-U peer ${path.peer}: does not answer`);
  if (node.kernel?.idle) found.push(`offload: ${node.kernel.idle}`);
  if (node.frames_free * 20 < node.frames) found.push(`frames: ${node.frames_free} of ${node.frames} are free`);
  return found;
}

export function overview({ node, history, rates: looks }) {
  const found = alarms(node);
  const last = looks.at(-1) ?? {};
  const cards = [
    card("Packets in", short(last.rx ?? 0, ""), "packets/s"),
    card("Packets out", short(last.tx ?? 0, ""), "packets/s"),
    card("In", short(last.rxBits ?? 0, "bit/s")),
    card("Out", short(last.txBits ?? 0, "bit/s")),
    card("Dropped", short(last.dropped ?? 0, ""), "packets/s"),
  ];
  if (node.sessions !== undefined) {
    cards.push(card("Sessions", whole(node.sessions), `of ${short(node.sessions_max)}`));
    const up = node.peers.filter((peer) => peer.up).length;
    cards.push(card("Control planes", `${up}`, `of ${node.peers.length} answer`));
  }
  cards.push(card("Frames free", short(node.frames_free), `of ${short(node.frames)}`));
  const series = (name, label, of) => ({ name, label, values: looks.map((look) => look[of]) });
  const charts = [
    chart("Packets a second", [series("in", "in", "rx"), series("out", "out", "tx")], history),
    chart("Bits a second", [series("in", "in", "rxBits"), series("out", "out", "txBits")], history),
  ];
  const busy = (last.busy ?? []).map((share, at) => [`${at}`, bar(share, `worker ${at} is busy`), `${Math.round(share * 100)} %`]);
  return [
    h("h2", {}, "Overview"),
    found.length
      ? h("ul", { class: "alarms", "aria-label": "Alarms" }, found.map((text) => h("li", {}, text)))
      : h("p", { class: "good" }, "All ports are up; nothing is the matter."),
    h("div", { class: "cards" }, cards),
    h("div", { class: "charts" }, charts),
    h("h2", {}, "Workers"),
    table("Time that each worker is busy", ["worker", "busy", "share"], busy, "two looks are needed"),
    h("h2", {}, "Datapath"),
    h("p", {}, `${node.datapath}: ${node.datapath_reason}`),
  ];
}

export function ports({ node }) {
  const state = ({ state: name, trouble }) => h("span", { class: name === "up" ? "good" : "bad" }, trouble ? `${name}: ${trouble}` : name);
  const rows = node.ports.map((port) => [
    port.name, port.how, state(port), port.mtu, port.rx_packets, port.rx_bytes, port.tx_packets, port.tx_bytes,
    port.to_kernel, port.dropped, port.kernel_packets,
  ]);
  const headings = ["port", "driver", "state", "mtu", "packets in", "bytes in", "packets out", "bytes out", "to kernel", "dropped", "in kernel"];
  return [h("h2", {}, "Ports"), table("Ports and their counters since the start", headings, rows)];
}

export function drops({ drops: counted, dropRates }) {
  const rows = counted
    .toSorted((a, b) => b.packets - a.packets)
    .map(({ port, reason, meaning, packets }) => [
      port, h("code", {}, reason), packets, rate(dropRates.get(`${port} ${reason}`) ?? 0, "/s"), meaning,
    ]);
  return [
    h("h2", {}, "Drops"),
    table("Packets that did not come out, by reason", ["port", "reason", "packets", "now", "what it means"], rows, "nothing was dropped"),
  ];
}

/** What a text may name: an address, a SEID, a TEID, an IMSI or a DNN. */
function query(text) {
  const wanted = text.trim();
  if (!wanted) return "";
  const value = encodeURIComponent(wanted);
  if (/:|^[\d.]*\.[\d.]*$/.test(wanted)) return `&ue=${value}`;
  if (/^\d{14,15}$/.test(wanted)) return `&imsi=${value}`;
  if (!/^(0x[\da-f]+|\d+)$/i.test(wanted)) return `&dnn=${value}`;
  // The upper half of a SEID of ours is never zero.
  return BigInt(wanted) > 0xffffffffn ? `&seid=${value}` : `&teid=${value}`;
}

export async function sessions(_, context) {
  const request = asked(context);
  const { wanted, skip } = request;
  let page = { total: 0, sessions: [] };
  let fault = null;
  try {
    page = await get(`/v1/sessions?skip=${skip}&limit=${PAGE}${query(wanted)}`);
  } catch (error) {
    fault = error.message;
  }
  const rows = page.sessions.map((session) => [
    h("a", { href: `#session?seid=${session.seid}`, class: "mono" }, session.seid),
    h("span", { class: "mono" }, session.ue.join(" ")),
    h("span", { class: "mono" }, session.local.join(" ")),
    h("span", { class: "mono" }, session.remote.join(" ")),
    `${session.pdrs}/${session.fars}/${session.qers}/${session.urrs}`,
    session.uplink_bytes,
    session.downlink_bytes,
  ]);
  return [
    h("h2", {}, "Sessions"),
    search("sessions", "UE address, SEID, TEID, IMSI or DNN", context),
    fault ? h("p", { class: "bad", role: "alert" }, fault) : null,
    table(
      counted(page.total, ["session", "sessions"], skip),
      ["seid", "ue", "local tunnel", "remote tunnel", "pdr/far/qer/urr", "uplink bytes", "downlink bytes"],
      rows,
      wanted ? "none is found" : "there are none",
    ),
    byNumber("sessions", request, page.total),
  ];
}

function tunnel({ teid, ipv4, ipv6 }) {
  return `tunnel 0x${teid.toString(16).padStart(8, "0")}@${ipv4 ?? ipv6}`;
}

function pdrLines({ precedence, pdi }) {
  const lines = [`from ${pdi.source_interface}, precedence ${precedence}`];
  const fteid = pdi.local_fteid?.Given;
  if (fteid) lines.push(tunnel(fteid));
  for (const ue of pdi.ue_ip) {
    for (const given of [ue.ipv4, ue.ipv6]) {
      const address = given?.Given;
      if (address) lines.push(`${ue.role}: ${address.addr ? `${address.addr}/${address.len}` : address}`);
    }
  }
  if (pdi.qfis.length) lines.push(`QFI ${pdi.qfis.join(" ")}`);
  for (const filter of pdi.sdf_filters) lines.push(`${filter.description ?? JSON.stringify(filter)}`);
  return lines;
}

function farLines({ apply_action: action, forwarding }) {
  const does = Object.keys(action).filter((name) => action[name]);
  const lines = [does.join(", ").replaceAll("_", " ")];
  const header = forwarding?.outer_header_creation;
  if (forwarding) lines.push(`to ${forwarding.destination_interface}`);
  if (header) lines.push(tunnel(header));
  return lines;
}

function qerLines({ qfi, mbr, gbr, gate }) {
  const rate = (name, of) => `${name} up ${short(of.uplink_kbps * 1000, "bit/s")}, down ${short(of.downlink_kbps * 1000, "bit/s")}`;
  const closed = ["uplink", "downlink"].filter((way) => !gate[way]);
  return [
    ...(qfi === null ? [] : [`QFI ${qfi}`]),
    ...(mbr ? [rate("MBR", mbr)] : []),
    ...(gbr ? [rate("GBR", gbr)] : []),
    ...(closed.length ? [`gate closed: ${closed.join(", ")}`] : []),
  ];
}

function urrLines({ method, volume_threshold: threshold, volume_quota: quota, measurement_period: period }) {
  const volume = (name, of) => `${name} ${["total", "uplink", "downlink"].filter((way) => of[way] !== null).map((way) => `${way} ${short(of[way], "B")}`).join(", ")}`;
  return [
    `measures ${Object.keys(method).filter((name) => method[name]).join(", ")}`,
    ...(threshold ? [volume("threshold", threshold)] : []),
    ...(quota ? [volume("quota", quota)] : []),
    ...(period ? [`each ${duration(period.secs)}`] : []),
  ];
}

/** The rules of a session as a picture: PDR → FAR, QER, URR. */
function rules(installed) {
  const of = (kind, name, lines) => Object.values(installed[kind]).map((rule) => ({ id: `${name} ${rule.id}`, title: `${name} ${rule.id}`, lines: lines(rule) }));
  const pdrs = of("pdrs", "PDR", pdrLines);
  const acts = [...of("fars", "FAR", farLines), ...of("qers", "QER", qerLines), ...of("urrs", "URR", urrLines)];
  const links = Object.values(installed.pdrs).flatMap((pdr) => [
    ...(pdr.far_id === null ? [] : [[`PDR ${pdr.id}`, `FAR ${pdr.far_id}`]]),
    ...pdr.qer_ids.map((id) => [`PDR ${pdr.id}`, `QER ${id}`]),
    ...pdr.urr_ids.map((id) => [`PDR ${pdr.id}`, `URR ${id}`]),
  ]);
  return boxes("Rules of the session: each PDR with its FAR, QERs and URRs", [pdrs, acts], links);
}

export async function session(_, context) {
  const { place } = context;
  const seid = place.searchParams.get("seid");
  const found = await get(`/v1/sessions/${encodeURIComponent(seid)}`);
  const share = ({ key, held, left }) => [key, held ? (left.length ? "some" : "all") : "none", left.join("; ")];
  return [
    h("h2", {}, "Session ", h("span", { class: "mono" }, found.seid)),
    h("div", { class: "cards" },
      card("UE", h("span", { class: "mono" }, found.ue.join(" "))),
      card("Uplink", short(found.uplink_bytes, "B"), `in ${whole(found.uplink_packets)} packets`),
      card("Downlink", short(found.downlink_bytes, "B"), `in ${whole(found.downlink_packets)} packets`),
      card("Subscriber", found.imsi ?? "not told")),
    found.ue[0] ? h("p", {}, h("a", { href: `#trace?ue=${encodeURIComponent(found.ue[0].split("/")[0])}` }, "Trace its packets")) : null,
    release(found, context),
    h("h3", {}, "Rules as installed"),
    rules(found.rules),
    found.kernel.length ? table("What the kernel forwards", ["key", "packets", "why not all"], found.kernel.map(share)) : null,
    h("details", {}, h("summary", {}, "All of it"), h("pre", { tabindex: "0" }, JSON.stringify(found.rules, null, 2))),
  ];
}

/** A packet's way through the node. */
function way(packet) {
  const at = new Date(packet.time_ns / 1e6).toISOString().slice(11, 23);
  const rule = packet.rule;
  const met = rule && [`PDR ${rule.pdr}`, rule.far === null ? null : `FAR ${rule.far}`, ...rule.qers.map((id) => `QER ${id}`), ...rule.urrs.map((id) => `URR ${id}`)];
  const ends = packet.dispositions.map((end) => {
    if (end.disposition === "sent") return h("li", {}, `${end.port}: ${end.frame.len} B`);
    if (end.disposition === "dropped") return h("li", { class: "drop" }, `dropped: ${end.reason}`);
    return h("li", {}, "kernel");
  });
  return h("ol", { class: "way", "aria-label": `a packet, ${packet.verdict}` },
    h("li", { class: "when" }, `${at} ${packet.direction}, ${(packet.took_ns / 1000).toFixed(1)} µs`),
    h("li", {}, `${packet.port}: ${packet.frame.len} B`),
    packet.key ? h("li", { class: "mono" }, packet.key) : null,
    met ? met.filter(Boolean).map((name) => h("li", {}, name)) : packet.key ? h("li", { class: "drop" }, "no rule") : null,
    ends.length ? ends : h("li", {}, packet.verdict));
}

const KEPT = 100;

/** Packets as they come, of a UE or of all ports; ends with the page. */
export async function trace(_, { place, go, signal, functions, offers }) {
  const hasSessions = functions.has("/v1/sessions");
  const ue = place.searchParams.get("ue") ?? "";
  const isOn = place.searchParams.has("ue") || place.searchParams.has("all");
  const field = h("input", { id: "ue", value: ue, required: hasSessions, autocomplete: "off" });
  const begin = (event) => {
    event.preventDefault();
    go(hasSessions ? `#trace?ue=${encodeURIComponent(field.value)}` : "#trace?all");
  };
  const list = h("div", { "aria-live": "off" });
  const told = h("p", { role: "status" }, isOn ? "waiting for packets" : "");
  if (isOn) follow(hasSessions ? { flow: { by: "ue", value: ue } } : { ports: [] }, list, told, signal);
  return [
    h("h2", {}, "Trace"),
    h("form", { class: "row", onsubmit: begin },
      hasSessions ? h("div", {}, h("label", { for: "ue" }, "Address of a UE"), field) : null,
      h("button", { type: "submit" }, "Trace"),
      isOn && hasSessions && offers("/v1/capture", "get")
        ? h("button", { type: "button", onclick: (event) => record(ue, event.currentTarget) }, `Record ${RECORDED_S} s as pcapng`)
        : null,
      isOn ? h("a", { href: "#trace" }, "Stop") : null),
    told,
    list,
  ];
}

const RECORDED_S = 10;

/** Saves the packets of a UE that come from now on. */
async function record(ue, button) {
  const label = button.textContent;
  button.disabled = true;
  button.textContent = "recording";
  try {
    const found = await file(`/v1/capture?by=ue&value=${encodeURIComponent(ue)}&seconds=${RECORDED_S}`);
    const link = h("a", { href: URL.createObjectURL(found), download: `${ue.replaceAll(/[^\w.]/g, "_")}.pcapng` });
    link.click();
    URL.revokeObjectURL(link.href);
    button.textContent = label;
  } catch (error) {
    button.textContent = error.message;
  }
  button.disabled = false;
}

async function follow(of, list, told, signal) {
  let id = null;
  let seen = 0;
  try {
    ({ id } = await act("POST", "/v1/traces", { of }));
    while (!signal.aborted) {
      const read = await act("POST", `/v1/traces/${id}/read`);
      seen += read.packets.length;
      list.prepend(...read.packets.map(way).toReversed());
      while (list.childElementCount > KEPT) list.lastElementChild.remove();
      if (seen) told.textContent = `${whole(seen)} packets; the last ${Math.min(seen, KEPT)} are shown`;
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
  } catch (error) {
    told.textContent = error.message;
    told.className = "bad";
  }
  if (id !== null) act("DELETE", `/v1/traces/${id}`).catch(() => {});
}

/** Rates between two looks. */
export function rates(before, now, seconds) {
  const sum = (node, of) => node.ports.reduce((all, port) => all + port[of], 0);
  const by = (of) => Math.max(0, (sum(now, of) - sum(before, of)) / seconds);
  const busy = now.per_worker.map((worker, at) => {
    const was = before.per_worker[at];
    return was ? Math.max(0, (worker.busy_ns - was.busy_ns) / NS / seconds) : 0;
  });
  return { rx: by("rx_packets"), tx: by("tx_packets"), rxBits: by("rx_bytes") * 8, txBits: by("tx_bytes") * 8, dropped: by("dropped"), busy };
}
