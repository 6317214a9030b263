// Lets people try the API's calls on the page that describes them. The token stays in this tab.

import { el, theme } from "./parts.js";

const KEY = "fedbandit-token";

// A small, plausible value for a schema, from what the schema says alone.
function example(schema, known, depth = 0) {
  if (!schema || depth > 6) return null;
  if (schema.$ref) return example(known[schema.$ref.split("/").at(-1)], known, depth + 1);
  if (schema.anyOf) return example(schema.anyOf.find((one) => one.type !== "null") || schema.anyOf[0], known, depth + 1);
  if (schema.enum) return schema.enum[0];
  if (schema.type === "object") return Object.fromEntries(Object.entries(schema.properties || {})
    .filter(([name]) => (schema.required || []).includes(name)).map(([name, one]) => [name, example(one, known, depth + 1)]));
  if (schema.type === "array") return [example(schema.items, known, depth + 1)];
  if (schema.type === "integer" || schema.type === "number") return schema.minimum ?? 0;
  if (schema.type === "boolean") return true;
  return schema.type === "null" ? null : "text";
}

function trial(section, description) {
  const { method, path } = section.dataset, call = description.paths[path][method.toLowerCase()];
  const content = call.requestBody?.content["application/json"], id = `${method}-${path}`.replace(/\W+/g, "-");
  const fields = (call.parameters || []).map((one) => [one.name, el("input", { id: `${id}-${one.name}`, required: true })]);
  const body = content ? el("textarea", { id: `${id}-body`, rows: 6, spellcheck: "false" }) : null;
  if (body) body.value = JSON.stringify(example(content.schema, description.components.schemas), null, 1);
  const said = el("pre", { tabindex: 0, "aria-live": "polite", hidden: true });
  const form = el("form", {}, fields.map(([name, field]) => [el("label", { for: field.id }, name), field]),
    body ? [el("label", { for: body.id }, "body"), body] : null,
    el("p", {}, el("button", { type: "submit" }, `Send ${method} ${path}`)), said);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const where = fields.reduce((text, [name, field]) => text.replace(`{${name}}`, encodeURIComponent(field.value)), path);
    const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY) || ""}` };
    if (body) headers["Content-Type"] = "application/json";
    said.hidden = false;
    try {
      const answer = await fetch(where, { method, headers, body: body ? body.value : undefined, cache: "no-store" });
      const text = await answer.text();
      said.textContent = `${answer.status} ${answer.statusText}\n${pretty(text)}`;
    } catch (error) { said.textContent = `not answered: ${error.message}`; }
  });
  section.append(el("details", {}, el("summary", {}, "Try it"), form));
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 1); } catch { return text; }
}

const button = el("button", { type: "button" });
const token = el("input", { id: "token", type: "password", autocomplete: "off", placeholder: "the silo's token" });
token.value = sessionStorage.getItem(KEY) || "";
token.addEventListener("input", () => sessionStorage.setItem(KEY, token.value.trim()));
document.getElementById("tools").append(el("label", { for: "token" }, "Token (kept in this tab)"), token, button);
theme(button);
const description = await (await fetch("/openapi.json")).json();
document.querySelectorAll("section[data-path]").forEach((section) => trial(section, description));
