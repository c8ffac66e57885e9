"use strict";
// What the sections are made of: numbers as text, elements, tables. Whatever comes from kp is set as text, never as markup.

const one = (selector) => document.querySelector(selector);

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Setting the same text again would disturb a selection.
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function mark(node, name, value) {
  if (value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// --- numbers -------------------------------------------------------------------------------------------------------------

// The upper end of the last bucket that has one: of what took longer nothing more is known.
const LONGEST_MS = 30000;
const NOTHING = "–";

function scaled(value, base, units) {
  let step = 0;
  while (Math.abs(value) >= base * 0.9995 && step < units.length - 1) {
    value /= base;
    step += 1;
  }
  const digits = value === 0 || Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return Number(value.toFixed(digits)).toString() + units[step];
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const count = (value) => (known(value) ? value.toLocaleString("en") : NOTHING);
const short = (value) => (known(value) ? scaled(value, 1000, ["", " k", " M", " G", " T"]) : NOTHING);
const bytes = (value) => (known(value) ? scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]) : NOTHING);
const rate = (value) => (known(value) ? short(value) + "/s" : NOTHING);
const flow = (value) => (known(value) ? bytes(value) + "/s" : NOTHING);
const percent = (part) => (known(part) ? (part * 100 < 0.05 ? "0" : (part * 100).toFixed(part < 0.1 ? 1 : 0)) + " %" : NOTHING);

function millis(value) {
  if (!known(value)) return NOTHING;
  // The last bucket has no upper end.
  if (value === LONGEST_MS) return `over ${value / 1000} s`;
  return value >= 999.5 ? scaled(value / 1000, 1000, [" s"]) : scaled(value, 1e6, [" ms"]);
}

function span(seconds) {
  if (!known(seconds)) return NOTHING;
  const whole = Math.max(0, Math.floor(seconds));
  for (const [unit, size, below, next] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
    if (whole < size) continue;
    const rest = Math.floor((whole % size) / next);
    const large = Math.floor(whole / size);
    return rest === 0 || large >= 10 ? `${large} ${unit}` : `${large} ${unit} ${rest} ${below}`;
  }
  return `${whole} s`;
}

const two = (number) => String(number).padStart(2, "0");

function clock(unixMs) {
  const at = new Date(unixMs);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

function moment(unixMs) {
  const at = new Date(unixMs);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(unixMs)}`;
}

const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

// Whether a wish of `find` fits: every word stands somewhere in the text.
const fits = (text, words) => words.every((word) => text.includes(word));

// --- what a counter has done since an earlier answer ---------------------------------------------------------------------

// Counters never go back while one master runs; where they seem to, a new one has begun.
function per(seconds, now, before) {
  return known(now) && known(before) && seconds > 0 && now >= before ? (now - before) / seconds : null;
}

// The value below which `share` of what fell into the buckets lies, in a straight line through its bucket.
function quantile(bounds, buckets, share) {
  const all = buckets.reduce((sum, held) => sum + held, 0);
  if (all <= 0) return null;
  let below = 0;
  for (let at = 0; at < buckets.length; at += 1) {
    if (below + buckets[at] >= all * share && buckets[at] > 0) {
      const low = at === 0 ? 0 : bounds[at - 1];
      if (at >= bounds.length) return bounds[bounds.length - 1];
      return low + ((bounds[at] - low) * (all * share - below)) / buckets[at];
    }
    below += buckets[at];
  }
  return null;
}

// A histogram of what came since an earlier one, or of everything.
function since(now, before) {
  const grown = before && now.buckets.every((held, at) => held >= before.buckets[at]);
  return grown ? now.buckets.map((held, at) => held - before.buckets[at]) : null;
}

// --- lists of terms and tables -------------------------------------------------------------------------------------------

// Keeps the children of `parent` equal to `keys`, in their order; `make` makes one, `fill` brings it up to date.
function keep(parent, kept, keys, make, fill) {
  const gone = new Set(kept.keys());
  let place = parent.firstElementChild;
  keys.forEach((key, index) => {
    gone.delete(key);
    let node = kept.get(key);
    if (!node) {
      node = make(key, index);
      kept.set(key, node);
    }
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
    fill(node, key, index);
  });
  for (const key of gone) {
    kept.get(key).remove();
    kept.delete(key);
  }
}

// A list of terms: `[term, value, note, level]`.
function terms(list, rows) {
  list.kept = list.kept || new Map();
  const values = new Map(rows.map((row) => [row[0], row]));
  const make = (term) => element("div", {}, element("dt", {}, term), element("dd", { class: "value" }), element("dd", { class: "note" }));
  keep(list, list.kept, rows.map((row) => row[0]), make, (node, term) => {
    const [, value, note, level] = values.get(term);
    say(node.children[1], value);
    mark(node.children[1], "class", `value ${level || ""}`.trim());
    say(node.children[2], note || "");
    node.children[2].hidden = !note;
  });
}

// A table that is brought up to date in place. `columns`: {title, kind, hint, width, value(row)}; the first is the row's
// header. A value is a text or {text, level, note, hint}, or {code} with names in backquotes. On a narrow screen a row becomes a card; the roles say what it still is.
function table(caption, columns) {
  const head = element("tr", { role: "row" });
  columns.forEach((column) => {
    const cell = element("th", { scope: "col", role: "columnheader", class: column.kind || "" }, column.title);
    if (column.hint) cell.title = column.hint;
    if (column.width) cell.style.width = column.width;
    head.append(cell);
  });
  const body = element("tbody", { role: "rowgroup" });
  const title = element("caption", {}, caption);
  const made = element("table", { role: "table", class: "cards" }, title, element("thead", { role: "rowgroup" }, head), body);
  const shell = element("div", { class: "scroll" }, made);
  const kept = new Map();
  function make() {
    const row = element("tr", { role: "row" });
    columns.forEach((column, at) => {
      const cell = at === 0 ? element("th", { scope: "row", role: "rowheader" }) : element("td", { role: "cell", "data-label": column.title });
      cell.className = column.kind || "";
      row.append(cell);
    });
    return row;
  }
  function update(rows, key, dress) {
    const values = new Map(rows.map((row) => [key(row), row]));
    shell.hidden = rows.length === 0;
    keep(body, kept, [...values.keys()], make, (node, name) => {
      const row = values.get(name);
      if (dress) dress(node, row);
      columns.forEach((column, at) => fillCell(node.children[at], column.value(row)));
    });
  }
  return { shell, update, title };
}

// Every second part between backquotes is a name.
function coded(text) {
  return text.split("`").map((part, at) => (at % 2 === 1 ? element("code", {}, part) : part));
}

function fillCell(cell, value) {
  const plain = typeof value !== "object" || value === null;
  const shape = plain ? { text: value ?? "" } : value;
  const wanted = JSON.stringify(shape);
  if (cell.shape === wanted) return;
  cell.shape = wanted;
  cell.replaceChildren();
  if (shape.code !== undefined) cell.append(...coded(shape.code));
  else if (shape.level) cell.append(element("span", { class: `level ${shape.level}` }, shape.text));
  else cell.append(String(shape.text));
  if (shape.note) cell.append(" ", element("span", { class: "note" }, shape.note));
  mark(cell, "title", shape.hint || null);
}
