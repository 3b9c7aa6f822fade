// What if: the mail of the last hours once more, in the simulator, with another value of a parameter.

import {get, post} from "../api.js";
import {card, fill, h, table} from "../dom.js";
import {plot} from "../plot.js";
import {duration, number} from "../words.js";

const COMMON = ["default_destination_concurrency_limit", "initial_destination_concurrency", "default_process_limit", "default_destination_recipient_limit",
  "default_destination_rate_delay", "qmgr_message_active_limit", "qmgr_destination_share", "minimal_backoff_time", "maximal_backoff_time", "default_class"];

export function show(view) {
  const parameter = h("input", {type: "text", id: "w-name", list: "w-names", required: true, autocomplete: "off", spellcheck: "false", value: COMMON[0]});
  const value = h("input", {type: "text", id: "w-value", required: true, autocomplete: "off", spellcheck: "false", size: "10"});
  const hours = h("input", {type: "number", id: "w-hours", min: "1", max: "24", value: "4"});
  const button = h("button", {class: "main", type: "submit"}, "Run it"), said = h("div", {role: "status"}), place = h("div", null);
  let plots = [];

  const clear = () => plots.splice(0).forEach((p) => p.end());
  view.onEnd(clear);

  async function run(event) {
    event.preventDefault();
    button.disabled = true;
    clear();
    fill(place);
    fill(said, h("p", {class: "said"}, "The simulator runs; it takes a minute at most, and no mail waits for it."));
    try {
      const answer = await post("/v1/whatif", {set: parameter.value.trim() + " = " + value.value.trim(), hours: Number(hours.value)}, view.signal);
      fill(said, h("p", {class: "said"}, number(answer.messages) + " messages for " + number(answer.recipients) + " recipients, of " + duration(answer.seconds) + ", from the end of the log" +
        (answer.cut ? " (more than fits was left out)" : "") + "."));
      draw(answer);
    } catch (error) {
      if (!view.signal.aborted) {
        fill(said, h("p", {class: "said bad"}, error.message));
      }
    }
    button.disabled = false;
  }

  function draw(answer) {
    const lines = [["waiting", "Messages that wait"], ["busy", "Deliveries under way"]].map(([name, title]) => {
      const p = plot(title, ["as it is", "with " + answer.set], {plainX: true, format: number});
      p.values = [answer.at, answer.before.series[name], answer.after.series[name]];
      plots.push(p);
      return card(title, p.element);
    });
    const classes = [...new Set([...answer.before.classes, ...answer.after.classes].map((c) => c.class))];
    const of = (side, name) => side.classes.find((c) => c.class === name) ?? {};
    const change = (a, b) => a > 0 && b !== undefined ? (b >= a ? "+" : "−") + Math.abs(Math.round(1000 * (b - a) / a) / 10) + " %" : "–";
    fill(place, h("div", {class: "grid"}, lines), card("Delays by class",
      table("Delays before and after", [{name: "class"}, {name: "recipients", n: true}, {name: "half within, now", n: true}, {name: "then", n: true}, {name: "change", n: true},
        {name: "99 in 100 within, now", n: true}, {name: "then", n: true}, {name: "change", n: true}],
      classes.map((name) => {
        const a = of(answer.before, name), b = of(answer.after, name);
        return [name || "(without a class)", number(a.recipients), duration(a.p50), duration(b.p50), change(a.p50, b.p50), duration(a.p99), duration(b.p99), change(a.p99, b.p99)];
      }))));
    plots.forEach((p) => p.set(p.values));
  }

  view.place.append(h("h1", null, "What if"),
    h("section", {class: "card"}, h("h2", {class: "sr"}, "Question"), h("p", null, "The mail of the last hours, as the log has it, goes through the scheduler twice: as it is configured, and with one parameter changed. The times that sites took then are those they take here."),
      h("form", {class: "row", id: "whatif", onsubmit: run}, h("label", null, "Parameter", parameter), h("datalist", {id: "w-names"}, COMMON.map((name) => h("option", {value: name}))),
        h("label", null, "Value", value), h("label", null, "Hours", hours), button)), said, place);
  get("/v1/status", {}, view.signal).catch(() => {}); // asks for the token, if one is needed
}
