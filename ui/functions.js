// Functions with a page each: the GRE header remover and the VXLAN endpoint.

import { get } from "./node.js";
import { card, chart, h, rate, short, table } from "./draw.js";
import { LOOKS, live, series } from "./live.js";
import { to } from "./lists.js";

export async function gre(_, { signal }) {
  const draw = ({ rules: met, kernel }, since) => {
    const rows = met.map(({ name, verdict, packets, bytes }) => {
      const now = (of) => since(({ rules }) => rules.find((rule) => rule.name === name)?.[of]);
      return [name, verdict, rate(now("packets"), "/s"), rate(now("bytes") * 8, "bit/s"), packets, bytes];
    });
    const ports = kernel.map((port) => [port.port, port.passed, port.stripped, port.handed, port.kernel, port.dropped]);
    return [
      table("Rules and what has met them", ["rule", "verdict", "packets now", "bits now", "packets", "bytes"], rows),
      ...(ports.length ? [table("In the kernel, by port", ["port", "passed", "stripped", "to engine", "to kernel", "dropped"], ports)] : []),
    ];
  };
  return [h("h2", {}, "GRE"), await live(() => get("/v1/gre"), signal, draw)];
}

/** Both directions of a segment, by the class of their lines. */
const DIRECTIONS = [["out", "encapsulated"], ["in", "decapsulated"]];

export async function vxlan(_, { signal, offers }) {
  const kept = new Map(DIRECTIONS.map(([name]) => [name, { frames: series(), bits: series() }]));
  const endpoint = (address) => (offers("/v1/routes") ? h("a", { href: to("routes", { q: address }) }, address) : address);
  const draw = ({ segments }, since) => {
    const all = (direction, at) => since((found) => found.segments.reduce((sum, segment) => sum + segment[direction][at], 0));
    const lines = (of, at, by) =>
      DIRECTIONS.map(([name, label]) => ({ name, label, values: kept.get(name)[of](all(label, at) * by) }));
    const frames = chart("Frames a second", lines("frames", 0, 1), LOOKS);
    const bits = chart("Bits a second", lines("bits", 1, 8), LOOKS);
    const rows = segments.map((segment) => [
      `${segment.vni}`,
      h("span", { class: "mono" }, segment.remotes.flatMap((address) => [endpoint(address), " "])),
      ...DIRECTIONS.flatMap(([, direction]) => {
        const now = (at) => since((found) => found.segments.find(({ vni }) => vni === segment.vni)?.[direction][at]);
        return [rate(now(0), "/s"), rate(now(1) * 8, "bit/s"), ...segment[direction]];
      }),
    ]);
    return [
      h("div", { class: "cards" },
        card("Segments", `${segments.length}`),
        card("Other endpoints", `${new Set(segments.flatMap(({ remotes }) => remotes)).size}`),
        card("Encapsulated", short(all("encapsulated", 0)), `frames/s, ${short(all("encapsulated", 1) * 8, "bit/s")}`),
        card("Decapsulated", short(all("decapsulated", 0)), `frames/s, ${short(all("decapsulated", 1) * 8, "bit/s")}`)),
      h("div", { class: "charts" }, frames, bits),
      h("h3", {}, "Segments"),
      table("Frames and bytes of each segment, a second and since the start",
        ["vni", "other endpoints", ...DIRECTIONS.flatMap(([, direction]) => [`${direction} now`, "bits now", "frames", "bytes"])], rows),
    ];
  };
  return [h("h2", {}, "VXLAN"), await live(() => get("/v1/vxlan"), signal, draw)];
}
