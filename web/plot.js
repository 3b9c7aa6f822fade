// Plots over time, by uPlot, with a legend of our own and the same numbers as a table for those who do not see them.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import {h, fill, table} from "./dom.js";
import {clock, rate} from "./words.js";

const ROWS = 12; // of the table

function colour(i) {
  return getComputedStyle(document.documentElement).getPropertyValue("--c" + (i % 6 + 1)).trim();
}

function timeOfDay(t, step) {
  return new Date(t * 1000).toLocaleTimeString("en-GB", step < 60 ? {} : {hour: "2-digit", minute: "2-digit"});
}

function hours(t, step) {
  return step < 600 ? Math.round(t / 60) + " min" : (t / 3600).toFixed(step < 3600 ? 1 : 0) + " h";
}

/**
 * A plot: `names` of its lines, `unit` for the words. set(data) with data = [times, values, ...] (seconds; null: a gap);
 * `steps`: values stay until the next. `plainX`: times are hours since a start, not of a day.
 */
export function plot(title, names, {unit = "", steps = false, height = 190, plainX = false, format = rate} = {}) {
  const place = h("div", {class: "plot", role: "img", "aria-label": title});
  const legend = h("ul", {class: "legend"});
  const numbers = h("div", null);
  const details = h("details", null, h("summary", null, "The numbers"), numbers);
  const element = h("div", null, place, legend, details);
  let chart = null, data = null;

  const time = (t) => plainX ? (t / 3600).toFixed(2) + " h" : clock(t);

  function build() {
    chart?.destroy();
    chart = null;
    if (!data || data[0].length < 2 || place.clientWidth === 0) {
      return;
    }
    const ink = getComputedStyle(document.documentElement).getPropertyValue("--soft").trim();
    const line = getComputedStyle(document.documentElement).getPropertyValue("--line").trim();
    const axis = {stroke: ink, grid: {stroke: line, width: 1}, ticks: {stroke: line}, font: "12px system-ui, sans-serif"};
    chart = new uPlot({
      width: place.clientWidth, height, legend: {show: false}, cursor: {y: false, drag: {x: false, y: false}},
      scales: {x: {time: !plainX}, y: {range: (u, low, high) => [0, Math.max(1, (high ?? 1) * 1.08)]}},
      axes: [{...axis, space: 70, values: (u, ts, i, space, step) => ts.map((t) => plainX ? hours(t, step) : timeOfDay(t, step))},
        {...axis, size: 56, values: (u, values) => values.map((v) => format(v))}],
      series: [{}, ...names.map((name, i) => ({label: name, stroke: colour(i), width: 1.8, spanGaps: false, points: {show: false},
        paths: steps ? uPlot.paths.stepped({align: 1}) : undefined}))],
    }, data, place);
  }

  function words() {
    const last = data[0].length - 1;
    const latest = names.map((name, i) => name + " " + (last < 0 ? "–" : format(data[i + 1][last])));
    place.setAttribute("aria-label", title + ". At the end: " + latest.join(", ") + (unit ? " " + unit : "") + ".");
    fill(legend, names.map((name, i) => h("li", null, h("span", {class: "key c" + (i % 6 + 1), "aria-hidden": "true"}), name + " ",
      h("span", {class: "now"}, last < 0 ? "–" : format(data[i + 1][last])))));
    if (details.open) {
      rows();
    }
  }

  function rows() {
    const count = data ? data[0].length : 0, step = Math.max(1, Math.floor(count / ROWS)), picked = [];
    for (let i = count - 1; i >= 0 && picked.length < ROWS; i -= step) {
      picked.unshift(i);
    }
    fill(numbers, table(title, [{name: "time"}, ...names.map((name) => ({name, n: true}))],
      picked.map((i) => [time(data[0][i]), ...names.map((_, j) => format(data[j + 1][i]))])));
  }

  details.addEventListener("toggle", () => details.open && data && rows());
  const observer = new ResizeObserver(() => {
    if (chart && place.clientWidth !== chart.width) {
      chart.setSize({width: place.clientWidth, height});
    } else if (!chart && data) {
      build();
    }
  });
  observer.observe(place);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", build);

  return {
    element,
    set(values) {
      data = values;
      if (chart && data[0].length >= 2) {
        chart.setData(data);
      } else {
        build();
      }
      words();
    },
    end() {
      observer.disconnect();
      scheme.removeEventListener("change", build);
      chart?.destroy();
      chart = null;
    },
  };
}
