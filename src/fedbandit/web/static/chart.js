// Charts as SVG, each with the same numbers in a table below it. Every protocol has its own colour and its own dash
// pattern, so that nobody has to tell colours apart.

import { draw, el, number, table } from "./parts.js";

const WIDEST = 832, HEIGHT = 300, LEFT = 62, RIGHT = 12, TOP = 10, BOTTOM = 40;
let WIDTH = WIDEST; // of the current chart: narrower where there is less room, with text of the same size
const DASHES = ["none", "9 4", "3 3", "11 3 3 3", "2 2", "14 4", "6 2 1 2 1 2", "2 6"];
const OTHERS = 8;
let charts = 0;

// The CSS variable (made by colours.py) of the protocol that a name begins with; undefined if there is none.
function protocolOf(name) {
  const words = name.split(/[^\w-]+/), sheet = getComputedStyle(document.documentElement);
  return words.map((_, at) => `--protocol-${words.slice(0, words.length - at).join("-")}`).find((one) => sheet.getPropertyValue(one));
}

// A colour for each name: its protocol's, or else the next of the colours that no protocol has.
function colours(names) {
  const protocols = new Map(names.map((name) => [name, protocolOf(name)])), others = names.filter((name) => !protocols.get(name));
  return (name) => `var(${protocols.get(name) || `--other-${others.indexOf(name) % OTHERS}`})`;
}

function ticks(low, high, count = 5) {
  if (high - low === 1 && low % 1) return [low + 0.5]; // around one whole number
  const rough = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step / 1e6 ? 0 : at);
  return found;
}

// Fits the width of the next chart to `room`, the node that it is drawn into.
export function fit(room, widest = WIDEST) {
  WIDTH = Math.max(280, Math.min(widest, room?.clientWidth || document.documentElement.clientWidth - 64));
  return WIDTH;
}

function scale(low, high, from, to) {
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

function extent(values, zero) {
  const finite = values.filter((value) => Number.isFinite(value));
  if (!finite.length) return [0, 1];
  const low = Math.min(...finite, zero ? 0 : Infinity), high = Math.max(...finite, zero ? 0 : -Infinity);
  return low === high ? [low - (zero ? 0 : 0.5), high + 0.5] : [low, high];
}

function path(xs, ys, x, y) {
  return xs.map((value, at) => `${at ? "L" : "M"}${x(value).toFixed(1)},${y(ys[at]).toFixed(1)}`).join("");
}

function axes(x, y, xTicks, yTicks, labels, format) {
  return draw("g", { "aria-hidden": "true" },
    yTicks.map((at) => [draw("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(at), y2: y(at) }),
      draw("text", { x: LEFT - 6, y: y(at) + 4, "text-anchor": "end" }, number(at))]),
    xTicks.map((at) => draw("text", { x: x(at), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, format ? format(at) : number(at))),
    draw("path", { class: "axis", d: `M${LEFT},${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}` }),
    draw("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, labels.x),
    draw("text", { transform: `translate(13 ${(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle" }, labels.y));
}

function legend(series) {
  return el("ul", { class: "legend" }, series.map((one) => el("li", {},
    draw("svg", { viewBox: "0 0 36 10", "aria-hidden": "true" }, draw("path", { class: "line", d: "M0,5H36", "stroke-dasharray": one.dash, colour: ["stroke", one.colour] })),
    one.label || one.name)));
}

function behind(title, columns, rows) {
  return el("details", {}, el("summary", {}, "The same as a table"), el("div", { class: "scroll" }, table(columns, rows, title)));
}

function dressed(series, known) {
  const names = known || series.map((one) => one.name), colour = colours(names);
  return series.map((one) => ({ ...one, colour: colour(one.name), dash: DASHES[names.indexOf(one.name) % DASHES.length] }));
}

// options: room (the node it is drawn into), title, x and y (labels), series: [{name, label?, x: [], y: [], half?: []}], marks?: [{x, text}],
// order?: names in the order that decides dash patterns, zero?: whether the y axis begins at 0, format?: how x is written,
// most?: the largest y; a curve above it leaves the chart, and the legend says so.
export function lineChart(options) {
  fit(options.room);
  const series = dressed(options.series, options.order), zero = options.zero !== false;
  const upper = series.flatMap((one) => one.y.map((value, at) => value + (one.half ? one.half[at] : 0)));
  const lower = series.flatMap((one) => one.y.map((value, at) => value - (one.half ? one.half[at] : 0)));
  const [x0, x1] = extent(series.flatMap((one) => one.x), options.xZero !== false);
  const [y0, all] = extent([...upper, ...(zero ? [] : lower), ...(options.lines || []).map((one) => one.y)], zero);
  const y1 = Math.min(all, options.most || Infinity), inside = `inside-${(charts += 1)}`;
  for (const one of series) if (Math.max(...one.y) > y1) one.label = `${one.label || one.name} (leaves the chart: ${number(one.y.at(-1))})`;
  const x = scale(x0, x1, LEFT, WIDTH - RIGHT), y = scale(y0, y1, HEIGHT - BOTTOM, TOP);
  const cursor = draw("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const readout = el("output", { class: "readout" }, "");
  const format = options.format || number;
  const image = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: 0,
    "aria-label": `${options.title}. Arrow keys read it out; the table below holds the same numbers.` },
    axes(x, y, ticks(x0, x1), ticks(y0, y1), options, options.format),
    draw("clipPath", { id: inside }, draw("rect", { x: LEFT, y: TOP, width: WIDTH - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM })),
    series.filter((one) => one.half && one.x.length).map((one) => draw("path", { class: "band", "clip-path": `url(#${inside})`, colour: ["fill", one.colour],
      d: path(one.x, one.y.map((value, at) => value + one.half[at]), x, y)
        + path([...one.x].reverse(), one.y.map((value, at) => Math.max(value - one.half[at], y0)).reverse(), x, y).replace("M", "L") + "Z" })),
    (options.lines || []).map((one) => draw("line", { class: "cursor", x1: LEFT, x2: WIDTH - RIGHT, y1: y(one.y), y2: y(one.y) })),
    series.filter((one) => one.x.length).map((one) => draw("path", { class: "line", "clip-path": `url(#${inside})`, "stroke-dasharray": one.dash, colour: ["stroke", one.colour], d: path(one.x, one.y, x, y) })),
    series.filter((one) => one.x.length === 1).map((one) => alone(one, x, y)),
    (options.marks || []).map((mark) => draw("g", {}, draw("line", { class: "cursor", x1: x(mark.x), x2: x(mark.x), y1: TOP, y2: HEIGHT - BOTTOM }),
      draw("text", { class: "over", x: x(mark.x) + (mark.x > (x0 + x1) / 2 ? -5 : 5), y: TOP + 12, "text-anchor": mark.x > (x0 + x1) / 2 ? "end" : "start" }, mark.text))),
    cursor);
  readOut(image, cursor, readout, series, x, [x0, x1], options.x, format);
  const xs = series.reduce((most, one) => (one.x.length > most.length ? one.x : most), []);
  const rows = xs.map((value, at) => [format(value), ...series.flatMap((one) => {
    const found = one.x[at] === value ? at : one.x.indexOf(value);
    return one.half ? [one.y[found] ?? null, one.half[found] ?? null] : [one.y[found] ?? null];
  })]);
  const columns = [options.x, ...series.flatMap((one) => (one.half ? [one.label || one.name, "± 2 s.e."] : [one.label || one.name]))];
  return el("figure", {}, el("figcaption", {}, options.title), legend(series), image, readout, behind(options.title, columns, rows));
}

// A series with a single point, which makes no line: a dot with its interval.
function alone(one, x, y) {
  const [at, value, half] = [x(one.x[0]), one.y[0], one.half ? one.half[0] : 0];
  return draw("g", {}, draw("line", { class: "line", x1: at, x2: at, y1: y(value - half), y2: y(value + half), colour: ["stroke", one.colour] }),
    draw("circle", { class: "point", cx: at, cy: y(value), r: 4.5, colour: ["fill", one.colour] }));
}

function readOut(image, cursor, readout, series, x, [low, high], label, format) {
  const xs = [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b);
  if (!xs.length) return;
  const width = WIDTH;
  let place = xs.length - 1;
  const show = () => {
    const at = xs[place];
    cursor.setAttribute("x1", x(at)); cursor.setAttribute("x2", x(at)); cursor.setAttribute("visibility", "visible");
    const said = series.map((one) => [one, one.x.indexOf(at)]).filter(([, found]) => found >= 0)
      .map(([one, found]) => `${one.label || one.name} ${number(one.y[found])}`);
    readout.textContent = `${label} ${format(at)}: ${said.join(", ")}`;
  };
  image.addEventListener("pointermove", (event) => {
    const box = image.getBoundingClientRect();
    const wanted = low + (((event.clientX - box.left) / box.width) * width - LEFT) / (width - RIGHT - LEFT) * (high - low);
    place = xs.reduce((best, one, at) => (Math.abs(one - wanted) < Math.abs(xs[best] - wanted) ? at : best), 0);
    show();
  });
  image.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -xs.length, End: xs.length }[event.key];
    if (!step) return;
    event.preventDefault();
    place = Math.min(xs.length - 1, Math.max(0, place + step));
    show();
  });
}

// rows: [{name, points: [{series, value, low, high}], note?}]; reference: {name, value, low, high}.
export function intervalChart(options) {
  fit(options.room);
  const names = [...new Set(options.rows.flatMap((row) => row.points.map((one) => one.series)))];
  const all = [options.reference, ...options.rows.flatMap((row) => row.points)].filter(Boolean);
  const [x0, x1] = extent(all.flatMap((one) => [one.low, one.high]), false);
  const step = 18 * Math.max(1, names.length), height = TOP + BOTTOM + options.rows.length * (step + 22);
  const x = scale(x0, x1, LEFT, WIDTH - RIGHT), series = dressed(names.map((name) => ({ name })));
  const band = options.reference;
  const image = draw("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": `${options.title}. The table below holds the same numbers.` },
    ticks(x0, x1).map((at) => [draw("line", { class: "grid", x1: x(at), x2: x(at), y1: TOP, y2: height - BOTTOM }),
      draw("text", { x: x(at), y: height - BOTTOM + 16, "text-anchor": "middle" }, number(at))]),
    band ? [draw("rect", { class: "band", x: x(band.low), width: Math.max(1, x(band.high) - x(band.low)), y: TOP, height: height - TOP - BOTTOM, colour: ["fill", "var(--soft)"] }),
      draw("line", { class: "axis", x1: x(band.value), x2: x(band.value), y1: TOP, y2: height - BOTTOM })] : null,
    options.rows.map((row, at) => {
      const top = TOP + at * (step + 22) + 14;
      return [draw("text", { x: LEFT, y: top, "font-weight": 600 }, row.note ? `${row.name}: ${row.note}` : row.name),
        row.points.map((point) => {
          const look = series[names.indexOf(point.series)], y = top + 12 + 18 * names.indexOf(point.series);
          return [draw("line", { class: "line", x1: x(point.low), x2: x(point.high), y1: y, y2: y, colour: ["stroke", look.colour] }),
            draw("circle", { cx: x(point.value), cy: y, r: 4.5, colour: ["fill", look.colour] })];
        })];
    }),
    draw("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: height - 6, "text-anchor": "middle" }, options.x));
  const rows = options.rows.flatMap((row) => row.points.length
    ? row.points.map((point) => [row.name, point.series, point.value, point.low, point.high])
    : [[row.name, row.note || "", null, null, null]]);
  const said = band ? [[band.name, "", band.value, band.low, band.high], ...rows] : rows;
  return el("figure", {}, el("figcaption", {}, options.title), legend(series), image, behind(options.title, ["policy", "estimator", options.x, "low", "high"], said));
}

// rows: the rows of a lower-triangular matrix; drawn as squares, darker for larger values.
export function matrixChart(options) {
  const size = options.rows.length, cell = 300 / size;
  const most = Math.max(...options.rows.flat().map(Math.abs), 1e-12);
  const squares = options.rows.flatMap((row, at) => row.map((value, column) => (value === 0 ? null : draw("rect", {
    x: column * cell, y: at * cell, width: cell * 0.94, height: cell * 0.94, "fill-opacity": (0.12 + 0.88 * Math.sqrt(Math.abs(value) / most)).toFixed(3),
    colour: ["fill", value < 0 ? "var(--bad)" : "var(--accent)"] }))));
  const image = draw("svg", { viewBox: "-2 -2 304 304", role: "img", "aria-label": options.title }, draw("path", { class: "axis", d: "M0,0V300H300" }), squares);
  return el("figure", {}, el("figcaption", {}, options.title), image,
    behind(options.title, ["release", "sum of batches (the last eight coefficients)"], options.rows.map((row, at) => [String(at + 1),
      row.map((value, column) => (value ? `${column + 1}: ${number(value)}` : null)).filter(Boolean).slice(-8).join(", ")])));
}
