// Drawing: colours, the heat map of one head, and the grid of all heads.

const darkScheme = matchMedia("(prefers-color-scheme: dark)");

function ramp() { return darkScheme.matches ? data.night : data.paper; }

// The square root keeps small weights visible and the order right.
function shade(weight) { return Math.sqrt(Math.min(1, Math.max(0, weight))); }

function colorOf(weight) {
  const stops = ramp();
  const at = shade(weight) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  return stops[low].map((channel, i) => Math.round(channel + (at - low) * (stops[low + 1][i] - channel)));
}

function isDark(color) {
  const [r, g, b] = color.map((channel) => {
    const value = channel / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b < 0.179;
}

function paint(element, weight) {
  const color = colorOf(weight);
  element.style.background = `rgb(${color.join(" ")})`;
  element.style.color = isDark(color) ? "#ffffff" : "#101010";
}

function themed(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// Readies a canvas of the given size in page pixels, sharp on dense screens.
function contextOf(canvas, width, height) {
  const density = Math.min(window.devicePixelRatio || 1, 2);
  canvas.width = Math.round(width * density);
  canvas.height = Math.round(height * density);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(density, density);
  context.clearRect(0, 0, width, height);
  return context;
}

// A picture of queries x keys, one pixel a bin; a bin shows the largest weight in it.
function imageOf(cells, maxBins) {
  const columns = Math.max(1, Math.min(tokenCount, maxBins));
  const lines = Math.max(1, Math.min(queryCount, maxBins));
  const largest = new Float32Array(columns * lines);
  for (let slot = 0; slot < queryCount; ++slot) {
    const begin = Math.floor((slot * lines) / queryCount) * columns;
    const put = (key, weight) => {
      const bin = begin + Math.floor((key * columns) / tokenCount);
      if (weight > largest[bin]) largest[bin] = weight;
    };
    if (cells.length === 1) visitRow(cells[0], slot, put);
    else meanRow(cells, slot).forEach((weight, key) => put(key, weight));
  }
  const image = document.createElement("canvas");
  image.width = columns;
  image.height = lines;
  const pixels = new ImageData(columns, lines);
  largest.forEach((weight, bin) => pixels.data.set([...colorOf(weight), 255], bin * 4));
  image.getContext("2d").putImageData(pixels, 0, 0);
  return image;
}

function shortened(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  const letters = [...text];
  while (letters.length > 1 && context.measureText(`${letters.join("")}\u2026`).width > width) letters.pop();
  return `${letters.join("")}\u2026`;
}

const labelFont = "13px system-ui, 'DejaVu Sans', sans-serif";
const labelWidth = 84;

// Where the map's cells stand on its canvas, in page pixels.
function mapLayout(width) {
  const labelled = Math.floor((width - labelWidth - 24) / tokenCount) >= 13;
  if (!labelled) {
    const side = Math.min(width - 2, 760);
    return { labelled, left: 1, top: 1, width: side, height: Math.max(1, (side * queryCount) / tokenCount) };
  }
  const size = Math.min(34, Math.floor((width - labelWidth - 24) / tokenCount));
  return { labelled, left: labelWidth, top: labelWidth, width: size * tokenCount, height: size * queryCount, size };
}

function drawMapLabels(context, at, query) {
  context.font = labelFont;
  context.textBaseline = "middle";
  const style = (token, chosen) => {
    context.fillStyle = themed(chosen ? "--mark" : data.special[token] ? "--quiet" : "--front");
    context.font = chosen ? `bold ${labelFont}` : labelFont;
  };
  context.textAlign = "right";
  data.queries.forEach((token, slot) => {
    style(token, slot === query);
    context.fillText(shortened(context, data.labels[token], labelWidth - 10), at.left - 6, at.top + (slot + 0.5) * at.size);
  });
  context.textAlign = "left";
  data.labels.forEach((label, key) => {
    style(key, key === data.queries[query]);
    context.save();
    context.translate(at.left + (key + 0.5) * at.size, at.top - 6);
    context.rotate(-Math.PI / 3);
    context.fillText(shortened(context, label, labelWidth - 4), 0, 0);
    context.restore();
  });
}

function drawMap(canvas, cells, query, cursor) {
  const at = mapLayout(canvas.parentElement.clientWidth);
  const tail = at.labelled ? 24 : 1;
  const context = contextOf(canvas, at.left + at.width + tail, at.top + at.height + 2);
  context.imageSmoothingEnabled = tokenCount * 2 > at.width;
  context.drawImage(imageOf(cells, Math.floor(at.width)), at.left, at.top, at.width, at.height);
  context.strokeStyle = themed("--line");
  context.strokeRect(at.left - 0.5, at.top - 0.5, at.width + 1, at.height + 1);
  if (at.labelled) drawMapLabels(context, at, query);
  const high = at.height / queryCount;
  const wide = at.width / tokenCount;
  context.strokeStyle = themed("--mark");
  context.lineWidth = 2;
  context.strokeRect(at.left - 1, at.top + query * high - 1, at.width + 2, Math.max(3, high) + 2);
  if (cursor) context.strokeRect(at.left + cursor.key * wide, at.top + cursor.slot * high, Math.max(4, wide), Math.max(4, high));
  return at;
}

// The thumbnails change only with the colours, so they are drawn once for each scheme.
const thumbnails = new Map();
function thumbnailOf(cell) {
  const key = `${darkScheme.matches} ${cell}`;
  if (!thumbnails.has(key)) thumbnails.set(key, imageOf([cell], 64));
  return thumbnails.get(key);
}

function gridLayout(width) {
  const left = 30;
  const room = Math.floor((width - left) / data.headIds.length);
  const size = Math.max(14, Math.min(room, data.layerIds.length > 12 ? 44 : 72));
  return { left, top: 22, size };
}

function drawGrid(canvas, layer, head) {
  const at = gridLayout(canvas.parentElement.clientWidth);
  const context = contextOf(canvas, at.left + data.headIds.length * at.size, at.top + data.layerIds.length * at.size);
  context.imageSmoothingEnabled = true;
  context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "center";
  const numbers = (ids, chosen, put) => ids.forEach((id, slot) => {
    context.fillStyle = themed(slot === chosen ? "--mark" : "--quiet");
    put(String(id), (slot + 0.5) * at.size);
  });
  numbers(data.headIds, head, (text, x) => context.fillText(text, at.left + x, at.top / 2));
  numbers(data.layerIds, layer, (text, y) => context.fillText(text, at.left / 2 - 2, at.top + y));
  data.cells.forEach(([row, column], cell) => {
    const x = at.left + column * at.size;
    const y = at.top + row * at.size;
    context.drawImage(thumbnailOf(cell), x + 1, y + 1, at.size - 3, at.size - 3);
    context.strokeStyle = themed("--line");
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, at.size - 2, at.size - 2);
  });
  context.strokeStyle = themed("--mark");
  context.lineWidth = 3;
  const x = at.left + Math.max(0, head) * at.size;
  const y = at.top + Math.max(0, layer) * at.size;
  const wide = (head < 0 ? data.headIds.length : 1) * at.size;
  const high = (layer < 0 ? data.layerIds.length : 1) * at.size;
  context.strokeRect(x + 1, y + 1, wide - 3, high - 3);
  return at;
}
