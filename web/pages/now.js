// Now: what comes and goes, what waits, and what is wrong, with what to do.

import {get} from "../api.js";
import {bar, card, fill, h, table} from "../dom.js";
import {plot} from "../plot.js";
import {ago, bytes, clock, duration, number, rate} from "../words.js";
import {siteLink, stateBadge} from "./destinations.js";

const COUNTERS = ["submitted", "delivered", "deferrals", "bounced"];
const KEPT = 720; // samples

/** Samples of counters since the start of the daemon as rates; a restart is a gap. */
export function rates(at, values) {
  return values.map((v, i) => i === 0 || v < values[i - 1] || at[i] <= at[i - 1] ? null : (v - values[i - 1]) / (at[i] - at[i - 1]));
}

function problemItem(p, now) {
  const what = p.severity === "critical" ? "Urgent" : p.severity === "warning" ? "Trouble" : "Note";
  return h("li", {class: p.severity},
    h("p", {class: "text"}, h("span", {class: "sr"}, what + ": "), p.text),
    h("p", {class: "small"}, p.since ? "Since " + clock(p.since, now) + " (" + ago(p.since, now) + "). " : "", p.advice ?? "", " ",
      p.destination ? h("a", {href: siteLink(p.destination), "data-focus": "p-" + p.destination}, "Show the destination") :
        p.state ? h("a", {href: "#/messages?state=" + p.state, "data-focus": "p-" + p.state}, "Show these messages") : null));
}

export function problems(list, now) {
  return list.length === 0 ? h("p", {class: "fine"}, "Nothing is wrong.")
    : h("ul", {class: "problems"}, list.map((p) => problemItem(p, now)));
}

export function show(view) {
  const tiles = h("ul", {class: "tiles", "aria-label": "Now"}), wrong = h("div", {"aria-live": "polite"});
  const whose = h("div", null), states = h("div", null), busiest = h("div", null);
  const flow = plot("Mail per second in the last hour", ["accepted", "delivered", "deferred", "bounced"], {unit: "per second"});
  const queue = plot("Messages on disk in the last hour", ["incoming", "deferred", "on hold"], {unit: "messages", format: number});
  let series = null, last = null, said = null;

  view.place.append(h("h1", null, "Now"), whose, tiles, card("What is wrong", wrong),
    h("div", {class: "grid"}, card("Mail per second", flow.element), card("Messages on disk", queue.element)),
    h("div", {class: "grid"}, card("The queue", states), card("Busiest destinations", busiest)));
  view.onEnd(() => [flow, queue].forEach((p) => p.end()));

  function addSample(o) {
    for (const [name, values] of Object.entries(series)) {
      if (Array.isArray(values)) {
        values.push(name === "at" ? o.time : o[name]);
        if (values.length > KEPT) {
          values.shift();
        }
      }
    }
  }

  view.keep(async () => {
    series ??= await get("/v1/series", {}, view.signal);
    const o = await get("/v1/overview", {}, view.signal);
    const at = series.at;
    if (at.length === 0 || o.time - at[at.length - 1] >= series.step * 0.9) {
      addSample(o);
    }
    const perSecond = (name) => last && o.time > last.time && o[name] >= last[name] ? (o[name] - last[name]) / (o.time - last.time)
      : rates(at, series[name]).at(-1);
    fill(tiles, [["accepted per s", rate(perSecond("submitted"))], ["delivered per s", rate(perSecond("delivered"))],
      ["deferred per s", rate(perSecond("deferrals"))], ["bounced per s", rate(perSecond("bounced"))],
      ["deliveries under way", number(o.in_flight)], ["wait in memory", number(o.waiting)],
      ["messages on disk", number(o.incoming + o.deferred + o.hold + o.corrupt)]].map(([name, value]) =>
      h("li", null, h("div", {class: "value"}, value), h("div", {class: "name"}, name))));
    last = o;
    fill(whose, o.node === undefined ? [] :
      h("p", {class: "soft"}, "Node " + o.node + ", of " + number(o.nodes_up) + " that are up: what is counted here is its own."));
    const words = JSON.stringify(o.problems.map((p) => [p.text, p.advice, p.since]));
    if (words !== said) { // else a screen reader would say it again and again
      said = words;
      fill(wrong, problems(o.problems, o.time));
    }
    flow.set([at, ...COUNTERS.map((name) => rates(at, series[name]))]);
    queue.set([at, series.incoming, series.deferred, series.hold]);
    fill(states, table("The queue by state", [{name: "state"}, {name: "messages", n: true}, {name: "oldest", n: true}],
      [["incoming", "incoming"], ["deferred", "deferred"], ["on hold", "hold"], ["corrupt", "corrupt"]].map(([name, state]) => [
        h("a", {href: "#/messages?state=" + state, "data-focus": "s-" + state}, name), number(o[state]),
        o.oldest[state] ? duration(o.time - o.oldest[state]) : "–"])),
      h("p", {class: "small soft"}, "Content: " + bytes(o.bytes) + (o.free_bytes === undefined ? "" : ". Free: " + bytes(o.free_bytes)) + ". In memory: " + number(o.active_messages) +
        " messages for " + number(o.active_destinations) + " destinations, of which " + number(o.dead_destinations) + " dead. Running for " +
        duration(o.uptime) + ", version " + o.version + "."));
    fill(busiest, o.busiest.length === 0 ? h("p", {class: "soft"}, "No deliveries are under way or waiting.") :
      table("Busiest destinations", [{name: "destination"}, {name: "state"}, {name: "under way"}, {name: "waiting", n: true}],
        o.busiest.slice(0, 8).map((s) => [h("a", {href: siteLink(s.transport + "/" + s.destination), "data-focus": "b-" + s.transport + s.destination},
          s.transport + "/" + s.destination), stateBadge(s.state),
        [s.busy + " of " + s.window, bar(s.busy, s.window, s.busy + " of a window of " + s.window)], number(s.waiting)])));
  });
}
