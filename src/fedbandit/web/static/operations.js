// Shows where a party stands. The page asks every few seconds and redraws only what has changed; the token stays in this tab.

import { draw, el, number, replace, span, table, theme } from "./parts.js";
import { fit, lineChart } from "./chart.js";

const EVERY = 2000, PATIENCE = 10000, KEY = "fedbandit-token"; // milliseconds between requests, and until a request counts as failed
const at = (id) => document.getElementById(id);
const MANY = 40, ROWS = 24; // most syncs in a table; most silos that are drawn without scrolling

const SENDABLE = /^[\x20-\x7e]+$/; // what a header can hold
let tag = null, board = null, lost = null, timer = null, looks = 0, asking = null;
const drawn = new Map(); // what each part was last drawn from

function token() { return sessionStorage.getItem(KEY); }

async function look() {
  clearTimeout(timer);
  if (!token()) { door(""); return; }
  if (!SENDABLE.test(token())) { refuse(); return; }
  asking?.abort();
  const own = asking = new AbortController(), patience = setTimeout(() => own.abort(), PATIENCE);
  try {
    const headers = { Authorization: `Bearer ${token()}` };
    if (tag) headers["If-None-Match"] = tag;
    const answer = await fetch("/v1/board", { headers, cache: "no-store", signal: own.signal });
    if (answer.status === 401) { refuse(); return; }
    if (answer.status !== 304 && !answer.ok) throw new Error(`the party answers with an error (${answer.status})`);
    if (answer.status === 200) {
      const began = performance.now(), told = await answer.json();
      tag = answer.headers.get("etag");
      board = told;
      show();
      document.documentElement.dataset.drawn = (performance.now() - began).toFixed(1);
    }
    lost = null;
  } catch (error) {
    if (own !== asking) return; // another request has begun, or the token was forgotten
    lost = { since: lost?.since ?? Date.now(), says: error.message.startsWith("the party") ? error.message : "connection lost" };
  }
  clearTimeout(patience);
  document.documentElement.dataset.looks = String(looks += 1);
  tick();
  timer = setTimeout(look, EVERY);
}

function refuse() {
  sessionStorage.removeItem(KEY);
  door("This is not the party's token.");
}

function door(said) {
  asking?.abort();
  asking = null;
  tag = board = lost = null;
  drawn.clear();
  at("door").hidden = false;
  at("board").hidden = true;
  at("forget").hidden = true;
  at("refused").textContent = said;
  at("link").textContent = "";
  at("token").focus();
}

// Updates what changes without news: the time since the last model, and until the next tick.
function tick() {
  const link = at("link");
  link.className = lost ? "bad" : "good";
  if (!at("door").hidden) return;
  link.textContent = lost ? `● ${lost.says}, for ${span((Date.now() - lost.since) / 1000)}; trying again` : "● up to date";
  if (!board || !at("times")) return;
  const now = Date.now() / 1000, version = board.model?.version || 0, moments = board.moments;
  const next = moments.find((moment) => moment > now);
  const known = moments[version - 1 - board.first];
  at("age").textContent = version && known ? span(now - known) : "–";
  at("next").textContent = next ? span(next - now) : "–";
}

// Redraws a part of the page if what it shows has changed.
function part(id, data, make) {
  const text = JSON.stringify(data);
  if (drawn.get(id) === text) return;
  drawn.set(id, text);
  replace(at(id), make(at(id)));
}

function show() {
  at("door").hidden = true;
  at("board").hidden = false;
  at("forget").hidden = false;
  const silo = board.role === "silo";
  document.title = `${board.role} ${board.party}`;
  const role = `${board.role[0].toUpperCase()}${board.role.slice(1)}`;
  at("who").textContent = board.party === board.role ? role : `${role} ${board.party}`;
  at("promise").textContent = `Plan ${board.plan}, trust ${board.trust}. ${board.guarantee}`;
  at("own").hidden = !silo || !board.started;
  part("state", [board.alarms, board.states, board.model, board.status, board.connected, board.silos, board.waiting_for], state);
  part("line", [board.states, board.silos, board.moments], silo ? ownLine : line);
  part("budget", board.budget, budget);
  part("model", board.model, model);
  if (silo && board.started) {
    part("rewards", board.rewards, rewards);
    part("visits", [board.status, board.counts.became, board.counts.delays], visits);
    part("requests", [board.requests, board.counts.refused, board.refusals], requests);
  }
}

// Text with `commands` in backticks, which become code.
const coded = (text) => text.split("`").map((piece, at) => (at % 2 ? el("code", {}, piece) : piece));

const fact = (name, value, id) => el("div", {}, el("dt", {}, name), el("dd", { id }, value));

function state() {
  const states = board.states || "", silos = board.silos || [];
  const present = silos.filter((one) => one.present.at(-1) === "1").length;
  const said = board.alarms.length
    ? el("ul", { class: "bad" }, board.alarms.map((alarm) => el("li", {}, el("strong", {}, alarm.says), ". What to do: ", coded(alarm.do), ".")))
    : el("p", { class: "headline good" }, states || board.started ? "All is well." : "Nothing has happened yet.");
  return [said, el("dl", { class: "facts", id: "times" },
    fact("syncs so far", board.syncs === null ? `${board.first + states.length}, without an end` : `${states.length} of ${board.syncs}`),
    fact("next tick in", "–", "next"),
    fact("age of the model", "–", "age"),
    silos.length ? fact("silos in the last sync", states ? `${present} of ${silos.length}` : "–") : null,
    board.waiting_for?.length ? fact("waited for now", board.waiting_for.length) : null,
    board.connected === null ? null : fact("broker", board.connected ? "connected" : "away"))];
}

// -- syncs ------------------------------------------------------------------------------------------------------------

const LETTERS = { p: ["in", "var(--good)"], 1: ["in", "var(--good)"], 0: ["missing", "var(--bad)"], m: ["missed", "var(--bad)"],
  s: ["skipped: too few silos", "var(--warn)"], g: ["given up", "var(--soft)"], w: ["on its way", "var(--accent)"], "?": ["unknown", "var(--soft)"], ".": ["not a member", "var(--line)"] };

// One row of squares per text. Runs of the same letter share one path, so that a hundred silos over a year stay light.
function strips(room, rows, syncs, height) {
  const width = fit(room, Infinity), said = width < 420 ? 10 : 16; // a narrow window has room only for the date
  const left = 110, cell = (width - left) / Math.max(syncs, 1), paths = {};
  rows.forEach(([, text], row) => {
    for (let from = 0; from < text.length;) {
      let to = from;
      while (to < text.length && text[to] === text[from]) to += 1;
      const gap = cell > 4 ? Math.min(1, cell / 5) : 0;
      const one = gap ? Array.from({ length: to - from }, (_, k) => square(left + (from + k) * cell, row * height, cell - gap, height - 2)) : [square(left + from * cell, row * height, (to - from) * cell, height - 2)];
      (paths[text[from]] ??= []).push(...one);
      from = to;
    }
  });
  return draw("svg", { viewBox: `0 0 ${width} ${rows.length * height + 16}`, role: "img", "aria-label": "Syncs, from the first on the left to the last on the right; the table holds the same." },
    rows.map(([name], row) => [draw("text", { x: 0, y: (row + 1) * height - 3, class: height < 16 ? "tiny" : null }, short(name), draw("title", {}, name)),
      draw("rect", { x: left, y: row * height, width: width - left, height: height - 2, "fill-opacity": 0.08, colour: ["fill", "var(--soft)"] })]),
    Object.entries(paths).map(([letter, list]) => draw("path", { d: list.join(""), colour: ["fill", LETTERS[letter][1]] })),
    draw("text", { x: left, y: rows.length * height + 12 }, when(0).slice(0, said)), draw("text", { x: width, y: rows.length * height + 12, "text-anchor": "end" }, when(syncs - 1).slice(0, said)));
}

const LONGEST = 16; // characters of a name that fit in front of its row
const short = (name) => (name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name);
const square = (x, y, width, height) => `M${x.toFixed(1)},${y}h${width.toFixed(2)}v${height}h${(-width).toFixed(2)}z`;

function when(sync) {
  const moment = board.moments[sync];
  return moment === undefined ? `sync ${board.first + sync + 1}` : new Date(moment * 1000).toISOString().slice(0, 16).replace("T", " ");
}

function key(letters) {
  const words = new Map([...letters].map((letter) => LETTERS[letter]));
  return el("ul", { class: "legend" }, [...words].map(([word, colour]) => el("li", {},
    draw("svg", { viewBox: "0 0 36 10", "aria-hidden": "true" }, draw("rect", { width: 36, height: 10, colour: ["fill", colour] })), word)));
}

function line(room) {
  const states = board.states;
  if (!states) return el("p", { class: "soft" }, "No sync is over yet.");
  const worst = [...board.silos].sort((a, b) => b.missed - a.missed || count(b.present, "0") - count(a.present, "0"));
  const many = board.silos.length > ROWS, rows = [["all", states], ...(many ? worst : board.silos).map((one) => [one.name, one.present])];
  return el("figure", { class: "whole" }, many ? el("p", { class: "soft" }, "The silos that were missing most come first.") : null, key([...states, ...board.silos.flatMap((one) => [...new Set(one.present)])]),
    el("div", { class: many ? "scroll" : null, tabindex: many ? 0 : null, role: "region", "aria-label": "Syncs by silo" }, strips(room, rows, board.syncs ?? states.length, many ? 14 : 16)),
    el("details", {}, el("summary", {}, "The same as a table"), el("div", { class: "scroll" }, table(["silo", "syncs with it", "without it", "without it in a row"],
      worst.map((one) => [one.name, count(one.present, "1"), count(one.present, "0"), one.missed]), `${states.length} syncs, ${count(states, "s")} skipped; at least ${board.cohort} silos in each`))));
}

const count = (text, letter) => [...text].filter((one) => one === letter).length;

function ownLine(room) {
  const states = board.states || "";
  if (!states) return el("p", { class: "soft" }, "Nothing has been released yet.");
  const first = Math.max(0, states.length - MANY);
  return el("figure", { class: "whole" }, key(states), strips(room, [["releases", states]], board.syncs ?? states.length, 22),
    el("details", {}, el("summary", {}, "The same as a table"), el("div", { class: "scroll" }, table(["sync", "when", "this silo's release"],
      [...states].slice(first).map((letter, k) => [String(board.first + first + k + 1), when(first + k), LETTERS[letter][0]]), `The last ${states.length - first} releases`))));
}

// -- budget, model ------------------------------------------------------------------------------------------------------

function budget(room) {
  const told = board.budget;
  if (!told || !told.curve.length) return el("p", {}, told ? told.says : "Nothing has been spent yet.");
  return [el("p", {}, told.says), lineChart({ room, title: `Epsilon spent, of ${told.epsilon} at delta ${told.delta} (${told.adjacency})`, x: "releases", y: "epsilon", xZero: true,
    series: [{ name: "epsilon spent", x: [0, ...told.curve.map(([k]) => k)], y: [0, ...told.curve.map(([, e]) => e)] }],
    marks: told.released ? [{ x: told.released, text: `now: ${number(told.spent)}` }] : [] })];
}

function model(room) {
  const told = board.model;
  if (!told || !told.version) return el("p", { class: "soft" }, "There is no model yet.");
  if (told.moved.length < 2) return el("p", {}, `Model ${told.version}.`);
  const late = told.moved.slice(-3).reduce((sum, [, by]) => sum + by, 0) / Math.min(3, told.moved.length);
  return [el("p", {}, `Model ${told.version}. The last ones moved by ${number(late, 2)} each; theta has length ${number(told.length, 2)}. Noise moves a model too; late steps that grow are a sign of drift.`),
    lineChart({ room, title: "How far each model moved from the one before", x: "model", y: "distance", xZero: false,
      series: [{ name: "moved", x: told.moved.map(([k]) => k), y: told.moved.map(([, by]) => by) }] })];
}

// -- a silo's own -------------------------------------------------------------------------------------------------------

function rewards(room) {
  const told = board.rewards, first = told.first;
  if (!told.points.length) return el("p", { class: "soft" }, "A mean is shown once there are thirty rewards or more.");
  const gain = told.gain && `Against the first weeks: ${number(told.gain[1])} (${number(told.gain[0])} to ${number(told.gain[2])}, 95 %).`;
  return [el("p", {}, first ? `The first weeks: ${number(first.mean)} ± ${number(first.half)}. ${gain || "After two weeks there is something to compare them with."}` : ""),
    lineChart({ room, title: "Mean reward of those who count, with 95 % intervals", x: "sync", y: "mean reward", zero: false, xZero: false, lines: first ? [{ y: first.mean }] : [],
      series: [{ name: "mean reward", x: told.points.map((one) => one.last + 1), y: told.points.map((one) => one.mean), half: told.points.map((one) => one.half) }] })];
}

function visits() {
  const status = board.status, became = board.counts.became || {}, delays = board.counts.delays || {};
  const known = [["decisions", status.decisions], ["without a user key", status.without_user_key], ["rewards over the cap, or late", status.over_cap], ["rewards of people who opted out", status.opted_out]];
  return [table(["visits of this term", "number"], known, "Visits of this term", { quiet: true }),
    Object.values(became).some(Boolean) ? table(["rewards since it started, that were", "number"], Object.entries(became).map(([name, n]) => [name.replace("_", " "), n]), "Rewards by what became of them") : null,
    Object.values(delays).some(Boolean) ? table(["rewards came within", "number"], Object.entries(delays), "Delays of rewards, since it started") : null];
}

function requests() {
  const last = [...board.requests].reverse(), messages = Object.entries(board.refusals || {});
  if (!last.length && !messages.length) return el("p", { class: "soft" }, "Nothing was refused recently.");
  return [last.length ? table(["when", "status", "what was wrong"], last.map((one) => [new Date(one.at * 1000).toLocaleTimeString("en-GB"), String(one.status), `${one.field} ${one.says}`]), "Requests of applications") : null,
    messages.length ? table(["messages of the federation, refused as", "number"], messages, "Messages") : null];
}

// -- begin --------------------------------------------------------------------------------------------------------------

if (location.search || location.hash) history.replaceState(null, "", location.pathname); // a token must not stay in the address
theme(at("theme"));
at("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, at("token").value.trim());
  at("token").value = "";
  look();
});
at("forget").addEventListener("click", () => { sessionStorage.removeItem(KEY); clearTimeout(timer); door(""); });
setInterval(tick, 1000);
document.addEventListener("visibilitychange", () => { if (!document.hidden && token()) look(); });
look();
