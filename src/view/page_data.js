// The capture: decoding, rows, and which heads say most about a token. The same rules as the terminal's.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const tokenCount = data.labels.length;
const queryCount = data.queries.length;
const slotOfToken = new Map(data.queries.map((token, slot) => [token, slot]));
const cellAt = new Map(data.cells.map(([layer, head], cell) => [layer * data.headIds.length + head, cell]));
const entriesOfRow = data.k === 0 ? tokenCount : data.k;
const weightOf = new Uint16Array(decode(data.weights));
const keyOf = data.k === 0 ? null : new Uint16Array(decode(data.keys));

function decode(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; ++i) bytes[i] = text.charCodeAt(i);
  return bytes.buffer;
}

// Calls visit(key, weight) for what the page holds of a row.
function visitRow(cell, slot, visit) {
  const begin = (cell * queryCount + slot) * entriesOfRow;
  for (let i = 0; i < entriesOfRow; ++i) {
    const key = keyOf ? keyOf[begin + i] : i;
    if (key < tokenCount) visit(key, weightOf[begin + i] / 65535);
  }
}

// The cells of a layer and a head; -1 stands for all of them.
function cellsOf(layer, head) {
  if (layer >= 0 && head >= 0) {
    const cell = cellAt.get(layer * data.headIds.length + head);
    return cell === undefined ? [] : [cell];
  }
  const matches = (at) => (layer < 0 || at[0] === layer) && (head < 0 || at[1] === head);
  return data.cells.map((_, cell) => cell).filter((cell) => matches(data.cells[cell]));
}

function meanRow(cells, slot) {
  const row = new Float32Array(tokenCount);
  for (const cell of cells) visitRow(cell, slot, (key, weight) => { row[key] += weight / cells.length; });
  return row;
}

// Keys that gather what a head does not use: shown, but they do not decide which head is the strongest.
function passedOver(token, key) {
  return key === token || data.special[key] === 1 || (data.causal && key === 0);
}

// For each head and distance, what it gives there on average over all words.
const habits = data.cells.map((_, cell) => {
  const sum = new Float32Array(2 * tokenCount);
  const count = new Uint32Array(2 * tokenCount);
  for (let slot = 0; slot < queryCount; ++slot) {
    const token = data.queries[slot];
    if (data.special[token]) continue;
    const shift = tokenCount - token;
    for (let key = 0; key < tokenCount; ++key) ++count[key + shift];
    visitRow(cell, slot, (key, weight) => { sum[key + shift] += weight; });
  }
  return { sum, count };
});

function peakOf(cell, slot) {
  const token = data.queries[slot];
  const best = { cell, slot, key: -1, weight: 0, positional: false };
  visitRow(cell, slot, (key, weight) => {
    if (weight <= 0 || passedOver(token, key)) return;
    if (weight > best.weight || (weight === best.weight && key < best.key)) {
      best.key = key;
      best.weight = weight;
    }
  });
  const at = best.key - token + tokenCount;
  const { sum, count } = habits[cell];
  const known = best.key >= 0 && count[at] > 3;
  best.positional = known && (sum[at] - best.weight) / (count[at] - 1) >= 0.5;
  return best;
}

function stronger(a, b) {
  if (a.positional !== b.positional) return a.positional ? 1 : -1;
  const printed = Math.round(b.weight * 100) - Math.round(a.weight * 100);
  if (printed !== 0) return printed;
  return data.cells[b.cell][0] - data.cells[a.cell][0] || b.weight - a.weight || a.cell - b.cell;
}

function strongestHeads(slot) {
  return data.cells.map((_, cell) => peakOf(cell, slot)).sort(stronger);
}

// The query whose strongest head is the strongest of all, to begin with where no token was asked for.
function strongestQuery() {
  let best = null;
  for (let slot = 0; slot < queryCount; ++slot) {
    if (data.special[data.queries[slot]]) continue;
    for (let cell = 0; cell < data.cells.length; ++cell) {
      const peak = peakOf(cell, slot);
      if (peak.key >= 0 && (best === null || stronger(peak, best) < 0)) best = peak;
    }
  }
  return best === null ? 0 : best.slot;
}

function strongestKeys(cell, slot, wanted) {
  const items = [];
  visitRow(cell, slot, (key, weight) => { if (wanted(key, weight)) items.push({ key, weight }); });
  return items.sort((a, b) => b.weight - a.weight || a.key - b.key);
}
