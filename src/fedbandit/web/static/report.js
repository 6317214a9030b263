// Draws the charts of a report from the data in the same file.

import { intervalChart, lineChart } from "./chart.js";

const kinds = { interval: intervalChart, line: lineChart };
for (const one of JSON.parse(document.getElementById("data").textContent)) {
  const room = document.getElementById(one.id);
  room.append(kinds[one.kind]({ ...one, room }));
}
