// Numbers and times as people read them.

export function number(n) {
  return n === null || n === undefined ? "–" : Math.round(n).toLocaleString("en");
}

export function rate(n) {
  return n === null || n === undefined || !Number.isFinite(n) ? "–" : n === 0 ? "0" : n < 10 ? n.toFixed(n < 1 ? 2 : 1) : number(n);
}

export function bytes(n) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return (i === 0 ? n : n.toFixed(n < 10 ? 1 : 0)) + " " + units[i];
}

export function duration(s) {
  if (s === null || s === undefined || !Number.isFinite(s)) {
    return "–";
  }
  s = Math.max(0, s);
  if (s < 1) {
    return Math.round(s * 1000) + " ms";
  }
  if (s < 120) {
    return (s < 10 ? Math.round(s * 10) / 10 : Math.round(s)) + " s";
  }
  if (s < 7200) {
    return Math.round(s / 60) + " min";
  }
  return s < 172800 ? (s / 3600).toFixed(1) + " h" : (s / 86400).toFixed(1) + " days";
}

/** Of seconds since 1970, local; with the date when it is another day than `now`'s. */
export function clock(t, now = Date.now() / 1000) {
  if (!t) {
    return "–";
  }
  const when = new Date(t * 1000), today = new Date(now * 1000).toDateString() === when.toDateString();
  return when.toLocaleString("en-GB", today ? {hour: "2-digit", minute: "2-digit", second: "2-digit"}
    : {day: "numeric", month: "short", hour: "2-digit", minute: "2-digit"});
}

export function ago(t, now) {
  return t ? duration(now - t) : "–";
}

export function plural(n, one, many) {
  return number(n) + " " + (n === 1 ? one : many ?? one + "s");
}
