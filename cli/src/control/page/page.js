// Shows the answers of /v1, asked for once a second. Work in progress is left alone: a focused row does not move, and a weight that is
// being typed is not overwritten.
"use strict";

const ROWS = 200; // limit on tenants in the table; the filter finds the others
const $ = (id) => document.getElementById(id);
let token = sessionStorage.getItem("token");
let sort = { by: "had", down: true };
let status = null;
let version = null; // of the groups on the page
let may = false;
let all = true; // or one tenant's figures only
let program = ""; // the version of the server
const KEEP = 600; // seconds that are drawn
const LINES = 6; // of tenants that are drawn
const GAP = 12; // seconds without a sample, after which a line begins anew
const samples = []; // the figures of tenants, each second, by their keys
const changes = []; // of the configuration
let missed = true; // whether the server may have samples that this page has not
const colours = new Map(); // by the key of a tenant that is drawn
let groups = null; // their settings, by path, when last asked for
let pointed = null; // where a person points in a graph: 0 at its left, 1 at its right
let pins = []; // the keys of tenants whose lines are chosen, the latest last; the address keeps them

// http://127.0.0.1:9000/#token=… keeps the token out of every log: the part behind # is not sent.
if (location.hash.startsWith("#token=")) {
  token = decodeURIComponent(location.hash.slice(7));
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", location.pathname);
} else {
  pins = new URLSearchParams(location.hash.slice(1)).getAll("line").slice(-LINES);
}

class Refused extends Error {
  constructor(code, says) { super(says); this.code = code; }
}

async function ask(path, method = "GET", body) {
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), cache: "no-store" });
  const said = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, said.error || answer.statusText);
  return said;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function look() {
  for (let seconds = 0.2; ; seconds = 1) {
    try {
      if (version === null) ({ may_change: may, sees_all: all, program } = await ask("v1"));
      status = await ask("v1/status?seconds=" + seconds);
      if (status.version !== version) await showGroups();
      if (missed && all) await recall();
      $("enter").hidden = true;
      $("main").hidden = false;
      show();
    } catch (why) {
      const says = why.code === 401 ? (token ? "The server does not accept this token" : "The server asks for a token") : why.message;
      tell($("state"), why.code ? says : "The server does not answer; trying again", "trouble");
      if (why.code === 401) {
        $("main").hidden = true;
        $("enter").hidden = false;
        version = null;
        return;
      }
      await pause(1000);
    }
    if (document.hidden) {
      await new Promise((seen) => document.addEventListener("visibilitychange", seen, { once: true }));
      missed = true;
    }
  }
}

// Text that has not changed is not written again, so that a screen reader does not repeat it.
function tell(element, text, kind = "") {
  if (element.textContent !== text) element.textContent = text;
  if (element.className !== kind) element.className = kind;
}

const percent = (part) => part == null ? "–" : (100 * part).toFixed(part < 0.0995 ? 1 : 0) + " %";
const short = (number) => number < 1e4 ? number.toFixed(0) : number < 1e6 ? (number / 1e3).toFixed(1) + " k" : (number / 1e6).toFixed(2) + " M";
const mega = (bytes) => (bytes / 1e6).toFixed(1);
const time = (us) => us == null ? "–" : us < 1e3 ? us.toFixed(0) + " µs" : us < 1e6 ? (us / 1e3).toFixed(1) + " ms" : (us / 1e6).toFixed(1) + " s";
const width = (element, part) => { element.style.width = (100 * Math.min(1, part)).toFixed(2) + "%"; };

function make(name, kind, ...children) {
  const element = document.createElement(name);
  if (kind) element.className = kind;
  element.append(...children);
  return element;
}

const cells = (kinds) => kinds.map((kind) => make("td", kind));

// Gives a table one row for each key, in this order: makes those that are missing, and removes the others.
function arrange(table, keys, create) {
  const body = table.tBodies[0], rows = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const wanted = new Set(keys), held = document.activeElement;
  for (const [key, row] of rows) if (!wanted.has(key)) row.remove();
  keys.forEach((key, at) => {
    let row = rows.get(key);
    if (!row) {
      row = create();
      row.dataset.key = key;
    }
    if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] || null);
  });
  if (held && held !== document.activeElement && held.isConnected) held.focus();
  return [...body.rows];
}

function show() {
  const connections = status.connections === 1 ? "1 connection" : status.connections + " connections";
  const warnings = status.warnings.concat(status.flush_errors ? ["flushes have failed: fairlift get server"] : []);
  tell($("state"), [`${program} on ${location.host}`, connections, "config version " + status.version, ...warnings].join(" · "), warnings.length ? "trouble" : "");
  keep();
  showDisks();
  showHistory();
  showTenants();
  showParts();
}

function showDisks() {
  const disks = new Map(status.disks.map((disk) => [disk.name, disk]));
  const rows = arrange($("disks"), [...disks.keys()], () => {
    const bar = make("div", "bar", make("span", "busy"), make("span", "flushing"), make("span", "idling"));
    bar.setAttribute("aria-hidden", "true");
    const head = make("th");
    head.scope = "row";
    return make("tr", "", head, make("td"), make("td", "", make("div", "share", bar, make("span"))),
      ...cells(["number", "number", "number", "number"]));
  });
  for (const row of rows) {
    const disk = disks.get(row.dataset.key), bar = row.querySelector(".bar");
    tell(row.cells[0], disk.name);
    tell(row.cells[1], disk.scheduler);
    ["busy", "flushing", "idling"].forEach((what, at) => width(bar.children[at], disk[what]));
    tell(bar.nextSibling, percent(all ? disk.busy + disk.flushing : null));
    bar.parentNode.title = `requests ${percent(disk.busy)}, flushes ${percent(disk.flushing)}, held idle ${percent(disk.idling)}`;
    [`${disk.in_flight}/${disk.depth}`, String(disk.waiting), short(disk.iops), mega(disk.bps)]
      .forEach((text, at) => tell(row.cells[3 + at], text, "number"));
  }
}

// The largest part of a tenant's time.
function waits(tenant) {
  return Object.entries(tenant.waits).reduce((most, one) => one[1] > most[1] ? one : most, ["", 0]);
}

function order(one, two) {
  const of = (tenant) => sort.by === "wait" ? waits(tenant).join(" ") : tenant[sort.by];
  const [a, b] = [of(one), of(two)];
  if (a == null || b == null) return (a == null) - (b == null); // a tenant without a figure comes last, either way
  const way = sort.down ? -1 : 1;
  return way * (typeof a === "string" ? a.localeCompare(b) : a - b) || one.path.localeCompare(two.path);
}

const keyOf = (tenant) => tenant.disk + "\n" + tenant.path;

// The tenants that the filter lets through.
function found() {
  const text = $("filter").value.toLowerCase();
  const words = (tenant) => [tenant.path, tenant.disk, waits(tenant)[0], ...(tenant.exports || [])];
  return status.tenants.filter((tenant) => words(tenant).some((word) => word.toLowerCase().includes(text)));
}

function showTenants() {
  let all = found();
  const count = all.length, text = $("filter").value;
  all = all.sort(order).slice(0, ROWS);
  tell($("count"), count > ROWS ? `the first ${ROWS} of ${count}` : text ? `${count} of ${status.tenants.length}` : "");
  const tenants = new Map(all.map((tenant) => [keyOf(tenant), tenant]));
  const rows = arrange($("tenants"), [...tenants.keys()], () => {
    const bar = make("div", "bar", make("span", "busy"), make("span", "due"));
    bar.setAttribute("aria-hidden", "true");
    const head = make("th", "", make("button", "pin", make("span", "swatch"), make("span"))), why = make("button", "why", "why");
    head.scope = "row";
    return make("tr", "", head, make("td"), make("td", "", make("div", "share", bar, make("span"))),
      ...cells(["number", "number score", "number", "number", "number", "number", ""]), make("td", "", why));
  });
  for (const row of rows) {
    const tenant = tenants.get(row.dataset.key), bar = row.querySelector(".bar"), [cause, part] = waits(tenant);
    row.className = tenant.short ? "short" : tenant.due == null ? "quiet" : "";
    const pin = row.cells[0].firstChild, colour = colours.get(row.dataset.key);
    tell(pin.lastChild, tenant.path);
    pin.firstChild.className = colour === undefined ? "swatch" : "swatch c" + colour;
    pin.setAttribute("aria-pressed", pins.includes(row.dataset.key));
    tell(row.cells[1], tenant.disk);
    width(bar.firstChild, tenant.had);
    bar.lastChild.hidden = tenant.due == null;
    bar.lastChild.style.left = (100 * (tenant.due || 0)).toFixed(2) + "%";
    tell(bar.nextSibling, percent(tenant.had));
    const pool = tenant.pool ? ` (pool: had ${percent(tenant.pool.had)}, due ${percent(tenant.pool.due)})` : "";
    tell(row.cells[3], percent(tenant.due) + (["demand", "min", "max"].includes(tenant.due_by) ? " " + tenant.due_by : "") + pool, "number");
    tell(row.cells[4], tenant.score == null ? "–" : tenant.score.toFixed(2), "number score");
    [short(tenant.iops), mega(tenant.bps), time(tenant.p50_us), time(tenant.p99_us)]
      .forEach((text, at) => tell(row.cells[5 + at], text, "number"));
    tell(row.cells[9], cause && `${cause} ${percent(part)}`);
    const why = row.cells[10].firstChild, name = tenant.exports && tenant.exports[0];
    why.disabled = name === undefined || name === null;
    why.dataset.name = name;
    why.setAttribute("aria-label", "why " + tenant.path);
  }
}

// ---- graphs: the last ten minutes, of which the server keeps a sample each five seconds, and this page one each second ----

const figures = (tenants) => new Map(tenants.map((tenant) => [keyOf(tenant), {
  had: tenant.had, due: tenant.due, bps: tenant.bps, iops: tenant.iops, p99: tenant.p99_us, target: tenant.latency_target_us,
}]));

function keep() {
  const now = performance.now() / 1000;
  const busiest = [...status.tenants].sort((one, two) => two.had - one.had);
  const kept = busiest.filter((tenant, rank) => rank < ROWS || pins.includes(keyOf(tenant)));
  samples.push({ at: now, clock: new Date(), tenants: figures(kept) });
  for (const old of [samples, changes]) while (old.length && old[0].at < now - KEEP) old.shift();
}

// Fetches the samples from before this page was opened, or while it was hidden; and at first the changes made before.
async function recall() {
  const told = await ask("v1/history"), now = performance.now() / 1000, clock = Date.now();
  const moment = (ago) => ({ at: now - ago, clock: new Date(clock - 1000 * ago) });
  const isNew = (ago) => samples.every(({ at }) => Math.abs(now - ago - at) > told.every_seconds);
  const fresh = told.samples.filter((sample) => isNew(sample.ago_seconds));
  if (!samples.length) for (const { ago_seconds, what } of told.changes) changes.push({ ...moment(ago_seconds), text: brief(what.split("; ")) });
  for (const { ago_seconds, tenants } of fresh) samples.push({ ...moment(ago_seconds), tenants: figures(tenants) });
  samples.sort((one, two) => one.at - two.at);
  missed = false;
}

const brief = (texts) => texts.slice(0, 3).join(", ") + (texts.length > 3 ? ` and ${texts.length - 3} more` : "");

// The settings of a group, as a person reads them.
const settings = (group) => [`weight ${group.weight}`, ...limits(group)];

// Compares the groups with those of the look before, and notes what differs; a change elsewhere is noted by its version.
function noteChanges(tree) {
  const now = new Map(), texts = [];
  const walk = (group) => {
    now.set(group.path, settings(group));
    group.groups.forEach(walk);
  };
  walk(tree);
  for (const [path, [weight, ...others]] of now) {
    const was = groups && groups.get(path);
    if (!was) texts.push(`${path} added`);
    else if (was[0] !== weight) texts.push(`${path} ${was[0]} → ${weight.slice(7)}`);
    if (was && was.slice(1).join() !== others.join()) texts.push(`${path} ${was.slice(1).join(" ") || "no limits"} → ${others.join(" ") || "no limits"}`);
  }
  if (groups) {
    for (const path of groups.keys()) if (!now.has(path)) texts.push(`${path} removed`);
    if (!texts.length && version !== null) texts.push(`configuration, now version ${status.version}`);
    if (texts.length) changes.push({ at: performance.now() / 1000, clock: new Date(), text: brief(texts) });
  }
  groups = now;
}

// The tenants that are drawn: those that are chosen, then the busiest of the samples, in an order that stays; each keeps its colour for as long.
function drawn() {
  const sums = new Map(found().map((tenant) => [keyOf(tenant), 0]));
  for (const { tenants } of samples)
    for (const [key, { had }] of tenants) if (sums.has(key)) sums.set(key, sums.get(key) + had);
  const there = new Set(status.tenants.map(keyOf)), chosen = pins.filter((key) => there.has(key) || samples.some(({ tenants }) => tenants.has(key)));
  const busiest = [...sums].filter(([key, sum]) => sum > 0 && !chosen.includes(key)).sort((one, two) => two[1] - one[1]).map(([key]) => key);
  const keys = [...chosen, ...busiest].slice(0, LINES);
  for (const key of colours.keys()) if (!keys.includes(key)) colours.delete(key);
  for (const key of keys.sort()) {
    const taken = [...colours.values()];
    if (!colours.has(key)) colours.set(key, [...Array(LINES).keys()].find((colour) => !taken.includes(colour)));
  }
  return [...chosen, ...[...colours.keys()].filter((key) => !chosen.includes(key))];
}

// Chooses a tenant's line, or no longer. Of more than there is room for, the one chosen first goes.
function togglePin(key) {
  pins = pins.includes(key) ? pins.filter((one) => one !== key) : [...pins, key].slice(-LINES);
  const kept = new URLSearchParams(pins.map((pin) => ["line", pin]));
  history.replaceState(null, "", pins.length ? "#" + kept : location.pathname);
  showHistory();
  showTenants();
}

// The time that is drawn: whole minutes, as many as this page has seen, up to the last sample.
function span() {
  const end = samples[samples.length - 1].at;
  const length = Math.min(KEEP, 60 * Math.max(1, Math.ceil((end - samples[0].at) / 60)));
  return { length, place: (at) => 1 - (end - at) / length };
}

// A line through a figure of each sample, from 0 at the bottom to 1; broken where there is none for long.
function line(svg, kind, key, height) {
  const { place } = span();
  let text = "", last = -Infinity;
  for (const { at, tenants } of samples) {
    const value = tenants.has(key) ? height(tenants.get(key)) : null;
    if (value == null) continue;
    text += `${at - last > GAP ? "M" : "L"}${(300 * place(at)).toFixed(1)} ${(100 - 100 * Math.min(1, value)).toFixed(2)}`;
    last = at;
  }
  const path = document.createElementNS(svg.namespaceURI, "path");
  path.setAttribute("class", `${kind} c${colours.get(key)}`);
  path.setAttribute("d", text);
  return path;
}

function chart(name, label, keys, [bottom, top], lines) {
  const figure = $(name), svg = figure.querySelector("svg"), { length, place } = span();
  tell(figure.querySelector(".top"), top, "top");
  tell(figure.querySelector(".bottom"), bottom, "bottom");
  tell(figure.querySelector(".from"), length === 60 ? "1 minute ago" : `${length / 60} minutes ago`, "from");
  svg.setAttribute("aria-label", `${label} of ${keys.length === 1 ? "1 tenant" : keys.length + " tenants"}`);
  svg.replaceChildren(...keys.flatMap((key) => lines.map(([kind, height]) => line(svg, kind, key, height))));
  for (const old of figure.querySelectorAll(".mark, .pointer")) old.remove();
  changes.forEach(({ at }, number) => {
    const shown = make("span", place(at) > 0.9 ? "mark left" : "mark", String(number + 1));
    shown.style.left = (100 * place(at)).toFixed(2) + "%";
    svg.parentNode.append(shown);
  });
  if (pointed !== null) {
    const shown = make("span", "pointer");
    shown.style.left = (100 * pointed).toFixed(2) + "%";
    svg.parentNode.append(shown);
  }
}

// The first of 1, 2, 5, 10, 20, … that is no less.
function ceiling(value) {
  const ten = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * ten).find((round) => round >= value);
}

function showHistory() {
  const keys = drawn(), minutes = span().length / 60, rate = $("rate").value;
  const values = (...names) => samples.flatMap(({ tenants }) =>
    keys.flatMap((key) => tenants.has(key) ? names.map((name) => tenants.get(key)[name]) : [])).filter((value) => value > 0);
  tell($("history-head"), minutes === 1 ? "Last minute" : `Last ${minutes} minutes`);
  chart("had-chart", "Had of the disk’s time", keys, ["0 %", "100 %"], [["had", (one) => one.had], ["aim", (one) => one.due]]);
  const fastest = ceiling(values(rate).reduce((most, value) => Math.max(most, value), rate === "bps" ? 1e5 : 10));
  const unit = $("rate").selectedOptions[0].textContent, inUnit = (value) => rate === "bps" ? mega(value) : short(value);
  chart("rate-chart", "Rate in " + unit, keys, ["0", rate === "bps" && fastest >= 1e6 ? short(fastest / 1e6) : inUnit(fastest)],
    [["rate", (one) => one[rate] / fastest]]);
  // Each tenth of the height is as many times longer than the one below.
  const times = values("p99", "target");
  const low = Math.floor(Math.log10(times.reduce((least, us) => Math.min(least, us), 1e3)));
  const high = Math.ceil(Math.log10(1.5 * times.reduce((most, us) => Math.max(most, us), 1e4)));
  const height = (us) => us > 0 ? (Math.log10(us) - low) / (high - low) : null;
  chart("p99-chart", "p99 latency", keys, [time(10 ** low), time(10 ** high)], [["p99", (one) => height(one.p99)], ["aim", (one) => height(one.target)]]);
  showLegend(keys, unit, (one) => inUnit(one[rate]));
  const list = changes.map(({ clock, text }) => `${clock.toLocaleTimeString()} ${text}`);
  if ($("changes").dataset.shown !== list.join("\n")) {
    $("changes").dataset.shown = list.join("\n");
    $("changes").replaceChildren(...list.map((text) => make("li", "", text)));
  }
}

// The figures of the tenants that are drawn: the latest, or those of the moment at which a person points.
function showLegend(keys, unit, rate) {
  const last = samples[samples.length - 1], { place } = span();
  const sample = pointed === null ? last
    : samples.reduce((near, one) => Math.abs(place(one.at) - pointed) < Math.abs(place(near.at) - pointed) ? one : near, last);
  tell($("moment"), pointed === null ? "Now" : "At " + sample.clock.toLocaleTimeString());
  tell($("rate-head"), unit, "number");
  const several = new Set(keys.map((key) => key.split("\n")[0])).size > 1;
  const rows = arrange($("legend"), keys, () => {
    const head = make("th", "", make("span", "swatch"), make("span"));
    head.scope = "row";
    return make("tr", "", head, ...cells(["number", "number", "number", "number"]));
  });
  for (const row of rows) {
    const [disk, path] = row.dataset.key.split("\n"), one = sample.tenants.get(row.dataset.key);
    row.className = "c" + colours.get(row.dataset.key);
    tell(row.cells[0].lastChild, several ? `${path} on ${disk}` : path);
    (one ? [percent(one.had), percent(one.due), rate(one), time(one.p99)] : ["–", "–", "–", "–"])
      .forEach((text, at) => tell(row.cells[1 + at], text, "number"));
  }
}

for (const plot of document.querySelectorAll(".plot")) {
  const point = (event) => {
    const { left, width } = plot.getBoundingClientRect();
    pointed = event.type === "pointerleave" ? null : Math.max(0, Math.min(1, (event.clientX - left) / width));
    if (samples.length) showHistory();
  };
  for (const kind of ["pointermove", "pointerdown", "pointerleave"]) plot.addEventListener(kind, point);
}
$("rate").addEventListener("change", () => { if (samples.length) showHistory(); });

$("tenants").tHead.addEventListener("click", (event) => {
  const by = event.target.dataset.sort;
  if (!by) return;
  const text = ["path", "disk", "wait"].includes(by);
  sort = { by, down: sort.by === by ? !sort.down : !text && by !== "score" };
  for (const head of event.currentTarget.querySelectorAll("th")) head.removeAttribute("aria-sort");
  event.target.parentNode.setAttribute("aria-sort", sort.down ? "descending" : "ascending");
  if (status) showTenants();
});
$("filter").addEventListener("input", () => {
  if (!status) return;
  showHistory();
  showTenants();
});

$("tenants").tBodies[0].addEventListener("click", (event) => {
  const pin = event.target.closest(".pin");
  if (pin) togglePin(pin.closest("tr").dataset.key);
});

$("tenants").tBodies[0].addEventListener("click", async (event) => {
  const why = event.target.closest(".why");
  if (!why) return;
  const { name } = why.dataset;
  tell($("why-head"), name);
  tell($("why-text"), "Measuring for a second…");
  $("why").showModal();
  try {
    const said = await ask("v1/why/" + encodeURIComponent(name));
    const lines = said.causes.map((cause) => make("p", "", `${percent(cause.part)}: ${cause.says}`));
    if (said.helps) lines.push(make("p", "", said.helps));
    $("why-text").replaceChildren(...lines, make("p", "key",
      `${said.tenant} on ${said.disk}: ${short(said.iops)} operations and ${mega(said.bps)} MB a second, ${said.outstanding.toFixed(1)} outstanding`));
  } catch (why) {
    tell($("why-text"), why.message);
  }
});

// The path of a group in /v1/groups/…; the root is that of an empty name.
const place = (path) => "v1/groups/" + (path === "/" ? "/" : path.slice(1).split("/").map(encodeURIComponent).join("/"));

async function showGroups() {
  const tree = await ask("v1/groups");
  noteChanges(tree);
  const held = document.activeElement && document.activeElement.dataset.path;
  const typed = held && document.activeElement.value;
  $("groups").replaceChildren(branch(tree, null));
  tell($("may"), may ? "A weight that is changed here takes effect at once." : "This address is read-only: weights cannot be changed here.");
  version = status.version;
  const again = held && [...$("groups").querySelectorAll("input")].find((input) => input.dataset.path === held);
  if (again) {
    again.value = typed;
    again.focus();
  }
}

// The limits of a group, as they are typed.
const rates = (key, rates) => rates ? [key + " " + Object.entries(rates).map(([rate, value]) => `${rate}=${value}`).join(",")] : [];
const limits = (group) => [...rates("max", group.max), ...rates("burst", group.burst), ...rates("min", group.min), ...(group.latency ? ["latency " + group.latency] : [])];

function branch(group, parent) {
  const row = make("div", "row", make("span", "name", group.path));
  if (parent) {
    const input = make("input");
    Object.assign(input, { type: "number", min: 1, max: 1000, value: group.weight, defaultValue: group.weight, required: true, disabled: !may });
    input.dataset.path = group.path;
    const sum = parent.groups.reduce((all, one) => all + one.weight, 0);
    row.append(make("label", "", "weight ", input), make("span", "part", all ? `${percent(group.weight / sum)} of ${parent.path}` : ""));
    input.setAttribute("aria-label", "weight of " + group.path);
    input.addEventListener("change", () => setWeight(input));
  }
  if (limits(group).length) row.append(make("span", "limits", limits(group).join(" ")));
  if (group.exports.length) row.append(make("span", "part", `${group.exports.length > 1 ? "exports" : "export"} ${group.exports.join(", ")}`));
  const now = make("span", "part now");
  now.dataset.path = group.path;
  row.append(now);
  const item = make("li", "", row);
  if (group.groups.length) item.append(make("ul", "", ...group.groups.map((one) => branch(one, group))));
  return item;
}

// The share of each group, with all groups below it.
function showParts() {
  const sums = new Map(), clients = new Map();
  for (const tenant of status.tenants) {
    for (let path = tenant.path; ; path = path.slice(0, path.lastIndexOf("/")) || "/") {
      sums.set(path, (sums.get(path) || 0) + tenant.had);
      clients.set(path, (clients.get(path) || 0) + tenant.connections);
      if (path === "/") break;
    }
  }
  const most = Math.max(1, status.disks.length);
  for (const now of $("groups").querySelectorAll(".now")) {
    const sum = sums.get(now.dataset.path) || 0, count = clients.get(now.dataset.path) || 0;
    const had = most > 1 ? `had ${sum.toFixed(2)} of ${most} disks’ time` : `had ${percent(sum)} of the disk’s time`;
    tell(now, `${had}, ${count} ${count === 1 ? "connection" : "connections"}`, "part now");
  }
}

async function setWeight(input) {
  const path = input.dataset.path;
  if (!input.checkValidity()) return tell($("said"), "A weight is a whole number from 1 to 1000", "bad");
  try {
    const said = await ask(place(path), "PATCH", { weight: Number(input.value) });
    input.defaultValue = said.weight;
    tell($("said"), `${path} has weight ${said.weight}`);
  } catch (why) {
    input.value = input.defaultValue;
    tell($("said"), why.message, "bad");
  }
}

$("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("token", token);
  look();
});

look();
