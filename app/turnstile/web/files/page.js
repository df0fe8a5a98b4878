// Keeps a page up to date, says how long ago things were, and moves by keyboard. Without it pages work, and stand still.
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

function tellTimes(within) {
  for (const each of within.querySelectorAll("time")) {
    each.title ||= each.textContent;
    const seconds = (Date.now() - Date.parse(each.dateTime)) / 1000;
    let text = seconds > -60 ? ago(Math.max(0, seconds)) : each.title;
    if (each.className) text = seconds > -10 ? "now" : (each.className === "ahead" ? "in " : "") + ahead(-seconds);
    if (each.textContent !== text) each.textContent = text;
  }
}

// --- colours -----------------------------------------------------------------------------------------------------------

const THEMES = { "": "as the system", light: "light", dark: "dark" };
const button = document.getElementById("theme");

function colour(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  button.setAttribute("aria-label", `Colours: ${THEMES[theme]}`);
  button.title = button.getAttribute("aria-label");
}

button.hidden = false;
colour(localStorage.getItem("theme") in THEMES ? localStorage.getItem("theme") : "");
button.onclick = () => {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme || "") + 1) % names.length];
  localStorage.setItem("theme", next);
  colour(next);
};

// --- keys ----------------------------------------------------------------------------------------------------------------

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
  if (event.key === "/") {
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
setInterval(() => tellTimes(document), 10000);
if (main.dataset.follow) follow(main.dataset.follow);
