/** Canvases in device pixels and the page's colours for them. */

export interface Surface {
  readonly canvas: HTMLCanvasElement;
  readonly context: CanvasRenderingContext2D;
  /** Size in CSS pixels, updated by an observer so that drawing never forces a layout. */
  width: number;
  height: number;
  /** For labels: the page's own typeface. */
  readonly font: string;
}

export function surface(canvas: HTMLCanvasElement, redraw: () => void): Surface {
  const context = canvas.getContext("2d");
  if (context === null) throw new Error("no 2D canvas");
  const made: Surface = {
    canvas,
    context,
    width: 0,
    height: 0,
    font: `11px ${getComputedStyle(document.body).fontFamily}`,
  };
  new ResizeObserver(([entry]) => {
    if (entry === undefined) return;
    const scale = Math.min(devicePixelRatio, 2);
    made.width = entry.contentRect.width;
    made.height = entry.contentRect.height;
    canvas.width = Math.round(made.width * scale);
    canvas.height = Math.round(made.height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    redraw();
  }).observe(canvas);
  onPaletteChange(redraw);
  return made;
}

const NAMES = ["ink", "muted", "line", "up", "down", "tide", "signal", "flare"] as const;
export type Palette = Record<(typeof NAMES)[number], string>;

let current: Palette | null = null;
const listeners: (() => void)[] = [];

/** The colours of app.css, read again when the colour scheme changes. */
export function palette(): Palette {
  if (current === null) {
    const style = getComputedStyle(document.documentElement);
    const entries = NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]);
    current = Object.fromEntries(entries) as Palette;
  }
  return current;
}

function onPaletteChange(listener: () => void): void {
  listeners.push(listener);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  current = null;
  for (const listener of listeners) listener();
});
