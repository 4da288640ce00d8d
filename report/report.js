"use strict";
// A link to a folded request type unfolds it.
function unfold() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") target.open = true;
}
addEventListener("hashchange", unfold);
unfold();

for (const icicle of document.querySelectorAll(".icicle")) {
  const boxes = [...icicle.querySelectorAll("button")].map(el => ({
    el, row: +el.dataset.row, x: +el.dataset.x, w: +el.dataset.w, end: +el.dataset.x + +el.dataset.w,
  }));
  const detail = icicle.nextElementSibling, idle = detail.textContent;
  const inside = (a, b) => a.x >= b.x - 1e-6 && a.end <= b.end + 1e-6;
  const say = el => {
    const d = el.dataset;
    detail.textContent = `${d.path}: ${d.total} a request (${d.part} of the path), ${d.own} of it its own time, which carries ${d.share} of the variance.`;
  };
  const zoom = to => {
    for (const b of boxes) {
      const above = b.row < to.row && inside(to, b), below = b.row >= to.row && inside(b, to);
      b.el.hidden = !above && !below;
      b.el.style.setProperty("--x", above ? 0 : (b.x - to.x) / to.w * 100);
      b.el.style.setProperty("--w", above ? 100 : b.w / to.w * 100);
    }
  };
  const focus = b => {
    if (!b) return;
    for (const other of boxes) other.el.tabIndex = other === b ? 0 : -1;
    b.el.focus();
  };
  const near = {
    ArrowUp: b => boxes.find(o => o.row === b.row - 1 && inside(b, o)),
    ArrowDown: b => boxes.find(o => o.row === b.row + 1 && inside(o, b)),
    ArrowRight: b => boxes.find(o => o.row === b.row && o.x >= b.end - 1e-6),
    ArrowLeft: b => boxes.findLast(o => o.row === b.row && o.end <= b.x + 1e-6),
  };
  for (const b of boxes) {
    b.el.addEventListener("click", () => zoom(b));
    b.el.addEventListener("mouseenter", () => say(b.el));
    b.el.addEventListener("focus", () => say(b.el));
    b.el.addEventListener("keydown", e => {
      if (near[e.key]) { focus(near[e.key](b)); e.preventDefault(); }
      if (e.key === "Escape") zoom(boxes[0]);
    });
  }
  icicle.addEventListener("mouseleave", () => { detail.textContent = idle; });
}
