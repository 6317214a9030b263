// Draws the charts of a report, from the data that stand in the same file.

import { intervalChart, lineChart } from "./chart.js";

const kinds = { interval: intervalChart, line: lineChart };
for (const one of JSON.parse(document.getElementById("data").textContent)) {
  document.getElementById(one.id).append(kinds[one.kind](one));
}
