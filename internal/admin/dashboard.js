// Keeps the page up to date. What objects say becomes text and never elements: nothing here parses HTML.
"use strict";

const byId = (id) => document.getElementById(id);
const pollEvery = 2000; // ms
const certificatesEvery = 30000; // ms
const patience = 10000; // ms that an answer may take
const pageRows = 50; // of routes, where nothing else is asked for
const rateOver = 10000; // ms that rates and latencies are of, at most

const state = { q: byId("q").value, trouble: byId("trouble").checked, offset: Number(document.body.dataset.offset), limit: Number(document.body.dataset.limit) };
let history_ = []; // answers of /topology as {time, counts}, the newest last
let opened = new Set(); // keys of details that are open
let asked = null; // AbortController of the question under way
let timer = 0;
let certificatesAt = 0; // when those that are shown were read
let shownAt = 0; // when the last answer was shown

// el makes an element; children are text or elements, and what is null is left out.
function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) if (v !== null && v !== undefined) e.setAttribute(k, v);
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== ""));
  return e;
}

// show puts children into an element where they differ from what it has, so that what has the focus or is selected stays while nothing changes.
function show(container, signature, make) {
  const text = JSON.stringify(signature, (k, v) => (k === "inFlight" ? undefined : v)); // that is updated in place
  if (container.signature === text) return false;
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  container.replaceChildren(...[make()].flat());
  container.signature = text;
  if (focused !== undefined) for (const e of container.querySelectorAll("[data-key]")) if (e.dataset.key === focused) e.focus();
  return true;
}

function badge(klass, text) { return el("span", { class: "badge " + klass }, text); }

// disclosure is details that stay open while what is around them is made anew. The key tells them from all others.
function disclosure(key, summary, ...children) {
  const details = el("details", null, el("summary", { "data-key": key }, summary), ...children);
  details.open = opened.has(key);
  details.addEventListener("toggle", () => { if (details.open) opened.add(key); else opened.delete(key); });
  return details;
}

// badges shows conditions: what is wrong first, with its message; the messages of the others on demand.
function badges(key, list) {
  if (!list || list.length === 0) return [el("span", { class: "none" }, "no status")];
  const name = (b) => b.type + (b.status === "True" ? "" : "=" + b.status);
  const why = (b) => el("span", { class: "why" }, b.reason + (b.message ? ": " + b.message : ""));
  const good = list.filter((b) => b.class === "ok");
  return [...list.filter((b) => b.class !== "ok").map((b) => el("div", null, badge(b.class, name(b)), " ", why(b))),
    good.length ? disclosure("conditions " + key, good.flatMap((b) => [badge("ok", name(b)), " "]), el("ul", null, good.map((b) => el("li", null, name(b) + " ", why(b))))) : null];
}

// table makes a table; heads with a leading # are of numbers.
function table(caption, heads, rows) {
  return el("table", null, caption ? el("caption", null, caption) : null,
    el("thead", null, el("tr", null, heads.map((h) => el("th", { scope: "col", class: h.startsWith("#") ? "n" : null }, h.replace("#", ""))))),
    el("tbody", null, rows));
}

const head = (...children) => el("th", { scope: "row" }, ...children);
const cell = (...children) => el("td", null, ...children);
const lines = (list, more) => [...(list || []).flatMap((t) => [t, el("br")]), more ? el("span", { class: "dim" }, "and " + more + " more") : null];
const total = (n) => n.toLocaleString("en");

// number is a cell that update fills: key names what was counted, and what is which figure of it.
const number = (key, what) => el("td", { class: "n", "data-of": key, "data-what": what }, "–");

function countsOf(t) {
  const all = { total: t.total };
  for (const g of t.gateways || []) for (const l of g.listeners || []) all["l:" + g.kind + " " + g.name + " " + l.name] = l.counts;
  for (const r of t.routes || []) all["r:" + r.kind + "/" + r.name] = r.counts;
  return all;
}

// figures is what happened with key between the oldest answer that has it and the newest.
function figures(key, bounds) {
  const now = history_[history_.length - 1];
  const then = history_.find((h) => h.counts[key]);
  if (!now || !now.counts[key] || !then || then === now) return null;
  const a = then.counts[key], b = now.counts[key], seconds = (now.time - then.time) / 1000;
  if (seconds <= 0) return null;
  const durations = (b.durations || []).map((n, i) => n - ((a.durations || [])[i] || 0));
  return { rate: (b.requests - a.requests) / seconds, errorRate: (b.errors - a.errors) / seconds, p50: quantile(durations, bounds, 0.5), p99: quantile(durations, bounds, 0.99) };
}

// quantile is the latency in seconds that a share of requests did not exceed, interpolated within its bucket; null without requests.
function quantile(durations, bounds, share) {
  const sum = durations.reduce((a, b) => a + b, 0);
  if (sum <= 0) return null;
  let rank = share * sum;
  for (let i = 0; i < durations.length; i++) {
    if (durations[i] > 0 && rank <= durations[i]) {
      if (i >= bounds.length) return bounds[bounds.length - 1];
      const low = i === 0 ? 0 : bounds[i - 1];
      return low + (bounds[i] - low) * (rank / durations[i]);
    }
    rank -= durations[i];
  }
  return bounds[bounds.length - 1];
}

function rate(n) { return n === 0 ? "0" : n < 10 ? n.toFixed(1) : total(Math.round(n)); }
function latency(s) { return s === null ? "–" : s < 1 ? (s * 1000).toFixed(s < 0.01 ? 1 : 0) + " ms" : s.toFixed(1) + " s"; }

function figure(what, key, counts, bounds) {
  if (what === "requests") return total(counts.requests);
  const f = figures(key, bounds);
  if (!f) return "–";
  return what === "rate" ? rate(f.rate) : what === "errorRate" ? rate(f.errorRate) : latency(f[what]);
}

function setText(e, text) { if (e.textContent !== text) e.textContent = text; }

function updateNumbers(t) {
  const counts = history_[history_.length - 1].counts, bounds = t.bounds || [];
  for (const e of document.querySelectorAll("[data-of]")) if (counts[e.dataset.of]) setText(e, figure(e.dataset.what, e.dataset.of, counts[e.dataset.of], bounds));
  const inFlight = new Map((t.routes || []).flatMap((r) => r.rules || []).flatMap((r) => r.backends || []).flatMap((b) => b.pools || [])
    .flatMap((p) => (p.endpoints || []).map((e) => [p.name + " " + e.address, e.inFlight])));
  for (const e of document.querySelectorAll("[data-in-flight]")) if (inFlight.has(e.dataset.inFlight)) setText(e, String(inFlight.get(e.dataset.inFlight)));
  setText(byId("t-total"), total(t.total.requests));
  setText(byId("t-errors"), total(t.total.errors));
  for (const [id, what] of [["t-rate", "rate"], ["t-error-rate", "errorRate"], ["t-p50", "p50"], ["t-p99", "p99"]]) setText(byId(id), figure(what, "total", t.total, bounds));
}

function problems(t) {
  byId("problems").hidden = !(t.problems || []).length;
  show(byId("problem-list"), [t.problems, t.moreProblems], () => [
    ...(t.problems || []).map((p) => el("li", null, badge(p.severity === "error" ? "bad" : "unknown", p.severity), " ", p.object ? el("b", null, p.object) : null, " ",
      p.where ? el("code", null, p.where) : null, " ", p.message, p.remedy ? el("span", { class: "why" }, " → " + p.remedy) : null)),
    t.moreProblems ? el("li", { class: "dim" }, "and " + t.moreProblems + " more; see ", el("a", { href: "/status" }, "status")) : null].filter(Boolean));
}

const bare = (rows) => (rows || []).map((r) => ({ ...r, counts: null }));
const fitting = () => state.q || state.trouble ? " that fits." : ".";

function gateways(t) {
  const list = t.gateways || [];
  show(byId("gateway-list"), [list.map((g) => ({ ...g, listeners: bare(g.listeners) })), t.moreGateways, t.counted, list.length ? 0 : fitting()], () => [
    ...list.flatMap((g) => [
      el("h3", null, g.kind === "Gateway" ? null : el("span", { class: "dim" }, g.kind + " "), g.name, " ",
        el("span", { class: "dim" }, [g.class ? "class " + g.class : "", g.parent ? "of " + g.parent : "", ...(g.addresses || [])].filter(Boolean).join(" · "))),
      el("div", null, badges(g.kind + " " + g.name, g.conditions)),
      table("Listeners of " + g.name, ["Listener", "Protocol", "#Port", "Hostname", "#Routes", ...(t.counted ? ["#req/s", "#5xx/s", "#p50", "#p99", "#Requests"] : []), "Conditions"],
        (g.listeners || []).map((l) => {
          const key = "l:" + g.kind + " " + g.name + " " + l.name;
          return el("tr", null, head(l.name), cell(l.protocol), el("td", { class: "n" }, String(l.port)), cell(l.hostname || "*"), el("td", { class: "n" }, total(l.attachedRoutes)),
            t.counted ? ["rate", "errorRate", "p50", "p99", "requests"].map((what) => number(key, what)) : [], cell(badges(key, l.conditions)));
        })),
      g.moreListeners ? el("p", { class: "dim" }, "and " + g.moreListeners + " more listeners") : null,
      (g.proxies || []).length ? table("Proxies of " + g.name, ["Pod", "Version", "State"], g.proxies.map((p) => el("tr", null, head(p.pod), cell(p.version || ""), cell(badge(p.class, p.state))))) : null,
      g.alone ? el("p", null, badge("bad", "no proxy is connected")) : null,
    ]),
    list.length ? null : el("p", { class: "none" }, "There is no Gateway" + fitting()),
    t.moreGateways ? el("p", { class: "dim" }, t.moreGateways + " more are not shown; filter by a name.") : null].filter(Boolean));
  const names = byId("gateway-names");
  if (names) show(names, list.map((g) => g.name), () => list.filter((g) => g.kind === "Gateway").map((g) => el("option", null, g.name)));
}

function pool(route, p) {
  const key = route + " " + p.name;
  return disclosure(key, badge(p.class, p.state), el("ul", null, el("li", { class: "dim" }, p.name + (p.panic ? ": too few are healthy, so health is ignored" : "")),
    (p.endpoints || []).map((e) => el("li", null, el("code", null, e.address), " ", badge(e.class, e.health + (e.terminating ? ", terminating" : "")), " ",
      el("span", { class: "dim nowrap" }, e.zone ? "zone " + e.zone + ", " : null, el("span", { "data-in-flight": p.name + " " + e.address }, String(e.inFlight)), " in flight"))),
    p.moreEndpoints ? el("li", { class: "dim" }, "and " + p.moreEndpoints + " more") : null));
}

function rule(route, r) {
  return el("li", null, (r.matches || []).length ? r.matches.flatMap((m, i) => [i ? el("br") : null, i ? "or " : null, m || "everything"]) : "everything",
    r.moreMatches ? el("span", { class: "dim" }, " and " + r.moreMatches + " more matches") : null,
    (r.filters || []).map((f) => el("span", { class: "dim" }, " " + f)),
    (r.backends || []).map((b) => el("div", null, "→ " + b.key, b.weight === 1 ? null : el("span", { class: "dim" }, " weight " + b.weight), (b.pools || []).map((p) => pool(route + " " + r.name, p)))),
    r.moreBackends ? el("div", { class: "dim" }, "and " + r.moreBackends + " more backends") : null);
}

function routes(t) {
  const list = t.routes || [];
  show(byId("route-list"), [bare(list), t.counted, list.length ? 0 : fitting()], () => list.length === 0 ? el("p", { class: "none" }, "There is no route" + fitting()) :
    table(null, ["Route", "Hostnames", "Rules and backends", "Parents", ...(t.counted ? ["#req/s", "#5xx/s", "#p50", "#p99", "#Requests"] : [])], list.map((r) => {
      const key = "r:" + r.kind + "/" + r.name;
      return el("tr", null, head(el("span", { class: "dim" }, r.kind + " "), r.name), cell((r.hostnames || []).length ? lines(r.hostnames, r.moreHostnames) : "*"),
        cell(el("ul", null, (r.rules || []).map((x) => rule(key, x)), r.moreRules ? el("li", { class: "dim" }, "and " + r.moreRules + " more rules") : null)),
        cell((r.parents || []).length ? r.parents.map((p) => el("div", null, p.name + " ", badges(key + " " + p.name, p.conditions))) : el("span", { class: "none" }, "no Gateway that this controller manages")),
        t.counted ? ["rate", "errorRate", "p50", "p99", "requests"].map((what) => number(key, what)) : []);
    })));
  const last = t.offset + list.length;
  show(byId("pages"), [t.offset, last, t.matching, t.allRoutes], () => [
    el("span", { id: "range" }, total(Math.min(t.offset + 1, t.matching)) + "–" + total(last) + " of " + total(t.matching) + (t.matching === t.allRoutes ? "" : " that fit, of " + total(t.allRoutes))), " ",
    t.offset > 0 ? turn("previous", Math.max(t.offset - t.limit, 0)) : null, last < t.matching ? turn("next", last) : null].filter(Boolean));
}

// turn is a link to another page of routes, which works without the script too.
function turn(name, offset) {
  const a = el("a", { id: name, href: "/?" + query(offset) + "#routes", "data-key": name }, name);
  a.addEventListener("click", (e) => { e.preventDefault(); state.offset = offset; load(true); });
  return a;
}

function policies(t) {
  byId("policies").hidden = !(t.policies || []).length;
  show(byId("policy-list"), t.policies, () => table(null, ["Policy", "Targets", "Takes the place of", "Conditions"], (t.policies || []).map((p) => el("tr", null,
    head(el("span", { class: "dim" }, p.kind + " "), p.name), cell(lines(p.targets)),
    cell((p.overrides || []).length ? p.overrides.map((o) => el("div", null, o.policy + " ", el("span", { class: "why" }, "in " + o.rules + (o.rules === 1 ? " rule: " : " rules: ") + (o.fields || []).join(", ")))) : el("span", { class: "none" }, "nothing")),
    cell((p.ancestors || []).length ? p.ancestors.map((a) => el("div", null, a.name + " ", badges(p.kind + " " + p.name + " " + a.name, a.conditions))) : el("span", { class: "none" }, "no status"))))));
}

function others(t) {
  byId("others").hidden = !(t.others || []).length;
  show(byId("other-list"), t.others, () => table(null, ["Kind", "Name", "Conditions"], (t.others || []).map((o) => el("tr", null, cell(o.kind), head(o.name), cell(badges(o.kind + " " + o.name, o.conditions))))));
  byId("hidden").hidden = !t.hidden;
  show(byId("hidden"), t.hidden, () => [t.hidden + " more policies and other objects are not shown; filter by a name, or see ", el("a", { href: "/status" }, "status"), "."]);
}

function outcomes(t) {
  const list = t.outcomes || [];
  show(byId("outcome-list"), list, () => list.length === 0 ? el("p", { class: "none" }, "None yet.") : table(null, ["Reason", "Status", "#Requests"], list.map((o) => el("tr", null,
    head(o.reason), cell(o.code === "0" ? el("span", { class: "dim" }, "none sent") : o.code), el("td", { class: "n" }, total(o.requests))))));
}

function certificates(c) {
  const list = c.certificates || [];
  byId("certificates").hidden = list.length === 0;
  show(byId("certificate-list"), [list, c.more], () => [table(null, ["Secret", "For", "Issuer", "Valid until", "Listeners"], list.map((x) => {
    const days = Math.floor((Date.parse(x.notAfter) - Date.now()) / 86400000);
    return el("tr", null, head(x.name), cell(lines(x.names)), cell(x.issuer || ""),
      cell(x.problem ? badge("bad", x.problem) : [x.notAfter.slice(0, 10), " ", badge(days < 0 ? "bad" : days < 30 ? "unknown" : "ok", days < 0 ? "expired" : days + " days")]), cell(lines(x.listeners)));
  })), c.more ? el("p", { class: "dim" }, "and " + c.more + " more") : null].filter(Boolean));
}

function query(offset) {
  const p = new URLSearchParams();
  if (state.q) p.set("q", state.q);
  if (state.trouble) p.set("trouble", "1");
  if (offset) p.set("offset", offset);
  if (state.limit !== pageRows) p.set("limit", state.limit);
  return p.toString();
}

function render(t) {
  const time = Date.parse(t.time), counts = countsOf(t), before = history_[history_.length - 1];
  if (before && (before.counts.total.requests > t.total.requests || before.time > time)) history_ = []; // another process answers, or what went was counted
  for (const [key, c] of Object.entries(counts)) { // what was counted before a rule or a backend went is not compared with
    if (before && before.counts[key] && before.counts[key].requests > c.requests) for (const h of history_) delete h.counts[key];
  }
  history_.push({ time, counts });
  while (history_.length > 2 && time - history_[0].time > rateOver) history_.shift();
  state.offset = t.offset;
  show(byId("ready"), t.notReady || "", () => t.notReady ? badge("bad", "not ready: " + t.notReady) : badge("ok", "ready"));
  setText(byId("note"), t.note || "");
  byId("note").hidden = !t.note;
  fail(t.failed ? "The objects cannot be shown: " + t.failed : "");
  byId("traffic").hidden = byId("requests").hidden = !t.counted;
  for (const e of document.querySelectorAll(".now")) e.hidden = !t.counted;
  problems(t); gateways(t); routes(t); policies(t); others(t); outcomes(t); updateNumbers(t);
}

function fail(text) {
  setText(byId("failed"), text);
  byId("failed").hidden = !text;
}

async function getJSON(path, signal) {
  const r = await fetch(path, { signal, headers: { "X-Moongate-Page": "1" } });
  if (!r.ok) throw new Error((await r.text()).trim() || r.statusText);
  return r.json();
}

// load asks for what is selected and shows it; chosen is that somebody has selected it just now.
async function load(chosen) {
  clearTimeout(timer);
  if (asked) asked.abort();
  const mine = asked = new AbortController();
  const late = setTimeout(() => mine.abort(new DOMException("no answer within " + patience / 1000 + " s", "TimeoutError")), patience);
  try {
    const t = await getJSON("/topology?" + query(state.offset), mine.signal);
    if (mine !== asked) return;
    render(t);
    if (chosen) {
      history.replaceState(null, "", "/" + (query(state.offset) ? "?" + query(state.offset) : ""));
      setText(byId("said"), total(t.matching) + " of " + total(t.allRoutes) + " routes");
    }
    if (performance.getEntriesByName("moongate-shown").length === 0) performance.mark("moongate-shown");
    shownAt = Date.now();
    age();
    if (chosen || Date.now() - certificatesAt > certificatesEvery) {
      const c = await getJSON("/certificates?" + query(0), mine.signal);
      if (mine === asked) {
        certificatesAt = Date.now();
        certificates(c);
      }
    }
  } catch (e) {
    if (e.name === "AbortError") return;
    fail("Nothing new is shown" + (shownAt ? " since " + new Date(shownAt).toLocaleTimeString("en-GB") : "") + ": " + e.message);
  } finally {
    clearTimeout(late);
  }
  if (mine === asked) next();
}

// age says how old is what is shown. It is no status: a screen reader would read it out every second.
function age() {
  if (!shownAt) return;
  const seconds = Math.max(0, Math.floor((Date.now() - shownAt) / 1000));
  setText(byId("age"), "as of " + new Date(shownAt).toLocaleTimeString("en-GB") + ", " + (seconds < 120 ? seconds + " s" : Math.floor(seconds / 60) + " min") + " ago");
}

function next() {
  clearTimeout(timer);
  if (byId("live").checked && !document.hidden) timer = setTimeout(load, pollEvery, false);
}

function choose() {
  state.q = byId("q").value.trim();
  state.trouble = byId("trouble").checked;
  state.offset = 0;
  load(true);
}

// answer shows the lines of an explanation, each with its label before it.
function answer(a) {
  const rows = a.text.split("\n").filter(Boolean).map((l) => el("tr", null, head(l.slice(0, 10).trim()), cell(l.slice(10).trim())));
  byId("answer").replaceChildren(el("table", null, el("caption", null, "The way of the request"), el("tbody", null, rows)));
}

async function ask(event) {
  event.preventDefault();
  const p = new URLSearchParams(new FormData(byId("ask")));
  p.delete("format");
  setText(byId("answer"), "…");
  try {
    answer(await getJSON("/explain?" + p));
  } catch (e) {
    byId("answer").replaceChildren(badge("bad", "no answer"), " ", e.message);
  }
}

let typing = 0;
byId("q").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(choose, 150); });
byId("trouble").addEventListener("change", choose);
byId("find").addEventListener("submit", (e) => { e.preventDefault(); clearTimeout(typing); choose(); });
byId("live").addEventListener("change", () => { if (byId("live").checked) load(false); else clearTimeout(timer); });
document.addEventListener("visibilitychange", () => { if (document.hidden) clearTimeout(timer); else if (byId("live").checked) load(false); });
if (byId("ask")) byId("ask").addEventListener("submit", ask);
byId("live-label").hidden = false;
setInterval(age, 1000);
load(false);
