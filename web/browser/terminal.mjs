// Pictures of a program's output in a terminal.
import { execFileSync } from "node:child_process";

const columns = 104;
const letter = { width: 8.43, height: 19 }; // px of a letter of 14 px

const looks = {
  1: 'font-weight="700" fill="#fff"',
  2: 'fill="#8b95a5"',
  31: 'fill="#ff7b72"',
  32: 'fill="#7ee787"',
  33: 'fill="#f0a35e"',
};

const control = String.fromCharCode(27);
const part = new RegExp(`${control}\\[(\\d*)m|([^${control}]+)`, "g"); // a code of a look, or text

const escape = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

// terminalPicture runs a program as on a terminal of a fixed width, and returns its output below the command line as an
// SVG document. It ends before the first line that says how many more there are.
export function terminalPicture({ program, args, cwd, label, command }) {
  const run = [program, ...args].map((word) => `'${word}'`).join(" ");
  const output = execFileSync("script", ["-qec", `stty cols ${columns}; ${run}`, "/dev/null"], {
    cwd,
    encoding: "utf8",
    env: { ...process.env, TERM: "xterm-256color", NO_COLOR: "" },
  });
  const [shown] = output.replaceAll("\r", "").split(/^\S*… and /m);
  const lines = shown.trimEnd().split("\n");
  const width = Math.round(columns * letter.width + 40);
  const height = (lines.length + 1) * letter.height + 56;
  const parts = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${escape(label)}">`,
    `<rect width="${width}" height="${height}" rx="10" fill="#161b22"/>`,
    `<circle cx="22" cy="20" r="6" fill="#ff5f57"/><circle cx="42" cy="20" r="6" fill="#febc2e"/><circle cx="62" cy="20" r="6" fill="#28c840"/>`,
    `<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="14" fill="#d5dbe5" xml:space="preserve">`,
    `<text x="20" y="52" fill="#7ee787">$ ${escape(command)}</text>`,
  ];
  let look = "";
  lines.forEach((line, row) => {
    let column = 0;
    for (const [, code, text] of line.matchAll(part)) {
      if (text === undefined) {
        look = looks[code] ?? "";
        continue;
      }
      // A part for each word keeps columns where they are in other fonts.
      for (const { 0: word, index } of text.matchAll(/\S+(?: \S+)*/g)) {
        const x = (20 + (column + index) * letter.width).toFixed(1);
        const y = 52 + (row + 1) * letter.height;
        const length = (word.length * letter.width).toFixed(1);
        parts.push(
          `<text x="${x}" y="${y}" textLength="${length}" lengthAdjust="spacingAndGlyphs" ${look}>${escape(word)}</text>`,
        );
      }
      column += text.length;
    }
  });
  return `${parts.join("\n")}\n</g>\n</svg>\n`;
}
