"use strict";
// The page reads without this. It folds the details away, filters, copies, and keeps what is shown in the address.
{
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const rows = all("tr.rule");
  const more = (row) => row.nextElementSibling;
  const form = document.querySelector(".filters");
  const nothing = document.querySelector(".nothing");
  const texts = new Map();

  const open = (row, wanted) => {
    more(row).classList.toggle("open", wanted && !row.hidden);
    row.querySelector("button").setAttribute("aria-expanded", String(wanted));
  };
  const isOpen = (row) => row.querySelector("button").getAttribute("aria-expanded") === "true";

  // A row's cells as they were made, and as they are for one profile.
  const cells = all("td[data-profiles]").map((cell) => ({
    cell,
    whole: cell.innerHTML,
    title: cell.title,
    marks: new Map(cell.dataset.profiles.split(";").filter(Boolean).map((pair) => {
      const space = pair.indexOf(" ");
      return [pair.slice(space + 1), pair.slice(0, space)];
    })),
  }));
  const words = new Map(all(".legend .mark").map((mark) => [mark.classList[1], mark.querySelector(".heard").textContent]));
  const showProfile = (profile) => {
    for (const { cell, whole, title, marks } of cells) {
      if (!profile) {
        cell.innerHTML = whole;
        cell.title = title;
        continue;
      }
      const untestable = whole.includes("shape-untestable");
      const mark = marks.get(profile) ?? (untestable ? "untestable" : "absent");
      cell.innerHTML = whole;
      cell.querySelector(".count")?.remove();
      cell.querySelector(".mark").className = `mark ${mark}`;
      cell.querySelector("use").setAttribute("href", `#shape-${mark}`);
      cell.querySelector(".heard").textContent = cell.title = words.get(mark);
    }
  };
  const marksOf = (row) => all("td > .mark", row).map((mark) => mark.classList[1]);

  const wanted = () => {
    const data = new FormData(form);
    return {
      text: data.get("text").trim().toLowerCase(),
      profile: data.get("profile") ?? "",
      levels: data.getAll("level"),
      only: data.getAll("only"),
    };
  };

  const fits = (row, { text, profile, levels, only }) => {
    if (!levels.includes(row.dataset.level)) return false;
    const marks = marksOf(row);
    if (only.includes("failures") && !marks.some((mark) => mark === "fail" || mark === "broken")) return false;
    if (only.includes("differences")) {
      const kinds = new Set(marks.filter((mark) => mark !== "absent"));
      if (profile ? kinds.size < 2 : !("differs" in row.dataset)) return false;
    }
    if (!text) return true;
    if (!texts.has(row)) {
      const section = row.parentElement.querySelector(".section").textContent;
      texts.set(row, [section, row.textContent, more(row).textContent].join("\n").toLowerCase());
    }
    return text.split(/\s+/).every((word) => texts.get(row).includes(word));
  };

  const filter = () => {
    const filters = wanted();
    showProfile(filters.profile);
    let shown = 0;
    for (const row of rows) {
      row.hidden = !fits(row, filters);
      more(row).hidden = row.hidden;
      open(row, isOpen(row));
      shown += row.hidden ? 0 : 1;
    }
    for (const section of all("tr.section")) {
      section.hidden = !section.parentElement.querySelector("tr.rule:not([hidden])");
    }
    nothing.hidden = shown > 0;
    form.elements.shown.value = `${shown} of ${rows.length} rules`;
    return filters;
  };

  const levels = all("input[name=level]", form).length;
  const remember = ({ text, profile, levels: some, only }) => {
    const query = new URLSearchParams();
    if (text) query.set("text", text);
    if (profile) query.set("profile", profile);
    if (some.length < levels) query.set("level", some.join(" "));
    if (only.length) query.set("only", only.join(" "));
    const search = query.size ? `?${query}` : location.pathname;
    try { history.replaceState(null, "", `${search}${location.hash}`); } catch { /* a page without an address */ }
  };
  const recall = () => {
    const query = new URLSearchParams(location.search);
    form.elements.text.value = query.get("text") ?? "";
    if (form.elements.profile) form.elements.profile.value = query.get("profile") ?? "";
    const check = (name, byDefault) => {
      const values = query.get(name)?.split(" ");
      for (const box of all(`input[name=${name}]`, form)) box.checked = values ? values.includes(box.value) : byDefault;
    };
    check("level", true);
    check("only", false);
  };
  const goTo = () => {
    const row = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (row?.matches("tr.rule")) {
      if (row.hidden) { form.reset(); filter(); }
      open(row, true);
      row.scrollIntoView();
    }
  };

  form.addEventListener("input", () => remember(filter()));
  form.addEventListener("submit", (event) => event.preventDefault());
  nothing.querySelector("button").addEventListener("click", () => { form.reset(); remember(filter()); });
  for (const row of rows) {
    row.addEventListener("click", (event) => {
      if (!event.target.closest("a") && getSelection().isCollapsed) open(row, !isOpen(row));
    });
  }
  addEventListener("hashchange", goTo);
  addEventListener("beforeprint", () => all(".finding details").forEach((details) => { details.open = true; }));
  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy button");
    if (!button) return;
    const text = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      // Without leave to write the clipboard, as for a file in some browsers: mark it for the keyboard.
      getSelection().selectAllChildren(text);
      button.textContent = "Press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });

  // The heads of the matrix stay below the filters.
  const below = () => document.documentElement.style.setProperty("--filters", `${form.offsetHeight}px`);
  new ResizeObserver(below).observe(form);
  recall();
  filter();
  goTo();
}
