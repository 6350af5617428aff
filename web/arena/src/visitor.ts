/** The visitor's name, which stays the same while the tab is open. */

const NAMES = [
  "Avocet", "Bittern", "Brambling", "Chough", "Curlew", "Dotterel", "Dipper", "Eider", "Fulmar", "Gadwall", "Godwit", "Goosander",
  "Knot", "Lapwing", "Linnet", "Merlin", "Oriole", "Pipit", "Plover", "Redshank", "Ruff", "Sanderling", "Shoveler", "Siskin",
  "Smew", "Snipe", "Stint", "Teal", "Tern", "Turnstone", "Whimbrel", "Wigeon",
] as const;
const COLOURS = 12;

const below = (bound: number): number => Math.floor(Math.random() * bound);

/** Stored for the tab; without storage, each page load has a new one. */
function remembered(key: string, make: () => string): string {
  try {
    const known = sessionStorage.getItem(key) ?? make();
    sessionStorage.setItem(key, known);
    return known;
  } catch {
    return make();
  }
}

export const someName = (): string => remembered("arena-name", () => `${NAMES[below(NAMES.length)] ?? "Dunlin"} ${1 + below(99)}`);
export const someColour = (): number => Number(remembered("arena-colour", () => String(below(COLOURS)))) || 0;
