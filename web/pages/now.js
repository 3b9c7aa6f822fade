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

/** What a node has to be asked for, summed up, in the place of what one of them has. What is wrong with stored mail is of all anyhow. */
function ofAll(own, cluster) {
  return !cluster ? own : {...own, ...cluster.sums, busiest: cluster.busiest,
    problems: [...(cluster.failed ?? []).map((text) => ({problem: "node", severity: "warning", text, advice: "What is counted here is without it."})),
      ...(cluster.unowned ? [{problem: "unowned", severity: "critical", text: number(cluster.unowned) + " of 256 partitions have no node: their mail waits.",
        advice: "Another node takes them within seconds; if not, look at the nodes' logs."}] : []),
      ...cluster.problems.map((p) => ({...p, text: "Node " + p.node + ": " + p.text})),
      ...own.problems.filter((p) => ["corrupt", "held", "old"].includes(p.problem))]};
}

function nodeTable(cluster) {
  const count = (node, name) => node.answered ? number(node[name]) : "–";
  return table("Nodes", [{name: "node"}, {name: "state"}, {name: "heard of"}, {name: "partitions", n: true}, {name: "in memory", n: true},
    {name: "in flight", n: true}, {name: "waiting", n: true}, {name: "delivered", n: true}],
  cluster.nodes.map((node) => [node.node, node.up || node.state === "stopped" ? node.state : "down",
    node.state === "stopped" ? "–" : node.silent < 3 ? "just now" : duration(node.silent) + " ago", number(node.partitions),
    count(node, "active_messages"), count(node, "in_flight"), count(node, "waiting"), count(node, "delivered")]));
}

export function show(view) {
  const tiles = h("ul", {class: "tiles", "aria-label": "Now"}), wrong = h("div", {"aria-live": "polite"});
  const whose = h("div", null), nodes = h("div", null), states = h("div", null), busiest = h("div", null);
  const flow = plot("Mail per second in the last hour", ["accepted", "delivered", "deferred", "bounced"], {unit: "per second"});
  const queue = plot("Messages on disk in the last hour", ["incoming", "deferred", "on hold"], {unit: "messages", format: number});
  let series = null, last = null, said = null, cluster = null, isAsked = false;

  view.place.append(h("h1", null, "Now"), whose, tiles, nodes, card("What is wrong", wrong),
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

  // A node that hangs holds up its answer for some seconds: the page does not wait for it.
  async function askNodes() {
    if (isAsked) {
      return;
    }
    isAsked = true;
    try {
      cluster = await get("/v1/cluster", {}, view.signal);
    } catch (error) {
      if (error.name !== "AbortError" && cluster) {
        cluster.failed = ["The nodes can't be asked: " + error.message];
      }
    } finally {
      isAsked = false;
    }
  }

  view.keep(async () => {
    const own = await get("/v1/overview", {}, view.signal);
    if (own.node !== undefined) {
      const asked = askNodes();
      if (!cluster) {
        await Promise.race([asked, new Promise((resolve) => setTimeout(resolve, 500))]);
      }
    }
    const o = ofAll(own, cluster);
    if (!series || (cluster && !(o.time - series.at.at(-1) < series.step))) {
      series = await get("/v1/series", {}, view.signal);
    }
    const at = series.at;
    if (!cluster && (at.length === 0 || o.time - at[at.length - 1] >= series.step * 0.9)) {
      addSample(o);
    }
    const perSecond = (name) => !cluster && last && o.time > last.time && o[name] >= last[name] ? (o[name] - last[name]) / (o.time - last.time)
      : rates(at, series[name]).at(-1);
    fill(tiles, [["accepted per s", rate(perSecond("submitted"))], ["delivered per s", rate(perSecond("delivered"))],
      ["deferred per s", rate(perSecond("deferrals"))], ["bounced per s", rate(perSecond("bounced"))],
      ["deliveries in flight", number(o.in_flight)], ["wait in memory", number(o.waiting)],
      ["messages on disk", number(o.incoming + o.deferred + o.hold + o.corrupt)]].map(([name, value]) =>
      h("li", null, h("div", {class: "value"}, value), h("div", {class: "name"}, name))));
    last = o;
    fill(whose, o.node === undefined ? [] :
      h("p", {class: "soft"}, "Asked at node " + o.node + ", of " + number(o.nodes_up) + " that are up" + (cluster ? "." : ": what is counted here is its own.")));
    fill(nodes, cluster ? card("Nodes", nodeTable(cluster)) : []);
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
    fill(busiest, o.busiest.length === 0 ? h("p", {class: "soft"}, "No deliveries are in flight or waiting.") :
      table("Busiest destinations", [{name: "destination"}, {name: "state"}, {name: "in flight"}, {name: "waiting", n: true}],
        o.busiest.slice(0, 8).map((s) => [h("a", {href: siteLink(s.transport + "/" + s.destination), "data-focus": "b-" + s.transport + s.destination},
          s.transport + "/" + s.destination), stateBadge(s.state),
        [s.busy + " of " + s.window, bar(s.busy, s.window, s.busy + " of a window of " + s.window)], number(s.waiting)])));
  });
}
