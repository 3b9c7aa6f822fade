// Calls of the API. The token is asked for once and kept for this tab only (sessionStorage); there are no cookies.

import {fill, h} from "./dom.js";

const TOKEN = "sluice-token";

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

export class Failed extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? {...more, Authorization: "Bearer " + token} : {...more};
}

let asking = null;
let hasNone = false; // the daemon has no events

/** Ask the user for a token; all calls that wait for one share the question. */
function askToken() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("dialog");
    const input = h("input", {type: "password", name: "token", autocomplete: "off", required: true, size: "40"});
    const keep = (event) => {
      event.preventDefault();
      keepToken(input.value.trim());
      dialog.close();
      asking = null;
      resolve();
    };
    fill(dialog, h("h2", {id: "dialog-title"}, "A token is needed"),
      h("p", null, "Someone with access to the machine makes one with ", h("code", null, "sluice token add NAME --rights read,operate"),
        ". It is kept until this tab is closed."),
      h("form", {onsubmit: keep}, h("label", null, "Token", input),
        h("div", {class: "actions"}, h("button", {class: "main", type: "submit"}, "Go on"))));
    dialog.oncancel = (event) => event.preventDefault();
    dialog.showModal();
    input.focus();
  });
  return asking;
}

async function call(method, path, body, signal) {
  for (;;) {
    const answer = await fetch(path, {
      method, signal, cache: "no-store", credentials: "omit", redirect: "error",
      headers: headers(body === undefined ? {} : {"Content-Type": "application/json"}),
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (answer.status === 401) {
      sessionStorage.removeItem(TOKEN);
      await askToken();
      continue;
    }
    const text = await answer.text();
    let object = {};
    try {
      object = JSON.parse(text);
    } catch {
      object = {error: "an answer that is no JSON (status " + answer.status + ")"};
    }
    if (!answer.ok) {
      throw new Failed(answer.status, answer.status === 403 ? "Your token has no right to do that. " + (object.error ?? "") : object.error ?? text);
    }
    return object;
  }
}

export function get(path, parameters, signal) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters ?? {})) {
    if (value !== null && value !== undefined && value !== "") {
      query.append(name, value);
    }
  }
  const text = query.toString();
  return call("GET", path + (text ? "?" + text : ""), undefined, signal);
}

export function post(path, body, signal) {
  return call("POST", path, body, signal);
}

export function remove(path, signal) {
  return call("DELETE", path, undefined, signal);
}

/**
 * The events of the queue as they happen: `heard(event)` for each, until `signal` is aborted. Resolves to false at once
 * where the daemon has no events (then what is shown is asked for again every few seconds), else to true at the end.
 */
export async function events(parameters, heard, signal) {
  let answer;
  if (hasNone) {
    return false;
  }
  try {
    answer = await fetch("/v1/events?" + new URLSearchParams(parameters), {
      signal, cache: "no-store", credentials: "omit", headers: headers({Accept: "text/event-stream"})});
  } catch {
    return false;
  }
  if (!answer.ok || !(answer.headers.get("Content-Type") ?? "").startsWith("text/event-stream")) {
    await answer.body?.cancel();
    hasNone = answer.status === 404 || answer.status === 409;
    return false;
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) {
        return true;
      }
      const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const data = block.split("\n").filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trimStart()).join("\n");
        if (data) {
          try {
            heard(JSON.parse(data));
          } catch {
            // one that is no JSON is none of ours
          }
        }
      }
    }
  } catch {
    return true; // the page went on, or the connection was lost
  }
}
