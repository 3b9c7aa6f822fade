// What if: the mail of the last hours once more, in the simulator, with another value of a parameter. The daemon does not
// simulate: this page makes the command, and draws what it wrote.

import {card, fill, h, table} from "../dom.js";
import {plot} from "../plot.js";
import {duration, number} from "../words.js";

const COMMON = ["default_destination_concurrency_limit", "initial_destination_concurrency", "default_process_limit", "default_destination_recipient_limit",
  "default_destination_rate_delay", "qmgr_message_active_limit", "qmgr_destination_share", "minimal_backoff_time", "maximal_backoff_time", "default_class"];
const BYTES_MAX = 64 * 1024 * 1024;

const quoted = (text) => /^[\w=.,:/@%+-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'";

/** Samples of two runs at the times of either, until the end of the longer one; null: it was over. */
function together(before, after) {
  const of = (s) => s.active.map((_, i) => [i * s.step_us / 1e6, s.active[i] + s.incoming[i] + s.deferred[i] + s.parked[i]]);
  const a = of(before), b = of(after), times = [...new Set([...a, ...b].map(([t]) => t))].sort((x, y) => x - y);
  const at = (samples, step) => {
    let i = 0;
    return times.map((t) => {
      while (i + 1 < samples.length && samples[i + 1][0] <= t) {
        i++;
      }
      return samples.length === 0 || t >= samples[samples.length - 1][0] + step ? null : samples[i][1];
    });
  };
  return [times, at(a, before.step_us / 1e6), at(b, after.step_us / 1e6)];
}

export function show(view) {
  const parameter = h("input", {type: "text", id: "w-name", list: "w-names", autocomplete: "off", spellcheck: "false", value: COMMON[0], oninput: () => tell()});
  const value = h("input", {type: "text", id: "w-value", autocomplete: "off", spellcheck: "false", value: "5", oninput: () => tell()});
  const log = h("input", {type: "text", id: "w-log", autocomplete: "off", spellcheck: "false", value: "/var/log/mail.log", oninput: () => tell()});
  const command = h("output", {class: "said mono", id: "w-command", "aria-label": "The command"});
  const file = h("input", {type: "file", id: "w-file", accept: ".json,application/json", onchange: () => read()});
  const said = h("div", {role: "status"}), place = h("div", null);
  let plots = [];

  const clear = () => plots.splice(0).forEach((p) => p.end());
  view.onEnd(clear);

  function tell() {
    command.textContent = "sluice sim run -j -t " + quoted(log.value.trim()) + " --set " + quoted(parameter.value.trim() + "=" + value.value.trim()) + " > whatif.json";
  }

  async function read() {
    clear();
    fill(place);
    fill(said);
    const chosen = file.files[0];
    if (!chosen) {
      return;
    }
    try {
      if (chosen.size > BYTES_MAX) {
        throw new Error("it is too large");
      }
      const result = JSON.parse(await chosen.text());
      draw(result.before, result.after);
    } catch (error) {
      fill(said, h("p", {class: "said bad"}, chosen.name + " is not what the command writes: " + error.message));
    }
  }

  function draw(before, after) {
    const waiting = together(before.series, after.series);
    const p = plot("Messages that wait", ["as it is", "changed"], {plainX: true, format: number, unit: "messages"});
    const classes = [...new Set([...before.classes, ...after.classes].map((c) => c.name))];
    const of = (side, name) => side.classes.find((c) => c.name === name);
    const time = (c, q) => c && c.sent > 0 ? duration(c.delay[q] / 1e6) : "–";
    const change = (a, b, q) => a && b && a.sent > 0 && b.sent > 0 && a.delay[q] > 0
      ? (b.delay[q] >= a.delay[q] ? "+" : "−") + Math.abs(100 * (b.delay[q] - a.delay[q]) / a.delay[q]).toFixed(1) + " %" : "–";
    plots.push(p);
    fill(place, card("Messages that wait", p.element), card("Delays by class",
      table("Delays before and after", [{name: "class"}, {name: "recipients", n: true}, {name: "half within, as it is", n: true}, {name: "changed", n: true}, {name: "", n: true},
        {name: "99 in 100 within, as it is", n: true}, {name: "changed", n: true}, {name: "", n: true}],
      classes.map((name) => {
        const a = of(before, name), b = of(after, name);
        return [name || "(without a class)", number((a ?? b).recipients), time(a, "p50_us"), time(b, "p50_us"), change(a, b, "p50_us"),
          time(a, "p99_us"), time(b, "p99_us"), change(a, b, "p99_us")];
      }))));
    p.set(waiting);
  }

  tell();
  view.place.append(h("h1", null, "What if"),
    card("1. Ask the simulator", h("p", null, "The mail of a log goes through the scheduler twice: as it is configured, and with one parameter changed. Sites take the times that they took then. Run the command on the machine of the daemon; it needs seconds for a day's mail, and no mail waits for it."),
      h("form", {class: "row", onsubmit: (event) => event.preventDefault()}, h("label", null, "Parameter", parameter), h("datalist", {id: "w-names"}, COMMON.map((name) => h("option", {value: name}))),
        h("label", null, "Value", value), h("label", null, "Log", log)), command),
    card("2. See what came out", h("p", null, "The file stays in this browser."), h("label", null, "whatif.json", file), said), place);
  view.say("live");
}
