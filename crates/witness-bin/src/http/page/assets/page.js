"use strict";

// Asks this member for the ring every second while the page is visible, and draws the answer. All data from the ring is put
// on the page as text, never as HTML.

const ASK_EVERY_MS = 1000;
const PATIENCE_MS = 10000;
// Longer than the member's own wait for members that do not answer.
const OLD_AFTER_MS = 6000;

const byId = (id) => document.getElementById(id);

/** An element with attributes and children; a child that is a string becomes text. */
function element(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
function shape(tag, attributes, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** A text: names and commands are in backticks, and the name of a runbook becomes a link. */
function words(text) {
  return text.split("`").flatMap((part, at) => {
    if (at % 2 === 1) return [element("code", {}, part)];
    return part.split(/(the runbook [a-z-]+)/).map((piece) => {
      const runbook = /^the runbook ([a-z-]+)$/.exec(piece);
      return runbook ? element("a", { href: `runbooks/${runbook[1]}` }, piece) : element("span", {}, piece);
    });
  });
}

function sentence(text) {
  return words(text.charAt(0).toUpperCase() + text.slice(1));
}

function put(id, ...children) {
  byId(id).replaceChildren(...children);
}

/** A span of time in its largest unit. */
function span(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** Date and time in UTC, as logs and `witness history` have them. */
function clock(ms) {
  return `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

const opId = (id) => (id ? `${id.term}.${id.index}` : "–");

// The request and its interval.

let latest = null;
let answeredAt = performance.now();

async function ask() {
  const patience = new AbortController();
  const timer = setTimeout(() => patience.abort(), PATIENCE_MS);
  try {
    const answer = await fetch("ring", { cache: "no-store", signal: patience.signal });
    if (!answer.ok) return;
    latest = await answer.json();
    answeredAt = performance.now();
    show(latest);
  } catch {
    // No answer: the page shows the age of the last one.
  } finally {
    clearTimeout(timer);
  }
}

function showAge() {
  const age = performance.now() - answeredAt;
  const old = age > OLD_AFTER_MS;
  document.body.classList.toggle("old", old);
  byId("stale").hidden = !old || !latest;
  if (!old) return;
  const since = `No answer since ${span(age / 1000)}`;
  put("fresh", since);
  if (!latest) return put("seen", "This member does not answer.");
  const rest = ` from \`${latest.seen_by}\`. This page is as old as that; another member's page may know more.`;
  put("stale", element("b", {}, since), ...words(rest));
}

async function askForAsLongAsItIsSeen() {
  for (;;) {
    if (document.hidden) {
      await new Promise((seen) => document.addEventListener("visibilitychange", seen, { once: true }));
      // No request was sent in the meantime, so no answer is due.
      answeredAt = performance.now();
      continue;
    }
    await ask();
    await new Promise((later) => setTimeout(later, ASK_EVERY_MS));
  }
}

// The page's text.

function show(ring) {
  document.querySelector("main").hidden = false;
  document.title = `${ring.verdict_level === "good" ? "" : "⚠ "}${ring.ring} – witness`;
  put("ring", ring.ring);
  put("seen", "as ", element("b", {}, ring.seen_by), " sees it, having asked the other members");
  put("fresh", `${clock(ring.now_ms)}, live`);
  put("version", `witness ${ring.version}`);
  showVerdict(ring);
  put("warnings", ...ring.warnings.map((text) => element("li", {}, sign("⚠", "Warning: "), element("span", {}, ...sentence(text)))));
  showCommit(ring);
  showPicture(ring);
  showEvents(ring);
  showMembers(ring);
  put("elections", ...ring.elections.map((text) => element("li", {}, ...sentence(text))));
}

/** A sign for the eye, and a word for who listens. */
function sign(mark, word) {
  return element("span", { class: "sign", role: "img", "aria-label": word }, mark);
}

/** Replaces it only where it changed, so that nothing is read out again. */
function putChanged(id, key, make) {
  const place = byId(id);
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(...make());
}

function showVerdict(ring) {
  const ok = ring.quorum.ok;
  const [begins, rest] = ring.verdict;
  // The duration changes every second, and is not announced to screen readers.
  const heard = ok ? begins + rest : `${begins}, commits wait`;
  putChanged("heard", heard, () => words(heard));
  const [level, ...marks] = { good: ["good", "✓", "Good: "], note: ["warn", "⚠", "Warning: "], bad: ["bad", "✗", "Bad: "] }[ring.verdict_level];
  byId("verdict").className = `notice ${level}`;
  putChanged("verdict-text", begins + rest, () => {
    const mark = sign(...marks);
    mark.classList.add(level);
    return [mark, element("b", {}, begins), ...words(rest)];
  });
  const fix = ring.quorum.fix;
  putChanged("fix", fix || "", () => (fix ? [element("b", {}, "To fix it: "), ...sentence(fix)] : []));
}

function showCommit(ring) {
  const told = ring.commit.length
    ? ring.commit
    : [`No member leads, so no commit returns until one does. Then it waits for ${inWords(ring)}`];
  const lines = told.map((text) => element("p", {}, ...sentence(text)));
  put("commit", ...lines, element("p", { class: "quiet" }, "Policy: ", element("code", {}, ring.policy)));
}

/** The voter sets that the answering member knows of. */
function inWords(ring) {
  if (!ring.voter_sets.length) return "whoever will vote: this member has no membership yet";
  const name = (id) => (ring.members.find((member) => member.id === id) || { name: `member ${id}` }).name;
  const sets = ring.voter_sets.map((set) => `${set.required} of ${set.members.map((id) => `\`${name(id)}\``).join(", ")}`);
  return sets.join(", and for ");
}

function showEvents(ring) {
  const signs = { good: ["✓", "Good: "], bad: ["!", "Bad: "], note: ["•", ""] };
  putChanged("events", JSON.stringify(ring.events), () =>
    ring.events.map((event) => {
      const at = new Date(event.at_ms);
      const time = element("time", { datetime: at.toISOString(), title: `here: ${at.toLocaleString()}` }, clock(event.at_ms));
      const text = element("span", { class: "text" }, ...sentence(event.text));
      return element("li", { class: event.level }, time, element("div", { class: "what" }, sign(...signs[event.level]), text));
    }),
  );
  const since = span(ring.uptime_seconds);
  put(
    "events-note",
    `The last 200 events that ${ring.seen_by} saw since it started ${since} ago, the newest first. Another member may have seen others.`,
  );
}

const COLUMNS = [
  ["Region", (member) => member.region],
  ["Kind", (member) => member.kind],
  ["Role", (member) => member.role || "no answer"],
  ["Mysqld", (member) => (member.mysqld ? [member.mysqld, member.mysqld_version].filter(Boolean).join(", ") : "–")],
  ["Behind", behind],
  ["Log end", (member) => opId(member.log_end)],
  ["Committed", (member) => opId(member.committed)],
  ["Log file", (member) => (member.log_file ? `${member.log_file}:${member.log_file_bytes}` : "–")],
  ["Up", (member) => (member.uptime_seconds === null ? "–" : span(member.uptime_seconds))],
];

function showMembers(ring) {
  const heads = ["Member", ...COLUMNS.map(([label]) => label)];
  putChanged("columns", "once", () => heads.map((label) => element("th", { scope: "col" }, label)));
  const rows = ring.members.map((member) => {
    const cells = COLUMNS.map(([label, of]) => element("td", { "data-label": label }, String(of(member))));
    return element("tr", {}, element("th", { scope: "row" }, member.name), ...cells);
  });
  put("members", ...rows);
}

function behind(member) {
  const parts = [];
  if (member.lag_entries !== null) parts.push(`${member.lag_entries} ${member.lag_entries === 1 ? "entry" : "entries"}`);
  if (member.lag_ms !== null) parts.push(`${(member.lag_ms / 1000).toFixed(1)} s`);
  return parts.join(", ") || "–";
}

// The picture. Regions are boxes next to each other, or below each other on narrow screens. A hop within a region runs in the
// gutter left of its members. A hop between regions runs up through the gutter, through the channel above the boxes, and down
// again. Each hop has a lane of its own.

const LEAST_BOX = 270;
const GAP = 14;
const LANE = 7;
const HEAD = 38;
const CARD_GAP = 8;
const PAD = 10;

let drawn = "";

function showPicture(ring) {
  const place = byId("picture");
  const width = Math.max(LEAST_BOX, Math.floor(place.clientWidth));
  const seen = ring.members.map((member) => ({ ...member, uptime_seconds: 0, committed: 0, log_file_bytes: 0, version: 0 }));
  const key = JSON.stringify([width, ring.leader, ring.hops, ring.voter_sets, seen]);
  if (key === drawn || place.clientWidth === 0) return;
  drawn = key;
  put("picture", picture(ring, width));
}

function picture(ring, width) {
  const regions = [...new Set(ring.members.map((member) => member.region))];
  const regionOf = new Map(ring.members.map((member) => [member.id, member.region]));
  const known = ring.hops.filter((hop) => regionOf.has(hop.from) && regionOf.has(hop.to));
  const isLocal = (hop) => regionOf.get(hop.from) === regionOf.get(hop.to);
  const across = known.filter((hop) => !isLocal(hop));
  const lanes = across.length * LANE;

  const columns = Math.max(1, Math.min(regions.length, Math.floor((width + GAP) / (LEAST_BOX + GAP))));
  const trunk = columns < regions.length ? lanes + 4 : 0;
  const boxWidth = (width - trunk - GAP * (columns - 1)) / columns;
  const gutter = 18 + lanes;

  const boxes = new Map();
  const cards = new Map();
  let top = 0;
  for (let first = 0; first < regions.length; first += columns) {
    const channel = top;
    top += lanes + 6;
    let bottom = top;
    regions.slice(first, first + columns).forEach((region, column) => {
      const x = trunk + column * (boxWidth + GAP);
      let y = top + HEAD;
      for (const member of ring.members.filter((one) => one.region === region)) {
        const height = member.kind === "database" ? 82 : 58;
        cards.set(member.id, { member, x: x + gutter, y, width: boxWidth - gutter - PAD, height });
        y += height + CARD_GAP;
      }
      boxes.set(region, { x, y: top, width: boxWidth, height: y - top + PAD - CARD_GAP, channel });
      bottom = Math.max(bottom, y + PAD - CARD_GAP);
    });
    for (const region of regions.slice(first, first + columns)) boxes.get(region).height = bottom - top;
    top = bottom + GAP;
  }

  const svg = shape("svg", { height: top - GAP + 2, viewBox: `0 0 ${width} ${top - GAP + 2}`, role: "img", "aria-label": summary(ring) });
  for (const [region, box] of boxes) svg.append(regionBox(ring, region, box, gutter));
  for (const hop of known.filter(isLocal)) {
    const [from, to] = [cards.get(hop.from), cards.get(hop.to)];
    const x = boxes.get(regionOf.get(hop.to)).x + gutter - 9;
    const start = middle(from) + 12;
    svg.append(...line([[from.x, start], [x, start], [x, middle(to)], [to.x - 1, middle(to)]], to));
  }
  across.forEach((hop, lane) => {
    const [from, to] = [cards.get(hop.from), cards.get(hop.to)];
    const [source, target] = [boxes.get(regionOf.get(hop.from)), boxes.get(regionOf.get(hop.to))];
    const offset = 4 + lane * LANE;
    const start = middle(from) - 6 - 3 * lane;
    const up = source.x + 6 + lane * LANE;
    const down = target.x + 6 + lane * LANE;
    const points = [[from.x, start], [up, start], [up, source.channel + offset]];
    if (source.channel !== target.channel) points.push([2 + lane * LANE, source.channel + offset], [2 + lane * LANE, target.channel + offset]);
    points.push([down, target.channel + offset], [down, middle(to)], [to.x - 1, middle(to)]);
    svg.append(...line(points, to));
  });
  for (const card of cards.values()) svg.append(memberCard(card));
  return svg;
}

const middle = (card) => card.y + card.height / 2;

function summary(ring) {
  const members = ring.members.map((member) => {
    const role = member.leads ? "leader" : member.role || "no answer";
    return `${member.name} in ${member.region}: ${role}${member.mysqld ? `, mysqld ${member.mysqld}` : ""}`;
  });
  return `Members by region. ${members.join("; ")}. The table below says the same.`;
}

function regionBox(ring, region, box, gutter) {
  const inside = new Set(ring.members.filter((member) => member.region === region).map((member) => member.id));
  const decides = ring.voter_sets.find((set) => set.members.every((id) => inside.has(id)));
  const group = shape(
    "g",
    {},
    shape("rect", { class: decides ? "region decides" : "region", x: box.x + 0.5, y: box.y, width: box.width - 1, height: box.height, rx: 10 }),
    shape("text", { class: "region-name", x: box.x + gutter + 2, y: box.y + 25 }, region),
  );
  if (decides) {
    const text = `commits need ${decides.required} of ${decides.members.length} here`;
    group.append(shape("text", { class: "small", x: box.x + box.width - PAD, y: box.y + 25, "text-anchor": "end" }, text));
  }
  return group;
}

function memberCard({ member, x, y, width, height }) {
  const classes = ["member", member.leads ? "leads" : "", member.answers ? "" : "silent"].filter(Boolean);
  const group = shape("g", { class: classes.join(" ") }, shape("title", {}, `${member.name}, ${member.kind}, ${member.address}`));
  group.append(shape("rect", { class: "card", x, y, width, height, rx: 7 }));
  if (member.in_quorum) group.append(shape("rect", { class: "bar", x: x + 5, y: y + 8, width: 4, height: height - 16, rx: 2 }));
  group.append(glyph(member.kind, x + 18, y + 12));
  const right = x + width - 12;
  let room = width - 54;
  if (member.leads) {
    group.append(
      shape("rect", { class: "pill", x: right - 50, y: y + 9, width: 54, height: 20, rx: 10 }),
      shape("text", { class: "pill-text", x: right - 23, y: y + 23, "text-anchor": "middle" }, "leader"),
    );
    room -= 60;
  } else {
    const role = member.role || "no answer";
    const kind = member.role && member.role !== "stopped" ? "small" : "state-bad";
    group.append(shape("text", { class: kind, x: right, y: y + 23, "text-anchor": "end" }, role));
    room -= role.length * 7;
  }
  group.append(shape("text", { class: "name", x: x + 42, y: y + 24 }, fitting(member.name, room, 8.2)));
  let line = y + 47;
  if (member.kind === "database") {
    const state = member.mysqld || (member.answers ? "no mysqld yet" : "not known");
    const text = `mysqld: ${state}`;
    group.append(shape("text", { class: mysqldClass(state), x: x + 42, y: line }, fitting(text, width - 54, 7)));
    line += 22;
  }
  const known = member.log_end ? `log ends at ${opId(member.log_end)}` : "log is empty";
  const ends = member.answers ? known : "";
  const lag = member.leads || member.lag_entries === null ? ends : `${behind(member)} behind`;
  group.append(
    shape("text", { class: "small", x: x + 42, y: line }, lag),
    shape("text", { class: member.in_quorum && !member.answers ? "state-bad" : "small", x: right, y: line, "text-anchor": "end" }, member.vote),
  );
  return group;
}

function mysqldClass(state) {
  if (state === "primary") return "state-good";
  if (state.startsWith("following")) return "";
  return ["stopped", "unreachable", "primary, not protected"].includes(state) ? "state-bad" : "small";
}

/** As much of a text as has room; the card's title has all of a name. */
function fitting(text, room, perLetter) {
  const most = Math.max(4, Math.floor(room / perLetter));
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

/** A disk stack for a database, an eye for a witness. */
function glyph(kind, x, y) {
  const path =
    kind === "database"
      ? `M${x} ${y + 3} a7 3 0 0 0 14 0 a7 3 0 0 0 -14 0 v9 a7 3 0 0 0 14 0 v-9 M${x} ${y + 7.5} a7 3 0 0 0 14 0`
      : `M${x - 1} ${y + 7.5} q8 -10 16 0 q-8 10 -16 0 M${x + 4.5} ${y + 7.5} a2.5 2.5 0 0 0 5 0 a2.5 2.5 0 0 0 -5 0`;
  return shape("path", { class: "glyph", d: path });
}

/** A line with round corners and a tip, to a card. */
function line(points, to) {
  const broken = to.member.answers ? "" : " broken";
  let path = `M${points[0].join(" ")}`;
  for (let at = 1; at + 1 < points.length; at += 1) {
    const [before, corner, after] = [points[at - 1], points[at], points[at + 1]];
    path += ` L${towards(corner, before).join(" ")} Q${corner.join(" ")} ${towards(corner, after).join(" ")}`;
  }
  const [x, y] = points[points.length - 1];
  path += ` L${x - 6} ${y}`;
  return [shape("path", { class: `hop${broken}`, d: path }), shape("path", { class: `tip${broken}`, d: `M${x} ${y} l-8 -4.5 v9 z` })];
}

/** The point a few pixels from a corner on the way to another point. */
function towards([x, y], [otherX, otherY]) {
  const length = Math.hypot(otherX - x, otherY - y);
  const part = length === 0 ? 0 : Math.min(6, length / 2) / length;
  return [x + (otherX - x) * part, y + (otherY - y) * part];
}

// On screens too narrow for a table, the picture shows most of it.
const narrow = matchMedia("(max-width: 700px)");
const openMembers = () => (byId("members-panel").open = !narrow.matches);
narrow.addEventListener("change", openMembers);
openMembers();
setInterval(showAge, 1000);
addEventListener("resize", () => latest && showPicture(latest));
askForAsLongAsItIsSeen();
