// What if: the mail of the last hours once more, in the simulator, with another value of a parameter. The daemon runs it, in
// a process for which no mail waits; nothing is changed by it.

import {post} from "../api.js";
import {card, fill, h, table} from "../dom.js";
import {plot} from "../plot.js";
import {clock, duration, number, plural, rate} from "../words.js";

// As src/whatif/whatif.c has them; TRANSPORT_ in place of default_ is for one transport.
const KNOWN = ["class_fairness", "class_fairness_merge", "concurrency_feedback_rule", "default_class", "default_delivery_slot_cost", "default_delivery_slot_discount",
  "default_delivery_slot_loan", "default_destination_concurrency_failed_cohort_limit", "default_destination_concurrency_feedback", "default_destination_concurrency_limit",
  "default_destination_concurrency_negative_feedback", "default_destination_concurrency_positive_feedback", "default_destination_rate_delay",
  "default_destination_recipient_limit", "default_extra_recipient_limit", "default_minimum_delivery_slots", "default_process_limit", "default_recipient_limit",
  "default_recipient_refill_delay", "default_recipient_refill_limit", "default_transport_rate_delay", "initial_destination_concurrency", "maximal_backoff_time",
  "maximal_queue_lifetime", "minimal_backoff_time", "qmgr_destination_share", "qmgr_failing_share", "qmgr_message_active_limit", "qmgr_message_recipient_limit",
  "qmgr_message_recipient_minimum", "retry_jitter", "smtp_connect_timeout", "smtp_connection_cache_on_demand", "smtp_connection_cache_time_limit",
  "smtp_connection_reuse_count_limit", "smtp_connection_reuse_time_limit", "smtp_helo_timeout", "smtp_mx_address_limit", "transport_retry_time"];
const LIMITS = "A site takes the times that it took, however many deliveries it gets at once: what it does beyond what was recorded, no simulation knows. "
  + "Mail that waited already when the time began is left out, and the machine itself takes no time.";
const CLASSES_DRAWN = 3;

const SAME = 0.01; // of a time: less is no difference

/** What the change does to one time, in words; null: nothing. */
function change(what, before, after) {
  if (!(before > 0) || !(after > 0) || Math.abs(after - before) <= SAME * before) {
    return null;
  }
  return what + " " + duration(after) + " instead of " + duration(before);
}

/** The differences of two rows, in words. */
function summary(before, after) {
  const found = [change("half of it arrives within", before.delay.p50, after.delay.p50), change("99 in a hundred within", before.delay.p99, after.delay.p99),
    before.left === after.left ? null : plural(after.left, "recipient waits", "recipients wait") + " at the end instead of " + number(before.left),
    before.deferrals === after.deferrals ? null : plural(after.deferrals, "deferral") + " instead of " + number(before.deferrals),
    before.busy_peak === after.busy_peak ? null : "at most " + plural(after.busy_peak, "delivery", "deliveries") + " at once instead of " + number(before.busy_peak)].filter(Boolean);
  return found.length ? found.join(", ") : "no difference";
}

export function show(view) {
  const name = h("input", {type: "text", id: "w-name", list: "w-names", autocomplete: "off", spellcheck: "false", required: true, value: "default_destination_concurrency_limit"});
  const value = h("input", {type: "text", id: "w-value", autocomplete: "off", spellcheck: "false", required: true, value: "40"});
  const hours = h("input", {type: "number", id: "w-hours", min: "0.1", max: "168", step: "any", required: true, value: "2"});
  const button = h("button", {class: "main", type: "submit", id: "w-run"}, "Run it");
  const said = h("div", {role: "status", id: "w-said"}), place = h("div", null);
  let plots = [], asking = null;

  const clear = () => plots.splice(0).forEach((p) => p.end());
  view.onEnd(() => {
    asking?.abort();
    clear();
  });

  async function run(event) {
    event.preventDefault();
    asking?.abort();
    const mine = asking = new AbortController();
    clear();
    fill(place);
    button.disabled = true;
    fill(said, h("p", {class: "said"}, "It runs. That takes seconds, and no mail waits for it."));
    try {
      const answer = await post("/v1/whatif", {hours: Number(hours.value), set: {[name.value.trim()]: value.value.trim()}}, mine.signal);
      if (!mine.signal.aborted) {
        draw(answer);
      }
    } catch (error) {
      if (!mine.signal.aborted) {
        fill(said, h("p", {class: "said bad"}, error.message));
      }
    } finally {
      if (asking === mine) {
        button.disabled = false;
      }
    }
  }

  function line(title, unit, step, lists, format) {
    const p = plot(title, lists.map(([label]) => label), {plainX: true, format, unit});
    plots.push(p);
    return [p, () => p.set([lists[0][1].map((_, i) => i * step), ...lists.map(([, values]) => values)])];
  }

  function draw(answer) {
    const {before, after, step} = answer, drawn = [], cards = [];
    const both = (title, unit, of, format) => {
      const [p, set] = line(title, unit, step, [["as it is", of(before)], ["changed", of(after)]], format);
      drawn.push(set);
      cards.push(card(title, p.element));
    };
    const rows = (member) => {
      const names = [...new Set([...before[member], ...after[member]].map((r) => r.name))];
      return names.map((n) => [n, before[member].find((r) => r.name === n), after[member].find((r) => r.name === n)]).filter(([, a, b]) => a && b);
    };
    const time = (row, q) => row.sent > 0 ? duration(row.delay[q]) : "–";
    const cells = (list) => list.map(([n, a, b]) => [n, number(a.recipients), time(a, "p50"), time(b, "p50"), time(a, "p99"), time(b, "p99"), number(a.left), number(b.left)]);
    const columns = (first) => [{name: first}, {name: "recipients", n: true}, {name: "half within, as it is", n: true}, {name: "changed", n: true},
      {name: "99 in 100 within, as it is", n: true}, {name: "changed", n: true}, {name: "left, as it is", n: true}, {name: "changed", n: true}];
    const words = rows("classes").map(([n, a, b]) => h("li", null, h("strong", null, n), ": " + summary(a, b) + "."));

    both("Recipients that wait", "recipients", (r) => r.waiting, number);
    both("Deliveries per second", "per second", (r) => r.sent.map((n) => n / step), rate);
    for (const {class: name} of before.delays.slice(0, CLASSES_DRAWN)) {
      const of = (r) => r.delays.find((d) => d.class === name)?.p99 ?? before.waiting.map(() => null);
      both("Delay of " + name + ", 99 in a hundred", "", of, duration);
    }
    fill(said, h("p", {class: "said"}, "Done: " + plural(answer.messages, "message") + " since " + clock(answer.begins) + (answer.cut ? " (there were more events; the latest were read)" : "") + "."));
    fill(place, card("What it would have meant", h("ul", {id: "w-words"}, words),
      h("p", null, "How far to trust it: of the mail that really was delivered, half took " + duration(answer.recorded.delay.p50) + " and 99 in a hundred " +
        duration(answer.recorded.delay.p99) + "; simulated as it is, " + duration(before.total.delay.p50) + " and " + duration(before.total.delay.p99) + ". " + LIMITS)),
    cards, card("By class", table("Delays by class, before and after", columns("class"), cells(rows("classes")))),
    card("By destination", table("Delays by destination, before and after", columns("destination"), cells(rows("destinations")))));
    drawn.forEach((set) => set());
  }

  view.place.append(h("h1", null, "What if"),
    card("Another value", h("p", null, "The mail of the last hours goes through the scheduler twice: as it is configured, and with one parameter changed. Nothing is changed in the daemon."),
      h("form", {class: "row", onsubmit: run}, h("label", null, "Parameter", name), h("datalist", {id: "w-names"}, KNOWN.map((n) => h("option", {value: n}))),
        h("label", null, "Value", value), h("label", null, "Hours", hours), button), said), place);
  view.say("live");
}
