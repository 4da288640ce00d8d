// What the browser keeps for the page. Browsers may be set to keep nothing, and throw then: the page remembers it as long as it is open.

type Kind = "localStorage" | "sessionStorage";

const memory = new Map<string, string>();

// kept returns what is kept under a key; null: nothing.
export function load(kind: Kind, key: string): string | null {
  try {
    return globalThis[kind].getItem(key);
  } catch {
    return memory.get(kind + key) ?? null;
  }
}

// keep keeps a value under a key, or forgets it, for null.
export function store(kind: Kind, key: string, value: string | null) {
  try {
    if (value === null) globalThis[kind].removeItem(key);
    else globalThis[kind].setItem(key, value);
  } catch {
    if (value === null) memory.delete(kind + key);
    else memory.set(kind + key, value);
  }
}
