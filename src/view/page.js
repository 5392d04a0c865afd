// What is chosen, and what happens when the reader chooses something else.

const byId = (id) => document.getElementById(id);
const state = { query: 0, layer: 0, head: 0, cursor: null };
let mapAt = null;
let gridAt = null;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.textContent = text;
  return made;
}

function headName(layer, head) {
  const part = (what, slot, ids) => (slot < 0 ? `all ${what}s` : `${what} ${ids[slot]}`);
  const name = `${part("layer", layer, data.layerIds)} ${part("head", head, data.headIds)}`;
  return layer < 0 || head < 0 ? `${name}, mean` : name;
}

function cellName(cell) { return headName(...data.cells[cell]); }

// Text of any direction, apart from what stands around it.
function isolated(text) { return `\u2068${text}\u2069`; }

function fillStatic() {
  document.title = `${data.title} \u2013 attention`;
  byId("title").textContent = data.title;
  byId("about").textContent = data.about;
  byId("notice").textContent = data.notice;
  byId("notice").hidden = data.notice === "";
  const option = (value, text) => {
    const made = element("option", "", text);
    made.value = value;
    return made;
  };
  for (const [id, ids] of [["layer", data.layerIds], ["head", data.headIds]]) {
    ids.forEach((number, slot) => byId(id).append(option(slot, String(number))));
    if (ids.length > 1) byId(id).append(option(-1, "all (mean)"));
  }
  for (const weight of [0, 0.05, 0.2, 0.5, 1]) byId("legend").append(element("span", "", String(weight)));
  byId("strip").append(...data.labels.flatMap((label, token) => tokenElements(label, token)));
}

function tokenElements(label, token) {
  const button = element("button", data.special[token] ? "special" : "", label);
  button.classList.toggle("joined", data.joined[token] === 1);
  button.classList.toggle("continued", data.joined[token + 1] === 1);
  button.type = "button";
  button.dataset.token = token;
  button.setAttribute("role", "radio");
  button.disabled = !slotOfToken.has(token);
  return data.joined[token] ? [button] : [document.createTextNode(" "), button];
}

function showStrip(cells) {
  const row = meanRow(cells, state.query);
  const focus = data.queries[state.query];
  byId("sentence-heading").textContent =
    `What ${isolated(data.names[focus])} attends to \u2013 ${headName(state.layer, state.head)}`;
  for (const button of byId("strip").querySelectorAll("button")) {
    const token = Number(button.dataset.token);
    paint(button, row[token]);
    button.title = `${data.names[token]} ${row[token].toFixed(3)}`;
    button.setAttribute("aria-checked", String(token === focus));
    button.tabIndex = token === focus ? 0 : -1;
  }
  keepInView(byId("strip"), byId("strip").querySelector('[aria-checked="true"]'));
  [...byId("legend").children].forEach((step) => paint(step, Number(step.textContent)));
}

// Scrolls the list alone, never the page.
function keepInView(list, item) {
  const [outer, inner] = [list, item].map((part) => part.getBoundingClientRect());
  if (inner.top < outer.top || inner.bottom > outer.bottom) list.scrollTop += inner.top - outer.top - outer.height / 3;
}

function strongestItem(peak) {
  const focus = data.queries[state.query];
  const button = element("button", "", "");
  button.type = "button";
  button.append(element("span", "where", `${cellName(peak.cell)}:`));
  const keys = strongestKeys(peak.cell, state.query, (key, weight) => weight >= 0.005 && !passedOver(focus, key));
  for (const { key, weight } of keys.slice(0, 3)) {
    const span = element("span", "key", `${isolated(data.names[key])} ${weight.toFixed(2)}`);
    if (weight >= 0.25) paint(span, weight);
    button.append(span);
  }
  const aside = strongestKeys(peak.cell, state.query, (key, weight) => weight >= 0.05 && passedOver(focus, key));
  const nameOf = (key) => (key === focus ? "itself" : isolated(data.names[key]));
  const named = aside.map(({ key, weight }) => `${nameOf(key)} ${weight.toFixed(2)}`);
  if (peak.positional) named.unshift("fixed distance");
  if (named.length > 0) button.append(element("span", "aside", `(${named.join(", ")})`));
  const [layer, head] = data.cells[peak.cell];
  button.setAttribute("aria-current", String(layer === state.layer && head === state.head));
  button.addEventListener("click", () => chooseHead(layer, head));
  const item = element("li", "", "");
  item.append(button);
  return item;
}

function showStrongest() {
  const name = isolated(data.names[data.queries[state.query]]);
  byId("strongest-heading").textContent = `Strongest heads for ${name}`;
  byId("strongest").replaceChildren(...strongestHeads(state.query).slice(0, 10).map(strongestItem));
}

function showPictures(cells) {
  byId("map-heading").textContent = `Heat map \u2013 ${headName(state.layer, state.head)}`;
  mapAt = drawMap(byId("map"), cells, state.query, state.cursor);
  gridAt = drawGrid(byId("grid"), state.layer, state.head);
}

function show() {
  byId("layer").value = String(state.layer);
  byId("head").value = String(state.head);
  const cells = cellsOf(state.layer, state.head);
  showStrip(cells);
  showStrongest();
  showPictures(cells);
}

function chooseQuery(slot) {
  state.query = slot;
  state.cursor = null;
  if (byId("follow").checked) [state.layer, state.head] = data.cells[strongestHeads(slot)[0].cell];
  show();
}

function chooseHead(layer, head) {
  if (cellsOf(layer, head).length === 0) return;
  byId("follow").checked = false;
  [state.layer, state.head] = [layer, head];
  show();
}

function say(text, event) {
  const tip = byId("tip");
  tip.textContent = text;
  tip.hidden = text === "" || !event;
  if (tip.hidden) return;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - box.height - 8))}px`;
}

function placeOnMap(event) {
  const box = byId("map").getBoundingClientRect();
  const key = Math.floor(((event.clientX - box.left - mapAt.left) / mapAt.width) * tokenCount);
  const slot = Math.floor(((event.clientY - box.top - mapAt.top) / mapAt.height) * queryCount);
  const inside = key >= 0 && key < tokenCount && slot >= 0 && slot < queryCount;
  return inside ? { key, slot } : null;
}

function mapText({ key, slot }) {
  const weight = meanRow(cellsOf(state.layer, state.head), slot)[key];
  const [query, name] = [data.names[data.queries[slot]], data.names[key]].map(isolated);
  return `${query} \u2192 ${name}  ${weight.toFixed(3)}\n${headName(state.layer, state.head)}`;
}

function placeOnGrid(event) {
  const box = byId("grid").getBoundingClientRect();
  const head = Math.floor((event.clientX - box.left - gridAt.left) / gridAt.size);
  const layer = Math.floor((event.clientY - box.top - gridAt.top) / gridAt.size);
  const inside = head >= 0 && layer >= 0 && head < data.headIds.length && layer < data.layerIds.length;
  return inside && cellsOf(layer, head).length > 0 ? { layer, head } : null;
}

function gridText({ layer, head }) {
  const peak = peakOf(cellsOf(layer, head)[0], state.query);
  const name = isolated(data.names[data.queries[state.query]]);
  const most = peak.key < 0 ? "" : `\n${name} \u2192 ${isolated(data.names[peak.key])} ${peak.weight.toFixed(2)}`;
  return headName(layer, head) + most;
}

// Hover redraws the map at most once a frame.
let pending = false;
function moveCursor(place) {
  state.cursor = place;
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => {
    pending = false;
    mapAt = drawMap(byId("map"), cellsOf(state.layer, state.head), state.query, state.cursor);
  });
}

const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const clamp = (value, count) => Math.max(0, Math.min(count - 1, value));

function onArrow(target, move) {
  target.addEventListener("keydown", (event) => {
    const step = arrows[event.key];
    if (!step) return;
    event.preventDefault();
    move(...step);
  });
}

function listenToMap() {
  const map = byId("map");
  const point = (event) => {
    const place = placeOnMap(event);
    say(place ? mapText(place) : "", event);
    moveCursor(place);
  };
  map.addEventListener("pointermove", point);
  map.addEventListener("pointerdown", point);
  map.addEventListener("pointerleave", () => { say(""); moveCursor(null); });
  map.addEventListener("click", (event) => {
    const place = placeOnMap(event);
    if (!place) return;
    state.query = place.slot;
    show();
  });
  onArrow(map, (dx, dy) => {
    const from = state.cursor || { key: 0, slot: state.query };
    const place = { key: clamp(from.key + dx, tokenCount), slot: clamp(from.slot + dy, queryCount) };
    moveCursor(place);
    byId("spoken").textContent = mapText(place);
    const box = map.getBoundingClientRect();
    say(mapText(place), { clientX: box.left + mapAt.left + ((place.key + 1) / tokenCount) * mapAt.width,
                          clientY: box.top + mapAt.top + ((place.slot + 1) / queryCount) * mapAt.height });
  });
  map.addEventListener("blur", () => { say(""); moveCursor(null); });
}

function listenToGrid() {
  const grid = byId("grid");
  grid.addEventListener("pointermove", (event) => {
    const place = placeOnGrid(event);
    say(place ? gridText(place) : "", event);
  });
  grid.addEventListener("pointerleave", () => say(""));
  grid.addEventListener("click", (event) => {
    const place = placeOnGrid(event);
    if (place) chooseHead(place.layer, place.head);
  });
  onArrow(grid, (dx, dy) => {
    chooseHead(clamp(state.layer + dy, data.layerIds.length), clamp(state.head + dx, data.headIds.length));
    byId("spoken").textContent = headName(state.layer, state.head);
  });
}

function listenToStrip() {
  const strip = byId("strip");
  strip.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) chooseQuery(slotOfToken.get(Number(button.dataset.token)));
  });
  onArrow(strip, (dx, dy) => {
    chooseQuery(clamp(state.query + dx + dy, queryCount));
    strip.querySelector('[aria-checked="true"]').focus();
  });
}

function listen() {
  listenToStrip();
  listenToMap();
  listenToGrid();
  const picked = () => chooseHead(Number(byId("layer").value), Number(byId("head").value));
  byId("layer").addEventListener("change", picked);
  byId("head").addEventListener("change", picked);
  byId("follow").addEventListener("change", () => { if (byId("follow").checked) chooseQuery(state.query); });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  darkScheme.addEventListener("change", show);
  window.addEventListener("resize", () => requestAnimationFrame(show));
}

fillStatic();
listen();
chooseQuery(data.focus.length > 0 ? slotOfToken.get(data.focus[0]) : strongestQuery());
