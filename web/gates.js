// Gates: what stands between mail and its delivery, in the order in which it binds. The words are the daemon's.

import {h} from "./dom.js";
import {clock} from "./words.js";

const NAMES = {
  daemon: "daemon", held: "hold", corrupt: "corrupt", storage: "storage", lease: "lease of this node", not_due: "time of the next attempt", parked: "share of the queue",
  thread: "time of the destination", queueonly: "asked for", deliver_only: "only one served", locked: "lock", no_command: "command", defer_transports: "transport asked for",
  frozen: "frozen", active_queue: "room in memory", tried: "other recipients", unread: "recipients in memory", transport_dead: "processes",
  destination_dead: "destination alive", destination_rate: "pause of the destination", transport_rate: "pause of the transport", window: "window",
  ring: "ring", failing_share: "share of failing ones", transport_limit: "limit of the transport", agents: "agents", class: "turns of classes",
  sender: "turns of senders", behind: "mail before it", delivering: "being delivered", paused: "paused",
};

export function gateName(gate) {
  return NAMES[gate] ?? gate.replaceAll("_", " ");
}

/** The gates of one group or site: closed ones with their words, the open ones together. */
export function gateList(group, now) {
  const closed = group.gates.filter((g) => g.closed), open = group.gates.filter((g) => !g.closed);
  return h("div", null,
    h("ol", {class: "gates"}, closed.map((g) => h("li", {class: "closed" + (g.gate === group.binds ? " binds" : "")},
      h("span", {class: "mark", "aria-hidden": "true"}, g.gate === group.binds ? "■" : "□"),
      h("span", {class: "name"}, gateName(g.gate) + (g.gate === group.binds ? " (this is what it waits for)" : " (closed, too)")),
      h("span", {class: "text"}, g.text ?? "", g.value !== undefined && g.limit !== undefined && !(g.text ?? "").includes(String(g.limit))
        ? " (" + g.value + " of " + g.limit + ")" : ""),
      g.since ? h("p", {class: "small soft"}, "since " + clock(g.since, now) + (g.until ? ", until " + clock(g.until, now) : "")) : null,
      g.advice ? h("p", {class: "small"}, h("strong", null, "What to do: "), g.advice) : null)),
    open.length ? h("li", null, h("span", {class: "mark", "aria-hidden": "true"}, "✓"),
      h("span", {class: "small soft"}, (closed.length ? "Open: " : "All are open: it is about to start. ") + open.map((g) => gateName(g.gate)).join(", "))) : null));
}
