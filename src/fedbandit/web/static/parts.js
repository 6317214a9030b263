// Small parts that all pages share. Text is only ever inserted as text: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, call] of Object.entries(value)) node.addEventListener(event, call);
    else if (name === "colour") node.style.setProperty(value[0], value[1]);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const draw = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e7 || Math.abs(value) < 1e-3)) return value.toExponential(2);
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  return Number(value.toPrecision(digits)).toString();
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${number(value)} ${units[at]}`;
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    if (seconds >= 2 * size) return `${number(seconds / size, 2)} ${unit}s`;
  }
  return `${Math.max(0, Math.round(seconds))} s`;
}

const QUANTITY = /^([\d.,e+-]+ ?(%|[kMGT]?B)|–)$/; // a number with its unit, as text
export const percent = (share) => (share === null || share === undefined ? "–" : `${number(100 * share)} %`);

// columns: names; rows: lists of texts, numbers or nodes. Numbers are flush right.
export function table(columns, rows, caption, options = {}) {
  const numeric = columns.map((_, at) => rows.length > 0 && rows.every((row) => typeof row[at] === "number" || row[at] === null || QUANTITY.test(row[at])));
  const long = columns.map((_, at) => rows.some((row) => typeof row[at] === "string" && row[at].length > 60));
  const look = (at) => (numeric[at] ? "number" : long[at] ? "words" : at === 0 && long.includes(true) ? "beside-words" : null);
  const cell = (tag, value, at, more) => el(tag, { class: look(at), ...more },
    typeof value === "number" || value === null ? number(value, 4) : value);
  return el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": caption || columns.join(", ") },
    el("table", {},
      caption && !options.quiet ? el("caption", {}, caption) : null,
      el("thead", {}, el("tr", {}, columns.map((name, at) => cell("th", name, at, { scope: "col" })))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, at) => cell(at ? "td" : "th", value, at, at ? {} : { scope: "row" }))))))); // prettier-ignore
}

export function replace(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
}

// The button cycles through the system's own colours, light and dark.
export function theme(button) {
  const states = ["auto", "light", "dark"];
  const stored = () => { try { return localStorage.getItem("theme") || "auto"; } catch { return "auto"; } };
  const show = (state) => {
    if (state === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = state;
    button.textContent = `Colours: ${state}`;
  };
  button.addEventListener("click", () => {
    const next = states[(states.indexOf(stored()) + 1) % states.length];
    try { localStorage.setItem("theme", next); } catch { /* a browser without local storage forgets it */ }
    show(next);
  });
  show(stored());
}
