// Interventions: what operators have decided about some mail, and how to end that.

import {get, post} from "../api.js";
import {card, confirm, fill, h, table} from "../dom.js";
import {ago, clock, number} from "../words.js";

const VERBS = {
  pause: {name: "Pause", words: "paused: its mail waits on disk, what comes later included"},
  bounce: {name: "Return to the senders", words: "returned to the senders, what comes later included"},
  redirect: {name: "Redirect", words: "redirected"},
  limit: {name: "Limit", words: "has other limits"},
};
const SPANS = [["", "until it is cancelled"], ["900", "for 15 minutes"], ["3600", "for an hour"], ["14400", "for 4 hours"], ["86400", "for a day"]];

/** Who has asked for it, and in a cluster at which node. */
function asker(i) {
  return [i.by && "asked by " + i.by, i.node && (i.local ? "at node " + i.node + " alone" : "at node " + i.node)].filter(Boolean).join(", ");
}

function effect(i) {
  if (i.verb === "redirect") {
    return "goes to " + i.nexthop;
  }
  if (i.verb === "limit") {
    return Object.entries(i.values ?? {}).map(([name, value]) => name + " = " + value).join(", ");
  }
  return VERBS[i.verb]?.words ?? i.verb;
}

export function show(view) {
  const place = h("div", null), said = h("div", {role: "status"});
  const verb = h("select", {id: "i-verb", onchange: () => adjust()}, Object.entries(VERBS).map(([value, v]) => h("option", {value}, v.name)));
  const scope = h("select", {id: "i-scope"}, ["destination", "sender", "class"].map((value) => h("option", {value}, value)));
  const target = h("input", {type: "text", id: "i-target", required: true, autocomplete: "off", spellcheck: "false"});
  const reason = h("input", {type: "text", id: "i-reason", maxlength: "400", autocomplete: "off"});
  const nexthop = h("input", {type: "text", id: "i-nexthop", autocomplete: "off", spellcheck: "false", placeholder: "[backup.example]:25"});
  const values = h("input", {type: "text", id: "i-values", autocomplete: "off", spellcheck: "false", placeholder: "destination_concurrency_limit=2"});
  const span = h("select", {id: "i-for"}, SPANS.map(([value, name]) => h("option", {value}, name)));
  const nexthopLabel = h("label", null, "To this next hop", nexthop), valuesLabel = h("label", null, "Values", values);

  function adjust() {
    nexthopLabel.hidden = verb.value !== "redirect";
    valuesLabel.hidden = verb.value !== "limit";
  }
  async function set(event) {
    event.preventDefault();
    const body = {verb: verb.value, [scope.value]: target.value.trim(), reason: reason.value.trim()};
    if (span.value) {
      body.for = Number(span.value);
    }
    if (verb.value === "redirect") {
      body.nexthop = nexthop.value.trim();
    }
    if (verb.value === "limit") {
      body.values = Object.fromEntries(values.value.split(/[\s,]+/).filter(Boolean).map((pair) => {
        const at = pair.indexOf("=");
        return at < 0 ? [pair, ""] : [pair.slice(0, at), pair.slice(at + 1)];
      }));
    }
    if (verb.value === "bounce" && !await confirm("Return this mail?", "All mail for " + body[scope.value] +
      " is returned to its senders, what comes later included, until this is cancelled.", "Return it")) {
      return;
    }
    try {
      const answer = await post("/v1/interventions", body);
      fill(said, h("p", {class: "said"}, "Done" + (answer.name ? ": " + answer.name : "") + "."));
      view.turn();
    } catch (error) {
      fill(said, h("p", {class: "said bad"}, error.message));
    }
  }
  async function cancel(i, what) {
    if (!await confirm("Cancel " + i.name + "?", what + ": as if it had never been said, from now on.", "Cancel it")) {
      return;
    }
    try {
      await post("/v1/interventions/" + encodeURIComponent(i.name) + "/cancel", {});
      fill(said, h("p", {class: "said"}, i.name + " is cancelled."));
      view.turn();
    } catch (error) {
      fill(said, h("p", {class: "said bad"}, error.message));
    }
  }

  adjust();
  view.place.append(h("h1", null, "Interventions"), said, card("In force", place),
    card("A new one", h("form", {class: "row", id: "intervene", onsubmit: set}, h("label", null, "What", verb), h("label", null, "Of a", scope),
      h("label", null, "Which", target), nexthopLabel, valuesLabel, h("label", null, "Reason, for your colleagues and for why", reason), h("label", null, "How long", span),
      h("button", {class: "main", type: "submit"}, "Do it"))));
  view.keep(async () => {
    const answer = await get("/v1/interventions", {}, view.signal);
    const now = Date.now() / 1000;
    fill(place, answer.interventions.length === 0 ? h("p", {class: "soft"}, "None: all mail takes its usual way.") :
      table("Interventions", [{name: "name"}, {name: "of"}, {name: "what", words: true}, {name: "reason", words: true}, {name: "since", n: true}, {name: "until", n: true}, {name: "recipients", n: true}, {name: ""}],
        answer.interventions.map((i) => {
          const of = i.destination !== undefined ? "destination " + i.destination : i.sender !== undefined ? "sender " + i.sender : "class " + i.class;
          return [i.name, of, effect(i), [i.reason, h("div", {class: "small soft"}, asker(i))], clock(i.since, now) + " (" + ago(i.since, now) + ")", i.until ? clock(i.until, now) : "cancelled",
            number(i.recipients), h("button", {type: "button", class: "danger", "data-focus": "c-" + i.name, "aria-label": "Cancel " + i.name, onclick: () => cancel(i, of)}, "Cancel")];
        })), answer.next ? h("p", {class: "small soft"}, "There are more: sluice interventions lists them.") : null);
  });
}
