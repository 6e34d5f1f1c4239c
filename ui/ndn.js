// The NDN router: how full its tables are, its faces, and what FIB, PIT and Content Store hold.

import { get } from "./node.js";
import { bar, card, chart, h, percent, rate, short, table, whole } from "./draw.js";
import { LOOKS, live, series } from "./live.js";
import { PAGE, asked, beside, byPlace, counted, search, to } from "./lists.js";

const LISTS = [
  { name: "ndn", title: "Tables", path: "/v1/ndn/tables" },
  { name: "faces", title: "Faces", path: "/v1/ndn/faces" },
  { name: "fib", title: "FIB", path: "/v1/ndn/fib" },
  { name: "strategies", title: "Strategies", path: "/v1/ndn/strategies" },
  { name: "pit", title: "PIT", path: "/v1/ndn/pit" },
  { name: "cs", title: "Content Store", path: "/v1/ndn/cs" },
];

const lists = (current, { offers }) => beside("NDN", LISTS.filter(({ path }) => offers(path)), current);
const mono = (text) => h("span", { class: "mono" }, text);
const named = (text) => h("span", { class: "mono name" }, text);
const seconds = (ms) => `${(ms / 1000).toFixed(1)} s`;
const faceLink = (face) => h("a", { href: to("face", { face }) }, `${face}`);
/** Links to faces, each with what is to be said of it. */
const faceLinks = (faces, more = () => "") => h("span", {}, faces.flatMap((one) => [h("span", { class: "whole" }, faceLink(one.face), more(one)), " "]));
const share = (part, rest, none) => (part + rest > 0 ? percent(part / (part + rest)) : none);
/** A share since the start, and now, where there was any. */
const shares = (name, [part, rest], [now, restNow]) => card(name, share(part, rest, "none yet"), `${share(now, restNow, "none")} now`);

/** An occupancy, as a card. */
function occupancy(name, entries, most, more) {
  const part = card(name, whole(entries), `of ${short(most)}${more}`);
  part.append(bar(most ? entries / most : 0, `${name} is full`));
  return part;
}

export async function ndn(_, context) {
  const [hits, misses, satisfied, unsatisfied] = [series(), series(), series(), series()];
  const draw = ([{ workers, hot_names: hot }, tables], since) => {
    const sum = (of) => tables.workers.reduce((all, worker) => all + of(worker), 0);
    // A worker without time to say what it has is left out for once.
    const now = (of) => tables.workers.reduce((all, { worker: number }) => all + since(([, then]) => {
      const found = then.workers.find(({ worker }) => worker === number);
      return found && of(found);
    }), 0);
    const packets = workers.reduce((all, { worker: number }) => all + since(([then]) => then.workers.find(({ worker }) => worker === number)?.packets), 0);
    const [hitsNow, missesNow] = [now(({ cs }) => cs.hits), now(({ cs }) => cs.misses)];
    const [came, vain] = [now(({ pit }) => pit.satisfied), now(({ pit }) => pit.unsatisfied)];
    const rows = workers.map(({ worker, packets: all, share: part, handoffs }) => {
      const own = tables.workers.find((one) => one.worker === worker);
      const held = own ? [own.pit.entries, own.cs.entries, own.cs.inserted, own.cs.evicted, own.cs.refused, own.dead_nonces.early] : Array(6).fill("");
      return [`${worker}`, all, percent(part), handoffs.interests, handoffs.data, ...held];
    });
    const { disk } = tables;
    return [
      h("div", { class: "cards" },
        card("Packets", short(packets), "packets/s"),
        occupancy("PIT", sum(({ pit }) => pit.entries), sum(({ pit }) => pit.entries_max), " Interests"),
        occupancy("Content Store", sum(({ cs }) => cs.entries), sum(({ cs }) => cs.entries_max), ` Data, ${short(sum(({ cs }) => cs.bytes), "B")}`),
        shares("Content Store hits", [sum(({ cs }) => cs.hits), sum(({ cs }) => cs.misses)], [hitsNow, missesNow]),
        shares("Satisfied", [sum(({ pit }) => pit.satisfied), sum(({ pit }) => pit.unsatisfied)], [came, vain]),
        disk ? occupancy("Disk", disk.bytes, disk.bytes_max, `B, ${short(disk.packets)} Data; ${short(disk.answered)} answered`) : null,
        card("Faces", whole(tables.faces)),
        card("FIB", whole(tables.fib_prefixes), tables.fib_prefixes === 1 ? "prefix" : "prefixes"),
        card("Strategies", whole(tables.strategies), tables.strategies === 1 ? "prefix" : "prefixes")),
      h("div", { class: "charts" },
        chart("Interests a second at the Content Store", [
          { name: "in", label: "answered", values: hits(hitsNow) },
          { name: "out", label: "not in it", values: misses(missesNow) },
        ], LOOKS),
        chart("Interests a second that left the PIT", [
          { name: "in", label: "satisfied", values: satisfied(came) },
          { name: "out", label: "in vain", values: unsatisfied(vain) },
        ], LOOKS)),
      h("h3", {}, "Workers"),
      table("Workers and their tables",
        ["worker", "packets", "share", "Interests handed on", "Data handed on", "PIT", "CS", "inserted", "evicted", "refused", "nonces gone early"], rows),
      h("h3", {}, "Hot names"),
      table("Names that most ask for, which all workers share", ["name", "share of Interests"],
        hot.map(({ name, share: part }) => [named(name ?? "not seen yet"), percent(part)]), "none"),
    ];
  };
  const ask = () => Promise.all([get("/v1/ndn"), get("/v1/ndn/tables")]);
  return [h("h2", {}, "NDN"), lists("ndn", context), await live(ask, context.signal, draw)];
}

/** The parameters of a list: what is looked for, and where the page begins. */
function query({ wanted, from }, key) {
  const given = Object.entries({ [key(wanted)]: wanted, from }).filter(([, value]) => value);
  return new URLSearchParams([["limit", PAGE], ...given]);
}

const isNumber = (text) => /^\d+$/.test(text);
const byPrefix = () => "prefix";

/** A list that is asked for once. */
async function list(name, [label, key], draw, context) {
  const { path, title } = LISTS.find((one) => one.name === name);
  const request = asked(context);
  let parts;
  try {
    const found = await get(`${path}?${query(request, key)}`);
    parts = [draw(found, request.wanted ? "none is found" : "there are none"), byPlace(name, request, found.next)];
  } catch (error) {
    parts = [h("p", { class: "bad", role: "alert" }, error.message)];
  }
  return [h("h2", {}, title), lists(name, context), search(name, label, context), ...parts];
}

const way = ({ interests, data, nacks }) => interests + data + nacks;

export async function faces(_, context) {
  const request = asked(context);
  const path = `/v1/ndn/faces?${query(request, (wanted) => (isNumber(wanted) ? "face" : "remote"))}`;
  const draw = ({ total, faces: found, next }, since) => {
    const rows = found.map((face) => {
      const now = (of) => since(({ faces: then }) => {
        const same = then.find((one) => one.face === face.face);
        return same && of(same);
      });
      return [
        faceLink(face.face), named(face.remote), h("span", { class: face.state === "up" ? "good" : "bad" }, face.state),
        rate(now(({ received }) => way(received)), "/s"), rate(now(({ received }) => received.bytes) * 8, "bit/s"),
        face.received.interests, face.received.data, face.received.nacks,
        rate(now(({ sent }) => way(sent)), "/s"), rate(now(({ sent }) => sent.bytes) * 8, "bit/s"),
        face.sent.interests, face.sent.data, face.sent.nacks,
      ];
    });
    const headings = ["face", "remote", "state", "in now", "bits in now", "Interests in", "Data in", "Nacks in", "out now", "bits out now", "Interests out", "Data out", "Nacks out"];
    return [table(counted(total, ["face", "faces"]), headings, rows, "none is found"), byPlace("faces", request, next)];
  };
  return [
    h("h2", {}, "Faces"),
    lists("faces", context),
    search("faces", "Number of a face, or text of its remote URI", context),
    await live(() => get(path), context.signal, draw),
  ];
}

/** A face: what goes through it, and the prefixes that lead there. */
export async function face(_, context) {
  const number = context.place.searchParams.get("face") ?? "";
  const kept = new Map(["received", "sent"].map((direction) => [direction, { packets: series(), bits: series() }]));
  const draw = ([{ faces: [found] }, { entries, next }], since) => {
    if (!found) return [h("p", { class: "bad", role: "alert" }, `There is no face ${number}.`)];
    const now = (of) => since(([{ faces: [then] }]) => then && of(then));
    const lines = (of, counter) => [["in", "received"], ["out", "sent"]].map(([name, direction]) => ({
      name, label: direction, values: kept.get(direction)[of](now((one) => counter(one[direction]))),
    }));
    const kinds = [["Interests", "interests"], ["Data", "data"], ["Nacks", "nacks"], ["bytes", "bytes"]].map(([name, of]) => [
      name, ...["received", "sent"].flatMap((direction) => [rate(now((one) => one[direction][of]), "/s"), found[direction][of]]),
    ]);
    return [
      h("div", { class: "cards" },
        card("Remote", mono(found.remote)),
        card("Local", mono(found.local)),
        card("State", h("span", { class: found.state === "up" ? "good" : "bad" }, found.state), `${found.scope}, ${found.persistency}, ${found.link}`),
        card("MTU", whole(found.mtu), found.reliability ? "bytes, reliable" : "bytes"),
        card("Waits to be sent", short(found.backlog_bytes, "B"))),
      h("div", { class: "charts" },
        chart("Packets a second", lines("packets", way), LOOKS),
        chart("Bits a second", lines("bits", ({ bytes }) => bytes * 8), LOOKS)),
      h("h3", {}, "Traffic"),
      table("What went through it, a second and since it was made", ["kind", "received now", "received", "sent now", "sent"], kinds),
      h("h3", {}, "Prefixes"),
      prefixes(entries, "Prefixes that lead there", "none leads there"),
      ...(next ? [h("p", {}, h("a", { href: to("fib", { q: number }) }, "All of them"))] : []),
    ];
  };
  const ask = () => Promise.all([get(`/v1/ndn/faces?face=${encodeURIComponent(number)}`), get(`/v1/ndn/fib?face=${encodeURIComponent(number)}&limit=${PAGE}`)]);
  return [h("h2", {}, `Face ${number}`), lists("faces", context), await live(ask, context.signal, draw)];
}

function prefixes(entries, caption, empty) {
  const rows = entries.map(({ prefix, next_hops: hops }) => [named(prefix), faceLinks(hops, ({ cost }) => ` (cost ${cost})`)]);
  return table(caption, ["prefix", "next hops"], rows, empty);
}

export function fib(_, context) {
  const wants = ["Name with which prefixes begin, or number of a face", (wanted) => (isNumber(wanted) ? "face" : "prefix")];
  const draw = ({ total, entries }, empty) => prefixes(entries, `${counted(total, ["prefix", "prefixes"])} in all`, empty);
  return list("fib", wants, draw, context);
}

export function strategies(_, context) {
  const draw = ({ strategies: found }, empty) =>
    table("Strategies by prefix; what is below has them too", ["prefix", "strategy"], found.map(({ prefix, strategy }) => [named(prefix), named(strategy)]), empty);
  return list("strategies", ["Name with which prefixes begin", byPrefix], draw, context);
}

export function pit(_, context) {
  const row = (entry) => [
    named(entry.name),
    [entry.can_be_prefix && "can be prefix", entry.must_be_fresh && "must be fresh", entry.parked && "waits for the disk"].filter(Boolean).join(", "),
    faceLinks(entry.downstreams),
    faceLinks(entry.upstreams, ({ nack }) => (nack ? ` (Nack: ${nack})` : "")),
    entry.age_ms === null ? "not sent" : seconds(entry.age_ms),
    seconds(entry.expires_ms),
    entry.nonces,
    `${entry.worker}`,
  ];
  const headings = ["name", "selectors", "downstreams", "upstreams", "age", "expires in", "nonces", "worker"];
  const draw = ({ entries }, empty) => table("Interests that wait, in no order", headings, entries.map(row), empty);
  return list("pit", ["Name with which theirs begin", byPrefix], draw, context);
}

export function cs(_, context) {
  const row = ({ name, bytes, fresh_ms: fresh, from_disk: fromDisk, worker }) => [
    named(name), bytes, h("span", { class: "whole" }, fresh ? seconds(fresh) : "no more"), fromDisk ? "from disk" : "", `${worker}`,
  ];
  const draw = ({ entries }, empty) => table("Data in memory, in no order", ["name", "bytes", "fresh for", "read", "worker"], entries.map(row), empty);
  return list("cs", ["Name with which theirs begin", byPrefix], draw, context);
}
