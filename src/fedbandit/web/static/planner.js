// The planner. The query of the URL is the whole state; a change sends a new request and cancels the last one.

import { bytes, el, draw, number, percent, replace, table, theme } from "./parts.js";
import { lineChart, matrixChart } from "./chart.js";

const DEBOUNCE = 40, SETTLE = 350; // milliseconds after a change until it is sent, and until it is simulated
const at = (id) => document.getElementById(id);
const FIELDS = [
  ["silos", "Silos", "hospitals, banks, shops"],
  ["people_per_day", "People per day, in each silo", ""],
  ["days", "Days that the federation runs", ""],
  ["sync", "Synchronise at most", "", ["daily", "weekly", "monthly"]],
  ["visits", "Visits of one person, at most", ""],
  ["arms", "Actions to choose from", ""],
  ["dim", "Dimension of a row", "ignored if fields are given"],
  ["fields", "… or the fields of a person", "such as: number, number, 2, 5 (levels of a category)"],
  ["epsilon", "Epsilon", "smaller hides more"],
  ["delta", "Delta", ""],
  ["trust", "Whom people are asked to trust, at most", "", []],
];
const MORE = [
  ["mean_visits", "Visits of one person, on average", "if people come back"],
  ["back_after", "Days until people begin to come back", ""],
  ["consenting", "Share of people who may be counted", ""],
  ["drift", "How far the truth moves per day", "0: not at all"],
  ["adjacency", "Neighbouring worlds", "", ["replace-one", "add-remove"]],
];

let form, asking, stream, waiting, chosen = null, shown = null;
let settled = false; // whether the next change makes a new entry in the browser's history: quick changes in a row share one
let misread = [], address = null; // parts of a link that the form cannot show; the query that was sent last

const input = (name) => at(`asked-${name}`);

function control([name, label, hint, choices]) {
  const id = `asked-${name}`, about = `${id}-hint ${id}-wrong`;
  const said = name === "trust" ? form.trusts.map((one) => [one.name, one.who]) : choices && choices.map((one) => [one, one]);
  const field = said
    ? el("select", { id, name, "aria-describedby": about }, said.map(([value, text]) => el("option", { value }, text === value ? value : `${value}: ${text}`)))
    : el("input", { id, name, type: "text", placeholder: form.defaults[name] ?? "", inputmode: name === "fields" ? "text" : "decimal", "aria-describedby": about });
  return [el("label", { for: id }, label), field, el("p", { id: `${id}-hint`, class: "hint" }, hint), el("p", { id: `${id}-wrong`, class: "wrong", role: "alert" })];
}

function query() {
  const given = new URLSearchParams();
  for (const [name, fallback] of Object.entries(form.defaults)) {
    const value = input(name).value.trim();
    if (value !== "" && value !== String(fallback ?? "")) given.set(name, value);
  }
  if (chosen) given.set("use", chosen);
  return given;
}

function restore() {
  const given = new URLSearchParams(location.search);
  misread = [...given.keys()].filter((name) => !(name in form.defaults) && name !== "use").map((name) => `the link gives ${name}, which is not asked here`);
  for (const [name, fallback] of Object.entries(form.defaults)) {
    const said = given.get(name), field = input(name);
    field.value = said ?? fallback ?? "";
    if (field.value || said === null) continue;
    field.value = fallback ?? "";
    if (said) misread.push(`the link gives ${name} ${said}, which is not one of the choices: ${fallback} is used`);
  }
  chosen = given.get("use");
  whom();
}

// Says below the field whom people would have to trust: the choice itself has no room for that.
function whom() { at("asked-trust-hint").textContent = form.trusts.find((one) => one.name === input("trust").value)?.who ?? ""; }

function changed() {
  clearTimeout(waiting);
  stopPlaying();
  misread = [];
  whom();
  waiting = setTimeout(() => { chosen = null; keep(); ask(); }, DEBOUNCE);
}

// Puts the current question into the address. The question before the last series of changes is one step back.
function keep() {
  const given = query(), now = given.size ? `?${given}` : location.pathname;
  if (settled) history.pushState(null, "", now);
  else history.replaceState(null, "", now);
  settled = false;
}

async function ask() {
  const given = query(), began = performance.now();
  address = location.search;
  if (asking) asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  try {
    const answer = await fetch(`/api/plan?${given}`, { signal });
    const told = await answer.json();
    if (signal.aborted) return;
    complain(answer.ok ? [] : told.errors);
    if (!answer.ok) return;
    show(told);
    document.documentElement.dataset.answered = (performance.now() - began).toFixed(0);
    waiting = setTimeout(() => settle(given, signal), SETTLE);
  } catch (error) {
    if (error.name !== "AbortError") complain([{ field: "", message: "The planner does not answer: is `fedbandit web` still running?" }]);
  }
}

// Typing has stopped: now mechanisms are chosen too, which may take a moment, and then the plans are simulated.
async function settle(given, signal) {
  settled = true;
  try {
    const answer = await fetch(`/api/refined?${given}`, { signal });
    const told = await answer.json();
    if (signal.aborted) return;
    if (answer.ok) show(told);
    play(given);
    await other(given, signal);
  } catch (error) {
    if (error.name !== "AbortError") complain([{ field: "", message: "The planner does not answer." }]);
  }
}

function complain(errors) {
  for (const name of Object.keys(form.defaults)) {
    const wrong = errors.find((error) => error.field === name);
    input(name).setAttribute("aria-invalid", wrong ? "true" : "false");
    at(`asked-${name}-wrong`).textContent = wrong ? wrong.message : "";
  }
  if (errors.length) at("playing").textContent = "";
  const elsewhere = errors.filter((error) => !(error.field in form.defaults));
  if (errors.length) replace(at("advice"), el("p", { class: "bad" }, elsewhere.length
    ? elsewhere.map((error) => `${error.field} ${error.message}`).join(" ") : `${errors[0].field} ${errors[0].message}`),
  shown && el("p", {}, "Below is the answer to the last question."));
}

function show(told) {
  shown = told;
  if (!told.plans.some((one) => one.name === chosen)) chosen = null;
  const best = told.plans[0], use = told.plans.find((one) => one.name === (chosen || told.name)) || best;
  const lost = best ? best.lost : null, alone = told.alone.lost_outcomes.all;
  replace(at("advice"),
    misread.map((text) => el("p", { class: "warn" }, `${text[0].toUpperCase()}${text.slice(1)}.`)),
    el("p", { class: "headline" }, told.headline),
    el("dl", { class: "facts" },
      fact("missed alone", `${number(alone)} of ${number(told.visits)}`),
      best ? fact(`missed with ${best.name}`, number(lost)) : null,
      fact("better than alone from", told.break_even_day === null ? "never" : `day ${told.break_even_day}`),
      fact("slower start made up by", told.paid_back_day === null ? "never" : `day ${told.paid_back_day}`)),
    el("dl", { class: "promises" }, told.questions.map(([question, said]) => [el("dt", {}, question), el("dd", {}, said)])));
  const looking = at("plans").contains(document.activeElement);
  replace(at("plans"), plans(told, use));
  if (looking) at("plans").querySelector("input:checked")?.focus(); // so that somebody who chooses with the keyboard can continue
  replace(at("predicted"), lineChart({ room: at("predicted"),
    title: "Predicted: outcomes missed so far, in all silos", x: "day", y: "outcomes missed", order: order(),
    most: 1.3 * Math.max(alone, lost || 0),
    series: Object.entries(told.curves.lost).map(([name, y]) => ({ name, label: labelled(name), x: told.curves.days, y })),
    marks: told.break_even_day === null ? [] : [{ x: told.break_even_day, text: `better from day ${told.break_even_day}` }] }));
  replace(at("assumes"), told.assumes.join(" "));
  replace(at("played"));
  at("playing").textContent = told.plans.length ? "A simulation of the same federation begins in a moment…" : "";
  for (const id of ["toml", "python", "certificate"]) at(id).disabled = !use;
  pictures(told, use);
}

const fact = (name, value) => el("div", {}, el("dt", {}, name), el("dd", {}, value));
const labelled = (name) => (name === "fed-lin-ucb" ? "fed-lin-ucb, nothing hidden" : name);
const order = () => Object.keys(shown.curves.lost);

function plans(told, use) {
  const pick = (one) => el("label", {}, el("input", { type: "radio", name: "use", value: one.name, checked: use && one.name === use.name,
    on: { change: () => { chosen = one.name; keep(); settled = true; address = location.search; look(); } } }), ` ${one.name}`);
  const rows = told.plans.map((one) => [pick(one), one.lost, percent(one.of_alone), one.regret, one.noise, bytes(one.bytes), one.syncs, one.cap]);
  rows.unshift(["alone", told.alone.lost_outcomes.all, percent(1), told.alone.regret, 0, "0 B", 0, null]);
  rows.push([labelled(told.open.name), told.open.lost, percent(told.alone.lost_outcomes.all ? told.open.lost / told.alone.lost_outcomes.all : null), null, 0, null, null, null]);
  const columns = ["protocol", "outcomes missed", "of alone", "regret / T", "noise", "sent by a silo", "syncs", "visits counted"];
  const nodes = [table(columns, rows, `${told.title}: predicted`)];
  nodes[0].querySelectorAll("tbody tr").forEach((row) => row.classList.toggle("chosen", Boolean(row.querySelector("input:checked"))));
  nodes.push(el("h3", {}, "What each of them promises"), el("dl", { class: "promises" },
    el("dt", {}, "alone"), el("dd", {}, "Nothing is sent. What a silo's own decisions reveal about its people is not hidden."),
    told.plans.map((one) => [el("dt", {}, one.name), el("dd", {}, one.guarantee)]),
    el("dt", {}, labelled(told.open.name)), el("dd", {}, "Nothing: it is here to show what privacy costs.")));
  const out = Object.entries(told.impossible);
  if (out.length) nodes.push(el("h3", {}, "Out of reach here"), el("ul", {}, out.map(([, reason]) => el("li", {}, reason))));
  return nodes;
}

// Shows another protocol, without a new request.
function look() {
  const use = shown.plans.find((one) => one.name === chosen);
  replace(at("plans"), plans(shown, use));
  at("plans").querySelector("input:checked").focus();
  pictures(shown, use);
}

function pictures(told, use) {
  if (!use) { replace(at("sight"), el("p", {}, "Nothing is sent.")); replace(at("matrix"), el("p", {}, "Nothing is released.")); return; }
  const sight = told.sight[use.name], matrix = told.matrices[use.name];
  replace(at("sight"), el("p", {}, sight.who), flow(sight),
    el("details", { open: true }, el("summary", {}, "The promise, question by question"),
      table(["question", "answer"], use.answers, `${use.name}: ${use.guarantee}`)));
  replace(at("matrix"),
    matrixChart({ title: `Mechanism ${matrix.mechanism}: row k is release k, column j is batch j`, rows: matrix.rows }),
    el("p", { class: "soft" }, `The first ${matrix.rows.length} of ${matrix.syncs} releases. One batch enters up to ${matrix.touches} of them; `
      + `the noise must hide one person's part${number(matrix.column_norm) === "1" ? "" : `, ${number(matrix.column_norm)} times as large`}.`));
}

// Draws silo, mixer (if there is one) and analyzer, and what each of them gets, as the trust model's own file declares it.
function flow(sight) {
  const box = (x, y, lines) => [draw("rect", { class: "box", x, y, width: 116, height: 46, rx: 6 }),
    lines.map((line, at) => draw("text", { x: x + 58, y: y + (lines.length > 1 ? 20 : 27) + 15 * at, "text-anchor": "middle" }, line))];
  const arrow = (x1, y1, x2, y2, text, [x, y], anchor) => [draw("path", { class: "arrow", d: `M${x1},${y1}L${x2},${y2}` }),
    draw("circle", { class: "head", cx: x2, cy: y2, r: 4 }), draw("text", { x, y, "text-anchor": anchor }, text)];
  const through = sight.parts.filter((part) => part.through_mixer), direct = sight.parts.filter((part) => !part.through_mixer);
  const said = (part) => (part.blind ? "sealed: it cannot read this" : "its part, which it reads");
  const image = draw("svg", { viewBox: "0 0 440 190", role: "img", "aria-label": `${sight.sends}. ${sight.who}` },
    box(4, 12, ["people", "and their silo"]),
    sight.mixer ? [box(162, 128, ["mixer"]), arrow(62, 58, 162, 150, said(through[0]), [138, 150], "end"), arrow(278, 150, 372, 58, "what it makes of them", [300, 150], "start")] : null,
    direct.length ? arrow(120, 30, 318, 30, said(direct[0]), [219, 22], "middle") : null,
    box(320, 12, ["analyzer", "and every silo"]));
  return el("figure", {}, image, el("p", {}, `A silo sends ${sight.sends}.`),
    el("p", {}, "The promise holds against: ", sight.adversaries.join("; "), "."));
}

// -- played ---------------------------------------------------------------------------------------------------------

function stopPlaying() {
  if (stream) stream.close();
  stream = null;
}

function play(given) {
  stopPlaying();
  const curves = new Map(), began = performance.now(), own = new EventSource(`/api/simulation?${given}`);
  let names = [], runs = 0;
  stream = own;
  const say = (text) => { at("playing").textContent = text; };
  own.onmessage = (message) => {
    if (own !== stream) return;
    const told = JSON.parse(message.data);
    if (told.kind === "began") { names = told.names; runs = told.runs; say(`Playing ${names.length} protocols, ${runs} runs of each…`); }
    else if (told.kind === "curve") {
      if (!curves.size) document.documentElement.dataset.played = (performance.now() - began).toFixed(0);
      curves.set(told.name, told);
      replace(at("played"), lineChart({ room: at("played"), title: "Played by the simulator: outcomes missed so far, with bands of two standard errors",
        x: "day", y: "outcomes missed", order: order(), most: most(curves), series: names.filter((name) => curves.has(name)).map((name) => {
          const one = curves.get(name);
          return { name, x: one.days, y: one.mean, half: one.half };
        }) }));
      const done = [...curves.values()].reduce((sum, one) => sum + one.runs, 0);
      say(`${done} of ${runs * names.length} runs played.`);
    } else {
      stopPlaying();
      say(told.kind === "refused" ? `Not played: ${told.reason}.` : `All ${runs} runs of each are played.`);
    }
  };
  own.onerror = () => { if (own === stream) { stopPlaying(); say("The simulation was interrupted; any change starts it again."); } };
}

// The largest y of the chart, as in the prediction: staying alone and the best plan fit in, far worse curves leave it.
function most(curves) {
  const last = ["alone", shown.plans[0]?.name].map((name) => curves.get(name)).filter(Boolean).map((one) => one.mean.at(-1));
  return last.length ? 1.3 * Math.max(...last) : undefined;
}

async function other(given, signal) {
  try {
    const answer = await fetch(`/api/budgets?${given}`, { signal });
    if (!answer.ok) return;
    const told = await answer.json();
    replace(at("budgets"), told.name === null ? el("p", {}, "No federation is possible here.")
      : table([`epsilon, with ${told.name}`, "outcomes missed", "of alone", ""], told.epsilons.map((one) => [String(one.epsilon), one.lost, percent(one.of_alone), one.reason || ""]),
        `alone: ${number(told.alone)} missed`));
  } catch (error) {
    if (error.name !== "AbortError") replace(at("budgets"), el("p", { class: "bad" }, "The planner does not answer."));
  }
}

// -- copies ---------------------------------------------------------------------------------------------------------

function took(text) { at("taken").textContent = text; }

async function taken(path, what) {
  took(`${what}…`);
  const answer = await fetch(`${path}?${query()}`);
  if (!answer.ok) throw new Error((await answer.json()).errors.map((error) => `${error.field} ${error.message}`).join(" "));
  return answer;
}

async function copy(path, what) {
  try {
    const text = await (await taken(path, what)).text();
    at("copied").textContent = text;
    at("copied").hidden = false;
    await clip(text, what);
  } catch (error) { took(String(error.message || error)); }
}

async function clip(text, what) {
  try { await navigator.clipboard.writeText(text); took(`${what} copied.`); }
  catch { took(`${what}: this browser does not let a page copy; select it below.`); }
}

async function download() {
  const button = at("certificate");
  button.disabled = true;
  try {
    const answer = await taken("/api/certificate.html", "Trying to break it, for the certificate");
    const link = el("a", { href: URL.createObjectURL(await answer.blob()), download: `${chosen || shown.name}.certificate.html` });
    link.click();
    URL.revokeObjectURL(link.href);
    took("Certificate downloaded.");
  } catch (error) { took(String(error.message || error)); }
  button.disabled = false;
}

// -- begin ----------------------------------------------------------------------------------------------------------

theme(at("theme"));
form = await (await fetch("/api/form")).json();
at("asked").append(...FIELDS.flatMap(control), el("details", {}, el("summary", {}, "More"), ...MORE.flatMap(control)));
restore();
at("asked").addEventListener("input", changed);
at("asked").addEventListener("submit", (event) => event.preventDefault());
at("link").addEventListener("click", () => clip(location.href, "Link"));
at("toml").addEventListener("click", () => copy("/api/plan.toml", "TOML"));
at("python").addEventListener("click", () => copy("/api/plan.py", "Python"));
at("certificate").addEventListener("click", download);
addEventListener("popstate", () => {
  if (location.search === address) return; // a link within this page
  clearTimeout(waiting);
  stopPlaying();
  restore();
  ask();
});
addEventListener("pagehide", stopPlaying);
addEventListener("pageshow", (event) => { if (event.persisted) ask(); }); // back from another page: ask and simulate again
ask();
