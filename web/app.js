// The frame of the dashboard: which page is shown, and what is asked again while it is.

import {fill, h} from "./dom.js";
import {events, keepToken} from "./api.js";
import * as now from "./pages/now.js";
import * as destinations from "./pages/destinations.js";
import * as message from "./pages/message.js";
import * as classes from "./pages/classes.js";
import * as interventions from "./pages/interventions.js";
import * as whatif from "./pages/whatif.js";

// Each page: title and show(view), which is called anew for each address.
const pages = {now, destinations, messages: message, classes, interventions, whatif};
const names = {now: "Now", destinations: "Destinations", messages: "Messages", classes: "Classes", interventions: "Interventions", whatif: "What if"};
const main = document.getElementById("main");
const live = document.getElementById("live");

const PERIOD_MS = 5000; // asked again at least so often
const SOON_MS = 1000;   // and at most so often after events

// Facts that change what a page says; deliveries are too many to follow each, and the period has them.
const CHANGES = ["dead", "revived", "held", "released", "removed", "paused", "bouncing", "redirected", "limited", "cancelled"].map((e) => ["event", e]);

let view = null;

function say(text, off) {
  if (live.textContent !== text) {
    live.textContent = text;
  }
  live.classList.toggle("off", off === true);
}

/** What a page has: its place, its words of the address, and ways to come back that end with it. */
class View {
  constructor(words, query) {
    this.words = words;
    this.query = query;
    this.place = h("div", null);
    this.abort = new AbortController();
    this.signal = this.abort.signal;
    this.ends = [];
    this.timer = null;
    this.running = false;
    this.again = false;
  }

  say(text, off) {
    say(text, off);
  }

  /** Call `load` (async) now, again every few seconds, and soon after an event that is `wanted` (a filter of /v1/events), of
   * which `heard` is told. */
  keep(load, wanted, heard) {
    this.heard = heard;
    const turn = async () => {
      clearTimeout(this.timer);
      if (this.running || this.signal.aborted || document.hidden) {
        this.again = true;
        return;
      }
      this.running = true;
      this.again = false;
      try {
        await load();
        say("live");
      } catch (error) {
        if (!this.signal.aborted) {
          say(error.status ? error.message : "The daemon does not answer; asking again.", true);
        }
      }
      this.running = false;
      this.last = Date.now();
      if (!this.signal.aborted) {
        this.timer = setTimeout(turn, this.again ? SOON_MS : PERIOD_MS);
      }
    };
    this.turn = turn;
    const shown = () => document.hidden || turn();
    document.addEventListener("visibilitychange", shown, {signal: this.signal});
    turn();
    this.listen(wanted);
  }

  /** Events make the next turn come sooner; each page needs some of them only. */
  async listen(wanted) {
    while (!this.signal.aborted) {
      const heard = (event) => {
        this.heard?.(event);
        if (this.soon === undefined && !this.signal.aborted) {
          this.soon = setTimeout(() => {
            this.soon = undefined;
            this.turn();
          }, SOON_MS);
        }
      };
      // A hidden tab has no stream: a browser has few connections for all tabs of a place.
      const shown = new AbortController(), hide = () => document.hidden && shown.abort();
      document.addEventListener("visibilitychange", hide);
      const works = document.hidden || await events(wanted ?? CHANGES, heard, AbortSignal.any([this.signal, shown.signal]));
      document.removeEventListener("visibilitychange", hide);
      if (!works) {
        return; // none there: the period has to do
      }
      await new Promise((resolve) => setTimeout(resolve, PERIOD_MS));
    }
  }

  onEnd(f) {
    this.ends.push(f);
  }

  end() {
    this.abort.abort();
    clearTimeout(this.timer);
    clearTimeout(this.soon);
    this.ends.forEach((f) => f());
  }
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function show() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const words = path.split("/").map(decode);
  const page = Object.hasOwn(pages, words[0]) ? words[0] : "now";
  if (location.hash === "#main") {
    main.focus();
    return;
  }
  view?.end();
  view = new View(words.slice(1), new URLSearchParams(query ?? ""));
  fill(document.getElementById("nav"), h("ul", null, Object.keys(pages).map((name) => h("li", null,
    h("a", {href: "#/" + name, "aria-current": name === page ? "page" : null, "data-focus": name}, names[name])))));
  document.title = names[page] + " · Sluice";
  fill(main, view.place);
  scrollTo(0, 0);
  pages[page].show(view);
}

if (location.hash.startsWith("#token=")) { // not in the history, not in what is shared
  keepToken(decode(location.hash.slice(7)));
  history.replaceState(null, "", location.pathname + "#/now");
}
addEventListener("hashchange", () => {
  show();
  main.focus({preventScroll: true}); // so that a screen reader begins with the new page
});
show();
