// What the page asks the node by: the HTTP API, with a token where one is needed.

const KEY = "kaido-token";

/** Why the node did not answer, as RFC 9457 has it. */
export class Refused extends Error {
  constructor(problem) {
    super(problem.detail ?? problem.title ?? `status ${problem.status}`);
    this.status = problem.status;
  }
}

/** Asks for a token, and resolves when one is there. Set by the page. */
let login = async () => {};

export function useLogin(ask) {
  login = ask;
}

/** Roles, each with what the one before may do. */
const ROLES = ["watch", "read", "operate"];
let own = null;

/** Whether who asks here may do what needs a role, as far as the node has told. */
export function may(role) {
  return ROLES.includes(role) && ROLES.indexOf(role) <= ROLES.indexOf(own);
}

export function setToken(token) {
  sessionStorage.setItem(KEY, token);
}

async function send(path, options = {}) {
  const headers = { ...options.headers };
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (options.body) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { ...options, headers });
  own = answer.headers.get("kaido-role") ?? own;
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({ status: answer.status }));
  if (answer.status === 401) {
    await login(token ? problem.detail : "");
    return send(path, options);
  }
  throw new Refused(problem);
}

/** The document at a path. */
export async function get(path) {
  return (await send(path)).json();
}

/** The file at a path, when it has come whole. */
export async function file(path) {
  return (await send(path)).blob();
}

/** Has something done; what came of it, if it is told. */
export async function act(method, path, body) {
  const answer = await send(path, { method, body: body && JSON.stringify(body) });
  return answer.status === 204 ? null : answer.json();
}

/**
 * Server-sent events of a path, one after the other, until `signal` aborts. EventSource shows no token.
 */
export async function* events(path, signal) {
  const answer = await send(path, { signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const event = {};
      for (const line of text.slice(0, end).split("\n")) {
        const [name, ...rest] = line.split(": ");
        if (name) event[name] = rest.join(": ");
      }
      text = text.slice(end + 2);
      if (event.data) yield { name: event.event, data: JSON.parse(event.data) };
    }
  }
}
