// The page works without this script. It filters while the user types, and refreshes the
// page every ten seconds without changing the scroll position.
(() => {
  "use strict";
  const box = document.getElementById("q");
  const filter = () => {
    if (!box) return;
    const want = box.value.trim().toLowerCase();
    let shown = 0;
    const rows = document.querySelectorAll("#rows tr[data-find]");
    for (const row of rows) {
      row.hidden = want !== "" && !row.dataset.find.includes(want);
      if (!row.hidden) shown++;
    }
    document.getElementById("shown").textContent = shown;
  };
  if (box) box.addEventListener("input", filter);
  const refresh = async () => {
    if (document.hidden) return;
    const note = document.getElementById("fresh");
    try {
      // Request all rows, because the filter box is applied in the browser.
      const at = new URL(location.href);
      if (box && box.value !== box.defaultValue) at.searchParams.delete("q");
      const answer = await fetch(at, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const fresh = next.getElementById(part.id);
        if (fresh && !fresh.isEqualNode(part)) part.replaceChildren(...fresh.childNodes);
      }
      filter();
    } catch {
      note.textContent = "The bridge does not answer. The page shows its last answer.";
    }
  };
  setInterval(refresh, 10000);
  document.addEventListener("visibilitychange", refresh);
})();
