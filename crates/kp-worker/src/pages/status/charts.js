// Curves of the last hour. Each has its present values in words beside it and all of them in a table below.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 46, right: 8, top: 6, bottom: 18 };
// Samples further apart than this many intervals have nothing between them.
const GAP = 3;

function drawn(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Round steps for an axis from 0 to `most`.
function steps(most) {
  const raw = most / 3 || 1;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * size).find((candidate) => candidate >= raw);
  const list = [];
  for (let at = 0; list.length < 2 || list[list.length - 1] < most; at += 1) list.push(at * step);
  return list;
}

// Decades around what is shown.
function decades(least, most) {
  const list = [];
  for (let power = Math.floor(Math.log10(least)); ; power += 1) {
    list.push(10 ** power);
    if (10 ** power >= most && list.length > 1) return list;
  }
}

// `curves`: {name, column, look}; `show` writes a value; `logarithmic` for values over decades.
function chart(title, curves, show, logarithmic) {
  const keys = curves.map((curve) => {
    const line = drawn("svg", { viewBox: "0 0 18 8", "aria-hidden": "true" });
    line.append(drawn("line", { x1: 0, x2: 18, y1: 4, y2: 4, class: `curve ${curve.look}` }));
    const value = element("b", {});
    return { node: element("span", { class: "key" }, line, curve.name, " ", value), value };
  });
  const plot = drawn("svg", { class: "plot", role: "img" });
  const values = element("details", {}, element("summary", {}, "Values in a table"));
  const columns = [{ title: "Time", value: (row) => row.time }];
  curves.forEach((curve, at) => columns.push({ title: curve.name, kind: "number", value: (row) => show(row.values[at]) }));
  const list = table(`${title}, every five minutes`, columns);
  values.append(list.shell);
  const caption = element("figcaption", {}, element("h3", {}, title), ...keys.map((key) => key.node));
  const figure = element("figure", {}, caption, plot, values);
  const state = { history: null, from: 0, to: 0, pointer: null };

  function place(width, height) {
    const { history, from, to } = state;
    let [least, most] = [Infinity, 0];
    curves.forEach((curve) => history[curve.column].forEach((value, at) => {
      if (!known(value) || history.unix_ms[at] < from) return;
      most = Math.max(most, value);
      if (value > 0) least = Math.min(least, value);
    }));
    const ticks = logarithmic ? decades(Math.max(Math.min(least, 1), 0.1), Math.max(most, 100)) : steps(Math.max(most, 1));
    const scale = logarithmic ? (value) => Math.log10(Math.max(value, ticks[0])) : (value) => value;
    const [low, high] = [scale(ticks[0]), scale(ticks[ticks.length - 1])];
    const inner = height - MARGIN.top - MARGIN.bottom;
    return {
      ticks,
      x: (unixMs) => MARGIN.left + ((unixMs - from) / (to - from)) * (width - MARGIN.left - MARGIN.right),
      y: (value) => MARGIN.top + inner - ((scale(value) - low) / (high - low)) * inner,
    };
  }

  function path(curve, { x, y }) {
    const { history, from } = state;
    let text = "";
    let last = null;
    history.unix_ms.forEach((unixMs, at) => {
      const value = history[curve.column][at];
      if (!known(value) || unixMs < from) {
        last = null;
        return;
      }
      const joined = last !== null && unixMs - last <= GAP * history.interval_ms;
      text += `${joined ? "L" : "M"}${x(unixMs).toFixed(1)} ${y(value).toFixed(1)}`;
      last = unixMs;
    });
    return text;
  }

  function axes(width, height, { ticks, x, y }) {
    const parts = [];
    ticks.forEach((tick) => {
      const at = Math.round(y(tick)) + 0.5;
      parts.push(drawn("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at, class: "grid" }));
      parts.push(drawn("text", { x: MARGIN.left - 6, y: at + 3.5, "text-anchor": "end" }, show(tick)));
    });
    const minutes = (state.to - state.from) / 60000;
    const step = minutes > 30 ? 15 : minutes > 10 ? 5 : 1;
    const first = Math.ceil(state.from / (step * 60000)) * step * 60000;
    for (let at = first; at < state.to; at += step * 60000) {
      if (x(at) < MARGIN.left + 12 || x(at) > width - 22) continue;
      parts.push(drawn("text", { x: x(at), y: height - 4, "text-anchor": "middle" }, clock(at).slice(0, 5)));
    }
    return parts;
  }

  // The sample to read out: the one under the pointer, else the last.
  function read() {
    const times = state.history.unix_ms;
    if (state.pointer === null) return times.length - 1;
    let best = 0;
    times.forEach((unixMs, at) => {
      if (Math.abs(unixMs - state.pointer) < Math.abs(times[best] - state.pointer)) best = at;
    });
    return best;
  }

  function words() {
    const { history, from } = state;
    const parts = curves.map((curve) => {
      const seen = history[curve.column].filter((value, at) => known(value) && history.unix_ms[at] >= from);
      if (seen.length === 0) return `${curve.name}: nothing yet`;
      return `${curve.name}: now ${show(seen[seen.length - 1])}, least ${show(Math.min(...seen))}, most ${show(Math.max(...seen))}`;
    });
    return `${title} since ${clock(from).slice(0, 5)}. ${parts.join(". ")}`;
  }

  function rows() {
    const { history, from } = state;
    const found = [];
    history.unix_ms.forEach((unixMs, at) => {
      const last = at === history.unix_ms.length - 1;
      const fresh = found.length === 0 || Math.floor(unixMs / 300000) !== Math.floor(found[0].unixMs / 300000);
      if (unixMs < from || !(fresh || last)) return;
      found.unshift({ unixMs, time: clock(unixMs), values: curves.map((curve) => history[curve.column][at]) });
    });
    return found;
  }

  function draw() {
    const { width, height } = plot.getBoundingClientRect();
    if (!state.history || width < 80) return;
    mark(plot, "viewBox", `0 0 ${width} ${height}`);
    const spot = read();
    keys.forEach((key, at) => say(key.value, spot < 0 ? NOTHING : show(state.history[curves[at].column][spot])));
    const layout = place(width, height);
    const parts = axes(width, height, layout);
    curves.forEach((curve) => parts.push(drawn("path", { d: path(curve, layout), class: `curve ${curve.look}` })));
    if (state.pointer !== null && spot >= 0) {
      const x = Math.round(layout.x(state.history.unix_ms[spot])) + 0.5;
      parts.push(drawn("line", { x1: x, x2: x, y1: MARGIN.top, y2: height - MARGIN.bottom, class: "cursor" }));
      const end = x > width - 60;
      parts.push(drawn("text", { x: x + (end ? -4 : 4), y: MARGIN.top + 9, "text-anchor": end ? "end" : "start" }, clock(state.history.unix_ms[spot])));
    }
    plot.replaceChildren(...parts);
    mark(plot, "aria-label", words());
    if (values.open) list.update(rows(), (row) => row.unixMs);
  }

  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const share = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
    state.pointer = state.from + Math.min(Math.max(share, 0), 1) * (state.to - state.from);
    draw();
  });
  plot.addEventListener("pointerleave", () => {
    state.pointer = null;
    draw();
  });
  values.addEventListener("toggle", draw);
  new ResizeObserver(draw).observe(plot);
  return {
    figure,
    update(history, from, to) {
      Object.assign(state, { history, from, to });
      draw();
    },
  };
}
