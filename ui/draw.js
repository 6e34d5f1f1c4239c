// Elements, numbers and pictures.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** An element with attributes and children. What the node tells is text, never markup. */
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function s(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

/**
 * Makes an element's children equal to others, and changes only what differs: focus, and how far a table is scrolled, stay. It is for
 * what has no listeners. Who has selected a text in it is not disturbed.
 */
export function update(element, children) {
  const selection = getSelection();
  if (selection.isCollapsed || !selection.containsNode(element, true)) become(element, children);
}

function become(element, children) {
  const before = [...element.childNodes];
  children.forEach((child, at) => {
    const old = before[at];
    if (!old) element.append(child);
    else if (old.nodeName !== child.nodeName) old.replaceWith(child);
    else if (child.nodeType === Node.TEXT_NODE) {
      if (old.data !== child.data) old.data = child.data;
    } else {
      for (const { name } of [...old.attributes]) if (!child.hasAttribute(name)) old.removeAttribute(name);
      for (const { name, value } of child.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      become(old, [...child.childNodes]);
    }
  });
  before.slice(children.length).forEach((old) => old.remove());
}

const PREFIXES = ["", "k", "M", "G", "T"];

/** A number with at most four digits and a prefix: 1.25 M. */
export function short(value, unit = "") {
  let at = 0;
  let rest = value;
  while (rest >= 1000 && at < PREFIXES.length - 1) {
    rest /= 1000;
    at += 1;
  }
  const digits = at === 0 && Number.isInteger(rest) ? 0 : rest < 10 ? 2 : rest < 100 ? 1 : 0;
  return `${rest.toFixed(digits)} ${PREFIXES[at]}${unit}`.trim();
}

/** A whole number, in groups of three. */
export function whole(value) {
  return value.toLocaleString("en-US").replaceAll(",", "\u202f");
}

export function duration(seconds) {
  const parts = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const from = parts.findIndex(([length]) => seconds >= length);
  if (from < 0) return "0 s";
  let rest = seconds;
  return parts
    .slice(from, from + 2)
    .map(([length, name]) => {
      const count = Math.floor(rest / length);
      rest -= count * length;
      return `${count} ${name}`;
    })
    .join(" ");
}

/** A rate, for a cell of a table. */
export function rate(value, unit) {
  return h("span", { class: "number" }, short(value, unit));
}

/** A table; a cell that is a number or a rate is set as one. */
export function table(caption, headings, rows, empty = "nothing yet") {
  const isFigure = (value) => typeof value === "number" || value?.className === "number";
  const cell = (value) => h("td", { class: isFigure(value) ? "number" : undefined }, typeof value === "number" ? whole(value) : value);
  const head = headings.map((name, at) => h("th", { scope: "col", class: isFigure(rows[0]?.[at]) ? "number" : undefined }, name));
  const body = rows.length
    ? rows.map((row) => h("tr", {}, row.map(cell)))
    : [h("tr", {}, h("td", { colspan: headings.length, class: "quiet" }, empty))];
  return h(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)),
  );
}

/** A figure with its name. */
export function card(name, value, more = "") {
  return h("div", { class: "card" }, h("h2", {}, name), h("p", {}, value, " ", h("small", {}, more)));
}

/** Two series over time, as lines of the same scale. */
export function chart(title, series, length) {
  const most = Math.max(1, ...series.flatMap(({ values }) => values));
  const width = 600;
  const height = 120;
  const lines = series.map(({ name, values }) => {
    const from = length - values.length;
    const points = values.map((value, at) => {
      const x = ((from + at) / (length - 1)) * width;
      return `${x.toFixed(1)},${(height - (value / most) * (height - 4) - 2).toFixed(1)}`;
    });
    return s("polyline", { class: `line ${name}`, points: points.join(" ") });
  });
  const label = `${title}: at most ${short(most)} in the last ${length} s`;
  return h(
    "div",
    { class: "card" },
    h("h2", {}, label),
    s("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", height: "120", role: "img", "aria-label": label }, lines),
    h("p", { class: "legend" }, series.map(({ name, label: text }) => h("span", { class: name }, text))),
  );
}

/** A share of 1 as a bar. */
export function bar(share, label) {
  const percent = Math.round(Math.min(1, Math.max(0, share)) * 100);
  return s(
    "svg",
    { class: "bar", viewBox: "0 0 100 1", preserveAspectRatio: "none", role: "img", "aria-label": `${label}: ${percent} %` },
    s("rect", { width: percent, height: 1 }),
  );
}

/** A share of 1, as text. */
export function percent(share) {
  return `${(share * 100).toFixed(1)} %`;
}

const BOX = { width: 240, line: 16, gap: 14, column: 380, margin: 12, letters: 30 };

/**
 * A picture of boxes in columns, and links from box to box.
 * @param columns lists of {id, title, lines}
 * @param links pairs of ids
 */
export function boxes(label, columns, links) {
  const places = new Map();
  const drawn = [];
  let bottom = 0;
  columns.forEach((column, number) => {
    let top = BOX.margin;
    for (const { id, title, lines } of column) {
      const wrapped = lines.flatMap(wrap);
      const height = (wrapped.length + 1) * BOX.line + 12;
      const left = BOX.margin + number * BOX.column;
      places.set(id, { left, top, height });
      const texts = wrapped.map((text, at) =>
        s("text", { class: "quiet", x: left + 10, y: top + 20 + (at + 1) * BOX.line }, text),
      );
      drawn.push(
        s("g", {}, s("rect", { class: "box", x: left, y: top, width: BOX.width, height, rx: 6 }),
          s("text", { x: left + 10, y: top + 20, "font-weight": "600" }, title), texts),
      );
      top += height + BOX.gap;
    }
    bottom = Math.max(bottom, top);
  });
  const paths = links
    .filter(([from, to]) => places.has(from) && places.has(to))
    .map(([from, to]) => {
      const a = places.get(from);
      const b = places.get(to);
      const x = a.left + BOX.width;
      const [y, z] = [a.top + a.height / 2, b.top + b.height / 2];
      const middle = (x + b.left) / 2;
      return s("g", {},
        s("path", { class: "link", d: `M${x},${y} C${middle},${y} ${middle},${z} ${b.left - 6},${z}` }),
        s("path", { class: "arrow", d: `M${b.left},${z} l-8,-4 v8 z` }));
    });
  const width = BOX.margin * 2 + (columns.length - 1) * BOX.column + BOX.width;
  return h(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": label },
    s("svg", { class: "rules", viewBox: `0 0 ${width} ${bottom}`, role: "img", "aria-label": label }, paths, drawn),
  );
}

/** Lines of a text that fit into a box. */
function wrap(text) {
  const lines = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line && line.length + word.length >= BOX.letters) {
      lines.push(line);
      line = "";
    }
    line = line ? `${line} ${word}` : word;
    while (line.length > BOX.letters) {
      lines.push(line.slice(0, BOX.letters));
      line = line.slice(BOX.letters);
    }
  }
  return [...lines, line];
}
