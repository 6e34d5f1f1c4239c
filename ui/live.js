// A part of a page that follows what the node counts: asked for each second, and changed where it differs.

import { Refused } from "./node.js";
import { h, update } from "./draw.js";

const EVERY_MS = 1000;
/** Looks that charts go back. */
export const LOOKS = 120;

/**
 * What the node is asked for, drawn anew each second until the page is left.
 * @param draw is told what came, and how to make a rate of a counter: `since((found) => found.packets)`. Of what was not there a second
 *   ago it is zero.
 */
export async function live(ask, signal, draw) {
  const part = h("div");
  let before = null;
  const look = async () => {
    const [found, at] = [await ask(), performance.now()];
    const last = before;
    const since = (of) => (last ? (Math.max(0, of(found) - (of(last.found) ?? of(found))) / (at - last.at)) * 1000 : 0);
    before = { found, at };
    update(part, draw(found, since));
  };
  // A refusal is the page's.
  await look();
  follow(look, part, signal);
  return part;
}

async function follow(look, part, signal) {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    if (signal.aborted) return;
    if (document.hidden) continue;
    try {
      await look();
    } catch (error) {
      // A node that does not answer is told of above the pages.
      if (error instanceof Refused) update(part, [h("p", { class: "bad", role: "alert" }, error.message)]);
    }
  }
}

/** A series of a chart: what has been in the last looks. */
export function series() {
  const values = [];
  return (value) => {
    values.push(value);
    if (values.length > LOOKS) values.shift();
    return values;
  };
}
