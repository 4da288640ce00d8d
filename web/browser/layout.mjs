// Layout checks of a page, run inside the browser.

// layoutIssues returns what is broken in the layout of a page, as text: it is wider than the window, texts overlap, a
// text leaves its box, a word of a heading is broken, or a column is too narrow for its words.
export const layoutIssues = (page) => page.evaluate(find);

function find() {
  const issues = [];
  const width = document.documentElement.clientWidth;
  const name = (e) =>
    `${e.tagName.toLowerCase()}${e.classList.length > 0 ? `.${[...e.classList].join(".")}` : ""} “${e.textContent.trim().slice(0, 30)}”`;

  const over = document.documentElement.scrollWidth - width;
  if (over > 0) {
    const widest = [...document.querySelectorAll("body *")].filter(
      (e) => !e.closest(".scroll, .virtual, .map, nav, .hidden") && e.getBoundingClientRect().right > width + 0.5,
    );
    issues.push(`${over} px too wide: ${widest.slice(0, 3).map(name).join(", ")}`);
  }

  // visibleBox returns the part of a rectangle that the ancestors of an element do not clip; null: none.
  const visibleBox = (e, { left, right, top, bottom }) => {
    if (!e.checkVisibility({ visibilityProperty: true, opacityProperty: true })) return null; // as in a closed <details>
    for (let at = e; at && at !== document.body; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (style.overflowX === "visible" && style.overflowY === "visible" && style.clipPath === "none") continue;
      const clip = at.getBoundingClientRect();
      left = Math.max(left, clip.left);
      right = Math.min(right, clip.right);
      top = Math.max(top, clip.top);
      bottom = Math.min(bottom, clip.bottom);
    }
    return right - left > 1 && bottom - top > 1 ? { left, right, top, bottom } : null;
  };

  // Lines of text, each with the element that it belongs to. A line of an inline element is a part of its block.
  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const owner = node.parentElement;
    if (node.data.trim() === "" || owner.closest(".hidden, .skip, script, style, desc, title, option, .u-legend"))
      continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      // Line boxes are higher than letters.
      const inset = Math.min(3, r.height / 5);
      const box = visibleBox(owner, { left: r.left, right: r.right, top: r.top + inset, bottom: r.bottom - inset });
      if (box) texts.push({ ...box, owner, node });
    }
  }

  texts.sort((a, b) => a.top - b.top);
  const slack = 1.5;
  for (let i = 0; i < texts.length; i++) {
    const a = texts[i];
    for (let k = i + 1; k < texts.length && texts[k].top < a.bottom - slack; k++) {
      const b = texts[k];
      if (a.node === b.node) continue;
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > slack && down > slack) issues.push(`overlap: ${name(a.owner)} and ${name(b.owner)}`);
    }
  }

  for (const { left, right, owner } of texts) {
    const box = owner.closest("td, th, button, .badge, .tag, .figure, .incident, .notice, dialog, .dialog");
    if (!box) continue;
    const { left: from, right: to } = box.getBoundingClientRect();
    if (left < from - slack || right > to + slack) issues.push(`outside of its box: ${name(owner)} in ${name(box)}`);
  }

  // Names may break anywhere, but no short word of a heading.
  for (const { owner, node } of texts) {
    const word = node.data.trim();
    if (!owner.closest("th, button, .badge, .tag") || word.length > 12 || /\s/.test(word)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const lines = new Set([...range.getClientRects()].filter((r) => r.width > 0).map((r) => Math.round(r.top)));
    if (lines.size > 1) issues.push(`broken into ${lines.size} lines: ${name(owner)}`);
  }

  const leastColumn = 44; // px
  const mostLines = 8;
  for (const e of document.querySelectorAll("td, th, h1, h2, h3, p, dd, li")) {
    const r = e.getBoundingClientRect();
    if (r.width > 0 && r.width < leastColumn && r.height > mostLines * 18)
      issues.push(`${Math.round(r.width)} px wide and ${Math.round(r.height)} px high: ${name(e)}`);
  }
  return [...new Set(issues)];
}
