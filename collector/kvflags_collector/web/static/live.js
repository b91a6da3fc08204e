// SPDX-License-Identifier: Apache-2.0
// What a page does with scripts and can do without: times in the reader's zone, and sections that keep up by themselves.
"use strict";
(() => {
  const FOCUSABLE = "a, button, input, select, textarea, summary, [tabindex]";
  // Refused, or too many listen: ask again, and less and less often.
  const AGAIN_MS = [2000, 5000, 15000, 60000];

  const localise = (root) => {
    for (const moment of root.querySelectorAll("time[datetime]:not([title])")) {
      moment.title = moment.textContent.trim();
      moment.textContent = new Date(moment.dateTime).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    }
  };

  const main = document.querySelector("main[data-live]");
  const sections = (root) => [...root.querySelectorAll("main section[id]")];
  // As the server sent them: what is compared, before times are put into the reader's zone.
  const sent = new Map(main ? sections(document).map((one) => [one.id, one.outerHTML]) : []);
  localise(document);
  if (!main) return;

  const state = document.getElementById("live");
  const say = (words) => { if (state.textContent !== words) state.textContent = words; };

  // Somebody is about to send it: what they read and wrote stays, and the server tells them if it is out of date.
  const busy = (section) => section.querySelector("details[open] form") !== null ||
    (section.contains(document.activeElement) && document.activeElement.matches("input, select, textarea"));

  // The same thing in the old and in the new section: by what it is and says, and which of several such it is.
  const named = (one) => [one.tagName, one.id || one.closest("details")?.id, one.getAttribute("href"),
    one.getAttribute("name"), one.tagName === "DETAILS" ? "" : one.textContent.slice(0, 80)].join("\n");
  const counted = (root, selector) => {
    const seen = new Map();
    return [...root.querySelectorAll(selector)].map((one) => {
      const name = named(one), number = seen.get(name) ?? 0;
      seen.set(name, number + 1);
      return [`${name}\n${number}`, one];
    });
  };

  const swap = (old, fresh) => {
    const focus = counted(old, FOCUSABLE).find(([, one]) => one === document.activeElement);
    const opened = new Set(counted(old, "details").filter(([, one]) => one.open).map(([name]) => name));
    const scrolled = [...old.querySelectorAll(".wide")].map((one) => one.scrollLeft);
    localise(fresh);
    old.replaceWith(fresh);
    for (const [name, one] of counted(fresh, "details")) one.open = opened.has(name);
    fresh.querySelectorAll(".wide").forEach((one, at) => { one.scrollLeft = scrolled[at] ?? 0; });
    if (focus) new Map(counted(fresh, FOCUSABLE)).get(focus[0])?.focus({ preventScroll: true });
  };

  // What is in view stays where it is, whatever grows or shrinks above it.
  const keepingPlace = (change) => {
    const seen = sections(document).find((one) => one.getBoundingClientRect().bottom > 0);
    const before = seen?.getBoundingClientRect().top;
    change();
    const after = seen && document.getElementById(seen.id)?.getBoundingClientRect().top;
    if (after !== undefined && window.scrollY > 0) window.scrollBy({ top: after - before, behavior: "instant" });
  };

  // Whether something was left as it was, since somebody is busy with it.
  const put = (page) => {
    const fresh = sections(page), ids = new Set(fresh.map((one) => one.id));
    let left = false, last = null;
    for (const old of sections(document)) {
      if (ids.has(old.id)) continue;
      if (busy(old)) { left = true; continue; }
      sent.delete(old.id);
      old.remove();
    }
    for (const one of fresh) {
      const old = document.getElementById(one.id), html = one.outerHTML;
      if (old && sent.get(one.id) === html) { last = old; continue; }
      if (old && busy(old)) { left = true; last = old; continue; }
      const mine = document.adoptNode(one);
      if (old) swap(old, mine);
      else {
        localise(mine);
        if (last) last.after(mine); else main.prepend(mine);
      }
      sent.set(mine.id, html);
      last = mine;
    }
    const footer = document.adoptNode(page.querySelector("footer"));
    localise(footer);
    document.querySelector("footer").replaceWith(footer);
    document.title = page.title;
    return left;
  };

  let shown = main.dataset.version, wanted = shown, left = false, refreshing = false;

  // Whether the page is now as it was a moment ago.
  const fetched = async () => {
    const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" } });
    if (!answer.ok) {
      say(answer.status === 401 ? "signed out: load the page again" : "out of date: the collector cannot answer now");
      return false;
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    keepingPlace(() => { left = put(page); });
    shown = page.querySelector("main").dataset.version;
    say(left ? "live, except for what you are filling in" : "live");
    return true;
  };

  // One at a time. Nobody looks at a page in the background: it catches up when they come back.
  const refresh = async () => {
    if (refreshing || document.hidden || (wanted === shown && !left)) return;
    refreshing = true;
    const asked = wanted;
    const done = await fetched().catch(() => { say("connection lost: trying again"); return false; });
    refreshing = false;
    // A newer page than the one that was asked for is as good.
    if (done && wanted === asked) wanted = shown;
    if (!done) setTimeout(refresh, AGAIN_MS[1]);
    else if (wanted !== shown) refresh();
  };
  document.addEventListener("visibilitychange", refresh);
  for (const event of ["focusout", "toggle"]) {
    document.addEventListener(event, () => setTimeout(() => {
      if (left && !sections(document).some(busy)) refresh();
    }), true);
  }

  let refused = 0;
  const listen = () => {
    const source = new EventSource(main.dataset.live);
    source.addEventListener("open", () => { refused = 0; if (!left) say("live"); });
    source.addEventListener("page", (event) => { wanted = event.data; refresh(); });
    source.addEventListener("error", () => {
      say("connection lost: trying again");
      // Lost connections the browser takes up by itself; where it was refused, nobody asks again unless we do.
      if (source.readyState !== EventSource.CLOSED) return;
      const wait = AGAIN_MS[Math.min(refused, AGAIN_MS.length - 1)];
      refused += 1;
      setTimeout(() => {
        fetched().catch(() => {}).then(listen);
      }, wait * (0.75 + Math.random() / 2));
    });
  };
  listen();
})();
