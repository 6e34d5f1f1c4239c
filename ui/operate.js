// What an operator has done: sessions and associations are released, the node is drained, the configuration read again, the log changed.

import { act, get } from "./node.js";
import { h, table } from "./draw.js";

/** Asks whether something is to be done; what is said is text. */
function confirmed(title, text, does) {
  const dialog = document.getElementById("confirm");
  document.getElementById("confirm-title").textContent = title;
  document.getElementById("confirm-text").textContent = text;
  document.getElementById("confirm-yes").textContent = does;
  const form = dialog.querySelector("form");
  return new Promise((resolve) => {
    // Not when it has closed, which is told late: another question may be open by then.
    const end = (isSure) => {
      form.onsubmit = dialog.oncancel = null;
      resolve(isSure);
    };
    form.onsubmit = (event) => end(event.submitter?.value === "yes");
    dialog.oncancel = () => end(false);
    dialog.showModal();
  });
}

/** Where a page says what became of an action. */
function teller() {
  const told = h("p", { role: "status", class: "told" });
  const tell = (text, className) => {
    told.textContent = text;
    told.className = `told ${className}`;
  };
  return { told, good: (text) => tell(text, "good"), bad: (text) => tell(text, "bad") };
}

/** A button that asks before it acts. `ask` is [title, text]; `done` is told what came of it. */
function button(label, ask, run, done, says) {
  const onclick = async (event) => {
    const own = event.currentTarget;
    if (!(await confirmed(...ask, label))) return;
    own.disabled = true;
    try {
      done(await run());
    } catch (error) {
      says.bad(error.message);
    }
    own.disabled = false;
  };
  return h("button", { type: "button", class: "grave", onclick }, label);
}

/** Releases a session, where that can be asked for here. */
export function release({ seid, ue }, { offers, go }) {
  if (!offers("/v1/sessions/{seid}", "delete")) return null;
  const says = teller();
  const ask = [`Release session ${seid}`, `${ue.join(" ") || "Its UE"} is cut off. Its control plane is told by a last usage report.`];
  const run = () => act("DELETE", `/v1/sessions/${encodeURIComponent(seid)}`);
  return h("div", { class: "row" }, button("Release session", ask, run, () => go("#sessions"), says), says.told);
}

/** What is asked, and done, to begin a drain and to end one. */
const DRAIN = {
  begin: ["Drain", "Drain the node", "All control planes are asked to release their associations within a minute, and new associations and sessions are refused.", "POST", {}],
  end: ["Take new ones again", "End the drain", "New associations and sessions are taken again.", "DELETE"],
};

export async function peers(_, { offers, again }) {
  // What the node streams may be a second old, and who has just pressed a button looks for what it did.
  const [{ associations }, { draining }] = await Promise.all([get("/v1/associations"), get("/v1/user-plane")]);
  const says = teller();
  const isOffered = offers("/v1/associations/{node_id}", "delete");
  const asked = (name) => () => says.good(`${name} was asked to release its association within a minute; its sessions go on until it does.`);
  const releasing = ({ node_id: name }) => {
    const ask = [`Release ${name}`, "It is asked to release its association within a minute, and moves its sessions elsewhere or ends them."];
    return button("Release", ask, () => act("DELETE", `/v1/associations/${encodeURIComponent(name)}`), asked(name), says);
  };
  const rows = associations
    .toSorted((a, b) => a.node_id.localeCompare(b.node_id))
    .map((peer) => [
      peer.node_id,
      h("span", { class: "mono" }, peer.address),
      h("span", { class: peer.up ? "good" : "bad" }, peer.up ? "answers" : "does not answer"),
      peer.sessions,
      ...(isOffered ? [releasing(peer)] : []),
    ]);
  const [label, title, text, method, body] = draining ? DRAIN.end : DRAIN.begin;
  const drain = button(label, [title, text], () => act(method, "/v1/drain", body), again, says);
  return [
    h("h2", {}, "Control planes"),
    draining ? h("p", { class: "bad" }, "The node is drained: new associations and sessions are refused.") : null,
    table("Control planes with an association", ["node", "address", "state", "sessions", ...(isOffered ? ["association"] : [])], rows, "there are none"),
    offers("/v1/drain", "post") ? h("div", { class: "row" }, drain) : null,
    says.told,
  ];
}

function logForm({ level }, says) {
  const field = h("input", { id: "level", value: level, required: true, autocomplete: "off", spellcheck: "false" });
  const onsubmit = async (event) => {
    event.preventDefault();
    try {
      const now = await act("PUT", "/v1/log", { level: field.value });
      says.good(`${now.level} is logged, until the configuration is read again.`);
    } catch (error) {
      says.bad(error.message);
    }
  };
  return h("form", { class: "row", onsubmit },
    h("div", {}, h("label", { for: "level" }, "error, warn, info, debug, trace, or a filter such as info,kaido_pfcp=debug"), field),
    h("button", { type: "submit" }, "Log this"));
}

/** What differs in the file, and whether it can be taken while the node runs. */
function differences({ fields }, says, list) {
  const rows = fields.map(({ field, before, now, line, refused }) => [
    h("code", {}, field), before ?? "not said", now ?? "not said", line === null ? "" : `${line}`,
    refused ? h("span", { class: "bad" }, refused) : h("span", { class: "good" }, "while the node runs"),
  ]);
  const parts = [table("What differs in the configuration", ["field", "in force", "in the file", "line", "it changes"], rows, "nothing differs")];
  if (fields.length && fields.every(({ refused }) => !refused)) {
    const taken = ({ fields: changed }) => {
      list.replaceChildren();
      says.good(`The configuration is in force; ${changed.length} ${changed.length === 1 ? "field has" : "fields have"} changed.`);
    };
    parts.push(h("div", { class: "row" }, button("Take it", ["Take the configuration", "What differs changes now, all of it or nothing."], () => act("POST", "/v1/reload", {}), taken, says)));
  }
  list.replaceChildren(...parts);
}

export async function operate(_, { offers }) {
  const [ofReload, ofLog] = [teller(), teller()];
  const list = h("div");
  const look = async () => {
    try {
      differences(await act("POST", "/v1/reload", { dry_run: true }), ofReload, list);
      ofReload.good("");
    } catch (error) {
      ofReload.bad(error.message);
    }
  };
  return [
    h("h2", {}, "Operate"),
    ...(offers("/v1/reload", "post")
      ? [h("h3", {}, "Configuration"), h("div", { class: "row" }, h("button", { type: "button", onclick: look }, "Read the file")), list, ofReload.told]
      : []),
    h("h3", {}, "Log"),
    logForm(await get("/v1/log"), ofLog),
    ofLog.told,
  ];
}
