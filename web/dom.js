// Elements are built here and nowhere else. All text becomes text nodes, so that no address, reply or name can become
// markup; what may be a link goes to a page of this program.

/** h("a", {class: "x", href: "#/now", onclick: f}, "text", node, [nodes]). Attributes that are null or false are left out. */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) {
      continue;
    }
    if (name.startsWith("on") && typeof value === "function") {
      element.addEventListener(name.slice(2), value);
    } else if (name === "disabled" || name === "checked" || name === "selected") {
      element[name] = value;
    } else if (name === "href" && !String(value).startsWith("#")) {
      throw new Error("links lead to pages of this program");
    } else if (name === "width%") {
      element.style.width = Math.max(0, Math.min(100, value)) + "%";
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false).map(
    (c) => c instanceof Node ? c : document.createTextNode(String(c))));
  return element;
}

/** Put `children` in the place of all that `parent` has. What had the focus gets it again, by its attribute data-focus. */
export function fill(parent, ...children) {
  const active = document.activeElement;
  const name = parent.contains(active) ? active.dataset.focus : undefined;
  parent.replaceChildren(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  if (name !== undefined) {
    for (const element of parent.querySelectorAll("[data-focus]")) {
      if (element.dataset.focus === name) {
        element.focus({preventScroll: true});
        return;
      }
    }
  }
}

export function card(title, ...children) {
  return h("section", {class: "card"}, h("h2", null, title), children);
}

/** Columns: [{name, n (right), title}], rows of cells (a cell: a node, a text, or {n, node}). The first cell of a row is its name. */
export function table(caption, columns, rows) {
  return h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
    h("table", null, h("caption", {class: "sr"}, caption),
      h("thead", null, h("tr", null, columns.map((c) => h("th", {scope: "col", class: c.n ? "n" : null, "aria-sort": c.sort ?? null}, c.node ?? c.name)))),
      h("tbody", null, rows.map((cells) => h("tr", null, cells.map((cell, i) =>
        i === 0 ? h("th", {scope: "row"}, cell) : h("td", {class: columns[i].n ? "n" : columns[i].words ? "words" : null}, cell)))))));
}

export function facts(pairs) {
  return h("dl", null, pairs.filter((p) => p && p[1] !== null && p[1] !== undefined && p[1] !== "").map(
    ([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

export function bar(part, of, label) {
  return h("span", {class: "bar", role: "img", "aria-label": label}, h("span", {"width%": of > 0 ? 100 * part / of : 0}));
}

/** A question with two buttons; resolves to whether the first was chosen. */
export function confirm(title, text, button) {
  return new Promise((resolve) => {
    const dialog = document.getElementById("dialog");
    const end = (answer) => () => {
      dialog.close();
      resolve(answer);
    };
    fill(dialog, h("h2", {id: "dialog-title"}, title), h("p", null, text),
      h("div", {class: "actions"},
        h("button", {class: "danger", type: "button", id: "confirm", onclick: end(true)}, button),
        h("button", {type: "button", onclick: end(false), autofocus: true}, "Leave it")));
    dialog.oncancel = () => resolve(false);
    dialog.showModal();
  });
}
