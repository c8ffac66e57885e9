// The page: asks kp for its state again and again, and fills the sections with it. Any worker may answer: all of them tell
// what the shared memory of the whole house holds.

// How often kp is asked, and how much of the time asking and showing may take at most.
const EVERY_MS = 1000;
const SHARE = 0.1;
const SLOWEST_MS = 10000;
const PATIENCE_MS = 5000;
// Rates are over so much time.
const WINDOW_MS = 10000;
const MINUTE_MS = 60000;
const HOUR_MS = 3600000;
// What hangs has answered nothing for so long.
const SILENT_S = 8;
// An attempt that waits for so long is overdue.
const OVERDUE_MS = 5000;
// Peers of a group that are shown at first, and groups up to which size are open at first.
const PEERS_SHOWN = 50;
const GROUP_OPEN = 20;
const RECENT_SHOWN = 25;

const state = {
  doc: null,
  past: [],
  history: null,
  heard: 0,
  paused: false,
  failure: null,
  timer: null,
  asking: null,
  range: HOUR_MS,
  verdict: "",
};

// --- what an earlier answer said ------------------------------------------------------------------------------------------

const byName = (list, ...names) => new Map(list.map((item) => [names.map((name) => item[name]).join(" "), item]));

function remember(doc) {
  const answer = {
    at: doc.now_ms,
    started: doc.master.started_unix_ms,
    totals: doc.totals,
    latency: doc.latency,
    workers: byName(doc.workers, "pid"),
    servers: byName(doc.servers, "server"),
    upstreams: byName(doc.upstreams, "upstream"),
    reasons: byName(doc.reasons, "reason"),
  };
  answer.peers = new Map();
  for (const group of doc.upstreams) {
    for (const peer of group.peers) answer.peers.set(`${group.upstream} ${peer.peer}`, peer);
  }
  const last = state.past[state.past.length - 1];
  if (last && (last.started !== answer.started || last.at > answer.at)) {
    state.past = [];
    state.history = null;
  }
  state.past.push(answer);
  while (state.past.length > 2 && state.past[1].at <= answer.at - WINDOW_MS) state.past.shift();
}

const before = () => state.past[0];
const seconds = () => (state.past[state.past.length - 1].at - before().at) / 1000;
const rateOf = (now, then) => per(seconds(), now, then);
const total = (name) => rateOf(state.doc.totals[name], before().totals[name]);

const sumOf = (classes) => Object.values(classes).reduce((sum, held) => sum + held, 0);
const failuresOf = (classes) => (classes["5xx"] || 0) + (classes.none || 0);

const statuses = (totals) => Object.fromEntries(["1xx", "2xx", "3xx", "4xx", "5xx"].map((name) => [name, totals[`responses_${name}`] || 0]));
const earlierPeer = (group, peer) => before().peers.get(`${group.upstream} ${peer.peer}`);

// Share of failures among what came in the window; nothing where nothing came.
function failing(now, then) {
  if (!then) return null;
  const all = sumOf(now) - sumOf(then);
  return all > 0 ? (failuresOf(now) - failuresOf(then)) / all : null;
}

function quantiles(now, then) {
  const grown = since(now, then);
  return [0.5, 0.9, 0.99].map((share) => (grown ? quantile(state.doc.bounds_ms, grown, share) : null));
}

function busy(worker) {
  // One that is younger than the window is measured from where it was first seen.
  const then = state.past.find((answer) => answer.workers.has(String(worker.pid))).workers.get(String(worker.pid));
  const busyFor = worker.loop_busy_us - then.loop_busy_us;
  const all = busyFor + worker.loop_waiting_us - then.loop_waiting_us;
  return all > 0 && busyFor >= 0 ? busyFor / all : null;
}

// --- is it well? -----------------------------------------------------------------------------------------------------------

// What only a look back can tell, in the form of kp's own problems; `section` is where to look.
function lookBack() {
  const { doc } = state;
  return [...failedRequests(), ...doc.upstreams.flatMap(silentPeers), ...doc.upstreams.flatMap(failingPeers), ...losses()];
}

// More than one in a hundred of the last minute's requests failed. How it is just now tells whether it is over.
function failedRequests() {
  const { history, doc } = state;
  if (!history) return [];
  let [all, failed] = [0, 0];
  history.unix_ms.forEach((unixMs, at) => {
    if (unixMs < doc.now_unix_ms - MINUTE_MS) return;
    all += history.requests_per_s[at] || 0;
    failed += history.responses_5xx_per_s[at] || 0;
  });
  const errors = (failed * history.interval_ms) / 1000;
  if (errors < 10 || failed < all / 100) return [];
  const now = failing(statuses(doc.totals), statuses(before().totals)) || 0;
  const level = failed > all / 10 && now > 0.01 ? "critical" : "warning";
  const why = new Map();
  for (const entry of doc.recent) {
    if (entry.status >= 500 && entry.unix_ms > doc.now_unix_ms - MINUTE_MS) why.set(entry.reason, (why.get(entry.reason) || 0) + 1);
  }
  const [reason] = [...why.entries()].sort((a, b) => b[1] - a[1])[0] || [];
  const cause = reason ? `most often ${reason}` : "kp passed on what upstreams answered";
  const text = `${percent(failed / all)} of the requests of the last minute were answered with 5xx, ${percent(now)} of the last seconds; ${cause}`;
  return [{ level, about: "requests", name: "", section: reason ? "reasons" : "upstreams", text }];
}

const answered = (attempts) => sumOf(attempts) - (attempts.none || 0);

// Requests wait for a peer, and it has answered none in all the time that is looked back on: it hangs.
function silentPeers(group) {
  if (seconds() < SILENT_S) return [];
  const silent = group.peers.filter((peer) => {
    const then = earlierPeer(group, peer);
    return peer.overdue > 0 && then && answered(peer.attempts) === answered(then.attempts);
  });
  if (silent.length === 0 || isPolled(group)) return [];
  const waiting = silent.reduce((sum, peer) => sum + peer.overdue, 0);
  const text = `${named(silent, (peer) => peer.peer)} answered nothing in the last ${span(seconds())} while ${plural(waiting, "request")} waited`;
  return [{ level: waiting < 5 ? "warning" : "critical", about: "upstream", name: group.upstream, text }];
}

// One answer in ten takes that long, so to wait is nothing new: long polls.
function isPolled(group) {
  const [first, ...rest] = group.peers.map((peer) => peer.head_time.buckets);
  const all = rest.reduce((sums, buckets) => sums.map((sum, at) => sum + buckets[at]), first);
  return quantile(state.doc.bounds_ms, all, 0.9) > OVERDUE_MS;
}

// Peers that get requests and fail many of them. What the client broke off says nothing about a peer.
function failingPeers(group) {
  const share = (peer) => {
    const then = earlierPeer(group, peer);
    const all = then ? sumOf(peer.attempts) - sumOf(then.attempts) : 0;
    const failed = then ? Math.max(peer.attempts["5xx"] - then.attempts["5xx"], peer.failures - then.failures) : 0;
    return failed >= 5 ? failed / all : 0;
  };
  const ill = group.peers.filter((peer) => levelOf(peer) === "good" && share(peer) > 0.1);
  if (ill.length === 0) return [];
  const text = `${ill.length} of ${plural(group.peers.length, "peer")} answer 5xx or fail: ${named(ill, (peer) => `${peer.peer} ${percent(share(peer))}`)}`;
  return [{ level: "warning", about: "upstream", name: group.upstream, text }];
}

// Two of them by name, the others by number.
function named(peers, show) {
  const rest = peers.length - 2;
  return peers.slice(0, 2).map(show).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
}

const LOSSES = [
  ["connections_refused", "critical", "connections", "limits", "turned away for want of a connection slot or a descriptor"],
  ["connections_shed", "warning", "connections", "limits", "closed to make room for others"],
  ["requests_refused_memory", "critical", "memory", "workers", "requests refused: worker_memory is used up"],
  ["log_lines_dropped", "warning", "logs", "house", "lines lost: a full disk, or a reader that does not keep up; the error log names it"],
];

// Counters that stand still where all is well.
function losses() {
  const grown = LOSSES.filter(([name]) => total(name) > 0);
  return grown.map(([name, level, about, section, text]) => ({ level, about, name: "", section, text: `${rate(total(name))} ${text}` }));
}

const SECTION_OF = { upstream: "upstreams", worker: "workers", memory: "workers" };

function problemCount(problems) {
  const critical = problems.filter((problem) => problem.level === "critical").length;
  const all = plural(problems.length, "problem");
  return critical === 0 ? all : critical === problems.length ? `${all}, critical` : `${all}, ${critical} critical`;
}

function showVerdict() {
  const problems = [...lookBack(), ...state.doc.problems].sort((a, b) => (a.level === "critical" ? 0 : 1) - (b.level === "critical" ? 0 : 1));
  const worst = problems.length === 0 ? "good" : problems[0].level;
  const text = problems.length === 0 ? "All is well" : problemCount(problems);
  const title = one("#verdict");
  if (state.verdict !== `${worst} ${text}`) {
    state.verdict = `${worst} ${text}`;
    title.replaceChildren(element("span", { class: `level ${worst}` }, text));
    one(".verdict").className = `verdict ${worst}`;
    mark(one("body"), "data-verdict", worst);
    drawIcon(worst);
  }
  const list = one("#problems");
  list.hidden = problems.length === 0;
  list.kept = list.kept || new Map();
  // Of one upstream several things can be wrong.
  const texts = new Map(problems.map((problem, at) => [`${at} ${problem.about} ${problem.name} ${problem.level}`, problem]));
  const make = () => element("li", {}, element("span", {}), " ", element("a", {}), element("span", {}));
  keep(list, list.kept, [...texts.keys()], make, (node, key) => {
    const problem = texts.get(key);
    const [level, link, rest] = node.children;
    mark(level, "class", `level ${problem.level}`);
    say(level, problem.level);
    mark(link, "href", `#${problem.section || SECTION_OF[problem.about] || "house"}`);
    say(link, problem.name ? `${problem.about} ${problem.name}` : problem.about);
    say(rest, `: ${problem.text}`);
  });
  const name = `kp ${state.doc.host}`;
  document.title = problems.length === 0 ? `${name}: well` : `(${problems.length}) ${name}: ${worst}`;
}

// The state in the browser's tab, by colour and by shape.
function drawIcon(worst) {
  const shape = {
    good: "%3Ccircle cx='8' cy='8' r='7' fill='%231a7237'/%3E",
    warning: "%3Cpath d='M8 1 16 15H0z' fill='%23c47a00'/%3E",
    critical: "%3Cpath d='M1 1h14v14H1z' fill='%23b3211b'/%3E",
  }[worst];
  one("link[rel=icon]").href = `data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E${shape}%3C/svg%3E`;
}

// --- numbers ----------------------------------------------------------------------------------------------------------------

function showNumbers() {
  const { doc } = state;
  const [p50, p90, p99] = quantiles(doc.latency, before().latency);
  const wrong = failing(statuses(doc.totals), statuses(before().totals));
  const came = total("requests");
  const share4xx = came > 0 ? Math.min(1, total("responses_4xx") / came) : null;
  const loops = doc.workers.filter((worker) => worker.state === "serving").map(busy).filter(known);
  const load = loops.length ? loops.reduce((sum, part) => sum + part, 0) / loops.length : null;
  const memory = doc.workers.reduce((sum, worker) => sum + worker.memory_bytes, 0);
  const active = doc.totals.connections_active;
  const idle = doc.totals.connections_idle;
  terms(one("#tiles"), [
    ["Requests", rate(total("requests")), `${count(doc.totals.requests_active)} in progress`],
    ["5xx answers", percent(wrong), rate(total("responses_5xx")), wrong > 0.1 ? "critical" : wrong > 0.01 ? "warning" : ""],
    ["4xx answers", rate(total("responses_4xx")), `${percent(share4xx)} of all`],
    ["Latency p50", millis(p50), "half are faster"],
    ["Latency p90", millis(p90), "nine in ten"],
    ["Latency p99", millis(p99), "all but one in 100"],
    ["Connections", count(active), `${count(idle)} idle`],
    ["New connections", rate(total("connections_accepted")), `${rate(total("tls_handshakes"))} TLS`],
    ["To clients", flow(total("client_sent_bytes")), `${flow(total("client_received_bytes"))} received`],
    ["Worker load", percent(load), loops.length > 1 ? `highest ${percent(Math.max(...loops))}` : "of the loop's time", load > 0.9 ? "warning" : ""],
    ["Memory", bytes(memory), "of worker_memory"],
    ["Retries", rate(total("upstream_retries")), `${count(doc.totals.upstream_connections_active)} open to peers`],
  ]);
}

const CHARTS = [
  chart("Requests per second", [{ name: "all", column: "requests_per_s", look: "c1" }], short),
  chart("Errors per second", [
    { name: "5xx", column: "responses_5xx_per_s", look: "cb" },
    { name: "4xx", column: "responses_4xx_per_s", look: "cw" },
  ], short),
  chart("Latency", [
    { name: "p50", column: "p50_ms", look: "c1" },
    { name: "p90", column: "p90_ms", look: "c2" },
    { name: "p99", column: "p99_ms", look: "c3" },
  ], millis, true),
  chart("Connections", [
    { name: "open", column: "connections", look: "c1" },
    { name: "with a request", column: "requests_active", look: "c2" },
  ], short),
];

function showCharts() {
  const { history, doc } = state;
  if (history) CHARTS.forEach((drawing) => drawing.update(history, doc.now_unix_ms - state.range, doc.now_unix_ms));
}

// Adds the samples that have come; columns stay equally long.
function extend(fresh) {
  const old = state.history;
  state.history = fresh;
  if (!old) return;
  const oldest = state.doc.now_unix_ms - HOUR_MS - 60000;
  const first = old.unix_ms.findIndex((unixMs) => unixMs >= oldest);
  for (const [name, column] of Object.entries(fresh)) {
    if (Array.isArray(column)) fresh[name] = (first < 0 ? [] : old[name].slice(first)).concat(column);
  }
}

// --- upstreams --------------------------------------------------------------------------------------------------------------

const PEER_STATES = { unhealthy: "critical", ejected: "warning", resting: "warning", full: "warning", drain: "still", down: "still", up: "good" };
const ORDER = Object.keys(PEER_STATES);
const levelOf = (peer) => PEER_STATES[peer.state] || "still";
const isIll = (peer) => ["critical", "warning"].includes(levelOf(peer));

function reasonHint(token) {
  const found = state.doc.reasons.find((reason) => reason.reason === token);
  return found ? `${found.meaning} Look at: ${found.look_at}`.replaceAll("`", "") : null;
}

const PEER_COLUMNS = [
  { title: "Peer", width: "17%", kind: "mono", value: ({ peer }) => ({ text: peer.peer, note: peer.backup ? "backup" : "" }) },
  { title: "State", width: "13%", kind: "wide bare", value: ({ peer }) => ({ text: peer.state, level: levelOf(peer), note: peer.detail || "" }) },
  { title: "Weight", width: "6%", kind: "number", value: ({ peer }) => weightOf(peer) },
  { title: "In flight", width: "8%", kind: "number", hint: "Connections in use, and max_conns", value: ({ peer }) => inFlight(peer) },
  { title: "Idle", width: "6%", kind: "number", hint: "Connections that wait in the keep-alive pools", value: ({ peer }) => count(peer.idle) },
  { title: "Attempts", width: "8%", kind: "number", value: ({ peer, then }) => rate(then ? rateOf(sumOf(peer.attempts), sumOf(then.attempts)) : null) },
  { title: "Failed", width: "7%", kind: "number", hint: "5xx and no answer, of the attempts of the last seconds", value: ({ peer, then }) => judged(failing(peer.attempts, then && then.attempts)) },
  { title: "p50", width: "7.5%", kind: "number", hint: "Time to the head of the answer", value: ({ times }) => millis(times[0]) },
  { title: "p99", width: "7.5%", kind: "number", hint: "Time to the head of the answer", value: ({ times }) => millis(times[2]) },
  { title: "Checks", width: "8%", kind: "", value: ({ peer }) => checksOf(peer) },
  { title: "Last failure", width: "12%", kind: "wide", value: ({ peer }) => lastFailure(peer) },
];

function inFlight(peer) {
  const text = peer.max_conns ? `${count(peer.in_flight)} of ${count(peer.max_conns)}` : count(peer.in_flight);
  return peer.overdue ? { text, note: `${count(peer.overdue)} for 5 s or longer`, hint: "Requests that wait for the head of the answer" } : text;
}

// A share of failures with its colour.
function judged(share) {
  const text = percent(share);
  return share > 0.01 ? { text, level: share > 0.1 ? "critical" : "warning" } : text;
}

function weightOf(peer) {
  const { weight, effective_weight: effective } = peer;
  if (weight === null || effective === weight) return count(effective);
  return effective < weight ? `${count(effective)} of ${count(weight)}` : { text: count(effective), note: `not ${count(weight)}` };
}

function checksOf(peer) {
  const named = (check) => (peer.checks.length > 1 ? `${check.check}: ${check.state}` : check.state);
  const troubles = peer.checks.filter((check) => check.state === "failing").map((check) => check.trouble);
  return { text: peer.checks.map(named).join(", "), note: [...new Set(troubles.filter(Boolean))].join(", ") };
}

function lastFailure(peer) {
  if (!peer.last_failure) return "";
  const { reason, age_s } = peer.last_failure;
  return { text: reason, note: `${span(age_s)} ago`, hint: reasonHint(reason) };
}

function dressPeer(node, { group, peer }) {
  mark(node, "data-upstream", group.upstream);
  mark(node, "data-peer", peer.peer);
  mark(node, "data-state", peer.state);
}

const groups = { kept: new Map(), parts: new Map() };

function makeGroup(name) {
  const peers = table(`Peers of upstream ${name}`, PEER_COLUMNS);
  const parts = {
    title: element("h3", { class: "mono" }, name),
    level: element("span", {}),
    figures: element("span", { class: "figures" }),
    facts: element("dl", { class: "facts" }),
    none: element("p", { class: "none" }, "No peer fits."),
    more: element("button", { type: "button", class: "more" }),
    peers,
    shown: PEERS_SHOWN,
  };
  const summary = element("summary", {}, parts.title, parts.level, parts.figures);
  const shell = element("details", { class: "group", "data-upstream": name }, summary, parts.facts, peers.shell, parts.none, parts.more);
  parts.more.addEventListener("click", () => {
    parts.shown = Infinity;
    showUpstreams();
  });
  shell.addEventListener("toggle", () => {
    if (shell.open !== parts.open) {
      parts.open = shell.open;
      showUpstreams();
    }
  });
  groups.parts.set(name, parts);
  return shell;
}

function groupFacts(group) {
  const then = before().upstreams.get(group.upstream);
  const rows = [["Balancer", group.balancer], ["Zone", group.zone || "none: each worker judges for itself"]];
  rows.push(["Retries", `${count(group.retries)} (${rate(then ? rateOf(group.retries, then.retries) : null)})`]);
  if (group.retries_refused) rows.push(["Retries refused by the budget", count(group.retries_refused)]);
  if (group.no_live_peer) rows.push(["Requests without a usable peer", count(group.no_live_peer)]);
  if (group.ejections) rows.push(["Ejections", `${count(group.ejections)}, ${count(group.returns)} returned`]);
  if (group.queue) rows.push(["Queue", `${count(group.queue.length)} of ${count(group.queue.limit)} wait`, `${count(group.queue.overflows)} refused, ${count(group.queue.timeouts)} timed out`]);
  const connecting = quantiles(group.connect_time, then && then.connect_time);
  rows.push(["Time to connect, p99", millis(connecting[2])]);
  return rows;
}

function fillGroup(node, group, words) {
  const parts = groups.parts.get(group.upstream);
  const then = before().upstreams.get(group.upstream);
  const up = group.usable === group.peers.length ? `${group.usable} up` : `${group.usable} of ${group.peers.length} up`;
  const ill = group.peers.filter(isIll).length;
  const level = group.usable === 0 ? "critical" : ill > 0 ? "warning" : "good";
  mark(parts.level, "class", `level ${level}`);
  say(parts.level, group.usable === 0 ? "no usable peer" : up);
  const attempts = group.peers.map((peer) => {
    const earlier = earlierPeer(group, peer);
    return earlier ? rateOf(sumOf(peer.attempts), sumOf(earlier.attempts)) : null;
  });
  const all = attempts.filter(known).reduce((sum, part) => sum + part, 0);
  const [p50, , p99] = quantiles(group.response_time, then && then.response_time);
  say(parts.figures, `${rate(all)} · p50 ${millis(p50)} · p99 ${millis(p99)} · ${count(group.peers.reduce((sum, peer) => sum + peer.in_flight, 0))} in flight`);
  if (parts.open === undefined) {
    parts.open = group.peers.length <= GROUP_OPEN || ill > 0;
    node.open = parts.open;
  }
  if (!node.open) return;
  terms(parts.facts, groupFacts(group));
  fillPeers(parts, group, words);
}

function fillPeers(parts, group, words) {
  const onlyIll = one("#only-ill").checked;
  const wanted = group.peers.filter((peer) => (!onlyIll || isIll(peer)) && fits(`${group.upstream} ${peer.peer} ${peer.state} ${peer.backup ? "backup" : ""}`.toLowerCase(), words));
  // The ill ones first; kp's own order otherwise.
  const rank = (peer) => (ORDER.indexOf(peer.state) < 0 ? ORDER.length : ORDER.indexOf(peer.state));
  wanted.sort((a, b) => rank(a) - rank(b));
  const rows = wanted.slice(0, parts.shown).map((peer) => {
    const then = earlierPeer(group, peer);
    return { group, peer, then, times: quantiles(peer.head_time, then && then.head_time) };
  });
  parts.peers.update(rows, (row) => row.peer.peer, dressPeer);
  parts.none.hidden = rows.length > 0;
  say(parts.none, group.peers.length === 0 ? "No peer: its names have no address." : "No peer fits.");
  parts.more.hidden = wanted.length <= rows.length;
  say(parts.more, `Show all ${count(wanted.length)} peers of ${group.upstream}`);
}

function showUpstreams() {
  const { doc } = state;
  if (!doc) return;
  const words = one("#find").value.toLowerCase().split(/\s+/).filter(Boolean);
  const onlyIll = one("#only-ill").checked;
  const peers = doc.upstreams.reduce((sum, group) => sum + group.peers.length, 0);
  one("#filter").hidden = peers < 6 && words.length === 0 && !onlyIll;
  const wanted = doc.upstreams.filter((group) => (!onlyIll || group.peers.some(isIll) || group.usable === 0)
    && (words.length === 0 || group.peers.some((peer) => fits(`${group.upstream} ${peer.peer} ${peer.state} ${peer.backup ? "backup" : ""}`.toLowerCase(), words))));
  const named = byName(wanted, "upstream");
  const make = (name) => makeGroup(name);
  keep(one("#groups"), groups.kept, [...named.keys()], make, (node, name) => fillGroup(node, named.get(name), words));
  empty("#upstreams", wanted.length === 0, doc.upstreams.length === 0 ? "No upstream is configured." : "No upstream fits.");
}

// --- the other tables -------------------------------------------------------------------------------------------------------

// Says in a section that there is nothing to show.
function empty(section, isEmpty, text) {
  const host = one(section);
  host.nothing = host.nothing || host.appendChild(element("p", { class: "none" }));
  host.nothing.hidden = !isEmpty;
  say(host.nothing, text);
}

function listed(section, caption, columns) {
  const made = table(caption, columns);
  one(section).append(made.shell);
  return made;
}

const WORKER_STATES = { stuck: "critical", starting: "still", serving: "good", draining: "warning", gone: "still" };

function waitsFor(worker) {
  const parts = [];
  if (worker.requests) parts.push(plural(worker.requests, "request"));
  if (worker.tunnels) parts.push(plural(worker.tunnels, "tunnel"));
  if (worker.idle) parts.push(plural(worker.idle, "idle connection"));
  return parts.length ? `waits for ${parts.join(", ")}` : "about to end";
}

const WORKERS = listed("#workers", "Workers of all generations", [
  { title: "Worker", kind: "time", value: (worker) => ({ text: `${worker.generation}.${worker.slot}`, note: `pid ${worker.pid}` }) },
  { title: "State", kind: "wide bare", value: (worker) => ({ text: worker.state, level: WORKER_STATES[worker.state] || "still", note: worker.state === "draining" ? `for ${span(worker.since_s)}, ${waitsFor(worker)}` : `for ${span(worker.since_s)}` }) },
  { title: "Connections", kind: "number", value: (worker) => count(worker.connections) },
  { title: "Idle", kind: "number", value: (worker) => count(worker.idle) },
  { title: "Requests", kind: "number", value: (worker) => count(worker.requests) },
  { title: "Tunnels", kind: "number", value: (worker) => count(worker.tunnels) },
  { title: "Load", kind: "number", hint: "Time in which its loop was not waiting", value: (worker) => percent(busy(worker)) },
  { title: "Memory", kind: "number", hint: "As worker_memory counts it", value: (worker) => `${bytes(worker.memory_bytes)} of ${bytes(worker.memory_limit_bytes)}` },
  { title: "Descriptors", kind: "number", hint: "Open, of those it may have open", value: (worker) => `${count(worker.open_fds)} of ${count(worker.max_fds)}` },
  { title: "Up for", kind: "number", value: (worker) => span(worker.uptime_s) },
]);
WORKERS.shell.querySelector("th").title = "Generation and slot";

const SERVERS = listed("#servers", "Virtual hosts", [
  { title: "Server", kind: "mono", value: ({ server }) => server.server },
  { title: "Requests", kind: "number", value: ({ server, then }) => rate(then ? rateOf(sumOf(server.responses), sumOf(then.responses)) : null) },
  { title: "5xx", kind: "number", value: ({ server, then }) => judged(failing(server.responses, then && then.responses)) },
  { title: "4xx", kind: "number", value: ({ server, then }) => rate(then ? rateOf(server.responses["4xx"], then.responses["4xx"]) : null) },
  { title: "p50", kind: "number", value: ({ times }) => millis(times[0]) },
  { title: "p90", kind: "number", value: ({ times }) => millis(times[1]) },
  { title: "p99", kind: "number", value: ({ times }) => millis(times[2]) },
  { title: "Sent", kind: "number", value: ({ server, then }) => flow(then ? rateOf(server.bytes_out, then.bytes_out) : null) },
  { title: "Received", kind: "number", value: ({ server, then }) => flow(then ? rateOf(server.bytes_in, then.bytes_in) : null) },
  { title: "Requests so far", kind: "number", value: ({ server }) => count(sumOf(server.responses)) },
]);

const REASONS = listed("#reasons", "Why kp answered by itself or ended what it began, so far", [
  { title: "Reason", kind: "mono", value: ({ reason }) => reason.reason },
  { title: "Side", kind: "", value: ({ reason }) => reason.side },
  { title: "Count", kind: "number", value: ({ reason }) => count(reason.count) },
  { title: "Now", kind: "number", value: ({ reason, then }) => rate(rateOf(reason.count, then ? then.count : 0)) },
  { title: "Meaning", kind: "wide", value: ({ reason }) => ({ code: reason.meaning }) },
  { title: "Look at", kind: "wide", value: ({ reason }) => ({ code: reason.look_at }) },
]);

const RECENT = listed("#reasons", "The last of them", [
  { title: "Time", kind: "time", value: ({ entry, times, first }) => ({ text: clock(entry.unix_ms), note: times > 1 ? `${count(times)} times since ${clock(first)}` : "", hint: moment(entry.unix_ms) }) },
  { title: "Reason", kind: "mono bare", value: ({ entry }) => ({ text: entry.reason, hint: reasonHint(entry.reason) }) },
  { title: "Status", kind: "number", value: ({ entry }) => (entry.status ? String(entry.status) : "") },
  { title: "Server", kind: "mono wide", value: ({ entry }) => entry.server || "" },
  { title: "Upstream", kind: "mono", value: ({ entry }) => entry.upstream || "" },
  { title: "Peer", kind: "mono", value: ({ entry }) => entry.peer || "" },
  { title: "Attempt", kind: "number", value: ({ entry }) => (entry.attempt ? String(entry.attempt) : "") },
  { title: "Phase", kind: "", value: ({ entry }) => entry.phase || "" },
  { title: "Closed by", kind: "", value: ({ entry }) => entry.closed_by || "" },
]);

// What happened again and again, one after the other, is one row.
function alike(entries) {
  const rows = [];
  for (const entry of entries) {
    const same = [entry.reason, entry.status, entry.server, entry.upstream, entry.peer, entry.phase, entry.attempt, entry.closed_by].join(" ");
    const last = rows[rows.length - 1];
    if (last && last.same === same) {
      last.times += 1;
      last.first = entry.unix_ms;
    } else rows.push({ same, entry, times: 1, first: entry.unix_ms });
  }
  return rows;
}

function listZones(doc) {
  const rates = doc.limits.rate_zones.map((zone) => ({ ...zone, kind: "rate", allowed: `${short(zone.rate_per_s)}/s for each key` }));
  const places = doc.limits.connection_zones.map((zone) => ({ ...zone, kind: "connections", allowed: "as limit_conn says" }));
  const sessions = doc.limits.session_zones.map((zone) => ({ ...zone, kind: "sessions (sticky)", key: "", allowed: "" }));
  const peers = doc.limits.upstream_zones.map((zone) => ({ ...zone, kind: "peers (zone)", key: "", allowed: "" }));
  return [...rates, ...places, ...sessions, ...peers];
}

function filling(zone) {
  if (zone.entries === null) return { text: "not known", hint: "There was no shared memory for it: each worker has a zone of its own" };
  return `${count(zone.entries)} of ${count(zone.max_entries)} (${percent(zone.entries / Math.max(zone.max_entries, 1))})`;
}

const ZONES = listed("#limits", "Zones", [
  { title: "Zone", kind: "mono", value: (zone) => zone.zone },
  { title: "Limits", kind: "", value: (zone) => zone.kind },
  { title: "Key", kind: "mono wide", value: (zone) => zone.key },
  { title: "Allowed", kind: "", value: (zone) => zone.allowed },
  { title: "In use", kind: "number", hint: "Keys, sessions or peers that count now", value: (zone) => filling(zone) },
  { title: "No room", kind: "number", hint: "How often an entry was forgotten, or a request not counted", value: (zone) => count(zone.overflows || 0) },
  { title: "Size", kind: "number", value: (zone) => bytes(zone.size_bytes) },
]);

const LIMITED = [
  ["requests_limited", "Requests over a rate (limit_req)"],
  ["requests_delayed", "Requests made to wait (limit_req)"],
  ["requests_over_connections", "Requests over limit_conn"],
  ["requests_denied", "Requests denied (allow, deny)"],
  ["requests_over_active", "Requests over max_active_requests"],
  ["requests_refused_memory", "Requests refused for worker_memory"],
  ["connections_limited", "Connections over limit_accept"],
  ["connections_refused", "Connections refused: none left"],
  ["connections_shed", "Connections closed to make room"],
  ["requests_limited_dry_run", "Would have been limited (dry run)"],
];

const REFUSALS = listed("#limits", "What limits have done so far", [
  { title: "What", kind: "", value: ([, text]) => text },
  { title: "Count", kind: "number", value: ([name]) => count(state.doc.totals[name]) },
  { title: "Now", kind: "number", value: ([name]) => rate(total(name)) },
]);

const CERTIFICATES = listed("#house", "Certificates", [
  { title: "File", kind: "mono", value: (certificate) => certificate.file },
  { title: "Directive", kind: "mono", value: (certificate) => certificate.directive },
  { title: "State", kind: "bare", value: (certificate) => validity(certificate) },
  { title: "Ends", kind: "number", value: (certificate) => moment(certificate.expires_unix_s * 1000) },
]);

// A list of what was revoked is renewed every few days; an authority that has ended may stay in a file for years.
function validity(certificate) {
  const left = certificate.expires_unix_s - state.doc.now_unix_ms / 1000;
  const list = certificate.directive.endsWith("_crl");
  if (list) return left <= 0 ? { text: "out of date", level: "critical" } : { text: `next one in ${span(left)}`, level: "good" };
  if (!["ssl_certificate", "proxy_ssl_certificate"].includes(certificate.directive) && left <= 0) return { text: "one has expired", level: "still" };
  if (left <= 0) return { text: "expired", level: "critical" };
  const days = Math.floor(left / 86400);
  const text = days > 0 ? `${plural(days, "day")} left` : `${span(left)} left`;
  return { text, level: days < 3 ? "critical" : days < 14 ? "warning" : "good" };
}

function showTables() {
  const { doc } = state;
  const then = before();
  WORKERS.update(doc.workers, (worker) => worker.pid, (node, worker) => {
    mark(node, "data-worker", worker.pid);
    mark(node, "data-state", worker.state);
  });
  empty("#workers", doc.workers.length === 0, "No worker is running.");
  SERVERS.update(doc.servers.map((server) => {
    const earlier = then.servers.get(server.server);
    return { server, then: earlier, times: quantiles(server.latency, earlier && earlier.latency) };
  }), (row) => row.server.server);
  empty("#servers", doc.servers.length === 0, "No request was counted for a server yet.");
  const asked = (reason) => reason.side === "config";
  const reasons = [...doc.reasons.filter((reason) => !asked(reason)), ...doc.reasons.filter(asked)];
  REASONS.update(reasons.map((reason) => ({ reason, then: then.reasons.get(reason.reason) })), (row) => row.reason.reason, (node, row) => mark(node, "data-reason", row.reason.reason));
  RECENT.update(alike(doc.recent).slice(0, RECENT_SHOWN), (row) => `${row.same} ${row.first}`, (node, row) => mark(node, "data-reason", row.entry.reason));
  empty("#reasons", doc.reasons.length === 0 && doc.recent.length === 0, "Every request ended as it should.");
  ZONES.update(listZones(doc), (zone) => `${zone.kind} ${zone.zone}`);
  REFUSALS.update(LIMITED.filter(([name]) => doc.totals[name] > 0), ([name]) => name);
  CERTIFICATES.update(doc.certificates, (certificate) => `${certificate.directive} ${certificate.file}`);
  empty("#limits", listZones(doc).length === 0 && !LIMITED.some(([name]) => doc.totals[name] > 0), "No zone is configured, and nothing was refused.");
}

function showHouse() {
  const { master, limits, version, host } = state.doc;
  const reloaded = master.last_reload_unix_ms === null ? "none so far" : `${master.last_reload_failed ? "FAILED" : "worked"}, ${moment(master.last_reload_unix_ms)}`;
  terms(one("#facts"), [
    ["kp", version],
    ["Host", host],
    ["Running for", span(master.uptime_s), `since ${moment(master.started_unix_ms)}`],
    ["Generation", count(master.generation)],
    ["Last reload", reloaded],
    ["Reloads", `${count(master.reloads)} worked, ${count(master.reloads_failed)} failed`],
    ["Run-time changes in force", count(master.changes)],
    ["max_active_requests", limits.max_active_requests === null ? "no limit" : count(limits.max_active_requests)],
  ]);
  say(one("#host"), host);
  say(one("#version"), `kp ${version}`);
}

// --- asking -----------------------------------------------------------------------------------------------------------------

function show() {
  showVerdict();
  showNumbers();
  showCharts();
  showUpstreams();
  showTables();
  showHouse();
}

// At first the shortest range that shows all there is: of a kp that was just started an hour would be an empty chart.
function chooseRange() {
  const oldest = state.history && state.history.unix_ms[0];
  const covered = oldest ? state.doc.now_unix_ms - oldest : 0;
  const inputs = [...document.querySelectorAll("input[name=range]")];
  const fitting = inputs.find((input) => Number(input.value) * 1000 >= covered) || inputs[inputs.length - 1];
  fitting.checked = true;
  state.range = Number(fitting.value) * 1000;
}

async function ask() {
  const last = state.history ? state.history.unix_ms[state.history.unix_ms.length - 1] || 0 : 0;
  const answer = await fetch(`?format=json&since=${last}`, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok) throw new Error(`kp answered with status ${answer.status}`);
  const doc = await answer.json();
  if (doc.format !== 1) throw new Error("another version of kp answers now: load this page again");
  return doc;
}

async function turn() {
  const begun = performance.now();
  try {
    const doc = await ask();
    const first = state.doc === null;
    state.heard = Date.now();
    state.failure = null;
    remember(doc);
    state.doc = doc;
    if (doc.history) extend(doc.history);
    if (first) chooseRange();
    show();
  } catch (error) {
    state.failure = error instanceof TypeError ? "kp cannot be reached" : error.name === "TimeoutError" ? `kp has not answered within ${span(PATIENCE_MS / 1000)}` : error.message;
  }
  showFreshness();
  const pause = (performance.now() - begun) / SHARE;
  plan(Math.min(Math.max(EVERY_MS, pause), SLOWEST_MS));
}

function plan(after) {
  clearTimeout(state.timer);
  state.timer = null;
  if (state.paused || document.hidden) return;
  state.timer = setTimeout(async () => {
    if (state.asking) return;
    state.asking = turn();
    await state.asking;
    state.asking = null;
  }, after);
}

// The one line that says how far what is shown can be trusted; the alarm is raised once, not with every second.
function showFreshness() {
  const fresh = one("#fresh");
  const stale = one("#stale");
  const look = state.paused ? "fresh" : state.failure ? "fresh late" : "fresh live";
  mark(fresh, "class", look);
  say(fresh, `${state.paused ? "paused" : state.failure ? "stale" : "live"} ${state.heard ? clock(state.heard) : ""}`.trim());
  const text = state.failure ? `${state.failure}. ${state.heard ? `What is shown is of ${clock(state.heard)}.` : "There is nothing to show yet."}` : "";
  stale.hidden = text === "";
  say(stale, text);
  if (state.failure) document.title = `(stale) kp ${state.doc ? state.doc.host : ""}`;
}

one("#pause").addEventListener("click", () => {
  state.paused = !state.paused;
  mark(one("#pause"), "aria-pressed", state.paused);
  showFreshness();
  plan(0);
});
document.addEventListener("visibilitychange", () => plan(0));
document.querySelectorAll("input[name=range]").forEach((input) => {
  input.addEventListener("change", () => {
    state.range = Number(input.value) * 1000;
    if (state.doc) showCharts();
  });
});
one("#find").addEventListener("input", showUpstreams);
one("#only-ill").addEventListener("change", showUpstreams);
one("#charts").append(...CHARTS.map((drawing) => drawing.figure));
plan(0);
