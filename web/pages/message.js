// Messages: a list by filter; one message with its life, why each recipient waits, and what can be done.

import {get, post} from "../api.js";
import {card, confirm, facts, fill, h, table} from "../dom.js";
import {gateList} from "../gates.js";
import {ago, bytes, clock, duration, number, plural} from "../words.js";
import {siteLink, stateBadge} from "./destinations.js";

const ROWS = 100;
const FILTERS = ["state", "sender", "recipient", "destination", "class"];
const QUEUES = {incoming: "", active: "good", deferred: "warn", hold: "warn", corrupt: "bad"};

function queueBadge(name) {
  return h("span", {class: "state " + (QUEUES[name] ?? "")}, name === "hold" ? "on hold" : name);
}

function list(view) {
  const inputs = {};
  const field = (name, label, holder) => {
    inputs[name] = h("input", {type: "text", id: "f-" + name, value: view.query.get(name) ?? "", placeholder: holder, autocomplete: "off", spellcheck: "false"});
    return h("label", null, label, inputs[name]);
  };
  inputs.state = h("select", {id: "f-state"}, [["", "any"], ["incoming", "incoming"], ["deferred", "deferred"], ["hold", "on hold"], ["corrupt", "corrupt"]].map(
    ([value, name]) => h("option", {value, selected: value === (view.query.get("state") ?? "")}, name)));
  const id = h("input", {type: "text", id: "f-id", autocomplete: "off", spellcheck: "false"});
  const search = (event) => {
    event.preventDefault();
    if (id.value.trim()) {
      location.hash = "#/messages/" + encodeURIComponent(id.value.trim());
      return;
    }
    const query = new URLSearchParams();
    for (const name of FILTERS) {
      if (inputs[name].value.trim()) {
        query.set(name, inputs[name].value.trim());
      }
    }
    location.hash = "#/messages?" + query;
  };
  const place = h("div", {"aria-live": "polite"});
  const after = view.query.get("after");
  view.place.append(h("h1", null, "Messages"),
    h("section", {class: "card"}, h("h2", {class: "sr"}, "Search"), h("form", {class: "row", role: "search", onsubmit: search},
      h("label", null, "Queue id", id), field("sender", "Sender", "a@shop.example or shop.example"),
      field("recipient", "Recipient", "b@example.net or example.net"), field("destination", "Destination", "smtp/example.net"),
      field("class", "Class", "bulk"), h("label", null, "State", inputs.state), h("button", {class: "main", type: "submit"}, "Find"))),
    card("On disk", place));
  const parameters = Object.fromEntries(FILTERS.map((n) => [n, view.query.get(n)]));
  view.keep(async () => {
    let answer;
    try {
      answer = await get("/v1/messages", {...parameters, after, max: ROWS, recipients: 3}, view.signal);
    } catch (error) {
      if (error.status === 400) {
        fill(place, h("p", {class: "said bad"}, error.message));
        return;
      }
      throw error;
    }
    const now = Date.now() / 1000, next = new URLSearchParams(view.query);
    next.set("after", answer.next ?? "");
    fill(place, answer.messages.length === 0 ? h("p", {class: "soft"}, "None.") :
      table("Messages", [{name: "queue id"}, {name: "state"}, {name: "age", n: true}, {name: "size", n: true}, {name: "class"}, {name: "from"}, {name: "to"}, {name: "why it waits", words: true}],
        answer.messages.map((m) => [h("a", {class: "mono", href: "#/messages/" + encodeURIComponent(m.queue_id), "data-focus": m.queue_id}, m.queue_id),
          queueBadge(m.queue_name), duration(now - m.arrival_time), bytes(m.message_size), m.class ?? "–", m.sender || "<>",
          m.recipients.map((r) => r.address).join(", ") + (m.recipients_pending > m.recipients.length ? " and " + number(m.recipients_pending - m.recipients.length) + " more" : ""),
          m.reason ?? m.recipients.find((r) => r.delay_reason)?.delay_reason ?? ""])),
      answer.next ? h("p", null, h("a", {href: "#/messages?" + next, "data-focus": "next"}, "The next " + ROWS)) : null);
  });
}

const EVENTS_MAX = 200;

/** An event of the journal in words: [time, text, kind]. */
function eventItem(e) {
  const who = e.recipient ? e.recipient : "It", where = e.destination ? " (" + e.destination + ")" : "";
  const said = e.reply ? ": " + e.reply : ".";
  const words = {
    received: [(e.requeued_from ? "It was requeued from " + e.requeued_from + "; it came in" : "It came in") + (e.source ? " from " + e.source : "") + (e.size ? ", " + bytes(e.size) : "") + (e.recipients ? " for " + plural(e.recipients, "recipient") : "") + ".", ""],
    delivered: [who + " was delivered" + where + " after " + duration(e.delay) + said, "good"],
    deferred: [who + " was deferred" + where + said, ""],
    bounced: [who + " failed" + where + said, "bad"],
    expired: [who + " was given up" + where + said, "bad"],
    report: ["A report (" + (e.kind ?? "") + ") was sent to " + (e.recipient ?? "the sender") + ".", ""],
    held: ["It was put on hold" + (e.reason ? ": " + e.reason : "."), ""],
    released: ["It was released.", ""], removed: ["It was deleted.", "bad"], requeued: ["It was requeued: it goes on under another queue id, with rules and filters applied again.", ""],
  };
  const [text, kind] = words[e.event] ?? [e.event + said, ""];
  return [e.time, text, kind];
}

/** What is to come, of a message that is still here. */
function future(m, now) {
  if (m.queue_name === "deferred" && m.next_attempt) {
    return [[m.next_attempt, m.waits_for ? "Looked at again at the latest; it goes on when " + m.waits_for + " has room." : "The next attempt.", "future"]];
  }
  return m.queue_name === "active" || m.queue_name === "incoming" ? [[now, "It is in the scheduler's hands: see above what each recipient waits for.", "future"]] : [];
}

function timelineOf(items, now) {
  return h("ol", {class: "timeline"}, items.map(([at, text, kind]) => h("li", {class: kind}, h("time", {datetime: new Date(at * 1000).toISOString()}, clock(at, now)), text)));
}

/** What happened, as far as the message itself tells: where there is no journal. */
function past(m) {
  const items = [[m.arrival_time, "It came in" + (m.client ? " from " + m.client : "") + ", " + bytes(m.message_size) + " for " + plural(m.recipients_total, "recipient") + ".", ""]];
  if (m.created && m.created - m.arrival_time > 1) {
    items.push([m.created, "It was requeued: age and attempts began anew.", ""]);
  }
  const attempts = new Map();
  for (const r of m.recipients) {
    if (r.last_attempt) {
      const key = [r.transport, r.nexthop, r.state, r.delay_reason ?? r.bounce_reason ?? "", Math.round(r.last_attempt)].join("\n");
      const one = attempts.get(key) ?? {at: r.last_attempt, r, count: 0};
      one.count++;
      attempts.set(key, one);
    }
  }
  const all = [...attempts.values()].sort((a, b) => a.at - b.at);
  for (const {at, r, count} of all.slice(-20)) {
    const who = count === 1 ? r.address : plural(count, "recipient");
    const what = {delivered: " was delivered", relayed: " was handed on", failed: " failed", pending: " was deferred"}[r.state] ?? " " + r.state;
    items.push([at, who + (count > 1 ? what.replace(" was ", " were ") : what) + " (attempt " + r.attempts + " at " + r.transport + "/" + r.nexthop + ")" +
      (r.delay_reason || r.bounce_reason ? ": " + (r.delay_reason ?? r.bounce_reason) : "."), r.state === "failed" ? "bad" : ""]);
  }
  return items;
}

const ACTIONS = [
  {op: "flush", name: "Try it now", done: "It is due now.", main: true, when: (q) => q === "deferred" || q === "incoming"},
  {op: "hold", name: "Hold", done: "It is on hold until someone releases it.", when: (q) => q !== "hold"},
  {op: "release", name: "Release", done: "It is due now.", main: true, when: (q) => q === "hold"},
  {op: "expire", name: "Give it up", done: "It is given up at its next turn; the sender gets a report.", when: (q) => q !== "corrupt",
    ask: "The sender gets a report that it could not be delivered."},
  {op: "delete", name: "Delete", done: "It is deleted.", when: () => true, ask: "It is removed for good, and no report is sent."},
];

function one(view, id) {
  const top = h("div", null), life = h("div", null), groups = h("div", null), buttons = h("div", {class: "actions"}), said = h("div", {role: "status"});
  const journal = []; // its events, the oldest first
  let state = null;

  async function act(action) {
    if (action.ask && !await confirm(action.name + "?", id + ": " + action.ask, action.name)) {
      return;
    }
    try {
      const answer = await post("/v1/messages/" + action.op, {ids: [id]});
      fill(said, answer.errors.length ? h("p", {class: "said bad"}, answer.errors[0].error) :
        h("p", {class: "said"}, answer.changed.length ? action.done : "Nothing was changed."));
      view.turn();
    } catch (error) {
      fill(said, h("p", {class: "said bad"}, error.message));
    }
  }

  view.place.append(h("p", {class: "crumbs"}, h("a", {href: "#/messages"}, "All messages")), h("h1", null, "Message ", h("span", {class: "mono"}, id)),
    h("section", {class: "card"}, h("h2", {class: "sr"}, "Envelope"), top, said, buttons),
    card("Why it is still here", groups), card("Its life", life));

  view.keep(async () => {
    let m;
    try {
      m = await get("/v1/messages/" + encodeURIComponent(id) + "/why", {}, view.signal);
    } catch (error) {
      if (error.status === 404) {
        fill(groups, h("p", null, "No message of this id is in the queue: it was delivered, returned or deleted. The log tells which: ", h("code", null, "grep " + id)));
        fill(buttons);
        fill(top);
        state = null;
        fill(life, journal.length ? timelineOf(journal.map(eventItem), Date.now() / 1000) : h("p", {class: "soft"}, "Nothing of it is in the journal of events."));
        return;
      }
      throw error;
    }
    const now = Date.now() / 1000;
    fill(top, facts([["state", queueBadge(m.queue_name)], ["why", m.reason], ["from", m.sender || "<> (a report)"], ["came in", clock(m.arrival_time, now) + " (" + ago(m.arrival_time, now) + " ago)"],
      ["client", m.client], ["class", m.class ? m.class + (m.class_source ? " (by " + m.class_source + ")" : "") : null],
      ["recipients", number(m.recipients_pending) + " of " + number(m.recipients_total) + " still wait"], ["size", bytes(m.message_size)]]));
    if (state !== m.queue_name) { // not while someone is about to press one
      state = m.queue_name;
      fill(buttons, ACTIONS.filter((a) => a.when(m.queue_name)).map((a) => h("button", {type: "button", id: "do-" + a.op, "data-focus": a.op,
        class: a.main ? "main" : a.ask ? "danger" : null, onclick: () => act(a)}, a.name)));
    }
    fill(groups, (m.groups ?? []).map((g, i) => {
      const members = m.recipients.filter((r) => r.group === i);
      return h("section", null, h("h3", null, plural(g.recipients, "recipient") + " for ", g.destination ? h("a", {href: siteLink(g.transport + "/" + g.destination), "data-focus": "g" + i},
        g.transport + "/" + g.destination) : "no destination yet"),
      h("p", {class: "small soft"}, members.slice(0, 5).map((r) => r.address).join(", ") + (members.length > 5 ? " and " + number(members.length - 5) + " more" : "")),
      gateList(g, now), g.estimate ? h("p", {class: "small"}, g.estimate.at ? h("strong", null, "Expected at " + clock(g.estimate.at, now)) : "", h("span", {class: "soft"}, (g.estimate.at ? ", provided that " : "") + (g.estimate.assumption ?? ""))) : null);
    }), (m.groups ?? []).length === 0 ? h("p", {class: "soft"}, "No recipient is pending.") : null,
    m.next_recipient ? h("p", {class: "small soft"}, "These are the first 1,000 recipients; sluice why " + id + " tells of all.") : null);
    const done = m.recipients.slice(0, ROWS);
    fill(life, timelineOf([...(journal.length ? journal.map(eventItem) : past(m)), ...future(m, now)], now), h("details", {open: view.open ?? false, ontoggle: (e) => {
      view.open = e.target.open;
    }}, h("summary", null, "Its recipients"), table("Recipients", [{name: "address"}, {name: "state"}, {name: "attempts", n: true}, {name: "last attempt", n: true}, {name: "TLS"}, {name: "what was said", words: true}],
      done.map((r) => [r.address, stateBadge(r.state), number(r.attempts), r.last_attempt ? clock(r.last_attempt, now) : "–", r.tls ?? "–", r.delay_reason ?? r.bounce_reason ?? ""]))));
  }, {queue_id: id, after: 0}, (event) => {
    if (event.queue_id === id && !journal.some((e) => e.number === event.number)) {
      journal.push(event);
      if (journal.length > EVENTS_MAX) {
        journal.shift();
      }
    }
  });
}

export function show(view) {
  if (view.words[0]) {
    one(view, view.words[0]);
  } else {
    list(view);
  }
}
