// What pages with lists share: a search, links to the pages of a list, and links to the lists beside.

import { h, whole } from "./draw.js";

/** Rows of a page of a list. */
export const PAGE = 50;

/** What is asked for: a text, and where in the list the page begins, by number or by place. */
export function asked({ place: { searchParams } }) {
  return { wanted: searchParams.get("q") ?? "", skip: Number(searchParams.get("skip") ?? 0), from: searchParams.get("from") ?? "" };
}

/** Where a page is, with what it is asked for. */
export function to(page, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value);
  return `#${page}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** A field that looks for something in a list. */
export function search(page, label, context) {
  const field = h("input", { id: "wanted", type: "search", value: asked(context).wanted, autocomplete: "off", spellcheck: "false" });
  const onsubmit = (event) => {
    event.preventDefault();
    const hash = to(page, { q: field.value.trim() });
    // The same once more shows what is there by now.
    if (hash === location.hash) context.again();
    else context.go(hash);
  };
  return h("form", { class: "row", role: "search", onsubmit },
    h("div", {}, h("label", { for: "wanted" }, label), field),
    h("button", { type: "submit" }, "Find"));
}

/** How many there are, and from which on they are shown. */
export function counted(total, [one, more], skip) {
  return `${whole(total)} ${total === 1 ? one : more}${skip ? `, from ${whole(skip + 1)} on` : ""}`;
}

function links(page, around) {
  return h("p", { class: "pager" }, around.filter(([, there]) => there).map(([text, there]) => h("a", { href: to(page, there) }, text)));
}

/** Links to the pages around one of a list with pages by number. */
export function byNumber(page, { wanted: q, skip }, total) {
  return links(page, [
    ["before", skip > 0 && { q, skip: Math.max(0, skip - PAGE) }],
    ["further", skip + PAGE < total && { q, skip: skip + PAGE }],
  ]);
}

/** The same of one with pages by place, which is read in one direction. */
export function byPlace(page, { wanted: q, from }, next) {
  return links(page, [["from the beginning", from && { q }], ["further", next && { q, from: next }]]);
}

/** Links to pages that belong together. */
export function beside(label, pages, current) {
  const link = ({ name, title, parameters = {} }) =>
    h("li", {}, h("a", { href: to(name, parameters), "aria-current": name === current ? "page" : undefined }, title));
  return h("nav", { class: "beside", "aria-label": label }, h("ul", {}, pages.map(link)));
}
