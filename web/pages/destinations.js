// Destinations: those with the most mail as a table; one of them with its gates, its history and its replies.

import {get, post} from "../api.js";
import {bar, card, confirm, facts, fill, h, table} from "../dom.js";
import {gateList} from "../gates.js";
import {plot} from "../plot.js";
import {ago, clock, duration, number, plural, rate} from "../words.js";

const ROWS = 100;
const BADGES = {ready: "good", dead: "bad", suspended: "warn", probing: "warn", idle: "", unknown: ""};
const WHY = {success: "good deliveries", failure: "failures", dead: "declared dead", probed: "one delivery to try", revived: "alive again"};

export function siteLink(name) {
  return "#/destinations/" + encodeURIComponent(name);
}

export function stateBadge(state) {
  return h("span", {class: "state " + (BADGES[state] ?? "")}, state);
}

/** Rows of the table: from disk, beside them the busiest and the dead that have nothing there. */
function rowsOf(answer) {
  const rows = new Map();
  for (const d of answer.destinations) {
    rows.set(d.transport + "/" + (d.destination ?? d.nexthop.toLowerCase()), {state: "on disk", ...d, name: d.transport + "/" + d.nexthop});
  }
  for (const s of [...answer.busiest, ...answer.troubled]) {
    const key = s.transport + "/" + s.destination;
    rows.set(key, {...s, ...rows.get(key), name: key});
  }
  return [...rows.values()];
}

const COLUMNS = [
  {key: "name", name: "destination", by: (r) => r.name},
  {key: "state", name: "state", by: (r) => r.state},
  {key: "busy", name: "in flight", by: (r) => r.busy ?? -1},
  {key: "waiting", name: "waiting", n: true, by: (r) => r.waiting ?? -1},
  {key: "on_disk", name: "messages", n: true, by: (r) => r.on_disk ?? 0},
  {key: "oldest", name: "oldest", n: true, by: (r) => -(r.oldest ?? Infinity)},
  {key: "per_second", name: "per s", n: true, by: (r) => r.per_second ?? -1},
  {key: "error", name: "last error", words: true, by: (r) => errorOf(r)},
];

function errorOf(r) {
  return (r.state === "dead" || r.state === "probing" ? r.reason : null) ?? r.last_reply?.text ?? "";
}

function list(view) {
  let sort = "on_disk", down = true, answer = null, filter = "";
  const place = h("div", null), note = h("p", {class: "small soft", role: "status"});
  const input = h("input", {type: "search", id: "filter", placeholder: "gmail.com", autocomplete: "off", oninput: () => {
    filter = input.value.trim().toLowerCase();
    draw();
  }});
  const open = (event) => {
    event.preventDefault();
    if (input.value.trim()) {
      location.hash = siteLink(input.value.trim());
    }
  };
  view.place.append(h("h1", null, "Destinations"),
    h("section", {class: "card"}, h("h2", {class: "sr"}, "Table"),
      h("form", {class: "row", role: "search", onsubmit: open}, h("label", null, "Find, or open any by its name", input),
        h("button", {type: "submit"}, "Open")), note, place));

  function draw() {
    if (!answer) {
      return;
    }
    const all = rowsOf(answer), column = COLUMNS.find((c) => c.key === sort);
    const rows = all.filter((r) => r.name.toLowerCase().includes(filter)).sort((a, b) => {
      const x = column.by(a), y = column.by(b);
      return (x < y ? -1 : x > y ? 1 : a.name < b.name ? -1 : 1) * (down ? -1 : 1);
    }).slice(0, ROWS);
    note.textContent = plural(rows.length, "row") + (filter ? " with “" + input.value.trim() + "”" : "") +
      ": the destinations with the most mail on disk, the busiest and those that are dead. " + plural(answer.in_memory, "destination") + " in memory.";
    fill(place, rows.length === 0 ? h("p", {class: "soft"}, filter ? "None of these. Open it by its whole name." : "No mail waits.") :
      table("Destinations", COLUMNS.map((c) => ({...c, sort: c.key === sort ? (down ? "descending" : "ascending") : null,
        node: h("button", {type: "button", "data-focus": "sort-" + c.key, onclick: () => {
          down = sort === c.key ? !down : c.n === true;
          sort = c.key;
          draw();
        }}, c.name)})),
      rows.map((r) => [h("a", {href: siteLink(r.name), "data-focus": r.name}, r.name), stateBadge(r.state),
        r.window === undefined ? "–" : [r.busy + " of " + r.window, bar(r.busy, r.window, r.busy + " of a window of " + r.window)],
        number(r.waiting), number(r.on_disk ?? r.messages), r.oldest ? duration(answer.time - r.oldest) : "–",
        r.per_second === undefined ? "–" : rate(r.per_second), errorOf(r)])));
  }
  view.keep(async () => {
    answer = await get("/v1/table", {max: ROWS}, view.signal);
    draw();
  });
}

/** Steps of the window as a line: [times, values], oldest first. */
function windowSteps(history, now, current) {
  const steps = [...history].reverse();
  const at = [], values = [];
  for (const s of steps) {
    if (at.length === 0) {
      at.push(s.at - 1);
      values.push(s.before);
    }
    at.push(Math.max(s.at, at[at.length - 1]));
    values.push(s.after);
  }
  if (at.length > 0) {
    at.push(Math.max(now, at[at.length - 1]));
    values.push(current);
  }
  return [at, values];
}

function one(view, name) {
  const said = h("div", {role: "status"}), top = h("div", null), gates = h("div", null), replies = h("div", null), steps = h("div", null);
  const load = plot("Deliveries in the last hour", ["window", "in flight", "waiting in memory"], {format: number, unit: "deliveries"});
  const speed = plot("Deliveries per second in the last hour", ["per second"], {unit: "per second"});
  const window_ = plot("The last changes of the window", ["window"], {format: number, steps: true, unit: "deliveries at once"});
  const loadPlace = h("div", null, load.element), speedPlace = h("div", null, speed.element), windowPlace = h("div", null, window_.element);
  const none = h("p", {class: "soft", hidden: true}, "It was not among the busiest or the dead in the last hour.");
  let site = null;

  const act = (question, words) => async () => {
    if (question && !await confirm(question.title, question.text, question.button)) {
      return;
    }
    try {
      fill(said, h("p", {class: "said"}, await words()));
      view.turn();
    } catch (error) {
      fill(said, h("p", {class: "said bad"}, error.message));
    }
  };
  const full = () => site ? site.transport + "/" + site.nexthop : name;
  const retry = act(null, async () => {
    let matched = 0, after;
    do {
      const answer = await post("/v1/messages/flush", after ? {filter: {destination: full()}, after} : {filter: {destination: full()}});
      matched += answer.matched;
      after = answer.next;
    } while (after);
    return "It is tried again now, with " + plural(matched, "message") + ".";
  });
  const pause = act({title: "Pause this destination?", text: "Nothing is delivered to it, mail that comes later included, until the pause is cancelled (page Interventions).", button: "Pause it"},
    async () => {
      const answer = await post("/v1/interventions", {verb: "pause", destination: full(), reason: "paused on the dashboard"});
      return "It is paused" + (answer.name ? " (" + answer.name + ")." : ".");
    });

  view.place.append(h("p", {class: "crumbs"}, h("a", {href: "#/destinations"}, "All destinations")), h("h1", null, name),
    h("section", {class: "card"}, h("h2", {class: "sr"}, "State"), top, said, h("div", {class: "actions"},
      h("button", {class: "main", type: "button", id: "retry", onclick: retry}, "Try it now"),
      h("button", {type: "button", id: "pause", onclick: pause}, "Pause"),
      h("a", {class: "button", href: "#/messages?destination=" + encodeURIComponent(name)}, "Its messages"))),
    card("What mail for it waits for", gates),
    h("div", {class: "grid"}, card("Deliveries", loadPlace, none), card("Deliveries per second", speedPlace)),
    h("div", {class: "grid"}, card("Window", windowPlace, steps), card("What it replied when it refused", replies)));
  view.onEnd(() => [load, speed, window_].forEach((p) => p.end()));

  view.keep(async () => {
    site = await get("/v1/site", {destination: name}, view.signal);
    const now = Date.now() / 1000;
    fill(top, facts([["state", h("span", null, stateBadge(site.state), site.since ? " since " + clock(site.since, now) + " (" + ago(site.since, now) + ")" : "")],
      ["why", site.reason], ["next attempt", site.until ? clock(site.until, now) : null], ["next hop", site.nexthop],
      ["in flight", site.window === undefined ? null : h("span", null, site.busy + " of a window of " + site.window +
        (site.window_max ? ", which may grow to " + site.window_max : ""), bar(site.busy, site.window, "share of the window in use"))],
      ["waiting in memory", site.waiting === undefined ? null : plural(site.waiting, "delivery", "deliveries") + (site.parked ? "; more wait on disk" : "")],
      ["a delivery takes", site.mean_seconds ? duration(site.mean_seconds) + ", " + rate(site.per_second) + " per second" : null],
      ["more at once", site.ceiling?.text]]));
    fill(gates, gateList(site, now), site.estimate?.assumption ? h("p", {class: "small soft"},
      site.estimate.at ? "Mail that comes now is expected to leave at " + clock(site.estimate.at, now) + ", provided that " + site.estimate.assumption + "." : site.estimate.assumption) : null);
    fill(replies, site.replies.length === 0 ? h("p", {class: "soft"}, "Nothing that is remembered.") :
      table("Replies", [{name: "status"}, {name: "what it said", words: true}, {name: "times", n: true}, {name: "last", n: true}],
        site.replies.map((r) => [h("span", {class: "mono"}, r.status || "–"), [r.text, r.host && r.host !== "none" ? h("div", {class: "soft"}, r.host) : null],
          number(r.count), clock(r.last, now)])));
    const line = windowSteps(site.history, now, site.state === "dead" ? 0 : site.window ?? site.history[0]?.after ?? 0);
    if (line[0].length > 1) {
      window_.set(line);
    } else {
      fill(windowPlace, h("p", {class: "soft"}, "It has not changed lately."));
    }
    fill(steps, site.history.length ? h("details", null, h("summary", null, "Its changes"),
      h("ul", {class: "small"}, site.history.map((s) => h("li", null, clock(s.at, now) + ": " + s.before + " to " + s.after + ", " + (WHY[s.why] ?? s.why))))) : null);
    const series = await get("/v1/series", {destination: site.transport + "/" + site.destination}, view.signal);
    if (series.at.length > 0) {
      load.set([series.at, series.window, series.busy, series.waiting]);
      speed.set([series.at, series.per_second]);
    }
    none.hidden = series.at.length > 0;
    loadPlace.hidden = speedPlace.hidden = !none.hidden;
  });
}

export function show(view) {
  if (view.words[0]) {
    one(view, view.words[0]);
  } else {
    list(view);
  }
}
