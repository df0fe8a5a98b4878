// Keeps a page up to date, says when things were, copies commands, and moves by keyboard. Without it pages work, and
// stand still.
"use strict";

const main = document.getElementById("main");
const status = document.getElementById("status");
const says = status.querySelector(".says");

function tell(state, text) {
  status.className = "status " + state;
  if (says.textContent !== text) says.textContent = text;
}

// --- changes -----------------------------------------------------------------------------------------------------------

// What has the focus, so that its successor gets it: the same link, or the same field.
function focused(within) {
  const at = document.activeElement;
  if (!at || at === within || !within.contains(at)) return null;
  if (at.id) return () => document.getElementById(at.id);
  const address = at.getAttribute("href");
  return address && (() => within.querySelector(`a[href="${CSS.escape(address)}"]`));
}

function put(element, html, show) {
  const again = focused(element);
  const fields = [...element.querySelectorAll("input, select")].map((each) => [each.id, each.value]);
  const open = [...element.querySelectorAll("details[open]")].map((each) => each.id);
  element.innerHTML = html;
  for (const [id, value] of fields) {
    const field = id && document.getElementById(id);
    if (field) field.value = value;
  }
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  again && again()?.focus({ preventScroll: true });
  tellTimes(element);
  tellScrolling(element);
  if (show) {
    element.classList.remove("fresh");
    requestAnimationFrame(() => element.classList.add("fresh"));
  }
}

function take(message) {
  for (const [id, html] of Object.entries(JSON.parse(message.data))) {
    const element = document.getElementById(id);
    if (element) put(element, html, element.tagName === "TR");
  }
  document.documentElement.dataset.seen = message.lastEventId;
  performance.mark("taken");
}

function follow(address) {
  const source = new EventSource(address);
  const alive = "alive" in main.dataset;
  source.onopen = () => alive && tell("live", "Live");
  source.onmessage = take;
  source.onerror = () => {
    tell("lost", "Connection lost");
    // A proxy that answers for a server that restarts ends the source for good: begin anew.
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, 5000, address);
  };
  addEventListener("pagehide", () => source.close());
}

// --- times ---------------------------------------------------------------------------------------------------------------

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"]];

function ahead(seconds) {
  for (const [size, unit] of UNITS) {
    if (seconds >= size) return `${(seconds / size).toFixed(seconds < 10 * size && unit !== "min" ? 1 : 0)} ${unit}`;
  }
  return `${Math.ceil(seconds / 10) * 10} s`;
}

function ago(seconds) {
  for (const [size, unit] of UNITS) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  return seconds < 10 ? "just now" : `${Math.floor(seconds / 10) * 10} s ago`;
}

let clock; // made when a page has a time to show: a browser takes 10 ms for the first one, before anything is painted

// A time as the reader's clock shows it; what was there, in UTC, is its title.
function tellClock(each) {
  if (each.title) return;
  const at = new Date(each.dateTime);
  if (isNaN(at)) return;
  each.title = each.textContent;
  clock ||= new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  each.textContent = clock.format(at).replace(",", "");
}

function tellTimes(within) {
  within.querySelectorAll("time.clock").forEach(tellClock);
  for (const each of within.querySelectorAll("time:not(.clock)")) {
    each.title ||= each.textContent;
    const seconds = (Date.now() - Date.parse(each.dateTime)) / 1000;
    let text = seconds > -60 ? ago(Math.max(0, seconds)) : each.title;
    if (each.className === "lasting") text = ahead(Math.max(0, seconds));
    else if (each.className) text = seconds > -10 ? "now" : (each.className === "ahead" ? "in " : "") + ahead(-seconds);
    if (each.textContent !== text) each.textContent = text;
  }
}

// --- tables that are wider than the screen ---------------------------------------------------------------------------

function tellScrolling(within) {
  for (const each of within.querySelectorAll(".scrolls")) {
    const rest = each.scrollWidth - each.clientWidth;
    each.classList.toggle("over", rest > 1);
    each.classList.toggle("end", each.scrollLeft >= rest - 1);
    each.onscroll = () => each.classList.toggle("end", each.scrollLeft >= each.scrollWidth - each.clientWidth - 1);
  }
}

addEventListener("resize", () => tellScrolling(document));

// --- commands ----------------------------------------------------------------------------------------------------------

const said = document.getElementById("said");

main.addEventListener("click", async (event) => {
  const pressed = event.target.closest("button.copy");
  if (!pressed) return;
  const command = pressed.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(command.textContent);
    pressed.textContent = said.textContent = "Copied";
    setTimeout(() => (pressed.textContent = "Copy", said.textContent = ""), 1500);
  } catch {
    getSelection().selectAllChildren(command); // where a browser forbids it, the reader presses Ctrl-C
  }
});

// --- the namespace of My jobs ---------------------------------------------------------------------------------------------

const jobs = document.querySelector('.top nav a[href$="workloads"]');
const chosen = localStorage.getItem("namespace");

// The namespace that a reader chose last is where the link to My jobs leads.
document.getElementById("namespace")?.form.addEventListener("submit", (event) => {
  localStorage.setItem("namespace", event.target.elements.namespace.value);
});
document.querySelector("select#namespace")?.addEventListener("change", (event) => event.target.form.requestSubmit());
if (chosen) jobs.search = new URLSearchParams({ namespace: chosen });

// --- colours -----------------------------------------------------------------------------------------------------------

const THEMES = { "": "System", light: "Light", dark: "Dark" };
const button = document.getElementById("theme");

function colour(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  button.querySelector(".says").textContent = THEMES[theme];
  button.title = `Colours: ${THEMES[theme]}. Press to change.`;
  button.setAttribute("aria-label", `Colours: ${THEMES[theme]}`);
}

document.documentElement.classList.add("js");
button.hidden = false;
colour(localStorage.getItem("theme") in THEMES ? localStorage.getItem("theme") : "");
button.onclick = () => {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme || "") + 1) % names.length];
  localStorage.setItem("theme", next);
  colour(next);
};

// --- keys ----------------------------------------------------------------------------------------------------------------

const help = document.getElementById("help");
const links = Object.fromEntries([...document.querySelectorAll(".top nav a[data-key]")].map((each) => [each.dataset.key, each]));
let going = 0; // when `g` was pressed

document.getElementById("keys").hidden = false;
document.getElementById("keys").onclick = () => help.showModal();

addEventListener("keydown", (event) => {
  if (help.open) return;
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  const goes = Date.now() - going < 1000;
  going = event.key === "g" ? Date.now() : 0;
  if (goes && event.key in links) {
    links[event.key].click();
  } else if (event.key === "?") {
    help.showModal();
  } else if (event.key === "/") {
    event.preventDefault();
    document.getElementById("find").focus();
  } else if (event.key === "j" || event.key === "k") {
    const rows = [...main.querySelectorAll("a[data-row]")];
    const at = rows.indexOf(document.activeElement);
    const next = rows[event.key === "j" ? at + 1 : Math.max(0, at - 1)];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }
});

tellTimes(document);
tellScrolling(document);
setInterval(() => tellTimes(document), 10000);
if (main.dataset.follow) follow(main.dataset.follow);
