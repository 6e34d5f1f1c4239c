// Results of benches: files that `kaido bench … --json FILE` wrote, read in the browser, one beside another.

import { bar, h, table, whole } from "./draw.js";

/** Octets of a file, and rows of a table that are drawn. */
const FILE_MAX = 64 << 20;
const ROWS_MAX = 500;
/** Whole numbers that say what was measured; all others are figures, and all texts say it too. */
const SAYS_WHAT = new Set([
  "sessions", "frame_bytes", "workers", "writers", "readers", "keys", "ip", "bits", "entries", "percent", "cpu", "rate_pps", "port",
]);
/** Texts that say how it came out, and are no part of what was measured. */
const OUTCOMES = new Set(["met", "verdict", "pages", "floor_pages", "skipped", "reason"]);

/** What was read last: it is there again when the page is. */
let reports = [];

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isFigure = (value) => typeof value === "number";
const words = (name) => name.replaceAll("_", " ");

/** Texts and numbers of a record, those of records in it by both names. */
function flat(record, before = "") {
  return Object.entries(record).flatMap(([name, value]) => {
    if (isObject(value)) return flat(value, `${before}${name}.`);
    return value === null || Array.isArray(value) ? [] : [[before + name, value]];
  });
}

function text(value) {
  if (!isFigure(value)) return `${value}`;
  if (Number.isInteger(value)) return whole(value);
  return Math.abs(value) >= 1000 ? whole(Math.round(value)) : Number(value.toPrecision(4)).toString();
}

const number = (value) => h("span", { class: "number" }, value === undefined ? "" : text(value));
const ratio = (value, base) => number(isFigure(value) && isFigure(base) && base !== 0 ? Number((value / base).toFixed(3)) : undefined);

async function read(file) {
  if (file.size > FILE_MAX) throw new Error(`${file.name}: it is longer than 64 MiB`);
  const content = await file.text();
  let result;
  try {
    result = JSON.parse(content);
  } catch (error) {
    throw new Error(`${file.name} is no result of a bench: ${error.message}. kaido bench micro --json FILE writes one.`);
  }
  // Some benches write records alone.
  if (Array.isArray(result)) result = { results: result };
  if (!isObject(result)) throw new Error(`${file.name} is no result of a bench: it has no fields.`);
  return { name: file.name, said: new Map(flat(result)), sections: sections(result) };
}

/** What a bench measured of one kind: records, what each is of, and which figures they have. */
function section(name, records) {
  const rows = records.filter(isObject).map((record) => new Map(flat(record)));
  const names = [...new Set(rows.flatMap((row) => [...row.keys()]))];
  const says = (column) => rows.every((row) => !isFigure(row.get(column)) || SAYS_WHAT.has(column.split(".").at(-1)));
  const differs = (column) => new Set(rows.map((row) => row.get(column))).size > 1;
  const what = names.filter((column) => says(column) && (differs(column) || rows.length === 1));
  const same = names.filter((column) => says(column) && !what.includes(column)).map((column) => `${words(column)} ${text(rows[0].get(column))}`);
  return { name, rows, what, same, figures: names.filter((column) => !says(column)) };
}

function sections(result) {
  return Object.entries(result)
    .filter(([, value]) => Array.isArray(value) && value.some(isObject))
    .map(([name, records]) => section(name, records));
}

/** A row's place among those of another report. */
const key = (row, what) =>
  what.filter((column) => !OUTCOMES.has(column)).map((column) => text(row.get(column) ?? "")).join("\n");

/** One kind of records, by a figure that is chosen. */
function drawnSection({ name, rows, what, same, figures }, others) {
  const place = h("div", {});
  const choice = h("select", { id: `figure-${name}` }, figures.map((figure) => h("option", { value: figure }, words(figure))));
  const draw = () => {
    const chosen = choice.value;
    const most = Math.max(...rows.map((row) => row.get(chosen)).filter(isFigure));
    const beside = others.map((other) => new Map(other?.rows.map((row) => [key(row, what), row.get(chosen)])));
    const cells = rows.slice(0, ROWS_MAX).map((row) => {
      const value = row.get(chosen);
      const found = beside.map((values) => values.get(key(row, what)));
      return [
        ...what.map((column) => text(row.get(column) ?? "")),
        number(value),
        ...(others.length ? found.flatMap((other) => [number(other), ratio(other, value)])
          : [isFigure(value) && most > 0 ? bar(value / most, words(chosen)) : ""]),
      ];
    });
    const headings = [
      ...what.map(words), others.length ? reports[0].name : words(chosen),
      ...(others.length ? reports.slice(1).flatMap((report) => [report.name, "ratio"]) : ["of the most"]),
    ];
    const left = rows.length > ROWS_MAX ? `, the first ${ROWS_MAX} of ${whole(rows.length)}` : "";
    place.replaceChildren(table(`${words(name)}: ${words(chosen)}${left}`, headings, cells));
  };
  if (figures.length) {
    // What was measured is seldom whole.
    choice.value = figures.find((figure) => !rows.every((row) => Number.isInteger(row.get(figure) ?? 0))) ?? figures[0];
    choice.addEventListener("change", draw);
    draw();
  } else {
    place.replaceChildren(table(words(name), what.map(words), rows.map((row) => what.map((column) => text(row.get(column) ?? "")))));
  }
  return [
    h("h3", {}, words(name)),
    same.length ? h("p", { class: "quiet" }, `All: ${same.join(", ")}`) : null,
    figures.length > 1 ? h("p", {}, h("label", { for: choice.id }, "Figure "), choice) : null,
    place,
  ];
}

/** What a report says of the whole: machine, run, and figures of no list. */
function whatIsSaid() {
  const names = [...new Set(reports.flatMap(({ said }) => [...said.keys()]))];
  const rows = names.map((name) => [words(name), ...reports.map(({ said }) => (said.has(name) ? text(said.get(name)) : ""))]);
  return h("details", { open: !reports.some((report) => report.sections.length) },
    h("summary", {}, "Machine and run"),
    table("What holds for all of it", ["", ...reports.map(({ name }) => name)], rows));
}

function drawn() {
  if (!reports.length) return [];
  const [first, ...others] = reports;
  const beside = (name) => others.map((other) => other.sections.find((found) => found.name === name));
  return [whatIsSaid(), ...first.sections.flatMap((own) => drawnSection(own, beside(own.name))).filter(Boolean)];
}

export async function bench() {
  const fault = h("p", { class: "bad", role: "alert" });
  const results = h("div", {}, drawn());
  const onchange = async ({ target }) => {
    fault.textContent = "";
    try {
      reports = await Promise.all([...target.files].map(read));
      results.replaceChildren(...drawn());
    } catch (error) {
      fault.textContent = error.message;
    }
  };
  const field = h("input", { id: "wanted", type: "file", accept: ".json,application/json", multiple: true, onchange });
  return [
    h("h2", {}, "Bench results"),
    h("p", {}, "Files that ", h("code", {}, "kaido bench … --json FILE"), " wrote. Several are compared with the first one. They do not leave the browser."),
    h("form", { class: "row" }, h("div", {}, h("label", { for: "wanted" }, "Result files"), field)),
    fault,
    results,
  ];
}
