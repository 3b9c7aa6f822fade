// Classes: who has which share, and what they wait.

import {get} from "../api.js";
import {bar, card, fill, h, table} from "../dom.js";
import {duration, number} from "../words.js";

const PHASES = [["queued", "on disk"], ["active", "in memory"], ["setup", "connecting"], ["transmit", "being sent"]];

/** The value below which a part of a histogram's values lies, as far as its bounds tell. */
export function quantile(m, part) {
  let sum = 0;
  const wanted = m.count * part;
  for (let i = 0; i < m.counts.length; i++) {
    if (sum + m.counts[i] >= wanted && m.counts[i] > 0) {
      const low = i === 0 ? 0 : m.bounds[i - 1], high = m.bounds[i] ?? low;
      return low + (high - low) * (wanted - sum) / m.counts[i];
    }
    sum += m.counts[i];
  }
  return null;
}

const mean = (m) => m.count > 0 ? m.sum / m.count : 0;

function difference(now, before) {
  return before ? {...now, counts: now.counts.map((c, i) => c - before.counts[i]), count: now.count - before.count, sum: now.sum - before.sum} : now;
}

export function show(view) {
  const shares = h("div", null), delays = h("div", null);
  let first = null, lately = false;

  const choose = (value) => () => {
    lately = value;
    view.turn();
  };
  view.place.append(h("h1", null, "Classes"), card("Shares", shares,
    h("p", {class: "small soft"}, "Where mail of several classes waits for the same destination or transport, each gets turns by its weight. What one does not use, the others get.")),
  card("What they wait", h("fieldset", {class: "row plain"}, h("legend", {class: "sr"}, "Of which time"),
    h("label", {class: "choice"}, h("span", null, h("input", {type: "radio", name: "time", id: "since-start", checked: true, onchange: choose(false)}), " since the start")),
    h("label", {class: "choice"}, h("span", null, h("input", {type: "radio", name: "time", id: "since-open", onchange: choose(true)}), " since this page was opened"))), delays));

  view.keep(async () => {
    const answer = await get("/v1/classes", {}, view.signal);
    first ??= answer;
    const list = answer.classes, active = list.filter((c) => c.active_messages > 0), weights = active.reduce((sum, c) => sum + c.weight, 0);
    const name = (c) => c.class || "(without a class)";
    if (list.length === 0) {
      fill(shares, h("p", {class: "soft"}, "No mail has come since the start."));
      fill(delays);
      return;
    }
    fill(shares, table("Classes", [{name: "class"}, {name: "weight", n: true}, {name: "share of the turns now"}, {name: "in memory", n: true}, {name: "accepted", n: true}, {name: "delivered", n: true}, {name: "deferrals", n: true}],
      list.map((c) => [name(c), number(c.weight), c.active_messages > 0 ? [Math.round(100 * c.weight / weights) + " %", bar(c.weight, weights, "share")] : "–",
        number(c.active_messages), number(c.submitted), number(c.delivered), number(c.deferrals)])));
    const of = (c, phase) => difference(c.delays[phase], lately ? first.classes.find((f) => f.class === c.class)?.delays[phase] : null);
    fill(delays, table("Delays by class", [{name: "class"}, {name: "delivered", n: true}, {name: "half within", n: true}, {name: "9 in 10 within", n: true}, {name: "99 in 100 within", n: true}, {name: "where the time of an attempt goes, on average"}],
      list.map((c) => {
        const total = of(c, "total"), parts = PHASES.map(([p]) => mean(of(c, p))), sum = parts.reduce((a, b) => a + b, 0);
        return [name(c), number(total.count), ...[0.5, 0.9, 0.99].map((p) => duration(quantile(total, p))),
          [h("span", {class: "bar wide", role: "img", "aria-label": PHASES.map(([, words], i) => words + " " + duration(parts[i])).join(", ")},
            parts.map((p, i) => h("span", {class: "c" + (i + 1), "width%": sum > 0 ? 100 * p / sum : 0}))),
          h("span", {class: "small soft"}, PHASES.map(([, words], i) => words + " " + duration(parts[i])).join(", "))]];
      })),
    h("ul", {class: "legend"}, PHASES.map(([, words], i) => h("li", null, h("span", {class: "key c" + (i + 1), "aria-hidden": "true"}), words))));
  });
}
